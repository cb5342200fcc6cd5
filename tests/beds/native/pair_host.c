/*
 * libxts as one end of a pair (tests/beds/pair.py): its queue is memory, its clock the test's, and where it would sleep
 * the test goes on instead. It takes the place of attach.c, as no_progress_thread.c does of progress_thread.c: there is
 * one thread, and every run is the same.
 */
#include <sys/socket.h>

#include "core/channel.h"
#include "core/process.h"
#include "core/stack.h"
#include "memory_queue.h"
#include "xts_private.h"

/* What the test gives: where the library sleeps, until a time (UINT64_MAX: for ever); when it attaches and detaches. */
struct pair_calls {
	void (*idle)(uint64_t until_ns);
	void (*attached)(void);
	void (*detached)(void);
};

static struct pair_calls calls;
static struct memory_queue *queue; /* of the live attachment, or NULL */
static uint64_t clock_now_ns, epoch;
static int proxys_end; /* of the attach connection, on which nothing is said */

/* The linker puts it in the place of clock_gettime(). */
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	(void)clock;
	t->tv_sec = (time_t)(clock_now_ns / NS_PER_S);
	t->tv_nsec = (long)(clock_now_ns % NS_PER_S);
	return 0;
}

/* In the place of ppoll(): goes on until a descriptor is ready, a frame has come, or it is time. */
static int pair_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	const struct timespec now = { 0 };
	uint64_t until_ns = timeout ? clock_now_ns + (uint64_t)timeout->tv_sec * NS_PER_S + (uint64_t)timeout->tv_nsec :
				      FOREVER;
	int ready;

	for (;;) {
		ready = ppoll(fds, count, &now, mask);
		if (ready || (queue && queue->in.count))
			return ready ? ready : 1; /* looking at the queue is what it does anyway */
		if (clock_now_ns >= until_ns)
			return 0;
		calls.idle(until_ns);
	}
}

/* The linker puts it in the place of poll(), with which attaching waits. */
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	const struct timespec limit = { .tv_sec = timeout_ms / 1000, .tv_nsec = timeout_ms % 1000 * 1000000L };

	return pair_ppoll(fds, count, timeout_ms < 0 ? NULL : &limit, NULL);
}

void pair_host_start(const struct pair_calls *given, uint64_t now_ns)
{
	const struct xts_kernel_calls kernel = { .ppoll = pair_ppoll };

	calls = *given;
	clock_now_ns = now_ns;
	xts_use_kernel_calls(&kernel);
}

void pair_host_time(uint64_t now_ns)
{
	clock_now_ns = now_ns;
}

/* What the progress thread would do now. When it would do the next thing; UINT64_MAX: never. */
uint64_t pair_host_tick(void)
{
	struct stack *st = stack_enter(process_stacks());
	uint64_t next_ns = FOREVER;

	channel_pump(st);
	if (st->channel)
		channel_tick(st, clock_now_ns);
	if (st->channel)
		next_ns = channel_deadline_ns(st->channel);
	stack_leave(st);
	return next_ns;
}

/* The next frame for the other end; its length, 0: there is none. */
uint32_t pair_host_take(uint8_t *frame)
{
	struct memory_frame f;

	if (!queue || !pipe_get(&queue->out, &f))
		return 0;
	memcpy(frame, f.data, f.bytes);
	free(f.data);
	return f.bytes;
}

void pair_host_put(const uint8_t *frame, uint32_t bytes)
{
	if (queue)
		pipe_put(&queue->in, frame, bytes);
}

/* As if the process had ended. */
void pair_host_end(void)
{
	struct stack *st = stack_enter(process_stacks());

	if (st->channel)
		channel_die(st, ENETDOWN);
	stack_leave(st);
}

uint32_t pair_host_sockets(void)
{
	return process_stacks()->sockets;
}

/* --- in place of attach.c ----------------------------------------------------------------------------------------- */

int xts_attach(struct xts_attachment *out, const char *endpoint, const struct xts_attach_request *request, int timeout_ms)
{
	int connection[2];

	(void)endpoint, (void)request, (void)timeout_ms;
	memset(out, 0, sizeof *out);
	ENSURE(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, connection));
	queue = memory_open(true);
	out->queue = &queue->queue;
	out->connection = connection[0];
	proxys_end = connection[1];
	out->status = calloc(1, sizeof *out->status + XTS_STATUS_ENTRIES * sizeof out->status->entry[0]);
	ENSURE(out->status);
	out->reply.kind = XTS_QUEUE_SHM;
	out->reply.epoch = ++epoch;
	calls.attached();
	return 0;
}

void xts_detach(struct xts_attachment *attachment)
{
	if ((struct memory_queue *)attachment->queue == queue) {
		queue = NULL;
		calls.detached();
	}
	xts_queue_close(attachment->queue);
	free(attachment->status);
	close(attachment->connection);
	close(proxys_end);
	memset(attachment, 0, sizeof *attachment);
}
