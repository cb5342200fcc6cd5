/*
 * Connecting with protocols pushed: the pushes travel in the CONNECT, so that it all costs one message and one answer.
 * What can be judged here is refused before anything leaves; what only the proxy can judge is an error of the connect. An
 * attempt that has failed, for whatever reason, ends the socket: what of it is pushed then nobody here knows, and another attempt
 * must not go without what the application relies on (TLS, say).
 */
#include "core/channel.h"
#include "core/error.h"
#include "core/socket.h"
#include "core/stack.h"
#include "ulps/pushed.h"
#include "xts.h"

#define PUSH_BYTES 16u         /* of each, before its attributes: request, bytes, read_bytes, flags, ulp_id */
#define PUSH_SEQPACKET 1u      /* flags */

static int add(struct along *along, const struct xts_sock *s, const struct xts_ulp_push *push)
{
	const struct ulp_info *info = push->info;
	uint8_t *at = along->payload + along->bytes;

	if (push->request != SIOC_PUSH_ULP && push->request != SIOC_PUSH_ULP_RX && push->request != SIOC_PUSH_ULP_TX)
		return -EINVAL;
	if (!info)
		return -EFAULT;
	if (!info->ulp_id || info->ulp_bytes > XTS_ULP_INFO_BYTES_MAX)
		return -EINVAL;
	if (PUSH_BYTES + info->ulp_bytes > sizeof along->payload - along->bytes)
		return -EMSGSIZE;
	xts_put32(at, (uint32_t)push->request);
	xts_put32(at + 4, PUSH_BYTES - 8 + info->ulp_bytes);
	xts_put32(at + 8, 0); /* nothing has been read */
	xts_put16(at + 12, s->seqpacket ? PUSH_SEQPACKET : 0);
	xts_put16(at + 14, info->ulp_id);
	memcpy(at + PUSH_BYTES, info->ulp_parameters, info->ulp_bytes);
	along->bytes += PUSH_BYTES + info->ulp_bytes;
	return 0;
}

static int add_all(struct along *along, const struct xts_sock *s, const struct xts_ulp_push *pushes, unsigned count)
{
	struct stack *st = s->stack;
	int r = 0;

	if (count && !pushes)
		return -EFAULT;
	if (count && st->channel && !(st->channel->link.features & XTS_FEATURE_ULP))
		return -ENOPROTOOPT;
	for (unsigned i = 0; i < count && !r; i++)
		r = add(along, s, &pushes[i]);
	return r;
}

void push_along(struct xts_sock *s, const struct along *along)
{
	fault_forget(s);
	s->ulps.along = true;
	for (uint32_t at = 0; at < along->bytes; at += 8 + xts_get32(along->payload + at + 4))
		push_note(s, xts_get32(along->payload + at), xts_get16(along->payload + at + 14));
}

int xts_ulp_connect(int number, const struct sockaddr *address, socklen_t length, const struct xts_ulp_push *pushes, unsigned count)
{
	struct stack *st;
	struct along along;
	struct xts_sock *s;
	ssize_t r;

	do {
		along.bytes = 0;
		st = stack_enter_of(number);
		s = table_use(st, number);
		r = s ? add_all(&along, s, pushes, count) : -EBADF;
		if (!r)
			r = connect_socket(s, address, length, &along);
	} while (stack_restarts(st, &r));
	explicit_bzero(along.payload, along.bytes); /* parameters may be keys */
	return finish_of(number, (int)r);
}
