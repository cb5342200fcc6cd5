/*
 * Peek mode (the paper, "ULP protocol handshake"): what the host is sent stays in the TCP socket as well, so that
 * protocols pushed later can read it again.
 *
 * Theory of operation
 *
 * From Linux 6.9 on the kernel remembers where the next peek at a TCP socket begins (SO_PEEK_OFF): each byte is read
 * once. That place is wrong behind urgent data, which reading skips and the kernel's reckoning does not; so each read
 * looks for urgent data after it, and the first that finds some is forgotten, and all from then on, as all on older
 * kernels, is read from the front: what was peeked before goes into memory that nobody looks at. So that this costs
 * little however slowly a peer drips, nothing more is peeked there once that is FRONT_BYTES: a read then takes 6 µs
 * where the peer has sent large pieces, 80 µs where they have 100 bytes. (400 KB in such pieces: 7 s without that
 * bound, 0.1 s with SO_PEEK_OFF.)
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pushed.h"

#define FRONT_BYTES 65536u

static _Thread_local uint8_t skipped[FRONT_BYTES];

static bool has_ended(int fd)
{
	struct pollfd end = { .fd = fd, .events = POLLRDHUP };

	return poll(&end, 1, 0) > 0;
}

/* Urgent data, not read past: the call says EINVAL when there is none, or when it is a part of the stream as all
 * other. */
static bool has_urgent(int fd)
{
	uint8_t byte;

	return recv(fd, &byte, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EINVAL;
}

static ssize_t peek_pieces(int fd, struct iovec *iov, size_t pieces)
{
	struct msghdr message = { .msg_iov = iov, .msg_iovlen = pieces };
	ssize_t n;

	do {
		n = recvmsg(fd, &message, MSG_PEEK | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

/* The kernel remembers the place from now on (0), or does not (-1). */
static bool set_place(int fd, int place)
{
	return !setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, &place, sizeof place);
}

static ssize_t peek_from_front(struct connection *c, void *out, size_t room)
{
	struct iovec iov[] = { { skipped, (size_t)c->received_bytes }, { out, room } };
	ssize_t n;

	if (c->received_bytes >= FRONT_BYTES)
		return c->read_to_end && has_ended(c->fd) ? -ENODATA : -EAGAIN;
	n = peek_pieces(c->fd, iov, 2);
	if (n < 0)
		return n;
	if ((uint64_t)n > c->received_bytes)
		return n - (ssize_t)c->received_bytes;
	/* Nothing new. After FIN (read_to_end alone may be urgent data) nothing will come: all that came before it is
	 * in the socket. */
	return !n || (c->read_to_end && has_ended(c->fd)) ? -ENODATA : -EAGAIN;
}

ssize_t peek_read(struct connection *c, void *out, size_t room)
{
	struct pushed *p = c->pushed;
	struct iovec piece = { out, room };
	ssize_t n;

	if (p->peek == PEEK_NEW)
		p->peek = set_place(c->fd, 0) ? PEEK_ON : PEEK_FROM_FRONT;
	if (p->peek == PEEK_FROM_FRONT)
		return peek_from_front(c, out, room);
	n = peek_pieces(c->fd, &piece, 1);
	if (n > 0 && has_urgent(c->fd)) {
		(void)set_place(c->fd, -1);
		p->peek = PEEK_FROM_FRONT;
		return peek_from_front(c, out, room);
	}
	return n ? n : -ENODATA;
}

int peek_drop(struct connection *c, uint64_t bytes)
{
	while (bytes) {
		size_t part = bytes < FRONT_BYTES ? (size_t)bytes : FRONT_BYTES;
		ssize_t n = recv(c->fd, skipped, part, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE; /* the bytes were there before: the connection has failed since */
		bytes -= (uint64_t)n;
	}
	return 0;
}

/* The pushed protocols start, and get what has waited for them. */
static void start(struct connection *c)
{
	pushed_start(c);
	if (!c->error)
		connection_flush(c);
}

int peek_begin(struct connection *c, bool on)
{
	struct pushed *p;
	int r;

	if (c->state == CONNECTION_FAILED || c->state == CONNECTION_CLOSING || c->shared)
		return -EINVAL;
	if (c->received_bytes || (c->pushed && c->pushed->started))
		return -EISCONN;
	if (!on && !c->pushed)
		return 0;
	r = pushed_make(c);
	if (r)
		return r;
	p = c->pushed;
	p->peeking = on;
	if (!on && p->peek == PEEK_ON) {
		(void)set_place(c->fd, -1);
		p->peek = PEEK_NEW;
	}
	if (!on && c->state == CONNECTION_ESTABLISHED && (ulp_stack_receives(p->stack) || ulp_stack_sends(p->stack)))
		start(c);
	return 0;
}

int peek_end(struct connection *c, uint32_t drop_bytes)
{
	struct pushed *p = c->pushed;
	int r;

	if (!p || !p->peeking || c->state != CONNECTION_ESTABLISHED || drop_bytes > c->received_bytes)
		return -EINVAL;
	(void)set_place(c->fd, -1);
	r = peek_drop(c, drop_bytes);
	if (r)
		return r;
	p->peeking = false;
	c->received_bytes = 0;
	c->eos_sent = false;
	c->readable = true;
	p->event_wanted = ulp_stack_receives(p->stack) || ulp_stack_sends(p->stack);
	start(c);
	connection_wake(c);
	return 0;
}
