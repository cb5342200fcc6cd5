/*
 * Contexts of other stacks in a polling context (an epoll set in an epoll set): each is watched through its descriptor
 * (epoll_fd.c), which its own stack keeps true, in an epoll set of the kernel's. A ready descriptor only says that it
 * is worth looking: the inner context is then asked for its events, under the lock of its own stack.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/stack.h"
#include "common/own_descriptors.h"
#include "common/own_memory.h"
#include "waiting/epoll.h"
#include "waiting/other_stacks.h"
#include "core/wait.h"
#include "xts_private.h"

#define MEMBERS_AT_ONCE 64
/* what a context can show, and how */
#define SHOWN (EPOLLIN | EPOLLET | EPOLLONESHOT)

/* A registration. Under the lock of the outer context's stack. */
struct member {
	struct member *next;
	struct epoll_ctx *inner;
	struct stack *stack; /* of the inner context */
	uint32_t key;
	struct epoll_event event; /* as the program asked */
	int fd;                   /* a duplicate of its descriptor, in the set until the registration ends */
	unsigned seen;            /* with EPOLLET: the inner context's events up to the one that was reported */
};

static struct member *find(const struct epoll_ctx *ctx, const struct epoll_ctx *inner, uint32_t key)
{
	const struct foreign *f = atomic_load_explicit(&ctx->foreign, memory_order_relaxed);
	struct member *m = f ? f->members : NULL;

	while (m && (m->inner != inner || m->key != key))
		m = m->next;
	return m;
}

bool nested_is_member(const struct epoll_ctx *ctx, const struct epoll_ctx *inner, uint32_t key)
{
	return find(ctx, inner, key) != NULL;
}

void nested_watch_bell(struct foreign *f)
{
	struct epoll_event event = { .events = EPOLLIN };
	int set = atomic_load(&f->set), bell = atomic_load(&f->bell);

	if (set >= 0 && bell >= 0)
		(void)epoll_ctl(set, EPOLL_CTL_ADD, bell, &event);
}

static int make_set(struct epoll_ctx *ctx, struct foreign *f)
{
	struct epoll_event event = { .events = EPOLLIN };
	int set;

	if (atomic_load(&f->set) >= 0)
		return 0;
	set = xts_own(epoll_create1(EPOLL_CLOEXEC));
	if (set < 0)
		return -errno;
	if (ctx->set >= 0 && epoll_ctl(ctx->set, EPOLL_CTL_ADD, set, &event) < 0) {
		int r = -errno;

		xts_own_close(set);
		return r;
	}
	atomic_store(&f->set, set);
	nested_watch_bell(f);
	wake(ctx->stack, &ctx->waiters); /* they have to sleep on it instead of the bell */
	return 0;
}

static void drop(struct foreign *f, struct member *m)
{
	struct member **at = &f->members;

	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	epoll_ctl(atomic_load(&f->set), EPOLL_CTL_DEL, m->fd, NULL);
	xts_own_close(m->fd);
	free(m);
}

/* Adds a registration with a duplicate of fd. 0 or -errno. */
static int add(struct epoll_ctx *ctx, int fd, const struct member *as)
{
	struct epoll_event event = { .events = as->event.events & (uint32_t)SHOWN };
	struct foreign *f = foreign_make(ctx);
	struct member *m;
	int r;

	if (find(ctx, as->inner, as->key))
		return -EEXIST;
	r = f ? make_set(ctx, f) : -ENOMEM;
	if (r)
		return r;
	m = malloc(sizeof *m);
	if (!m)
		return -ENOMEM;
	*m = *as;
	/* fd is the library's own: under the interposer fcntl() does not know it */
	m->fd = xts_own((int)kernel_calls.syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0));
	event.data.ptr = m;
	if (m->fd < 0 || epoll_ctl(atomic_load(&f->set), EPOLL_CTL_ADD, m->fd, &event) < 0) {
		r = -errno;
		if (m->fd >= 0)
			xts_own_close(m->fd);
		free(m);
		return r;
	}
	m->next = f->members;
	f->members = m;
	return 0;
}

static int arm(struct epoll_ctx *ctx, struct member *m)
{
	const struct foreign *f = atomic_load_explicit(&ctx->foreign, memory_order_relaxed);
	struct epoll_event event = { .events = m->event.events & (uint32_t)SHOWN, .data.ptr = m };

	return epoll_ctl(atomic_load(&f->set), EPOLL_CTL_MOD, m->fd, &event) < 0 ? -errno : 0;
}

static int modify(struct epoll_ctx *ctx, struct member *m, const struct member *as)
{
	m->event = as->event;
	m->seen = as->seen;
	return arm(ctx, m);
}

int nested_ctl(struct epoll_ctx *ctx, int op, struct epoll_ctx *inner, uint32_t key, const struct epoll_event *event)
{
	struct member as = { .inner = inner, .stack = inner->stack, .key = key }, *m;
	struct stack *st;
	int fd = -1, r;

	if (op == EPOLL_CTL_ADD)
		fd = epoll_own_descriptor(inner);
	if (op == EPOLL_CTL_ADD && fd < 0)
		return -errno;
	if (op != EPOLL_CTL_DEL)
		as.event = *event;
	if (op != EPOLL_CTL_DEL && event->events & EPOLLET)
		epoll_want_edges(inner);
	as.seen = atomic_load(&inner->arrivals) - 1; /* what is ready at first is an event */
	st = stack_enter(ctx->stack);
	m = find(ctx, inner, key);
	if (op == EPOLL_CTL_ADD)
		r = add(ctx, fd, &as);
	else if (!m)
		r = -ENOENT;
	else if (op == EPOLL_CTL_MOD)
		r = modify(ctx, m, &as);
	else
		r = op == EPOLL_CTL_DEL ? 0 : -EINVAL;
	if (!r && op == EPOLL_CTL_DEL)
		drop(atomic_load_explicit(&ctx->foreign, memory_order_relaxed), m);
	stack_leave(st);
	return r;
}

/* The events of an inner context; *gone: it does not exist any more. With EPOLLET: none without a new event in it. A
 * bell also rings for what was taken from the queue while looking, and a queue for what is none. */
static uint32_t events_of(struct member *m, bool *gone)
{
	struct stack *st = stack_enter(m->stack);
	struct epoll_ctx *ctx = st->contexts;
	bool ready = false;

	while (ctx && ctx != m->inner)
		ctx = ctx->next;
	if (ctx)
		epoll_hold(ctx);
	stack_leave(st);
	*gone = !ctx;
	if (ctx) {
		ready = xts_epoll_is_ready(ctx);
		if (ready && m->event.events & EPOLLET) {
			unsigned arrivals = atomic_load(&ctx->arrivals);

			ready = arrivals != m->seen;
			m->seen = arrivals;
		}
		epoll_release(ctx);
	}
	return ready ? m->event.events & (EPOLLIN | EPOLLRDNORM) : 0;
}

/* Called after looking at a member that the kernel reported as ready. Its registration may have ended meanwhile. */
static void looked(struct epoll_ctx *ctx, const struct member *copy, const struct member *was, uint32_t now, bool gone)
{
	struct stack *st = stack_enter(ctx->stack);
	struct member *m = find(ctx, copy->inner, copy->key);

	if (m == was && gone)
		drop(atomic_load_explicit(&ctx->foreign, memory_order_relaxed), m);
	else if (m == was && now)
		m->seen = copy->seen;
	else if (m == was && !now && copy->event.events & EPOLLONESHOT)
		arm(ctx, m); /* the kernel disabled it after an event that was none */
	stack_leave(st);
}

/* Copies the members that the kernel reports as ready. The set's members cannot change while the lock is held. */
static int take(struct epoll_ctx *ctx, struct member *copies, struct member **was, int max)
{
	struct epoll_event ready[MEMBERS_AT_ONCE];
	struct stack *st = stack_enter(ctx->stack);
	const struct foreign *f = atomic_load_explicit(&ctx->foreign, memory_order_relaxed);
	int n = kernel_calls.epoll_wait(atomic_load(&f->set), ready, max < MEMBERS_AT_ONCE ? max : MEMBERS_AT_ONCE, 0);
	int count = 0;

	for (int i = 0; i < n; i++) {
		if (!ready[i].data.ptr)
			continue; /* the bell */
		was[count] = ready[i].data.ptr;
		copies[count] = *was[count];
		count++;
	}
	stack_leave(st);
	return count;
}

int nested_collect(struct epoll_ctx *ctx, struct epoll_event *events, int max)
{
	const struct foreign *f = atomic_load_explicit(&ctx->foreign, memory_order_acquire);
	struct member copies[MEMBERS_AT_ONCE], *was[MEMBERS_AT_ONCE];
	int count = 0, n;

	if (!f || atomic_load(&f->set) < 0)
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

void nested_end(struct foreign *f)
{
	while (f->members) {
		struct member *m = f->members;

		f->members = m->next;
		xts_own_close(m->fd);
		xts_release(m);
	}
	if (atomic_load(&f->set) >= 0)
		xts_own_close(atomic_load(&f->set));
	atomic_store(&f->set, -1);
}
