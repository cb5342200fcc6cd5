/* Sockets of other stacks in a polling context. other_stacks.h has the theory of operation. */
#include "waiting/other_stacks.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/catch_up.h"
#include "core/channel.h"
#include "core/process.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "common/own_descriptors.h"
#include "common/own_memory.h"
#include "processes/inherit.h"
#include "processes/take_over.h"
#include "waiting/epoll.h"
#include "core/wait.h"
#include "xts_private.h"

#define WATCHES_AT_ONCE 64u

static struct foreign *foreign_of(const struct epoll_ctx *ctx)
{
	return atomic_load_explicit(&ctx->foreign, memory_order_acquire);
}

bool foreign_is_used(const struct epoll_ctx *ctx)
{
	const struct foreign *f = foreign_of(ctx);

	return f && (atomic_load_explicit(&f->stacks, memory_order_acquire) || atomic_load(&f->set) >= 0);
}

int foreign_fd(const struct epoll_ctx *ctx)
{
	const struct foreign *f = foreign_of(ctx);
	int set = f ? atomic_load(&f->set) : -1;

	if (set >= 0)
		return set;
	return foreign_is_used(ctx) ? atomic_load(&f->bell) : -1;
}

int foreign_join_set(struct epoll_ctx *ctx)
{
	const struct foreign *f = foreign_of(ctx);
	struct epoll_event event = { .events = EPOLLIN };
	int bell = f ? atomic_load(&f->bell) : -1, set = f ? atomic_load(&f->set) : -1;

	if (bell >= 0 && epoll_ctl(ctx->set, EPOLL_CTL_ADD, bell, &event) < 0)
		return -errno;
	if (set >= 0 && epoll_ctl(ctx->set, EPOLL_CTL_ADD, set, &event) < 0)
		return -errno;
	return 0;
}

/* --- the bell ----------------------------------------------------------------------------------------------------- */

/* Under the list's lock. again: also if it rings. */
static void ring(struct foreign *f, bool again)
{
	uint64_t one = 1;
	int bell = atomic_load(&f->bell);

	if (bell >= 0 && (!f->ringing || again) && write(bell, &one, sizeof one) == (ssize_t)sizeof one)
		f->ringing = true;
}

void foreign_ring(struct epoll_ctx *ctx)
{
	struct foreign *f = foreign_of(ctx);

	pthread_mutex_lock(&f->lock);
	ring(f, false);
	pthread_mutex_unlock(&f->lock);
}

static void silence_if_empty(struct foreign *f)
{
	uint64_t count;

	pthread_mutex_lock(&f->lock);
	if (!f->first && f->ringing && read(atomic_load(&f->bell), &count, sizeof count) == (ssize_t)sizeof count)
		f->ringing = false;
	pthread_mutex_unlock(&f->lock);
}

static void make_bell(struct epoll_ctx *ctx, struct foreign *f)
{
	struct epoll_event event = { .events = EPOLLIN };
	int bell;

	if (atomic_load(&f->bell) >= 0)
		return;
	bell = bell_make();
	if (bell < 0)
		return;
	pthread_mutex_lock(&f->lock);
	atomic_store(&f->bell, bell);
	if (f->first)
		ring(f, false);
	pthread_mutex_unlock(&f->lock);
	nested_watch_bell(f);
	if (ctx->set >= 0)
		(void)epoll_ctl(ctx->set, EPOLL_CTL_ADD, bell, &event);
}

/* --- preparing ---------------------------------------------------------------------------------------------------- */

struct foreign *foreign_make(struct epoll_ctx *ctx)
{
	struct foreign *f = foreign_of(ctx);

	if (f) {
		make_bell(ctx, f);
		return f;
	}
	f = calloc(1, sizeof *f);
	if (!f)
		return NULL;
	pthread_mutex_init(&f->lock, NULL);
	atomic_store(&f->bell, -1);
	atomic_store(&f->set, -1);
	make_bell(ctx, f);
	atomic_store_explicit(&ctx->foreign, f, memory_order_release);
	return f;
}

void foreign_reserve(struct epoll_ctx *ctx)
{
	if (!process_next(process_stacks()))
		return;
	bell_reserve(ctx->stack);
	(void)foreign_make(ctx);
}

static int note_stack(struct foreign *f, struct stack *st)
{
	struct other_stack *o = atomic_load(&f->stacks);

	while (o && o->stack != st)
		o = o->next;
	if (o)
		return 0;
	o = malloc(sizeof *o);
	if (!o)
		return -ENOMEM;
	*o = (struct other_stack){ .next = atomic_load(&f->stacks), .stack = st };
	atomic_store_explicit(&f->stacks, o, memory_order_release);
	return 0;
}

int foreign_prepare(struct epoll_ctx *ctx, struct stack *st)
{
	struct stack *own = stack_enter(ctx->stack);
	struct foreign *f = foreign_make(ctx);
	int r = f ? note_stack(f, st) : -ENOMEM;

	/* threads that wait already have to sleep on the bell, too */
	wake(own, &ctx->waiters);
	if (ctx->polled)
		wake(own, &own->poll_waiters);
	stack_leave(own);
	return r;
}

/* --- the list ----------------------------------------------------------------------------------------------------- */

void foreign_add(struct watch *w, bool event)
{
	struct foreign *f = foreign_of(w->ctx);

	pthread_mutex_lock(&f->lock);
	if (!w->ready) {
		w->ready = true;
		w->ready_next = NULL;
		w->ready_previous = f->last;
		if (f->last)
			f->last->ready_next = w;
		else
			f->first = w;
		f->last = w;
		f->count++;
	}
	ring(f, event && w->ctx->edged);
	pthread_mutex_unlock(&f->lock);
}

void foreign_remove(struct watch *w)
{
	struct foreign *f = foreign_of(w->ctx);

	pthread_mutex_lock(&f->lock);
	if (w->ready) {
		w->ready = false;
		if (w->ready_previous)
			w->ready_previous->ready_next = w->ready_next;
		else
			f->first = w->ready_next;
		if (w->ready_next)
			w->ready_next->ready_previous = w->ready_previous;
		else
			f->last = w->ready_previous;
		f->count--;
	}
	pthread_mutex_unlock(&f->lock);
}

/* --- collecting --------------------------------------------------------------------------------------------------- */

/* A watch that was on the list. */
struct listed {
	uint32_t number, key;
};

static unsigned copy_list(struct foreign *f, struct listed *out, unsigned max)
{
	unsigned n = 0;

	pthread_mutex_lock(&f->lock);
	for (const struct watch *w = f->first; w && n < max; w = w->ready_next)
		out[n++] = (struct listed){ .number = w->number, .key = w->key };
	pthread_mutex_unlock(&f->lock);
	return n;
}

static unsigned length_of(struct foreign *f)
{
	unsigned count;

	pthread_mutex_lock(&f->lock);
	count = f->count;
	pthread_mutex_unlock(&f->lock);
	return count;
}

/* Takes what has come for a stack's sockets, as epoll_arrive() does for the context's own. */
static void visit(struct epoll_ctx *ctx, struct stack *st, bool looks)
{
	stack_enter(st);
	if (st->to_join)
		inherit_take_watched(st, ctx);
	for (struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next)
		if (epoll_watches(ctx, s))
			kind_of(s)->interest(s, false);
	channel_pump(st);
	if (looks)
		(void)channel_catch_up(st);
	stack_leave(st);
}

static void visit_all(struct epoll_ctx *ctx, struct foreign *f, bool looks)
{
	for (struct other_stack *o = atomic_load_explicit(&f->stacks, memory_order_acquire); o; o = o->next)
		visit(ctx, o->stack, looks);
}

/* Enters the stack of this socket, and leaves the one entered before. NULL: there is no such socket. */
static struct stack *enter_next(struct stack *inside, uint32_t number)
{
	struct stack *st = table_stack((int)number);

	if (st == inside)
		return st;
	if (inside)
		stack_leave(inside);
	return st ? stack_enter(st) : NULL;
}

/* Asks the listed watches. Reports what is ready, or, if events is NULL, only takes those off the list that are not,
 * until one is. Returns how many are. */
static int ask(struct epoll_ctx *ctx, const struct listed *listed, unsigned n, struct epoll_event *events)
{
	struct stack *st = NULL;
	int count = 0;

	for (unsigned i = 0; i < n; i++) {
		struct xts_sock *s;
		struct watch *w;

		st = enter_next(st, listed[i].number);
		s = st ? table_open(st, (int)listed[i].number) : NULL;
		w = s ? epoll_watch_of(ctx, s, listed[i].key) : NULL;
		if (!w || !w->ready)
			continue; /* it has ended, or another thread has taken the event */
		if (events) {
			count += epoll_report(w, &events[count]);
		} else if (epoll_watch_events(w)) {
			count++;
			break;
		} else {
			epoll_ready_remove(w);
		}
	}
	if (st)
		stack_leave(st);
	return count;
}

int foreign_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max, bool looks)
{
	struct listed listed[WATCHES_AT_ONCE];
	struct foreign *f = foreign_of(ctx);
	unsigned left;
	int count = 0;

	if (!foreign_is_used(ctx))
		return 0;
	visit_all(ctx, f, looks);
	/* a level-triggered watch is back on the list behind those that are on it now */
	for (left = length_of(f); left && count < max;) {
		unsigned room = (unsigned)(max - count), n = left < room ? left : room;

		n = copy_list(f, listed, n < WATCHES_AT_ONCE ? n : WATCHES_AT_ONCE);
		if (!n)
			break;
		left -= n;
		count += ask(ctx, listed, n, events + count);
	}
	silence_if_empty(f);
	if (count < max)
		count += nested_collect(ctx, events + count, max - count);
	return count;
}

bool foreign_has_event(struct epoll_ctx *ctx)
{
	struct listed listed[WATCHES_AT_ONCE];
	struct foreign *f = foreign_of(ctx);
	struct timespec none = { 0 };
	struct pollfd fd = { .events = POLLIN };
	unsigned n;

	if (!foreign_is_used(ctx))
		return false;
	visit_all(ctx, f, true);
	for (unsigned left = length_of(f); left; left -= n < left ? n : left) {
		n = copy_list(f, listed, WATCHES_AT_ONCE);
		if (!n)
			break;
		if (ask(ctx, listed, n, NULL))
			return true;
	}
	silence_if_empty(f);
	fd.fd = atomic_load(&f->set);
	return fd.fd >= 0 && kernel_calls.ppoll(&fd, 1, &none, NULL) > 0;
}

short foreign_poll(int number, short events, bool looks)
{
	struct stack *st = stack_enter_of(number);
	struct xts_sock *s = table_use_for(st, number, PURPOSE_POLL);
	uint32_t now = 0;

	if (s && (events & (POLLIN | POLLRDNORM)))
		kind_of(s)->interest(s, false);
	channel_pump(st);
	if (looks)
		(void)channel_catch_up(st);
	s = s ? table_open(st, number) : NULL;
	if (s)
		now = socket_events(s) & ((uint32_t)(unsigned short)events | POLLERR | POLLHUP);
	stack_leave(st);
	return s ? (short)now : POLLNVAL;
}

/* --- the end ------------------------------------------------------------------------------------------------------ */

void foreign_count(struct epoll_ctx *ctx, int by)
{
	atomic_fetch_add(&foreign_of(ctx)->watches, by);
}

void foreign_end(struct epoll_ctx *ctx)
{
	struct foreign *f = foreign_of(ctx);

	for (struct other_stack *o = f ? atomic_load(&f->stacks) : NULL; o && atomic_load(&f->watches); o = o->next) {
		stack_enter(o->stack);
		epoll_end_watches(o->stack, ctx);
		stack_leave(o->stack);
	}
}

void foreign_free(struct epoll_ctx *ctx)
{
	struct foreign *f = foreign_of(ctx);
	struct other_stack *next;

	if (!f)
		return;
	atomic_store_explicit(&ctx->foreign, NULL, memory_order_relaxed);
	nested_end(f);
	for (struct other_stack *o = atomic_load(&f->stacks); o; o = next) {
		next = o->next;
		xts_release(o);
	}
	if (atomic_load(&f->bell) >= 0)
		xts_own_close(atomic_load(&f->bell));
	pthread_mutex_destroy(&f->lock);
	xts_release(f);
}

void foreign_unlock(struct epoll_ctx *ctx)
{
	struct foreign *f = foreign_of(ctx);

	if (!f)
		return;
	pthread_mutex_init(&f->lock, NULL);
	if (atomic_load(&f->bell) >= 0)
		xts_own_close(atomic_load(&f->bell)); /* the parent's: this process must not ring it */
	atomic_store(&f->bell, -1);
	f->ringing = false;
}

void foreign_after_fork(struct epoll_ctx *ctx)
{
	struct foreign *f = foreign_of(ctx);

	if (!f)
		return;
	nested_end(f);
	make_bell(ctx, f);
}
