/*
 * Connecting with protocols pushed: the pushes travel in the CONNECT, so that all of it costs one message and one
 * answer. Faults that can be found here are returned before anything is sent; faults that only the proxy finds are
 * errors of the connect. After a failed attempt the socket can only be closed: this side does not know what is pushed
 * then, and another attempt must not run without a protocol that the application relies on (for example TLS).
 */
#include "core/asked.h"
#include "core/channel.h"
#include "core/error.h"
#include "core/socket.h"
#include "core/stack.h"
#include "ulps/pushed.h"
#include "xts.h"

#define PUSH_BYTES 16u    /* bytes of each push before its attributes: request, bytes, read_bytes, flags, ulp_id */
#define PUSH_SEQPACKET 1u /* a flag */

static int add(struct connect_pushes *encoded, const struct xts_sock *s, const struct xts_ulp_push *push)
{
	const struct ulp_info *info = push->info;
	uint8_t *at = encoded->payload + encoded->bytes;

	if (push->request != SIOC_PUSH_ULP && push->request != SIOC_PUSH_ULP_RX && push->request != SIOC_PUSH_ULP_TX)
		return -EINVAL;
	if (!info)
		return -EFAULT;
	if (!info->ulp_id || info->ulp_bytes > XTS_ULP_INFO_BYTES_MAX)
		return -EINVAL;
	if (PUSH_BYTES + info->ulp_bytes > sizeof encoded->payload - encoded->bytes)
		return -EMSGSIZE;
	xts_put32(at, (uint32_t)push->request);
	xts_put32(at + 4, PUSH_BYTES - 8 + info->ulp_bytes);
	xts_put32(at + 8, 0); /* nothing has been read */
	xts_put16(at + 12, s->seqpacket ? PUSH_SEQPACKET : 0);
	xts_put16(at + 14, info->ulp_id);
	memcpy(at + PUSH_BYTES, info->ulp_parameters, info->ulp_bytes);
	encoded->bytes += PUSH_BYTES + info->ulp_bytes;
	return 0;
}

static int add_all(struct connect_pushes *encoded, const struct xts_sock *s, const struct xts_ulp_push *pushes,
		   unsigned count)
{
	struct stack *st = s->stack;
	int r = 0;

	if (count && !pushes)
		return -EFAULT;
	if (count && st->channel && !(st->channel->link.features & XTS_FEATURE_ULP))
		return -ENOPROTOOPT;
	for (unsigned i = 0; i < count && !r; i++)
		r = add(encoded, s, &pushes[i]);
	return r;
}

void connect_pushes_sent(struct xts_sock *s, const struct connect_pushes *encoded)
{
	fault_forget(s);
	s->cold->ulps.with_connect = true;
	asked_connect(s, encoded->payload, encoded->bytes);
	for (uint32_t at = 0; at < encoded->bytes; at += 8 + xts_get32(encoded->payload + at + 4))
		push_note(s, xts_get32(encoded->payload + at), xts_get16(encoded->payload + at + 14));
}

int xts_ulp_connect(int number, const struct sockaddr *address, socklen_t length, const struct xts_ulp_push *pushes,
		    unsigned count)
{
	struct stack *st;
	struct connect_pushes encoded;
	struct xts_sock *s;
	ssize_t r;

	do {
		encoded.bytes = 0;
		st = stack_enter_of(number);
		s = table_use(st, number);
		r = s ? add_all(&encoded, s, pushes, count) : -EBADF;
		if (!r)
			r = connect_socket(s, address, length, &encoded);
	} while (stack_restarts(st, &r));
	explicit_bzero(encoded.payload, encoded.bytes); /* parameters may contain keys */
	return finish_of(number, (int)r);
}
