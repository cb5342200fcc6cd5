/* Options that only datagram sockets have, as far as this side implements them; the others are options of the device's
 * socket. */
#include <netinet/in.h>
#include <netinet/udp.h>

#include "datagrams/datagram_calls.h"
#include "core/channel.h"
#include "datagrams/datagrams.h"
#include "core/socket.h"
#include "xts.h"

static int number_of(const void *value, socklen_t length)
{
	int number = 0;

	if (value)
		memcpy(&number, value, length < sizeof number ? length : sizeof number);
	return number;
}

int datagram_option_set(struct xts_sock *s, int level, int option, const void **value, socklen_t *length)
{
	struct datagrams *q = s->datagrams;
	int number = number_of(*value, *length);

	if (level == SOL_SOCKET && option == SO_RXQ_OVFL) {
		q->tells_drops = number != 0;
		return 0;
	}
	if (level == SOL_SOCKET && option == SO_RCVBUF && !s->proxy_id && !q->opens) {
		/* A negative size is taken as a very large one, as in the kernel. */
		q->receive_bytes = number < 0 || number > (int)XTS_CREDITS_MAX ? XTS_CREDITS_MAX :
				   number                                      ? (uint32_t)number :
										 1;
		datagram_set_window(s, q->receive_bytes);
		return 0;
	}
	if (level == SOL_XTS && option == SO_XTS_CLOCK)
		return datagram_clock_set(s, *value, *length);
	if (level == SOL_XTS && option == SO_XTS_FILTER)
		return *length > XTS_FILTER_NAME_BYTES_MAX ? -EINVAL : 1;
	if (level == SOL_SOCKET)
		return datagram_filter_value(option, value, length);
	if (level != IPPROTO_UDP)
		return level == IPPROTO_IP || level == IPPROTO_IPV6 ? 1 : -ENOPROTOOPT;
	if (option == UDP_CORK) {
		if (*length < sizeof number)
			return -EINVAL;
		q->cork.on = number != 0;
		return q->cork.on ? 0 : datagram_uncork(s);
	}
	if (option != UDP_SEGMENT)
		return 1;
	if (*length < sizeof number || number < 0 || number > UINT16_MAX)
		return -EINVAL;
	q->segment_bytes = (uint16_t)number;
	return 0;
}

static bool is_here(int level, int option)
{
	return (level == SOL_SOCKET && (option == SO_RXQ_OVFL || option == SO_GET_FILTER)) ||
	       (level == SOL_XTS && (option == SO_XTS_CLOCK || option == SO_XTS_FILTER)) ||
	       (level == IPPROTO_UDP && (option == UDP_SEGMENT || option == UDP_CORK));
}

int datagram_option_get(const struct xts_sock *s, int level, int option, void *value, socklen_t *length)
{
	int number;

	if (!is_here(level, option))
		return 1;
	if (level == SOL_SOCKET && option == SO_GET_FILTER)
		return datagram_filter_get(s, value, length);
	if (level == SOL_XTS && option == SO_XTS_FILTER)
		return datagram_filter_name(s, value, length);
	number = level == SOL_XTS      ? datagram_clock_get(s) :
		 level == SOL_SOCKET   ? s->datagrams->tells_drops :
		 option == UDP_SEGMENT ? s->datagrams->segment_bytes :
					 s->datagrams->cork.on;
	if (*length > sizeof number)
		*length = sizeof number;
	if (*length)
		memcpy(value, &number, *length);
	return 0;
}

/* The option was set on the device's socket: notes what this side has to know about it. */
void datagram_option_was_set(struct xts_sock *s, int level, int option, const void *value, socklen_t length)
{
	int number = number_of(value, length);

	if (level == SOL_XTS && option == SO_XTS_FILTER)
		datagram_filter_was_set(s, option, value, length);
	if ((level == IPPROTO_IP && option == IP_RECVERR) || (level == IPPROTO_IPV6 && option == IPV6_RECVERR))
		s->datagrams->queues_errors = number != 0;
	if (level != SOL_SOCKET)
		return;
	if (option == SO_BROADCAST)
		s->datagrams->broadcast = number != 0;
	else if (option == SO_RCVBUF)
		datagram_set_window(s, number < 0 || number > (int)XTS_CREDITS_MAX ? XTS_CREDITS_MAX : (uint32_t)number);
	else if (option == SO_SNDBUF)
		/* the window may become smaller, which the next credit adverts will show */
		s->peer_window = s->credits;
	else if (option == SO_ATTACH_FILTER || option == SO_DETACH_FILTER)
		datagram_filter_was_set(s, option, value, length);
	else
		datagram_stamps_were_set(s, option, value, length);
}
