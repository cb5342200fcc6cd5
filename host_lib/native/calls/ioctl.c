/*
 * ioctl(2), fcntl(2).
 *
 * An ioctl is about the connection, or about something else that any socket serves to ask for: this host's interfaces,
 * routes and neighbours, the owner of signals, the network namespace. One table says which are about the connection.
 * Flags and the number of unread bytes are answered here; the proxy carries out the others, against its allow-list. For
 * all the rest the answer is this host's kernel's, with a socket of its own.
 */
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "core/arguments.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/error.h"
#include "core/socket_kind.h"
#include "streams/stream.h"
#include "core/stack.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "core/wait.h"
#include "xts.h"

static const unsigned long of_connections[] = {
	FIONBIO,
	FIONREAD, /* SIOCINQ */
	FIOCLEX,
	FIONCLEX,
	SIOCOUTQ,
	SIOCOUTQNSD,
	SIOCATMARK,
	/* signals for the socket, which XTS sockets do not send */
	FIOASYNC,
	FIOSETOWN,
	SIOCSPGRP,
	/* time stamps are the device's, and options and control messages tell them */
	SIOCGSTAMP_OLD,
	SIOCGSTAMPNS_OLD,
	SIOCGSTAMP_NEW,
	SIOCGSTAMPNS_NEW,
	SIOCSHWTSTAMP,
	SIOCGHWTSTAMP,
	/* pushed protocols */
	SIOC_PUSH_ULP_RX,
	SIOC_PUSH_ULP_TX,
	SIOC_PUSH_ULP,
	SIOC_PEEK_MODE,
	SIOC_END_PEEK_MODE,
};

static bool is_of_connection(unsigned long request)
{
	for (size_t i = 0; i < sizeof of_connections / sizeof of_connections[0]; i++)
		if (of_connections[i] == request)
			return true;
	return false;
}

/* The answer of this host's kernel, which is the same for all of its sockets. */
static int ask_kernel(int number, unsigned long request, void *argument)
{
	int domain = AF_INET, error;
	socklen_t length = sizeof domain;
	long fd, r;

	if (xts_getsockopt(number, SOL_SOCKET, SO_DOMAIN, &domain, &length) < 0)
		return -1;
	fd = kernel_calls.syscall(SYS_socket, domain, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	r = kernel_calls.syscall(SYS_ioctl, fd, request, argument);
	error = errno;
	kernel_calls.syscall(SYS_close, fd);
	errno = error;
	return (int)r;
}

static int forward_ioctl(struct xts_sock *s, unsigned long request, void *argument)
{
	struct call call = { .type = XTS_CMD_IOCTL, .option = (int32_t)request, .length = sizeof(int) };
	int r, bytes;

	if (request != SIOCOUTQ && request != SIOCOUTQNSD && request != SIOCATMARK)
		return -ENOTTY;
	if (!xts_argument_is_writable(argument, call.length))
		return -EFAULT;
	memcpy(call.value, argument, call.length);
	r = call_proxy(s, &call);
	if (r)
		return r;
	if (request == SIOCOUTQ || request == SIOCOUTQNSD) {
		memcpy(&bytes, call.value, sizeof bytes);
		bytes += (int)s->pending_bytes;
		memcpy(call.value, &bytes, sizeof bytes);
	}
	memcpy(argument, call.value, sizeof(int));
	return 0;
}

int stream_ioctl(struct xts_sock *s, unsigned long request, void *argument)
{
	switch (request) {
	case SIOC_PUSH_ULP_RX:
	case SIOC_PUSH_ULP_TX:
	case SIOC_PUSH_ULP:
	case SIOC_PEEK_MODE:
	case SIOC_END_PEEK_MODE:
		return push_ioctl(s, request, argument);
	default:
		return forward_ioctl(s, request, argument);
	}
}

static int control(struct xts_sock *s, unsigned long request, void *argument)
{
	int value; /* the program's variable may be unaligned */

	switch (request) {
	case FIONBIO:
		if (argument_is_bad(argument, sizeof value))
			return -EFAULT;
		memcpy(&value, argument, sizeof value);
		s->nonblocking = value != 0;
		shared_status_changed(s);
		return 0;
	case FIONREAD: /* SIOCINQ */
		value = kind_of(s)->unread(s);
		if (value < 0)
			return value;
		if (argument_is_bad(argument, sizeof value))
			return -EFAULT;
		if (!socket_looks(s))
			return -EBADF;
		value = kind_of(s)->unread(s);
		if (value < 0)
			return value;
		memcpy(argument, &value, sizeof value);
		return 0;
	case FIOCLEX:
	case FIONCLEX:
		s->close_on_exec = request == FIOCLEX;
		return 0;
	case FIOASYNC: /* XTS sockets send no signals */
	case FIOSETOWN:
	case SIOCSPGRP:
		return -EINVAL;
	default:
		return kind_of(s)->ioctl(s, request, argument);
	}
}

int xts_ioctl(int number, unsigned long request, ...)
{
	struct stack *st;
	struct xts_sock *s;
	void *argument;
	va_list list;
	ssize_t r;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	if (!is_of_connection(request))
		return ask_kernel(number, request, argument);
	do {
		st = stack_enter_of(number);
		s = table_use(st, number);
		r = s ? control(s, request, argument) : -EBADF;
	} while (stack_restarts(st, &r));
	return finish_of(number, (int)r);
}

static int file_control(struct xts_sock *s, int command, long argument)
{
	shared_status_follow(s);
	switch (command) {
	case F_GETFL:
		return O_RDWR | (s->nonblocking ? O_NONBLOCK : 0);
	case F_SETFL:
		if (argument & (O_ASYNC | O_DIRECT)) /* no socket has O_DIRECT in the kernel */
			return -EINVAL;
		s->nonblocking = argument & O_NONBLOCK;
		shared_status_changed(s);
		return 0;
	case F_GETFD:
		return s->close_on_exec ? FD_CLOEXEC : 0;
	case F_SETFD:
		s->close_on_exec = argument & FD_CLOEXEC;
		return 0;
	default:
		return -EINVAL;
	}
}

int xts_fcntl(int number, int command, ...)
{
	struct stack *st;
	struct xts_sock *s;
	va_list list;
	long argument;
	int r;

	va_start(list, command);
	argument = va_arg(list, long);
	va_end(list);
	st = stack_enter_of(number);
	s = table_open(st, number);
	r = s ? file_control(s, command, argument) : -EBADF;
	stack_leave(st);
	return finish(r);
}
