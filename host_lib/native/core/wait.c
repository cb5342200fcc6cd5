/*
 * Waiting and waking. A waiter names a counter in the object that must change; wake() marks every waiter of that
 * counter and rings the bells of those that sleep. The leader, one of the waiting threads, sleeps on the queue and
 * handles frames for all; when it stops waiting, it hands over to another. Before it sleeps, a thread may spin, or the
 * leader polls instead of sleeping (spin.h). Between two wake-ups by the queue there may have to be some time
 * (XTS_WAKEUP_GAP_US): until it is over, whoever sleeps on the queue leaves the queue out.
 *
 * A wait may watch kernel descriptors in addition to its subject (struct watched_fds). Leader or not, the thread sleeps
 * in one ppoll() on its own descriptors and on these. A ready one ends this thread's wait, and no other.
 *
 * Waits without a deadline. Each ends when its condition is met, or when the channel ends, which wakes everybody: pings
 * detect a proxy that does not answer (channel.h). A wait on a counter of a socket also ends when the socket is closed
 * or fails, and when its entry in the table is reused for another socket (table_release() wakes the waiters; it never
 * resets a counter, since a thread that was woken may not have run yet).
 *
 *     subject             who waits                                      what ends it
 *     s->readers          recv, accept                                   data, a connection, FIN, a signal
 *     s->writers          send, connect, the handshake of a push         credits, frames, the outcome, READY, a signal
 *     s->callers          first_request_wait(), open_once():             the reply to it
 *                         another's first request
 *                         call_begin(), slot_for_connect():              its end (call_proxy)
 *                         another's call
 *                         call_once()                                    the reply, or another process of the proxy
 *                         socket_disconnect()                            CLOSED (socket_disconnected)
 *                         again_undo()                                   CLOSED (socket_disconnected)
 *                         again_now(): another thread makes it again     its end: replies of the proxy
 *                         end() of a push: what goes back to the proxy   its last frame has left (push_give_back)
 *                         turn_take(): another thread takes it           its end, in 2 s (ANSWER_NS), or AT_ONCE
 *                         inherit_take(): another thread takes it over   its end: replies of the proxy
 *     st->frame_waiters   channel_wait_slot(), call_begin()              FRAME_ACK
 *     st->attach_waiters  channel_attach(): another attaches; leave(),   that has ended, in 5 s at most
 *                         which ends the use of XTS in a process
 *     st->catch_up_waiters  channel_catch_up()                            CAUGHT_UP, 50 ms of silence
 *     st->poll_waiters    poll, select                                   an event, a signal
 *     ctx->waiters        epoll_wait                                     an event, a signal
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "core/channel.h"
#include "core/clock.h"
#include "core/settings.h"
#include "core/socket.h"
#include "core/socket_states.h"
#include "core/spin.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/link.h"
#include "common/probe.h"
#include "processes/inherit.h"
#include "processes/take_over.h"
#include "queues/queue.h"
#include "waiting/mirror.h"
#include "waiting/progress_thread.h"
#include "core/signals.h"
#include "core/wait.h"
#include "xts_private.h"

#define RETRY_NS NS_PER_MS

struct xts_kernel_calls kernel_calls = {
	.ppoll = xts_sleep_poll,
	.epoll_wait = epoll_wait,
	.syscall = syscall,
	.sigaction = sigaction,
	.getsockopt = getsockopt,
	.pthread_cancel = pthread_cancel,
};

void xts_use_kernel_calls(const struct xts_kernel_calls *calls)
{
	if (calls->ppoll)
		kernel_calls.ppoll = calls->ppoll;
	if (calls->epoll_wait)
		kernel_calls.epoll_wait = calls->epoll_wait;
	if (calls->syscall)
		kernel_calls.syscall = calls->syscall;
	if (calls->sigaction)
		kernel_calls.sigaction = calls->sigaction;
	if (calls->getsockopt)
		kernel_calls.getsockopt = calls->getsockopt;
	if (calls->pthread_cancel)
		kernel_calls.pthread_cancel = calls->pthread_cancel;
}

static void wake_one(struct waiter *w)
{
	if (w->thread->sleeping)
		thread_ring(w->stack, w->thread);
	w->thread->sleeping = false;
}

void wake(struct stack *st, uint16_t *subject)
{
	if (!*subject)
		return;
	for (struct waiter *w = st->waiters; w; w = w->next) {
		if (w->subject != subject || w->woken)
			continue;
		w->woken = true;
		wake_one(w);
	}
}

void wake_all(struct stack *st)
{
	for (struct waiter *w = st->waiters; w; w = w->next) {
		w->woken = true;
		wake_one(w);
	}
}

void wake_sleepers_on_queue(struct stack *st)
{
	if (st->leader)
		wake_one(st->leader);
	progress_wake(st);
}

int poll_until(struct pollfd own[SLEEP_FDS], struct watched_fds *watched, uint64_t deadline_ns)
{
	struct pollfd *fds = watched ? watched->fds : own;
	nfds_t count = SLEEP_FDS + (watched ? watched->count : 0);
	struct timespec limit, *timeout = NULL;
	uint64_t now;
	int r, others;

	if (deadline_ns != FOREVER) {
		now = now_ns();
		if (now >= deadline_ns)
			deadline_ns = now;
		limit.tv_sec = (time_t)((deadline_ns - now) / NS_PER_S);
		limit.tv_nsec = (long)((deadline_ns - now) % NS_PER_S);
		timeout = &limit;
	}
	if (watched)
		memcpy(fds, own, SLEEP_FDS * sizeof *own);
	r = kernel_calls.ppoll(fds, count, timeout, watched ? watched->mask : NULL);
	if (r < 0) {
		own[0].revents = POLLIN; /* its state is unknown; looking does no harm */
		return errno == EINTR ? -EINTR : 0;
	}
	others = r;
	for (int i = 0; i < SLEEP_FDS; i++) {
		own[i].revents = fds[i].revents;
		others -= own[i].revents != 0;
	}
	if (watched) {
		watched->looked = true;
		watched->ready = others > 0;
	}
	if (!r)
		return -ETIMEDOUT;
	return watched && watched->ready;
}

/* Sleeps without the lock. */
static int sleep_on(struct stack *st, struct thread *thread, struct pollfd own[SLEEP_FDS], struct watched_fds *watched,
		    uint64_t deadline_ns)
{
	int r;

	thread->sleeping = true;
	pthread_mutex_unlock(&st->lock);
	xts_inside.locked = 0;
	XTS_PROBE0(host_sleep);
	r = poll_until(own, watched, deadline_ns);
	XTS_PROBE0(host_wake);
	if (thread->shares_bell)
		sched_yield(); /* it may have been rung for another thread, which has to run first */
	xts_inside.locked = 1;
	stack_lock(st);
	thread->sleeping = false;
	bell_heard(st, thread, own[0].revents & POLLIN);
	return r;
}

/* Sleeps until there is something to do, then handles the frames that have come. queue_fd -1: not for these. */
static int sleep_and_handle(struct channel *c, struct thread *thread, struct watched_fds *watched, uint64_t deadline_ns,
			    int queue_fd)
{
	struct stack *st = c->stack;
	struct pollfd own[SLEEP_FDS] = {
		{ .fd = thread->bell, .events = POLLIN },
		{ .fd = queue_fd, .events = POLLIN },
		{ .fd = c->attachment.connection, .events = POLLIN },
	};
	uint64_t limit = channel_deadline_ns(c), frames = c->link.stats.received_frames;
	int r;

	if (c->retry && now_ns() + RETRY_NS < limit)
		limit = now_ns() + RETRY_NS;
	c->armed = false; /* armed for this thread: another thread that handles frames meanwhile must not disarm it */
	st->sleeps++;
	c->sleepers++;
	r = sleep_on(st, thread, own, watched, deadline_ns < limit ? deadline_ns : limit);
	c->sleepers--;
	if (c->dead || c != st->channel)
		return r == -ETIMEDOUT ? 0 : r;
	c->armed = false;
	if (queue_fd >= 0)
		xts_queue_disarm(c->queue);
	if (own[2].revents)
		channel_connection_event(c);
	channel_pump(st);
	if (st->settings.wakeup_gap_us && st->channel == c && c->link.stats.received_frames != frames)
		st->woken_ns = now_ns();
	channel_tick(st, now_ns());
	if (r == -ETIMEDOUT && deadline_ns > limit)
		r = 0;
	return r;
}

int sleep_on_channel(struct channel *c, struct thread *thread, struct watched_fds *watched, uint64_t deadline_ns)
{
	return sleep_and_handle(c, thread, watched, deadline_ns, c->queue->wait_fd);
}

bool wait_for_gap(struct channel *c, struct thread *thread, struct watched_fds *watched, uint64_t deadline_ns, int *r)
{
	struct stack *st = c->stack;
	uint64_t ends_ns = st->woken_ns + st->settings.wakeup_gap_us * NS_PER_US;
	bool ends_first = ends_ns < deadline_ns;

	if (!st->settings.wakeup_gap_us || now_ns() >= ends_ns)
		return false;
	if (c->armed) { /* for a program that sleeps on a descriptor: a doorbell would be heard by nobody who may wake */
		c->armed = false;
		xts_queue_disarm(c->queue);
	}
	*r = sleep_and_handle(c, thread, watched, ends_first ? ends_ns : deadline_ns, -1);
	if (*r == -ETIMEDOUT && ends_first)
		*r = 0;
	return true;
}

/* One turn as the leader. */
static int lead(struct waiter *w, struct watched_fds *watched, uint64_t deadline_ns)
{
	struct stack *st = w->stack;
	struct channel *c = st->channel;
	int r = 0;

	st->leader = w;
	xts_link_watch(&c->link, true, now_ns());
	channel_flush(st, true);
	if (st->dirty)
		mirrors_update(st);
	if (w->woken || st->channel != c)
		return 0;
	if (spin_always(st))
		return spin_as_leader(w, watched, deadline_ns);
	if (st->settings.wakeup_gap_us) {
		channel_pump(st);
		if (w->woken || st->channel != c || wait_for_gap(c, w->thread, watched, deadline_ns, &r))
			return r;
	}
	if (xts_queue_arm(c->queue)) {
		channel_pump(st);
		return 0;
	}
	status_link(st);
	return sleep_on_channel(c, w->thread, watched, deadline_ns);
}

/* Sleeps until its bell rings, while another thread leads or there is no channel. */
int sleep_on_bell(struct stack *st, struct thread *thread, struct watched_fds *watched, uint64_t deadline_ns)
{
	struct pollfd own[SLEEP_FDS] = { { .fd = thread->bell, .events = POLLIN }, { .fd = -1 }, { .fd = -1 } };

	return sleep_on(st, thread, own, watched, deadline_ns);
}

/* The leader stops waiting: another thread has to watch the queue. */
static void hand_over(struct stack *st)
{
	st->leader = NULL;
	if (st->waiters) {
		wake_one(st->waiters);
		return;
	}
	if (!st->channel)
		return;
	if (!st->outside)
		xts_link_watch(&st->channel->link, false, 0);
	if (st->outside || channel_busy(st->channel))
		progress_need(st);
}

/* One turn, as the leader or next to one. */
static int one_sleep(struct waiter *w, struct watched_fds *watched, uint64_t deadline_ns)
{
	struct stack *st = w->stack;

	if (st->channel && (!st->leader || st->leader == w))
		return lead(w, watched, deadline_ns);
	/* The leader is asleep, so this thread has to send its own frames before it sleeps too. */
	channel_flush(st, true);
	if (st->dirty)
		mirrors_update(st);
	if (w->woken || (st->channel && !st->leader))
		return 0;
	return sleep_on_bell(st, w->thread, watched, deadline_ns);
}

static int wait_until(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool may_spin,
		      struct watched_fds *watched, bool interruptible)
{
	struct waiter w = { .stack = st, .subject = subject, .thread = thread_self(st) };
	int r = 0;

	if (!w.thread)
		return -ENOBUFS;
	w.next = st->waiters;
	if (w.next)
		w.next->previous = &w;
	st->waiters = &w;
	st->waiting++;
	++*subject;
	w.thread->batching = w.thread->holding = false;
	if (st->shared)
		share_wait_begins(st);
	if (st->asked_to_yield)
		turn_yield_read(st, subject);
	if (may_spin && spin_is_worth_it(st, watched))
		spin(&w, watched, deadline_ns);
	while (!w.woken && !r && !(watched && watched->ready)) {
		r = interruptible && (xts_inside.put_off || cancel_is_due(w.thread)) ?
			    -EINTR :
			    one_sleep(&w, watched, deadline_ns);
		if (r == -EINTR && !interruptible)
			r = 0;
	}
	if (st->spinning == &w)
		spin_ends(&w, watched && watched->ready);
	if (w.woken || r > 0)
		r = 0;
	if (st->shared)
		share_wait_ends(st);
	--*subject;
	st->waiting--;
	if (w.previous)
		w.previous->next = w.next;
	else
		st->waiters = w.next;
	if (w.next)
		w.next->previous = w.previous;
	if (st->leader == &w || !st->leader)
		hand_over(st);
	return r;
}

int wait_watching(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool may_spin, struct watched_fds *watched)
{
	return wait_until(st, subject, deadline_ns, may_spin, watched, true);
}

int wait_interruptibly(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool may_spin)
{
	return wait_until(st, subject, deadline_ns, may_spin, NULL, true);
}

int wait_for(struct stack *st, uint16_t *subject, uint64_t deadline_ns, bool may_spin)
{
	return wait_until(st, subject, deadline_ns, may_spin, NULL, false);
}

int wait_a_while(struct stack *st, uint64_t pause_ns)
{
	uint16_t nobody = 0;
	int r = wait_for(st, &nobody, now_ns() + pause_ns, false);

	return r == -ENOBUFS ? r : 0;
}

int socket_wait(struct xts_sock *s, uint16_t *subject, uint64_t deadline_ns, bool spin)
{
	int r;

	socket_check_held(s);
	r = wait_for(s->stack, subject, deadline_ns, spin);
	return s->open ? r : -EBADF;
}

static int wait_on_socket(struct xts_sock *s, uint16_t *subject, uint64_t deadline_ns, uint64_t timeout_ns, bool spin)
{
	int r;

	socket_check_held(s);
	r = wait_interruptibly(s->stack, subject, deadline_ns, spin);
	if (!s->open)
		return -EBADF;
	if (r == -ETIMEDOUT)
		return -EAGAIN;
	return r == -EINTR ? interrupted(timeout_ns) : r;
}

int wait_to_send(struct xts_sock *s, uint64_t deadline_ns, bool spin)
{
	return wait_on_socket(s, &s->writers, deadline_ns, s->send_timeout_ns, spin);
}

int wait_to_receive(struct xts_sock *s, uint64_t deadline_ns, bool spin)
{
	return wait_on_socket(s, &s->readers, deadline_ns, s->receive_timeout_ns, spin);
}
