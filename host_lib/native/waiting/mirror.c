/*
 * xts_fileno(): one end of a Unix socket pair whose readiness is kept equal to the socket's, so that select, poll,
 * epoll and everything built on them see it.
 *
 *     readable   datagrams of a byte wait in it            (sent from our end, taken back from theirs)
 *     writable   its send buffer is larger than what is in flight   (SO_SNDBUF, with a datagram that nobody takes)
 *     read hang-up, hang-up                                their end has been shut down for one way, for both ways
 *
 * What comes while something is unread is an event of its own for an edge-triggered set, as it is on the kernel. So it
 * is another datagram. When there are WAITING_MAX, all but one are taken back first.
 *
 * Each state but the last can be undone. A hang-up cannot be undone, so it is mirrored only once a connection has
 * ended. A socket that was never connected, which the kernel would report as hung up, is therefore only writable here.
 * One whose attempt to connect has failed hangs up only for those who have asked for that (xts_fileno_until_connect()),
 * and its mirror ends with the next attempt.
 *
 * The descriptor shows readiness and carries no data: what others would write to it would never be sent. So a write
 * must fail. Therefore these are datagram sockets, whose one direction can be cut: their end has no peer, and write()
 * fails with ENOTCONN, while our end can still send to it. (A shutdown would do for a stream, and would look like the
 * end of the connection.) A read finds nothing (EAGAIN), or takes the byte, and then nothing.
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
#include "core/socket_kind.h"
#include "core/stack.h"
#include "common/own_descriptors.h"
#include "common/own_memory.h"
#include "processes/take_over.h"
#include "waiting/mirror.h"
#include "waiting/progress_thread.h"
#include "xts_private.h"

/* A socket is writable while what is in flight takes at most a quarter of its send buffer. */
#define IN_FLIGHT_BYTES 1000 /* the kernel counts some 2 KB for it */
#define WIDE_BYTES 32768
#define NARROW_BYTES 1 /* becomes the least that the kernel allows, some 4.6 KB */
#define WAITING_MAX 4u /* datagrams; the kernel lets some ten wait */

struct mirror {
	int ours, theirs;
	int replaced;     /* the kernel socket that this mirror has replaced; -1: none */
	unsigned waiting; /* datagrams in theirs: it is readable */
	bool arrived;     /* something has come since it was last updated */
	bool writable, half_closed, closed;
	bool until_connect; /* it may end with the next attempt to connect */
};

static void send_buffer(int fd, int bytes)
{
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

/* Puts a datagram in flight that nobody takes, and cuts the direction in which it went. */
static int cut(int theirs)
{
	static const char in_flight[IN_FLIGHT_BYTES];
	const struct sockaddr nobody = { .sa_family = AF_UNSPEC };

	send_buffer(theirs, WIDE_BYTES);
	if (send(theirs, in_flight, sizeof in_flight, MSG_NOSIGNAL) < 0)
		return -errno;
	return connect(theirs, &nobody, sizeof nobody) < 0 ? -errno : 0;
}

static int mirror_make(struct xts_sock *s)
{
	struct stack *st = s->stack;
	struct mirror *m = calloc(1, sizeof *m);
	int ends[2], r;

	if (!m)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
		r = -errno;
		free(m);
		return r;
	}
	r = cut(ends[1]);
	if (r) {
		close(ends[0]);
		close(ends[1]);
		free(m);
		return r;
	}
	m->ours = xts_own(ends[0]);
	m->theirs = ends[1]; /* it is for the program, under the interposer too */
	m->replaced = -1;
	m->writable = true;
	s->mirror = m;
	mirror_dirty(s);
	st->outside++;
	progress_need(st);
	return 0;
}

static void wake_sleepers(const struct mirror *m)
{
	if (m->replaced >= 0)
		(void)shutdown(m->replaced, SHUT_RDWR);
} /* Takes back all datagrams but so many. */
static void take_back(struct mirror *m, unsigned keep)
{
	char byte;

	while (m->waiting > keep) {
		if (recv(m->theirs, &byte, 1, 0) >= 0)
			m->waiting--;
		else if (errno != EINTR)
			m->waiting = 0; /* the program has taken them */
	}
}

static void set_readable(struct mirror *m, bool readable)
{
	bool arrived = m->arrived;
	char byte = 0;

	m->arrived = false;
	if (!readable) {
		take_back(m, 0);
		return;
	}
	if (m->waiting && !arrived)
		return;
	if (m->waiting == WAITING_MAX)
		take_back(m, 1);
	m->waiting += send(m->ours, &byte, 1, MSG_NOSIGNAL) == 1;
	wake_sleepers(m);
}

static void set_writable(struct mirror *m, bool writable)
{
	if (m->writable == writable)
		return;
	send_buffer(m->theirs, writable ? WIDE_BYTES : NARROW_BYTES); /* wakes those that wait for room */
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
		shutdown(m->theirs, SHUT_RD);
		wake_sleepers(m);
	}
	if (!m->half_closed)
		set_readable(m, events & kind_of(s)->readable_on);
	set_writable(m, events & EPOLLOUT);
	if (m->until_connect && s->phase == PHASE_CONNECTING && s->state == TCP_STATE_CLOSE && !m->closed) {
		m->closed = true;
		shutdown(m->theirs, SHUT_RDWR);
	}
	if (s->phase == PHASE_UNCONNECTED)
		return;
	if (s->shutdown == SHUTDOWN_MASK && s->phase == PHASE_CONNECTED && !m->closed) {
		m->closed = true;
		shutdown(m->theirs, SHUT_RDWR);
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

void mirror_arrived(struct xts_sock *s)
{
	s->mirror->arrived = true;
	mirror_dirty(s);
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
	if (s->mirror && !s->mirror->closed)
		shutdown(s->mirror->theirs, SHUT_RDWR); /* for those that have a duplicate of it */
	mirror_forget(s);
}

void mirror_forget(struct xts_sock *s)
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
	close(s->mirror->theirs);
	if (s->mirror->replaced >= 0)
		xts_own_close(s->mirror->replaced);
	xts_release(s->mirror);
	s->mirror = NULL;
	st->outside--;
}

void mirror_connects(struct xts_sock *s)
{
	if (s->mirror && s->mirror->closed && s->mirror->until_connect)
		mirror_forget(s);
	else if (s->mirror)
		mirror_dirty(s); /* not writable until connected */
}

static int get(int number, bool until_connect)
{
	struct stack *st;
	struct xts_sock *s;
	int r = -EBADF;

	st = stack_enter_of(number);
	s = table_use_for(st, number, PURPOSE_POLL);
	if (s)
		kind_of(s)->interest(s, false);
	if (s && !socket_looks(s))
		s = NULL;
	if (s) {
		r = s->mirror ? 0 : mirror_make(s);
		if (s->mirror) {
			s->mirror->until_connect |= until_connect;
			r = s->mirror->theirs;
		}
	}
	stack_leave(st);
	return finish(r);
}

int xts_fileno(int number)
{
	return get(number, false);
}

int xts_fileno_until_connect(int number)
{
	return get(number, true);
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
