/*
 * xts_fileno(): one end of a Unix socket pair whose readiness is kept equal to the socket's, so that select, poll,
 * epoll and everything built on them see it.
 *
 *     readable   a byte waits in it             (written from our end, taken back from theirs)
 *     writable   its send buffer has room       (filled from their end, drained from ours)
 *     read hang-up, hang-up                     our end has shut down one way, both ways
 *
 * Both ends are in this process, so each state but the last can be undone from the other end. A hang-up cannot be
 * undone, so it is mirrored only once a connection has ended. A socket that was never connected, which the kernel would
 * report as hung up, is therefore only writable here.
 *
 * A thread may be asleep on a kernel socket when the descriptor of that socket becomes a duplicate of the mirror's (an
 * undecided socket, which becomes offloaded with the first datagram that another thread sends). select(2) and poll(2)
 * look up their descriptors each time they wake, but they sleep on the files that they found at first. So the replaced
 * socket is kept open, and its sleepers are woken whenever the new one becomes readable: each shutdown(2) of it wakes
 * them.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/error.h"
#include "core/socket.h"
#include "core/stack.h"
#include "own_descriptors.h"
#include "own_memory.h"
#include "processes/inherit.h"
#include "processes/take_over.h"
#include "waiting/mirror.h"
#include "waiting/progress_thread.h"
#include "xts_private.h"

#define SEND_BUFFER_BYTES 4608 /* the least that the kernel allows */
#define FILL_BYTES 2048        /* more than a quarter of the buffer, so that the kernel counts it as full */

struct mirror {
	int ours, theirs;
	int replaced; /* the kernel socket that this mirror has replaced; -1: none */
	bool readable, writable, half_closed, closed;
};

static int mirror_make(struct xts_sock *s)
{
	struct stack *st = s->stack;
	struct mirror *m = calloc(1, sizeof *m);
	int ends[2], bytes = SEND_BUFFER_BYTES;

	if (!m)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
		free(m);
		return -errno;
	}
	setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
	m->ours = xts_own(ends[0]);
	m->theirs = xts_own(ends[1]);
	m->replaced = -1;
	m->writable = true;
	s->mirror = m;
	mirror_dirty(s);
	st->mirrors++;
	progress_need(st);
	return 0;
}

static void wake_sleepers(const struct mirror *m)
{
	if (m->replaced >= 0)
		(void)shutdown(m->replaced, SHUT_RDWR);
}

static void set_readable(struct mirror *m, bool readable)
{
	char byte = 0;

	if (m->readable == readable)
		return;
	if (readable) {
		m->readable = send(m->ours, &byte, 1, MSG_NOSIGNAL) == 1;
		wake_sleepers(m);
		return;
	}
	m->readable = recv(m->theirs, &byte, 1, 0) < 0 && errno != EAGAIN;
}

static void set_writable(struct mirror *m, bool writable)
{
	char fill[FILL_BYTES];

	if (m->writable == writable)
		return;
	memset(fill, 0, sizeof fill);
	if (!writable) {
		while (send(m->theirs, fill, sizeof fill, MSG_NOSIGNAL) > 0)
			;
	} else {
		while (recv(m->ours, fill, sizeof fill, 0) > 0)
			;
	}
	m->writable = writable;
}

static void update(struct xts_sock *s)
{
	struct mirror *m = s->mirror;
	uint32_t events = socket_events(s);

	/* This has to come first, since it sets POLLIN permanently: if a byte were written first, a poller would see
	 * POLLIN alone. */
	if ((s->shutdown & RCV_SHUTDOWN) && s->phase == PHASE_CONNECTED && !m->half_closed) {
		m->half_closed = true;
		shutdown(m->ours, SHUT_WR);
		wake_sleepers(m);
	}
	if (!m->half_closed)
		/* the second case: an error waits to be fetched */
		set_readable(m, events & EPOLLIN || (s->datagrams && events & EPOLLERR));
	set_writable(m, events & EPOLLOUT);
	if (s->phase == PHASE_UNCONNECTED)
		return;
	if (s->shutdown == SHUTDOWN_MASK && s->phase == PHASE_CONNECTED && !m->closed) {
		m->closed = true;
		shutdown(m->ours, SHUT_RDWR);
	}
}

void mirror_dirty(struct xts_sock *s)
{
	struct stack *st = s->stack;

	if (s->mirror_dirty)
		return;
	s->mirror_dirty = true;
	s->dirty_next = st->dirty;
	st->dirty = s;
}

void mirrors_update(struct stack *st)
{
	struct xts_sock *s;

	while ((s = st->dirty)) {
		st->dirty = s->dirty_next;
		s->mirror_dirty = false;
		if (s->mirror)
			update(s);
	}
}

void mirror_close(struct xts_sock *s)
{
	struct stack *st = s->stack;
	struct xts_sock **at = &st->dirty;

	if (!s->mirror)
		return;
	while (*at && *at != s)
		at = &(*at)->dirty_next;
	if (*at)
		*at = s->dirty_next;
	s->mirror_dirty = false;
	xts_own_close(s->mirror->ours);
	xts_own_close(s->mirror->theirs);
	if (s->mirror->replaced >= 0)
		xts_own_close(s->mirror->replaced);
	xts_release(s->mirror);
	s->mirror = NULL;
	st->mirrors--;
}

int xts_fileno(int number)
{
	struct stack *st;
	struct xts_sock *s;
	int r = -EBADF;

	st = stack_enter_of(number);
	s = table_use_for(st, number, PURPOSE_POLL);
	if (s)
		listener_interest(s, false);
	if (s && !socket_looks(s))
		s = NULL;
	if (s) {
		r = s->mirror ? 0 : mirror_make(s);
		if (s->mirror)
			r = s->mirror->theirs;
	}
	stack_leave(st);
	return finish(r);
}

int xts_wake_sleepers_of(int number, int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), r = copy < 0 ? -errno : 0;
	struct stack *st;
	struct xts_sock *s;

	if (r)
		return finish(r);
	copy = xts_own(copy);
	st = stack_enter_of(number);
	s = table_use_for(st, number, PURPOSE_POLL);
	if (!s)
		r = -EBADF;
	else if (!s->mirror)
		r = mirror_make(s);
	if (s && s->mirror && s->mirror->replaced < 0) {
		s->mirror->replaced = copy;
		copy = -1;
	}
	stack_leave(st);
	if (copy >= 0)
		xts_own_close(copy);
	return finish(r);
}
