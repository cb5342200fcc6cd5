/*
 * The decorators of queues whose frames are packets; packets.h has more.
 *
 * Where packets are as long as messages, which is decided with each epoch, nothing goes by way of the decorator for
 * parts. Once something has, all does, for frames that it has lent out may still be held.
 */
#include "decorators/packets.h"
#include "decorators/parts.h"

int xts_packets_wrap(struct xts_packets *packets, struct xts_queue **queue)
{
	struct xts_queue *own = *queue, *outer = own;
	int error = 0;

	*packets = (struct xts_packets){ 0 };
	if (!(outer->traits & XTS_QUEUE_PACKETS))
		return 0;
	if (outer->traits & XTS_QUEUE_PARTS) {
		error = xts_parts_wrap(&outer, outer);
		if (error)
			return error;
		packets->parts = outer;
	}
	error = xts_bundle_wrap(&outer, outer);
	if (error) {
		xts_parts_unwrap(packets->parts);
		packets->parts = NULL;
		return error;
	}
	xts_bundle_use(outer, own);
	*queue = packets->bundle = outer;
	return 0;
}

uint64_t xts_packets_features(const struct xts_queue *queue)
{
	if (!(queue->traits & XTS_QUEUE_PACKETS))
		return 0;
	return XTS_FEATURE_BUNDLE | (queue->traits & XTS_QUEUE_PARTS ? XTS_FEATURE_PARTS : 0);
}

uint32_t xts_packets_in_parts(const struct xts_link *link)
{
	return link->features & XTS_FEATURE_PARTS && xts_parts_needed(link->packet_bytes) ? link->packet_bytes : 0;
}

static void use_parts(struct xts_packets *packets, uint32_t packet_bytes, uint32_t room)
{
	if (packets->parts && packet_bytes)
		xts_bundle_use(packets->bundle, packets->parts);
	if (packets->parts)
		xts_parts_use(packets->parts, packet_bytes ? room : 0, packet_bytes);
}

void xts_packets_again(struct xts_packets *packets, const struct xts_link *link, uint32_t packet_bytes)
{
	use_parts(packets, packet_bytes, packet_bytes - link->config.head_bytes);
}

void xts_packets_begin(struct xts_packets *packets, const struct xts_link *link)
{
	uint32_t room = link->packet_bytes - link->config.head_bytes;

	use_parts(packets, xts_packets_in_parts(link), room);
	if (packets->bundle)
		xts_bundle_send(packets->bundle, link->features & XTS_FEATURE_BUNDLE, room);
}

void xts_packets_end(struct xts_packets *packets)
{
	if (packets->bundle)
		xts_bundle_send(packets->bundle, false, 0);
	if (packets->parts)
		xts_parts_use(packets->parts, 0, 0);
}
