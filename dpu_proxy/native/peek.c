/*
 * Peek mode (the paper, "ULP protocol handshake"): what the host is sent stays in the TCP socket as well, so that protocols pushed
 * later can read it again.
 *
 * Linux has SO_PEEK_OFF for TCP since 6.9 only, so what was peeked before is read again into one page of memory and
 * forgotten. The cost grows with the square of the bytes peeked, of which there are as many as a socket buffer holds at
 * most; the greetings that peek mode is for are short.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "pushed.h"

#define SKIP_BYTES 65536u
#define SKIP_PIECES 1000u /* below IOV_MAX; 64 MB, more than a socket buffer holds */

static _Thread_local uint8_t skipped[SKIP_BYTES];

static bool has_ended(int fd)
{
	struct pollfd end = { .fd = fd, .events = POLLRDHUP };

	return poll(&end, 1, 0) > 0;
}

ssize_t peek_read(struct connection *c, void *out, size_t room)
{
	struct iovec iov[SKIP_PIECES + 1];
	struct msghdr message = { .msg_iov = iov };
	uint64_t skip = c->received_bytes;
	size_t pieces = 0;
	ssize_t n;

	for (uint64_t left = skip; left && pieces < SKIP_PIECES; pieces++) {
		iov[pieces].iov_base = skipped;
		iov[pieces].iov_len = left < SKIP_BYTES ? left : SKIP_BYTES;
		left -= iov[pieces].iov_len;
	}
	iov[pieces].iov_base = out;
	iov[pieces++].iov_len = room;
	message.msg_iovlen = pieces;
	do {
		n = recvmsg(c->fd, &message, MSG_PEEK | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;
	if ((uint64_t)n > skip)
		return n - (ssize_t)skip;
	/* Nothing new. After FIN (read_to_end alone may be urgent data) nothing will come: all that came before it is in the socket. */
	return !n || (c->read_to_end && has_ended(c->fd)) ? -ENODATA : -EAGAIN;
}

int peek_drop(struct connection *c, uint64_t bytes)
{
	while (bytes) {
		size_t part = bytes < SKIP_BYTES ? (size_t)bytes : SKIP_BYTES;
		ssize_t n = recv(c->fd, skipped, part, MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EPIPE; /* it was there: the connection has failed since */
		bytes -= (uint64_t)n;
	}
	return 0;
}

/* What is pushed begins to act, and takes what has waited for it. */
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
	r = peek_drop(c, drop_bytes);
	if (r)
		return r;
	p->peeking = false;
	c->received_bytes = 0;
	c->eos_told = false;
	c->readable = true;
	p->event_wanted = ulp_stack_receives(p->stack) || ulp_stack_sends(p->stack);
	start(c);
	connection_wake(c);
	return 0;
}
