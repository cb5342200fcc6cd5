/*
 * Is this the last process that has a shared listener? Then the proxy need not keep it for others, and closes it at once, as
 * the kernel would. inherit.h has the theory of operation.
 *
 * Every process that has the listener over fork(), used or not, has both ends of a pipe of it. Who leaves closes its writing
 * end, and when that was the last one the reading end tells. Several that leave at once may all find that, and are right.
 * Over exec() the pipe closes: such a process is not counted, and the listener is kept for a while longer than need be.
 */
#include "library.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct sharers {
	int held, seen;            /* the writing and the reading end */
};

static void make(struct xts_sock *s)
{
	struct sharers *made = malloc(sizeof *made);
	int ends[2];

	if (!made)
		return;
	if (pipe2(ends, O_CLOEXEC) < 0) {
		free(made);
		return;
	}
	made->seen = xts_own(ends[0]);
	made->held = xts_own(ends[1]);
	s->sharers = made;
}

void sharers_before_fork(void)
{
	if (!xts.inherits)
		return;
	for (struct xts_sock *s = xts.shared; s; s = s->shared_next)
		if (!s->sharers)
			make(s);
}

/* Whichever of its members' channels the proxy then sees end last, it is closed with that one. */
void sharers_leave(struct xts_sock *s)
{
	struct pollfd seen;

	if (!s->sharers)
		return;
	seen = (struct pollfd){.fd = s->sharers->seen};
	xts_own_close(s->sharers->held);
	(void)poll(&seen, 1, 0);
	xts_own_close(s->sharers->seen);
	free(s->sharers);
	s->sharers = NULL;
	if (!s->shared || !(seen.revents & POLLHUP))
		return;
	s->alone = true;
	outbox_add(s, TODO_SHARE);
}

void sharers_at_exit(void)
{
	for (struct xts_sock *s = xts.shared; s; s = s->shared_next)
		sharers_leave(s);
}
