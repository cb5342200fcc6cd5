/*
 * epoll: sets of the program that hold offloaded sockets too. epoll_set.h describes the record of a set.
 *
 * The calls on a set without offloaded sockets are passed to the kernel. For other sets libxts waits for both kinds of
 * members (xts_epoll_wait_mixed). If a thread waits in the kernel when the first offloaded socket is added, a bell put
 * into the kernel's set wakes it, and it goes on waiting for both.
 */
#include "epoll_set.h"

#include "by_instruction.h"
#include "core/arguments.h"

/* --- sets --------------------------------------------------------------------------------------------------------- */

static int known(int fd)
{
	uint32_t number;

	if (fd < 0 || xts_inside.locked) /* one of libxts's own */
		return fd;
	INSIDE;
	descriptor_forget_stale(fd);
	number = set_make(fd, 0);
	if (number)
		descriptor_set(fd, (struct descriptor){ .kind = DESCRIPTOR_EPOLL, .number = number });
	return fd;
}

EXPORT int epoll_create(int size)
{
	return known(real()->epoll_create(size));
}

EXPORT int epoll_create1(int flags)
{
	return known(real()->epoll_create1(flags));
}

/* Adds a set that came through exec or a Unix socket to the table, with its first offloaded member. */
static void adopt(int fd, int member)
{
	struct epoll_event event = { 0 };
	uint32_t number = 0;

	sets_lock();
	/* The member's kernel socket was never registered: ENOENT shows that fd is an epoll set. */
	if (descriptor_get(fd).kind == DESCRIPTOR_KERNEL && real()->epoll_ctl(fd, EPOLL_CTL_MOD, member, &event) < 0 &&
	    errno == ENOENT)
		number = set_make(fd, SET_UNKNOWN_MEMBERS);
	if (number)
		descriptor_set(fd, (struct descriptor){ .kind = DESCRIPTOR_EPOLL, .number = number });
	sets_unlock();
}

/* --- registrations ------------------------------------------------------------------------------------------------ */

static bool is_also_local(struct descriptor d)
{
	return d.flags & DESCRIPTOR_ALSO_LOCAL && d.flags & DESCRIPTOR_LISTENS;
}

static void count_member(struct epoll_set *set, int op)
{
	if (op == EPOLL_CTL_ADD)
		atomic_fetch_add(&set->members, 1);
	else if (op == EPOLL_CTL_DEL && atomic_load(&set->members))
		atomic_fetch_sub(&set->members, 1);
}

static int kernel_control(struct epoll_set *set, int epfd, int op, int fd, struct epoll_event *event)
{
	int r = real()->epoll_ctl(epfd, op, fd, event);

	if (r == 0)
		count_member(set, op);
	return r;
}

/* set->fd is one of the set's descriptors. */
static int context_control(struct epoll_set *set, int op, int fd, uint32_t number, struct epoll_event *event)
{
	int r = XTS(xts_epoll_ctl_keyed(set->ctx, op, (int)number, (uint32_t)fd, event)), error;

	if (r < 0 || !atomic_load(&set->mirrored))
		return r;
	r = instruction_control(set, set->fd, op, number, event);
	error = errno;
	if (r < 0 && op == EPOLL_CTL_ADD)
		(void)XTS(xts_epoll_ctl_keyed(set->ctx, EPOLL_CTL_DEL, (int)number, (uint32_t)fd, NULL));
	errno = error;
	return r;
}

/* The kernel half of a listener's registration, and its note. The context's half is done: this half may fail silently
 * only if the kernel socket is not there any more. */
static void control_also_local(struct epoll_set *set, int epfd, int op, int fd, struct descriptor d,
			       struct epoll_event *event)
{
	struct registration *note = set_registration(set, fd), fresh = { .fd = fd, .kind = REGISTERED_BOTH };

	if (op == EPOLL_CTL_DEL) {
		if (note && note->in_kernel)
			kernel_control(set, epfd, op, fd, NULL);
		if (note)
			set_remove_registration(set, note);
		return;
	}
	fresh.event = *event;
	fresh.in_kernel = note && note->kind == REGISTERED_BOTH && note->in_kernel;
	if (is_also_local(d))
		fresh.in_kernel = kernel_control(set, epfd, fresh.in_kernel ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd,
						 event) == 0;
	set_add_registration(set, &fresh);
}

static int control_offloaded(struct epoll_set *set, int epfd, int op, int fd, struct descriptor d,
			     struct epoll_event *event)
{
	int r = -1, error;

	sets_lock();
	set->fd = epfd;
	if (op != EPOLL_CTL_ADD && !set->ctx) {
		errno = op == EPOLL_CTL_MOD || op == EPOLL_CTL_DEL ? ENOENT : EINVAL;
	} else if (set_convert(set, (int)d.number)) {
		r = context_control(set, op, fd, d.number, event);
		error = errno;
		if (r == 0 && (d.flags & DESCRIPTOR_ALSO_LOCAL || op == EPOLL_CTL_DEL))
			control_also_local(set, epfd, op, fd, d, event);
		errno = error;
	}
	sets_unlock();
	return r;
}

/* Changes the kernel's set, and notes it. -1: refused, or no memory, in which case the registration has been removed
 * again. */
static int control_noted(struct epoll_set *set, int epfd, int op, struct registration *note, struct epoll_event *event)
{
	struct registration *old;
	int r = kernel_control(set, epfd, op, note->fd, event);

	if (r < 0)
		return r;
	if (op == EPOLL_CTL_DEL) {
		old = set_registration(set, note->fd);
		if (old)
			set_remove_registration(set, old);
		return 0;
	}
	note->event = *event;
	if (set_add_registration(set, note))
		return 0;
	kernel_control(set, epfd, EPOLL_CTL_DEL, note->fd, NULL);
	errno = ENOMEM;
	return -1;
}

/* A set in a set: the kernel half first, since the kernel refuses loops. */
static int control_set(struct epoll_set *set, int epfd, int op, int fd, struct descriptor d, struct epoll_event *event)
{
	struct registration note = { .fd = fd, .kind = REGISTERED_SET, .inner = d.number };
	struct epoll_set *inner = set_hold(d.number, 1);
	int r;

	if (inner)
		set_call(inner);
	sets_lock();
	set->fd = epfd;
	r = control_noted(set, epfd, op, &note, event);
	if (r == 0 && op == EPOLL_CTL_DEL) {
		if (set->ctx && inner && inner->ctx)
			(void)XTS(xts_epoll_nest(set->ctx, op, inner->ctx, (uint32_t)fd, event));
	} else if (r == 0 && inner && inner->ctx &&
		   (!set_convert(set, -1) || XTS(xts_epoll_nest(set->ctx, op, inner->ctx, (uint32_t)fd, event)) < 0)) {
		control_noted(set, epfd, EPOLL_CTL_DEL, &note, NULL);
		errno = ENOMEM;
		r = -1;
	}
	sets_unlock();
	if (inner)
		set_drop(inner, 1);
	return r;
}

/* An undecided socket is registered with the kernel for now. */
static int control_undecided(struct epoll_set *set, int epfd, int op, int fd, struct epoll_event *event)
{
	struct registration note = { .fd = fd, .kind = REGISTERED_UNDECIDED };
	int r;

	sets_lock();
	set->fd = epfd;
	r = control_noted(set, epfd, op, &note, event);
	sets_unlock();
	return r;
}

static int control(struct epoll_set *set, int epfd, int op, int fd, struct descriptor d, struct epoll_event *event)
{
	struct registration *old;
	int r;

	switch (d.kind) {
	case DESCRIPTOR_OFFLOADED:
		return control_offloaded(set, epfd, op, fd, d, event);
	case DESCRIPTOR_EPOLL:
		return control_set(set, epfd, op, fd, d, event);
	case DESCRIPTOR_UNDECIDED:
		return control_undecided(set, epfd, op, fd, event);
	default:
		r = kernel_control(set, epfd, op, fd, event);
	}
	if (r == 0 && op == EPOLL_CTL_DEL && d.kind == DESCRIPTOR_STAYED && sets_have_registrations()) {
		sets_lock();
		old = set_registration(set, fd);
		if (old)
			set_remove_registration(set, old);
		sets_unlock();
	}
	return r;
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *event)
{
	struct descriptor d = descriptor_get(epfd), member = descriptor_get(fd);
	bool ours = member.kind == DESCRIPTOR_OFFLOADED || member.kind == DESCRIPTOR_UNDECIDED ||
		    member.kind == DESCRIPTOR_EPOLL;
	struct epoll_set *set = NULL;
	int r;

	if (xts_inside.locked || (op != EPOLL_CTL_DEL && argument_is_bad(event, sizeof *event)))
		return real()->epoll_ctl(epfd, op, fd, event);
	if (member.kind == DESCRIPTOR_INTERNAL) {
		errno = EBADF;
		return -1;
	}
	if (d.kind != DESCRIPTOR_EPOLL && !(d.kind == DESCRIPTOR_KERNEL && ours))
		return real()->epoll_ctl(epfd, op, fd, event);
	INSIDE;
	if (d.kind == DESCRIPTOR_KERNEL) {
		adopt(epfd, fd);
		d = descriptor_get(epfd);
	}
	if (d.kind == DESCRIPTOR_EPOLL)
		set = set_hold(d.number, 1);
	/* no free set: in the kernel's set an offloaded member is an unconnected socket, whose events mean nothing */
	if (!set)
		return real()->epoll_ctl(epfd, op, fd, event);
	r = control(set, epfd, op, fd, member, event);
	set_drop(set, 1);
	return r;
}

/* --- descriptors that change -------------------------------------------------------------------------------------- */

struct change {
	int fd;
	struct descriptor d;
};

static void forget_note(struct epoll_set *set, void *argument)
{
	const struct change *gone = argument;
	struct registration *note = set_registration(set, gone->fd);

	if (!note)
		return;
	if (gone->d.kind == DESCRIPTOR_UNDECIDED)
		count_member(set, EPOLL_CTL_DEL);
	set_remove_registration(set, note);
}

void epoll_descriptor_gone(int fd, struct descriptor d)
{
	struct change gone = { .fd = fd, .d = d };

	/* libxts removes the context's half with the socket, and the kernel removes its half by itself. */
	if (d.kind == DESCRIPTOR_KERNEL || !sets_have_registrations() || !descriptor_is_last(d))
		return;
	sets_lock();
	sets_each(forget_note, &gone);
	sets_unlock();
}

/* Moves a registration from the kernel's set to the context; for a listener with both sockets, copies it. */
static void move(struct epoll_set *set, struct registration *note, int epfd, struct descriptor d)
{
	struct registration both = *note;

	both.kind = REGISTERED_BOTH;
	both.in_kernel = is_also_local(d);
	if (!set_convert(set, (int)d.number) || context_control(set, EPOLL_CTL_ADD, note->fd, d.number, &both.event) < 0)
		preload_log("descriptor %d: lost its place in an epoll set: %m", note->fd);
	if (!both.in_kernel)
		kernel_control(set, epfd, EPOLL_CTL_DEL, note->fd, NULL);
	if (d.flags & DESCRIPTOR_ALSO_LOCAL)
		set_add_registration(set, &both);
	else
		set_remove_registration(set, note);
}

static void follow(struct epoll_set *set, void *argument)
{
	const struct change *change = argument;
	int epfd = set->registration_count ? set_descriptor(set) : -1;

	for (unsigned i = set->registration_count; epfd >= 0 && i-- > 0;) {
		struct registration *note = &set->registrations[i];
		struct descriptor d = descriptor_get(note->fd);

		if (d.kind != DESCRIPTOR_OFFLOADED || d.number != change->d.number)
			continue;
		if (note->kind == REGISTERED_UNDECIDED)
			move(set, note, epfd, d);
		else if (note->kind == REGISTERED_BOTH && !note->in_kernel && is_also_local(d))
			note->in_kernel = kernel_control(set, epfd, EPOLL_CTL_ADD, note->fd, &note->event) == 0;
	}
}

void epoll_descriptor_offloaded(int fd, struct descriptor d)
{
	struct change change = { .fd = fd, .d = d };

	if (!sets_have_registrations())
		return;
	sets_lock();
	sets_each(follow, &change);
	sets_unlock();
}

/* The registration in the context ends with the XTS socket; one in the kernel's set takes its place. */
static void move_back(struct epoll_set *set, void *argument)
{
	const struct change *change = argument;
	struct epoll_event event = { 0 };
	int epfd = set_descriptor(set);

	if (epfd < 0 || !set->ctx ||
	    XTS(xts_epoll_registered(set->ctx, (int)change->d.number, (uint32_t)change->fd, &event)) < 0)
		return;
	if (kernel_control(set, epfd, EPOLL_CTL_ADD, change->fd, &event) < 0)
		preload_log("descriptor %d: lost its place in an epoll set: %m", change->fd);
}

void epoll_descriptor_given_back(int fd, struct descriptor d)
{
	struct change change = { .fd = fd, .d = d };

	sets_lock();
	sets_each(move_back, &change);
	sets_unlock();
	epoll_descriptor_gone(fd, d);
}
