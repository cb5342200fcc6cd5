/*
 * getsockopt(2), setsockopt(2). Options that concern only this side (timeouts, low-water mark, lingering, the pending
 * error, the socket's type) are handled here or in datagram_option.c; TLS keys in ktls.c; hints, and what is about this
 * host, in hint.c. The proxy applies all other options to the TCP socket, against its allow-list; an option that is not
 * on the list fails there.
 */
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/time.h>

#include "core/hint.h"
#include "core/arguments.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/outbox.h"
#include "core/settings.h"
#include "core/socket_kind.h"
#include "streams/stream.h"
#include "core/stack.h"
#include "link/credit.h"
#include "ulps/ktls.h"
#include "xts.h"
#include "xts_private.h"

/* --- options of this side ----------------------------------------------------------------------------------------- */

static int set_timeout(struct xts_sock *s, uint64_t *timeout_ns, const void *value, socklen_t length)
{
	struct timeval t;

	if (length < sizeof t)
		return -EINVAL;
	memcpy(&t, value, sizeof t);
	if (t.tv_usec < 0 || t.tv_usec >= 1000000)
		return -EDOM;
	if (t.tv_sec < 0)
		*timeout_ns = 0; /* as in the kernel: do not wait at all */
	else if (!t.tv_sec && !t.tv_usec)
		*timeout_ns = FOREVER;
	else if ((uint64_t)t.tv_sec > FOREVER / NS_PER_S / 2)
		*timeout_ns = FOREVER;
	else
		*timeout_ns = (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_usec * NS_PER_US;
	shared_status_changed(s);
	return 0;
}

static void get_timeout(struct timeval *t, uint64_t timeout_ns)
{
	t->tv_sec = timeout_ns == FOREVER ? 0 : (time_t)(timeout_ns / NS_PER_S);
	t->tv_usec = timeout_ns == FOREVER ? 0 : (suseconds_t)(timeout_ns % NS_PER_S / NS_PER_US);
}

static int set_lowat(struct xts_sock *s, int value)
{
	socket_set_lowat(s, value < 0 ? INT32_MAX : (uint32_t)value);
	shared_status_changed(s);
	if (s->done || (s->unread && s->unread >= s->receive_lowat))
		socket_changed(s, EPOLLIN); /* tcp_set_rcvlowat() reports readiness again */
	return 0;
}

static int set_linger(struct xts_sock *s, const void *value, socklen_t length)
{
	struct linger l;

	if (length < sizeof l)
		return -EINVAL;
	memcpy(&l, value, sizeof l);
	s->linger = l.l_onoff;
	if (l.l_onoff)
		s->linger_s = l.l_linger < 0 ? INT32_MAX : l.l_linger;
	shared_status_changed(s);
	return 0;
}

/*
 * SO_BINDTODEVICE, by name. An offloaded socket is on none of this host's devices, so the option can only be cleared. 0
 * or -errno, or 1: the proxy is asked, and answers EPERM, as it does not know this host's devices.
 */
static int set_device(const void *value, socklen_t length)
{
	char name[IFNAMSIZ] = "";

	if (length > sizeof name - 1)
		length = sizeof name - 1;
	if (length)
		memcpy(name, value, length);
	if (!name[0])
		return 0;
	return if_nametoindex(name) ? 1 : -ENODEV;
}

/* Sets an option of this side: 0 or -errno, or 1 if the proxy has to be asked. */
static int set_local(struct xts_sock *s, int option, const void *value, socklen_t length)
{
	int number = 0;

	if (option == SO_BINDTODEVICE)
		return set_device(value, length);
	if (length < sizeof number)
		return -EINVAL;
	memcpy(&number, value, sizeof number);
	switch (option) {
	case SO_RCVTIMEO:
		return set_timeout(s, &s->receive_timeout_ns, value, length);
	case SO_SNDTIMEO:
		return set_timeout(s, &s->send_timeout_ns, value, length);
	case SO_RCVLOWAT:
		return set_lowat(s, number);
	case SO_LINGER:
		return set_linger(s, value, length);
	case SO_BINDTOIFINDEX:
		return number < 0 ? -EINVAL : number > 0;
	case SO_TYPE:
	case SO_PROTOCOL:
	case SO_DOMAIN:
	case SO_ERROR:
	case SO_ACCEPTCONN:
	case SO_SNDLOWAT:
		return -ENOPROTOOPT;
	default:
		return 1;
	}
}

static int get_local(struct xts_sock *s, int option, void *value, socklen_t *length)
{
	union {
		int number;
		struct linger linger;
		struct timeval time;
	} v = { 0 };
	socklen_t bytes = sizeof v.number;

	switch (option) {
	case SO_RCVTIMEO:
		get_timeout(&v.time, s->receive_timeout_ns);
		bytes = sizeof v.time;
		break;
	case SO_SNDTIMEO:
		get_timeout(&v.time, s->send_timeout_ns);
		bytes = sizeof v.time;
		break;
	case SO_RCVLOWAT:
		v.number = (int)s->receive_lowat;
		break;
	case SO_LINGER:
		v.linger.l_onoff = s->linger;
		v.linger.l_linger = s->linger_s;
		bytes = sizeof v.linger;
		break;
	case SO_TYPE:
		v.number = s->seqpacket ? SOCK_SEQPACKET : kind_of(s)->type;
		break;
	case SO_PROTOCOL:
		v.number = kind_of(s)->protocol;
		break;
	case SO_DOMAIN:
		v.number = s->family == 4 ? AF_INET : AF_INET6;
		break;
	case SO_ERROR:
		if (!socket_looks(s) || kind_of(s)->seek_error(s) == -EBADF)
			return -EBADF;
		v.number = -take_error(s);
		break;
	case SO_ACCEPTCONN:
		v.number = kind_of(s)->accepts;
		break;
	case SO_SNDLOWAT:
		v.number = 1;
		break;
	case SO_BINDTODEVICE:
		bytes = 0;
		break;
	case SO_BINDTOIFINDEX:
		break;
	default:
		return 1;
	}
	if (*length > bytes)
		*length = bytes;
	if (*length)
		memcpy(value, &v, *length);
	return 0;
}

/* --- forwarded ---------------------------------------------------------------------------------------------------- */

/* 0 or -errno, or 1 if the proxy has to be asked, for *asked. */
static int set_here(struct xts_sock *s, int level, int *asked, const void **value, socklen_t *length)
{
	int r = hint_set(s, level, asked, *value, *length), option = *asked;

	if (r > 0)
		r = kind_of(s)->option_set(s, level, option, value, length);
	if (r <= 0)
		return r;
	if (level == SOL_SOCKET)
		return set_local(s, option, *value, *length);
	if (level == SOL_TLS)
		return ktls_set(s, option, *value, *length);
	return level == IPPROTO_TCP && option == TCP_ULP ? ktls_set_ulp(s, *value, *length) : 1;
}

static int get_here(struct xts_sock *s, int level, int option, void *value, socklen_t *length)
{
	int r = hint_get(s, level, option, value, length);

	if (r > 0)
		r = kind_of(s)->option_get(s, level, option, value, length);
	if (r <= 0)
		return r;
	if (level == SOL_SOCKET)
		return get_local(s, option, value, length);
	if (level == SOL_TLS)
		return ktls_get(s, option, value, length);
	return level == IPPROTO_TCP && option == TCP_ULP ? ktls_get_ulp(s, value, length) : 1;
}

/* The device's kernel sets TCP's buffers, and doubles the size as usual. In addition each buffer has a window of up to
 * half of that size (buffers.c of the proxy). */
void stream_option_was_set(struct xts_sock *s, int level, int option, const void *value, socklen_t length)
{
	struct stack *st = s->stack;
	int bytes;

	(void)length;
	if (level != SOL_SOCKET || (option != SO_RCVBUF && option != SO_SNDBUF))
		return;
	if (option == SO_SNDBUF) {
		s->peer_window = 0; /* the window may become smaller, which the next credit adverts will show */
		return;
	}
	memcpy(&bytes, value, sizeof bytes);
	s->window_max = bytes < 0 || bytes > (int)XTS_CREDITS_MAX ? XTS_CREDITS_MAX : (uint32_t)bytes;
	if (s->window_max < XTS_ULP_WINDOW_MIN)
		s->window_max = XTS_ULP_WINDOW_MIN;
	if (s->window_max > st->settings.window_bytes_max)
		s->window_max = st->settings.window_bytes_max;
	if (s->state == TCP_STATE_ESTABLISHED && s->grant.window > s->window_max)
		xts_credit_shrink(&s->grant, s->window_max);
}

static bool is_on(const void *value, socklen_t length)
{
	int on = 0;

	if (value)
		memcpy(&on, value, length < sizeof on ? length : sizeof on);
	return on;
}

/* Does the kernel look at the length of a number before it reads the value? */
static bool checks_length_first(int level, int option)
{
	return level == IPPROTO_TCP || (level == SOL_SOCKET && option != SO_BINDTODEVICE);
}

/* The numbers of options with a time that is 64 bits wide on every machine. Here it is that anyway. */
static int usual_number(int level, int option)
{
	if (level == SOL_SOCKET && option == SO_RCVTIMEO_NEW)
		return SO_RCVTIMEO;
	return level == SOL_SOCKET && option == SO_SNDTIMEO_NEW ? SO_SNDTIMEO : option;
}

static int set_option(struct xts_sock *s, int level, int option, const void *value, socklen_t length)
{
	struct call call = { .type = XTS_CMD_SETSOCKOPT, .level = level };
	int r;

	if (!xts_argument_is_readable(value, length))
		return length < sizeof(int) && checks_length_first(level, option) ? -EINVAL : -EFAULT;
	option = usual_number(level, option);
	r = set_here(s, level, &option, &value, &length);
	if (r <= 0)
		return r;
	if (length > sizeof call.value)
		return -EINVAL;
	if (length)
		memcpy(call.value, value, length);
	call.option = option;
	call.length = length;
	r = kind_of(s)->need_proxy(s);
	if (!r)
		r = asked_call(s, &call);
	if (r)
		return r;
	s->optioned = true;
	s->renewed = false;
	if (level == IPPROTO_IPV6 && option == IPV6_V6ONLY)
		s->v6only = is_on(value, length);
	kind_of(s)->option_was_set(s, level, option, value, length);
	return 0;
}

static int get_option(struct xts_sock *s, int level, int option, void *value, socklen_t *length)
{
	struct call call = { .type = XTS_CMD_GETSOCKOPT, .level = level, .option = option };
	int r = xts_argument_result(value, length);

	if (r)
		return r;
	option = usual_number(level, option);
	r = get_here(s, level, option, value, length);
	if (r <= 0)
		return r;
	call.length = *length < sizeof call.value ? *length : (uint32_t)sizeof call.value;
	if (value && call.length)
		memcpy(call.value, value, call.length);
	r = kind_of(s)->need_proxy(s);
	if (!r)
		r = call_proxy(s, &call);
	if (r == -ENOPROTOOPT && s->family == 4 && level != SOL_SOCKET && level != IPPROTO_IP &&
	    level != kind_of(s)->protocol)
		return -EOPNOTSUPP; /* the errno of ip_getsockopt(), unlike that of ip_setsockopt() */
	if (r)
		return r;
	if (call.length < *length)
		*length = call.length;
	if (value && *length)
		memcpy(value, call.value, *length);
	return 0;
}

int xts_setsockopt(int number, int level, int option, const void *value, socklen_t length)
{
	struct stack *st;
	struct xts_sock *s;
	ssize_t r;

	if ((int)length < 0)
		return finish(-EINVAL);
	do {
		st = stack_enter_of(number);
		s = table_use(st, number);
		r = s ? set_option(s, level, option, value, length) : -EBADF;
	} while (stack_restarts(st, &r));
	return finish_of(number, (int)r);
}

int xts_set_nodelay(int number)
{
	struct stack *st;
	struct call call = {
		.type = XTS_CMD_SETSOCKOPT, .level = IPPROTO_TCP, .option = TCP_NODELAY, .length = sizeof(int)
	};
	const int on = 1;
	struct xts_sock *s;
	int r = -EAGAIN;

	memcpy(call.value, &on, sizeof on);
	st = stack_enter_of(number);
	s = table_open(st, number);
	if (!s)
		r = -EBADF;
	else if (s->state == TCP_STATE_ESTABLISHED)
		r = call_proxy_unanswered(s, &call);
	if (!r) {
		s->optioned = true;
		s->renewed = false;
	}
	stack_leave(st);
	return finish_of(number, r);
}

int xts_getsockopt(int number, int level, int option, void *value, socklen_t *length)
{
	struct stack *st;
	struct xts_sock *s;
	int r, failed;

	st = stack_enter_of(number);
	s = table_use(st, number);
	r = s ? get_option(s, level, option, value, length) : -EBADF;
	stack_leave(st);
	if (!r && level == SOL_SOCKET && option == SO_ERROR && *length == sizeof failed) {
		memcpy(&failed, value, sizeof failed);
		if (failed)
			last_error_failed(failed, number);
	}
	return finish_of(number, r);
}
