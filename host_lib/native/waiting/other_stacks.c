/* Sockets of other stacks in a polling context. other_stacks.h has the theory of operation. */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/channel.h"
#include "core/error.h"
#include "core/process.h"
#include "core/socket.h"
#include "core/stack.h"
#include "own_descriptors.h"
#include "own_memory.h"
#include "processes/take_over.h"
#include "waiting/epoll.h"
#include "waiting/other_stacks.h"
#include "waiting/wait.h"
#include "xts.h"
#include "xts_private.h"

#define EVENTS 64
/* the events that a mirror can show */
#define MIRRORED (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET | EPOLLONESHOT)

/* A registration. */
struct member {
	struct member *next;
	void *inner; /* for a context: it and its stack; for a socket: NULL, and */
	struct stack *stack;
	int number;
	uint32_t key;
	struct epoll_event event; /* as the program asked */
	int fd;                   /* a duplicate of the socket's descriptor, in the set until the registration ends */
};

/* Protected by the lock of the context's stack. */
struct foreign {
	int set; /* the kernel's epoll set of all members' descriptors */
	struct member *members;
};

bool foreign_is(const struct epoll_ctx *ctx, int number)
{
	const struct stack *st = table_stack(number);

	return st && st != ctx->stack;
}

int foreign_set(const struct epoll_ctx *ctx)
{
	const struct foreign *f = atomic_load_explicit(&ctx->foreign, memory_order_acquire);

	return f ? f->set : -1;
}

static struct foreign *make(struct epoll_ctx *ctx)
{
	struct foreign *f = calloc(1, sizeof *f);
	struct epoll_event event = { .events = EPOLLIN };

	if (!f)
		return NULL;
	f->set = xts_own(epoll_create1(EPOLL_CLOEXEC));
	if (f->set < 0) {
		free(f);
		return NULL;
	}
	if (ctx->set >= 0 && epoll_ctl(ctx->set, EPOLL_CTL_ADD, f->set, &event) < 0) {
		xts_own_close(f->set);
		free(f);
		return NULL;
	}
	atomic_store_explicit(&ctx->foreign, f, memory_order_release);
	return f;
}

static struct member *find(const struct epoll_ctx *ctx, int number, const void *inner, uint32_t key)
{
	const struct foreign *f = atomic_load_explicit(&ctx->foreign, memory_order_relaxed);
	struct member *m = f ? f->members : NULL;

	while (m && (m->number != number || m->inner != inner || m->key != key))
		m = m->next;
	return m;
}

static void drop(struct foreign *f, struct member *m)
{
	struct member **at = &f->members;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	epoll_ctl(f->set, EPOLL_CTL_DEL, m->fd, NULL);
	xts_own_close(m->fd);
	free(m);
}

/* Adds a registration with a duplicate of fd. 0 or -errno. */
static int add(struct epoll_ctx *ctx, int fd, const struct member *as)
{
	struct foreign *f = atomic_load_explicit(&ctx->foreign, memory_order_relaxed);
	struct epoll_event event = { .events = as->event.events & (uint32_t)MIRRORED };
	struct member *m;

	if (find(ctx, as->number, as->inner, as->key))
		return -EEXIST;
	if (!f)
		f = make(ctx);
	m = f ? malloc(sizeof *m) : NULL;
	if (!m)
		return -ENOMEM;
	*m = *as;
	/* fd is the library's own: under the interposer fcntl() does not know it */
	m->fd = xts_own((int)kernel_calls.syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0));
	event.data.ptr = m;
	if (m->fd < 0 || epoll_ctl(f->set, EPOLL_CTL_ADD, m->fd, &event) < 0) {
		int r = -errno;

		if (m->fd >= 0)
			xts_own_close(m->fd);
		free(m);
		return r;
	}
	m->next = f->members;
	f->members = m;
	return 0;
}

static int modify(struct epoll_ctx *ctx, struct member *m, const struct epoll_event *asked)
{
	struct epoll_event event = { .events = asked->events & (uint32_t)MIRRORED, .data.ptr = m };

	m->event = *asked;
	return epoll_ctl(foreign_set(ctx), EPOLL_CTL_MOD, m->fd, &event) < 0 ? -errno : 0;
}

int foreign_ctl(struct epoll_ctx *ctx, int op, int number, void *inner, uint32_t key, const struct epoll_event *event)
{
	struct member as = { .number = number,
			     .inner = inner,
			     .stack = inner ? ((struct epoll_ctx *)inner)->stack : NULL,
			     .key = key },
		      *m;
	struct stack *st;
	int fd = -1, r;

	if (op == EPOLL_CTL_ADD)
		fd = inner ? xts_epoll_fd(inner) : xts_fileno(number);
	if (op == EPOLL_CTL_ADD && fd < 0)
		return -errno;
	if (op != EPOLL_CTL_DEL)
		as.event = *event;
	st = stack_enter(ctx->stack);
	m = find(ctx, number, inner, key);
	if (op == EPOLL_CTL_ADD)
		r = add(ctx, fd, &as);
	else if (!m)
		r = -ENOENT;
	else if (op == EPOLL_CTL_MOD)
		r = modify(ctx, m, event);
	else
		r = op == EPOLL_CTL_DEL ? 0 : -EINVAL;
	if (!r && op == EPOLL_CTL_DEL)
		drop(atomic_load_explicit(&ctx->foreign, memory_order_relaxed), m);
	stack_leave(st);
	return r;
}

int foreign_registered(struct epoll_ctx *ctx, int number, uint32_t key, struct epoll_event *event)
{
	struct stack *st = stack_enter(ctx->stack);
	const struct member *m = find(ctx, number, NULL, key);

	if (m)
		*event = m->event;
	stack_leave(st);
	return m ? 0 : -ENOENT;
}

short foreign_poll(int number, short events)
{
	struct stack *st = stack_enter_of(number);
	struct xts_sock *s = table_use_for(st, number, PURPOSE_POLL);
	uint32_t now = 0;

	channel_pump(st);
	(void)channel_catch_up(st);
	s = s ? table_open(st, number) : NULL;
	if (s)
		now = socket_events(s) & ((uint32_t)(unsigned short)events | POLLERR | POLLHUP);
	stack_leave(st);
	return s ? (short)now : POLLNVAL;
}

/* The events of a context, if it still exists. */
static uint32_t inner_events(const struct member *m, bool *gone)
{
	struct stack *st = stack_enter(m->stack);
	struct epoll_ctx *ctx = st->contexts;
	bool ready;

	while (ctx && ctx != m->inner)
		ctx = ctx->next;
	channel_pump(st);
	(void)channel_catch_up(st);
	ready = ctx && epoll_has_event(ctx);
	stack_leave(st);
	*gone = !ctx;
	return ready ? EPOLLIN | EPOLLRDNORM : 0;
}

/* The member's present events; *gone: it is not a socket any more. */
static uint32_t events_of(const struct member *m, bool *gone)
{
	uint32_t asked = m->event.events & ~(uint32_t)EPOLL_WAYS;
	short now;

	if (m->inner)
		return inner_events(m, gone) & asked;
	now = foreign_poll(m->number, (short)asked);
	*gone = now & POLLNVAL;
	return *gone ? 0 : (uint32_t)(unsigned short)now;
}

/* Called after looking at a member that the kernel reported as ready. Its registration may have ended meanwhile. */
static void looked(struct epoll_ctx *ctx, const struct member *copy, const struct member *was, uint32_t now, bool gone)
{
	struct stack *st = stack_enter(ctx->stack);
	struct member *m = find(ctx, copy->number, copy->inner, copy->key);

	if (m == was && gone)
		drop(atomic_load_explicit(&ctx->foreign, memory_order_relaxed), m);
	else if (m == was && !now && copy->event.events & EPOLLONESHOT)
		modify(ctx, m, &m->event); /* the kernel disabled it after an event that was none: arm it again */
	stack_leave(st);
}

/* Copies the members that the kernel reports as ready. The set's members cannot change while the lock is held. */
static int take(struct epoll_ctx *ctx, struct member copies[EVENTS], struct member *was[EVENTS], int max)
{
	struct epoll_event ready[EVENTS];
	struct stack *st = stack_enter(ctx->stack);
	int n = kernel_calls.epoll_wait(foreign_set(ctx), ready, max < EVENTS ? max : EVENTS, 0);

	for (int i = 0; i < n; i++) {
		was[i] = ready[i].data.ptr;
		copies[i] = *was[i];
	}
	stack_leave(st);
	return n;
}

int foreign_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max)
{
	struct member copies[EVENTS], *was[EVENTS];
	int count = 0, n;

	if (foreign_set(ctx) < 0)
		return 0;
	n = take(ctx, copies, was, max);
	for (int i = 0; i < n; i++) {
		bool gone = false;
		uint32_t now = events_of(&copies[i], &gone);

		looked(ctx, &copies[i], was[i], now, gone);
		if (now)
			events[count++] = (struct epoll_event){ .events = now, .data = copies[i].event.data };
	}
	return count;
}

bool foreign_may_be_ready(const struct epoll_ctx *ctx)
{
	struct pollfd fd = { .fd = foreign_set(ctx), .events = POLLIN };
	struct timespec none = { 0 };

	return fd.fd >= 0 && kernel_calls.ppoll(&fd, 1, &none, NULL) > 0;
}

void foreign_free(struct epoll_ctx *ctx)
{
	struct foreign *f = atomic_load_explicit(&ctx->foreign, memory_order_relaxed);

	if (!f)
		return;
	atomic_store_explicit(&ctx->foreign, NULL, memory_order_relaxed);
	while (f->members) {
		struct member *m = f->members;

		f->members = m->next;
		xts_own_close(m->fd);
		xts_release(m);
	}
	xts_own_close(f->set);
	xts_release(f);
}
