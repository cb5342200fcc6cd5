/* Control data of datagrams: converts items of the wire to control messages (cmsg(3)) and back. */
#include <time.h> /* errqueue.h needs it */

#include <errno.h>
#include <linux/errqueue.h>
#include <linux/in6.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <string.h>

#include "datagrams/datagram_socket.h"
#include "wire/endpoint.h"
#include "common/timestamp_options.h"

struct pktinfo4 { /* struct in_pktinfo is not visible in all headers under all feature macros */
	int32_t interface;
	uint8_t source[4], destination[4];
};
struct pktinfo6 {
	uint8_t address[16];
	uint32_t interface;
};

static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };

/* --- to the kernel ------------------------------------------------------------------------------------------------ */

static void put(struct msghdr *h, int level, int type, const void *value, size_t bytes)
{
	struct cmsghdr *item = (struct cmsghdr *)((uint8_t *)h->msg_control + h->msg_controllen);

	item->cmsg_level = level;
	item->cmsg_type = type;
	item->cmsg_len = CMSG_LEN(bytes);
	memcpy(CMSG_DATA(item), value, bytes);
	h->msg_controllen += CMSG_SPACE(bytes);
}

static void put_int(struct msghdr *h, int level, int type, uint32_t number)
{
	int value = (int)number;

	put(h, level, type, &value, sizeof value);
}

/* Sets the source that the host wants. The device chooses the interface, except for groups and for link-local
 * addresses, which mean nothing without one. If the source does not fit the destination, the kernel refuses it, as for
 * any program. */
static void put_source(struct msghdr *h, const struct xts_endpoint *source, bool to_group)
{
	bool is_mapped = source->ip_version == 6 && !memcmp(source->address, mapped, sizeof mapped);
	struct pktinfo4 info4 = { 0 };
	struct pktinfo6 info6 = { .interface = 0 };

	if (source->ip_version == 4 || is_mapped) {
		info4.interface = to_group ? (int32_t)source->scope_id : 0;
		memcpy(info4.source, source->address + (is_mapped ? sizeof mapped : 0), 4);
		put(h, IPPROTO_IP, IP_PKTINFO, &info4, sizeof info4);
		return;
	}
	memcpy(info6.address, source->address, 16);
	if (to_group || (source->address[0] == 0xfe && (source->address[1] & 0xc0) == 0x80))
		info6.interface = source->scope_id;
	put(h, IPPROTO_IPV6, IPV6_PKTINFO, &info6, sizeof info6);
}

void datagram_put_control(struct msghdr *h, void *room, const struct xts_datagram *d, bool ipv4, bool to_group)
{
	uint16_t segment_bytes = d->record.segment_bytes;

	_Static_assert(DATAGRAM_SEND_CMSG_BYTES >= CMSG_SPACE(sizeof(struct pktinfo6)) + 4 * CMSG_SPACE(sizeof(int)) +
							   CMSG_SPACE(sizeof segment_bytes),
		       "room for all items");
	if (!d->controls && !segment_bytes)
		return;
	memset(room, 0, DATAGRAM_SEND_CMSG_BYTES);
	h->msg_control = room;
	h->msg_controllen = 0;
	if (d->controls & 1u << XTS_DATAGRAM_PKTINFO)
		put_source(h, &d->pktinfo, to_group);
	if (d->controls & 1u << XTS_DATAGRAM_HOP_LIMIT)
		put_int(h, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TTL : IPV6_HOPLIMIT, d->hop_limit);
	if (d->controls & 1u << XTS_DATAGRAM_TRAFFIC_CLASS)
		put_int(h, ipv4 ? IPPROTO_IP : IPPROTO_IPV6, ipv4 ? IP_TOS : IPV6_TCLASS, d->traffic_class);
	if (d->controls & 1u << XTS_DATAGRAM_STAMP_SEND)
		put_int(h, SOL_SOCKET, SO_TIMESTAMPING, d->stamp_send);
	if (d->controls & 1u << XTS_DATAGRAM_STAMP_ID)
		put_int(h, SOL_SOCKET, SCM_TS_OPT_ID, d->stamp_id);
	if (segment_bytes)
		put(h, SOL_UDP, UDP_SEGMENT, &segment_bytes, sizeof segment_bytes);
}

/* --- from the kernel ---------------------------------------------------------------------------------------------- */

static uint32_t int_of(const struct cmsghdr *item)
{
	uint8_t byte;
	int value = 0;

	if (item->cmsg_len >= CMSG_LEN(sizeof value)) {
		memcpy(&value, CMSG_DATA(item), sizeof value);
		return (uint32_t)value;
	}
	memcpy(&byte, CMSG_DATA(item), 1); /* IP_TOS */
	return byte;
}

/* The sender of an error; empty if the kernel does not report it. */
static struct xts_endpoint offender_of(const uint8_t *bytes, size_t count)
{
	struct sockaddr_storage address = { .ss_family = AF_UNSPEC };

	memcpy(&address, bytes, count < sizeof address ? count : sizeof address);
	return xts_endpoint_of(&address);
}

/* Reads an entry of the error queue: the kernel's struct, and behind it the address of the error's sender. */
static void take_error(struct xts_datagram *d, const struct cmsghdr *item)
{
	struct sock_extended_err e;

	if (item->cmsg_len < CMSG_LEN(sizeof e))
		return;
	memcpy(&e, CMSG_DATA(item), sizeof e);
	d->error = (struct xts_datagram_error){
		.error = e.ee_errno,
		.origin = e.ee_origin,
		.type = e.ee_type,
		.code = e.ee_code,
		.info = e.ee_info,
		.data = e.ee_data,
		.offender = offender_of(CMSG_DATA(item) + sizeof e, item->cmsg_len - CMSG_LEN(sizeof e)),
	};
	d->controls |= 1u << XTS_DATAGRAM_ERROR;
}

static void take_ip(struct xts_datagram *d, const struct cmsghdr *item)
{
	struct pktinfo4 info;

	if (item->cmsg_type == IP_PKTINFO && item->cmsg_len >= CMSG_LEN(sizeof info)) {
		memcpy(&info, CMSG_DATA(item), sizeof info);
		d->pktinfo = (struct xts_endpoint){ .ip_version = 4, .scope_id = (uint32_t)info.interface };
		memcpy(d->pktinfo.address, info.destination, 4);
		d->controls |= 1u << XTS_DATAGRAM_PKTINFO;
		if (memcmp(info.source, info.destination, sizeof info.source)) {
			d->spec_dst = xts_get32(info.source);
			d->controls |= 1u << XTS_DATAGRAM_SPEC_DST;
		}
	} else if (item->cmsg_type == IP_RECVERR) {
		take_error(d, item);
	} else if (item->cmsg_type == IP_TTL) {
		d->hop_limit = int_of(item);
		d->controls |= 1u << XTS_DATAGRAM_HOP_LIMIT;
	} else if (item->cmsg_type == IP_TOS) {
		d->traffic_class = int_of(item);
		d->controls |= 1u << XTS_DATAGRAM_TRAFFIC_CLASS;
	}
}

static void take_ipv6(struct xts_datagram *d, const struct cmsghdr *item)
{
	struct pktinfo6 info;

	if (item->cmsg_type == IPV6_PKTINFO && item->cmsg_len >= CMSG_LEN(sizeof info)) {
		memcpy(&info, CMSG_DATA(item), sizeof info);
		d->pktinfo = (struct xts_endpoint){ .ip_version = 6, .scope_id = info.interface };
		memcpy(d->pktinfo.address, info.address, 16);
		d->controls |= 1u << XTS_DATAGRAM_PKTINFO;
	} else if (item->cmsg_type == IPV6_RECVERR) {
		take_error(d, item);
	} else if (item->cmsg_type == IPV6_HOPLIMIT) {
		d->hop_limit = int_of(item);
		d->controls |= 1u << XTS_DATAGRAM_HOP_LIMIT;
	} else if (item->cmsg_type == IPV6_TCLASS) {
		d->traffic_class = int_of(item);
		d->controls |= 1u << XTS_DATAGRAM_TRAFFIC_CLASS;
	}
}

void datagram_get_control(struct msghdr *h, struct xts_datagram *d, uint32_t *dropped)
{
	struct cmsghdr *item;

	for (item = CMSG_FIRSTHDR(h); item; item = CMSG_NXTHDR(h, item)) {
		if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SO_RXQ_OVFL)
			*dropped = int_of(item);
		else if (item->cmsg_level == SOL_SOCKET)
			datagram_take_stamp(d, item);
		else if (item->cmsg_level == IPPROTO_IP)
			take_ip(d, item);
		else if (item->cmsg_level == IPPROTO_IPV6)
			take_ipv6(d, item);
		else if (item->cmsg_level == SOL_UDP && item->cmsg_type == UDP_GRO)
			d->record.segment_bytes = (uint16_t)int_of(item);
	}
}
