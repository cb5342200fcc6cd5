/* The bottom of a stack: the TCP socket, and the readiness and errors that the stack knows of. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "ulp_stack_inside.h"

/* What a read finds that finds nothing more: ulp_socket_end(). */
static int end_of(const struct ulp_stack *s)
{
	return s->write_error ? s->write_error : -ENODATA;
}

ssize_t ulp_bottom_read(struct ulp_stack *s, void *out, size_t room, struct ulp_mark *mark)
{
	ssize_t n;

	memset(mark, 0, sizeof *mark);
	if (s->ended)
		return -ENODATA;
	if (s->read_error)
		return s->read_error;
	if (!s->readable || s->owner.fd < 0)
		return -EAGAIN;
	room = ulp_turn_bytes(s, room);
	if (!room)
		return -EAGAIN;
	do {
		n = recv(s->owner.fd, out, room, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n > 0) {
		s->turn.bytes -= (uint32_t)n;
		s->read += (uint64_t)n;
		s->heard = true;
		if ((size_t)n < room && s->owner.reports_end && !s->read_to_end)
			s->readable = false;
		return n;
	}
	if (!n) {
		s->read_error = s->write_error;
		s->ended = !s->read_error;
		return end_of(s);
	}
	if (errno == EAGAIN) {
		s->readable = false;
		return -EAGAIN;
	}
	/* the kernel reports an error only once, and a layer may have bytes to deliver before it */
	s->read_error = -errno;
	return s->read_error;
}

static int failed(struct ulp_stack *s, int error)
{
	if (error != EPIPE) /* which says that another error was told before */
		s->write_error = -error;
	return -error;
}

ssize_t ulp_bottom_write(struct ulp_stack *s, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	size_t bytes = ulp_iov_bytes(iov, pieces);
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)pieces };
	ssize_t n;

	if (!bytes)
		return mark->pdu;
	if (!s->writable || s->owner.fd < 0)
		return 0;
	do {
		n = sendmsg(s->owner.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		return failed(s, errno);
	s->writable = n >= 0 && (size_t)n == bytes;
	s->written += n < 0 ? 0 : (uint64_t)n;
	return n < 0 ? 0 : n;
}

int ulp_socket(const struct ulp_layer *l)
{
	bool above_tcp = (!l->receive || !l->below_receive) && (!l->send || !l->below_send);

	return above_tcp ? l->stack->owner.fd : -1;
}

int ulp_socket_failed(struct ulp_layer *l, int error)
{
	return failed(l->stack, error);
}

int ulp_socket_end(const struct ulp_layer *l)
{
	return end_of(l->stack);
}

void ulp_socket_full(struct ulp_layer *l)
{
	l->stack->writable = false;
}

void ulp_socket_empty(struct ulp_layer *l)
{
	l->stack->readable = false;
}

void ulp_socket_not_empty(struct ulp_layer *l)
{
	l->stack->readable = true;
	l->stack->idle = false;
}

bool ulp_socket_readable(const struct ulp_layer *l, uint64_t *since_ns)
{
	*since_ns = l->stack->readable_ns;
	return l->stack->readable;
}

bool ulp_peer_is_silent(struct ulp_layer *l)
{
	struct ulp_stack *s = l->stack;
	char byte;

	if (!s->expects_peer || s->heard || ulp_socket(l) < 0)
		return false;
	if (s->readable && recv(s->owner.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN)
		s->readable = false;
	return !s->readable;
}

bool ulp_socket_writable(const struct ulp_layer *l)
{
	return l->stack->writable;
}

void ulp_stack_event(struct ulp_stack *s, bool readable, bool writable)
{
	if (readable && !s->readable)
		s->readable_ns = s->owner.now_ns(s->owner.owner);
	s->readable |= readable;
	s->writable |= writable;
	if (readable || writable)
		s->idle = false;
}

void ulp_stack_read_to_end(struct ulp_stack *s)
{
	s->read_to_end = true;
	ulp_stack_event(s, true, false);
}

bool ulp_stack_readable(const struct ulp_stack *s)
{
	return !s->idle && (s->readable || s->ended || s->read_error || s->failed || s->cut);
}

bool ulp_stack_writable(const struct ulp_stack *s)
{
	return s->writable;
}
