/* epoll_wait, epoll_pwait and epoll_pwait2, on sets with and without a context. */
#include "epoll_set.h"

#include "core/arguments.h"
#include "deadline.h"

/* The call as the program made it. */
struct request {
	enum { WAIT, PWAIT, PWAIT2 } name;
	int set;
	struct epoll_event *events;
	int max, timeout_ms;
	const struct timespec *timeout;
	const sigset_t *mask;
};

static int pass(const struct request *r)
{
	switch (r->name) {
	case WAIT:
		return real()->epoll_wait(r->set, r->events, r->max, r->timeout_ms);
	case PWAIT:
		return real()->epoll_pwait(r->set, r->events, r->max, r->timeout_ms, r->mask);
	default:
		return real()->epoll_pwait2(r->set, r->events, r->max, r->timeout, r->mask);
	}
}

/* The same, in a thread that holds the set. */
static void leave_set(void *set)
{
	set_drop(set, SET_WAITER + 1);
}

static int wait_for_kernels(struct epoll_set *set, const struct request *r)
{
	const struct preload_undo undo = { .undo = leave_set, .argument = set };
	struct timespec timeout = { .tv_sec = r->timeout_ms / 1000, .tv_nsec = r->timeout_ms % 1000 * 1000000L };

	if (r->name == PWAIT2)
		return preload_sleep_epoll(r->set, r->events, r->max, r->timeout, r->mask, &undo);
	return preload_sleep_epoll(r->set, r->events, r->max, r->timeout_ms < 0 ? NULL : &timeout, r->mask, &undo);
}

/* --- events that the program must not see ------------------------------------------------------------------------- */

static int without_bell(struct epoll_event *events, int count)
{
	int kept = 0;

	for (int i = 0; i < count; i++) {
		if (events[i].data.u64 != SET_BELL_DATA)
			events[kept++] = events[i];
	}
	return kept;
}

/* A one-shot registration has reported in one half: the other half must not report any more. */
static void disarm_other_half(struct epoll_set *set, int epfd, struct registration *note)
{
	struct epoll_event none = { .events = EPOLLONESHOT, .data = note->event.data };
	struct descriptor d = descriptor_get(note->fd);

	if (d.kind != DESCRIPTOR_OFFLOADED)
		return;
	real()->epoll_ctl(epfd, EPOLL_CTL_MOD, note->fd, &none);
	(void)XTS(xts_epoll_ctl_keyed(set->ctx, EPOLL_CTL_MOD, (int)d.number, (uint32_t)note->fd, &none));
}

/* To the program a registration in both halves is a single one: its two events are merged. */
static int merge_halves(struct epoll_set *set, int epfd, struct epoll_event *events, int count)
{
	sets_lock();
	for (unsigned n = 0; n < set->registration_count; n++) {
		struct registration *note = &set->registrations[n];
		int first = -1, kept = 0;

		if (note->kind == REGISTERED_UNDECIDED)
			continue;
		for (int i = 0; i < count; i++) {
			if (events[i].data.u64 == note->event.data.u64 && first >= 0) {
				events[first].events |= events[i].events;
				continue;
			}
			if (events[i].data.u64 == note->event.data.u64)
				first = kept;
			events[kept++] = events[i];
		}
		count = kept;
		if (first >= 0 && note->kind == REGISTERED_BOTH && note->in_kernel && note->event.events & EPOLLONESHOT)
			disarm_other_half(set, epfd, note);
	}
	sets_unlock();
	return count;
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

void set_silence_last(struct epoll_set *set)
{
	int before = errno;

	if (atomic_load_explicit(&set->bell, memory_order_relaxed) < 0 || atomic_load(&set->users) >= SET_WAITER)
		return;
	sets_lock();
	set_silence(set);
	sets_unlock();
	errno = before;
}

static int wait_for_both(struct epoll_set *set, const struct request *request, uint64_t deadline_ns)
{
	int r;

	do {
		set_silence_last(set);
		r = XTS(xts_epoll_wait_mixed(set->ctx, request->set, &set->members, request->events, request->max,
					     deadline_ns, request->mask));
		if (r <= 0)
			return r;
		r = without_bell(request->events, r);
		if (r && atomic_load_explicit(&set->both, memory_order_relaxed))
			r = merge_halves(set, request->set, request->events, r);
	} while (!r && deadline_ns);
	return r;
}

/* false: EINVAL. */
static bool deadline_of_request(const struct request *r, uint64_t *deadline_ns)
{
	if (r->name == PWAIT2)
		return deadline_of(r->timeout, deadline_ns);
	*deadline_ns = deadline_of_ms(r->timeout_ms);
	return true;
}

static int wait_held(struct epoll_set *set, const struct request *request)
{
	uint64_t deadline_ns = 0;
	int r = 0, before;

	if (!deadline_of_request(request, &deadline_ns)) {
		set_drop(set, SET_WAITER + 1);
		return -1;
	}
	if (!atomic_load(&set->ctx)) {
		r = wait_for_kernels(set, request);
		if (!atomic_load(&set->ctx)) {
			set_drop(set, SET_WAITER + 1);
			return r;
		}
		/* The set has got a context meanwhile. */
		if (r > 0)
			r = without_bell(request->events, r);
	}
	before = errno;
	set_drop(set, SET_WAITER);
	errno = before;
	if (r)
		set_silence_last(set);
	else
		r = wait_for_both(set, request, deadline_ns);
	set_drop(set, 1);
	return r;
}

static int wait_for_set(const struct request *request)
{
	struct descriptor d = descriptor_get(request->set);

	if (d.kind == DESCRIPTOR_EPOLL && !argument_is_bad(request->mask, request->mask ? MASK_BYTES : 0)) {
		xts_cancellation_point();
		INSIDE;
		struct epoll_set *set = set_hold(d.number, SET_WAITER + 1);

		if (set && !atomic_load(&set->mirrored)) {
			set_call(set);
			return wait_held(set, request);
		}
		if (set)
			set_drop(set, SET_WAITER + 1);
	}
	return pass(request);
}

EXPORT int epoll_wait(int set, struct epoll_event *events, int max, int timeout_ms)
{
	struct request request = { .name = WAIT, .set = set, .events = events, .max = max, .timeout_ms = timeout_ms };

	return wait_for_set(&request);
}

EXPORT int epoll_pwait(int set, struct epoll_event *events, int max, int timeout_ms, const sigset_t *mask)
{
	struct request request = {
		.name = PWAIT, .set = set, .events = events, .max = max, .timeout_ms = timeout_ms, .mask = mask
	};

	return wait_for_set(&request);
}

EXPORT int epoll_pwait2(int set, struct epoll_event *events, int max, const struct timespec *timeout,
			const sigset_t *mask)
{
	struct request request = {
		.name = PWAIT2, .set = set, .events = events, .max = max, .timeout = timeout, .mask = mask
	};

	return wait_for_set(&request);
}
