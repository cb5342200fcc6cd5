/*
 * Control data of datagrams: conversion between cmsg(3) and the items of a record (messages/native/wire/datagram.h).
 * The device's kernel decides which items come, since its socket has the options (IP_PKTINFO, IP_RECVTTL ...).
 */
#include <time.h> /* which errqueue.h needs */

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stddef.h>

#include "datagrams/datagram_calls.h"
#include "core/address.h"
#include "core/arguments.h"
#include "datagrams/datagrams.h"
#include "core/socket.h"
#include "core/transfer.h"
#include "ulps/pdu.h"

/* --- sending ------------------------------------------------------------------------------------------------------ */

static int read_number(const struct cmsghdr *c, int least, int most, uint32_t *out)
{
	uint8_t byte;
	int value;

	if (c->cmsg_len == CMSG_LEN(sizeof value)) {
		memcpy(&value, CMSG_DATA(c), sizeof value);
	} else if (c->cmsg_len == CMSG_LEN(sizeof byte) && c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
		memcpy(&byte, CMSG_DATA(c), sizeof byte);
		value = byte;
	} else {
		return -EINVAL;
	}
	if (value < least || value > most)
		return -EINVAL;
	*out = (uint32_t)value;
	return 0;
}

static int read_field(const struct cmsghdr *c, int least, enum xts_datagram_control type, struct xts_datagram *out)
{
	uint32_t value;
	int r = read_number(c, least, 255, &value);

	if (r || value > 255)
		return r; /* -1: the socket's own value */
	out->controls |= 1u << type;
	if (type == XTS_DATAGRAM_HOP_LIMIT)
		out->hop_limit = value;
	else
		out->traffic_class = value;
	return 0;
}

static int read_v4(const struct cmsghdr *c, struct xts_datagram *out)
{
	struct in_pktinfo info;

	switch (c->cmsg_type) {
	case IP_PKTINFO:
		if (c->cmsg_len != CMSG_LEN(sizeof info))
			return -EINVAL;
		memcpy(&info, CMSG_DATA(c), sizeof info);
		out->controls |= 1u << XTS_DATAGRAM_PKTINFO;
		out->pktinfo = (struct xts_endpoint){ .ip_version = 4, .scope_id = (uint32_t)info.ipi_ifindex };
		memcpy(out->pktinfo.address, &info.ipi_spec_dst, sizeof info.ipi_spec_dst);
		return 0;
	case IP_TTL:
		return read_field(c, 1, XTS_DATAGRAM_HOP_LIMIT, out);
	case IP_TOS:
		return read_field(c, 0, XTS_DATAGRAM_TRAFFIC_CLASS, out);
	default:
		return -EINVAL;
	}
}

static int read_v6(const struct cmsghdr *c, struct xts_datagram *out)
{
	struct in6_pktinfo info;

	switch (c->cmsg_type) {
	case IPV6_PKTINFO:
		if (c->cmsg_len < CMSG_LEN(sizeof info))
			return -EINVAL;
		memcpy(&info, CMSG_DATA(c), sizeof info);
		out->controls |= 1u << XTS_DATAGRAM_PKTINFO;
		out->pktinfo = (struct xts_endpoint){ .ip_version = 6, .scope_id = info.ipi6_ifindex };
		memcpy(out->pktinfo.address, &info.ipi6_addr, sizeof info.ipi6_addr);
		return 0;
	case IPV6_HOPLIMIT:
		return read_field(c, -1, XTS_DATAGRAM_HOP_LIMIT, out);
	case IPV6_TCLASS:
		return read_field(c, -1, XTS_DATAGRAM_TRAFFIC_CLASS, out);
	default:
		return -EINVAL;
	}
}

static int read_segment(const struct cmsghdr *c, struct xts_datagram *out)
{
	uint16_t segment;

	if (c->cmsg_type != UDP_SEGMENT || c->cmsg_len != CMSG_LEN(sizeof segment))
		return -EINVAL;
	memcpy(&segment, CMSG_DATA(c), sizeof segment);
	out->record.segment_bytes = segment;
	return 0;
}

int datagram_controls_read(const struct xts_sock *s, struct xts_datagram *out, const struct msghdr *message)
{
	struct msghdr m = *message; /* the macros take no const pointer */
	int r = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c && !r; c = CMSG_NXTHDR(&m, c)) {
		if (c->cmsg_len < CMSG_LEN(0))
			return -EINVAL;
		if (c->cmsg_level == IPPROTO_UDP)
			r = read_segment(c, out);
		else if (c->cmsg_level == IPPROTO_IP && s->family == 4)
			r = read_v4(c, out);
		else if (c->cmsg_level == IPPROTO_IPV6 && s->family == 6)
			r = read_v6(c, out);
		else if (c->cmsg_level == SOL_SOCKET && !argument_is_for_unix(c))
			/* other items, such as marks and transmit times, do not reach the device */
			r = datagram_stamps_read(s, out, c);
	}
	return r;
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

static void put_v4(struct about *about, const struct xts_datagram *d)
{
	int number = (int)d->hop_limit;
	uint8_t byte = (uint8_t)d->traffic_class;
	struct in_pktinfo info = { .ipi_ifindex = (int)d->pktinfo.scope_id };

	memcpy(&info.ipi_addr, d->pktinfo.address, sizeof info.ipi_addr);
	info.ipi_spec_dst = info.ipi_addr;
	if (d->controls & 1u << XTS_DATAGRAM_SPEC_DST)
		info.ipi_spec_dst.s_addr = htonl(d->spec_dst);
	if (d->controls & 1u << XTS_DATAGRAM_PKTINFO)
		about_put(about, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
	if (d->controls & 1u << XTS_DATAGRAM_HOP_LIMIT)
		about_put(about, IPPROTO_IP, IP_TTL, &number, sizeof number);
	if (d->controls & 1u << XTS_DATAGRAM_TRAFFIC_CLASS)
		about_put(about, IPPROTO_IP, IP_TOS, &byte, sizeof byte);
}

static void put_v6(struct about *about, const struct xts_datagram *d)
{
	int number = (int)d->hop_limit, class = (int)d->traffic_class;
	struct in6_pktinfo info = { .ipi6_ifindex = d->pktinfo.scope_id };

	if (d->pktinfo.ip_version == 4) {
		info.ipi6_addr.s6_addr[10] = info.ipi6_addr.s6_addr[11] = 0xff;
		memcpy(info.ipi6_addr.s6_addr + 12, d->pktinfo.address, 4);
	} else {
		memcpy(&info.ipi6_addr, d->pktinfo.address, sizeof info.ipi6_addr);
	}
	if (d->controls & 1u << XTS_DATAGRAM_PKTINFO)
		about_put(about, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
	if (d->controls & 1u << XTS_DATAGRAM_HOP_LIMIT)
		about_put(about, IPPROTO_IPV6, IPV6_HOPLIMIT, &number, sizeof number);
	if (d->controls & 1u << XTS_DATAGRAM_TRAFFIC_CLASS)
		about_put(about, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof class);
}

void datagram_error_put(const struct xts_sock *s, const struct xts_datagram *d, struct about *about)
{
	const struct xts_datagram_error *e = &d->error;
	struct {
		struct sock_extended_err error;
		union {
			struct sockaddr_in v4;
			struct sockaddr_in6 v6;
		} offender;
	} out;
	bool v4 = s->family == 4;

	memset(&out, 0, sizeof out);
	out.error.ee_errno = e->error;
	out.error.ee_origin = e->origin;
	out.error.ee_type = e->type;
	out.error.ee_code = e->code;
	out.error.ee_info = e->info;
	out.error.ee_data = e->data;
	if (e->offender.ip_version)
		(void)address_bytes(s->family, &e->offender, &out.offender, sizeof out.offender);
	datagram_stamps_put(s, d, about);
	if (v4)
		put_v4(about, d);
	else
		put_v6(about, d);
	about_put(about, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_RECVERR : IPV6_RECVERR, &out,
		  offsetof(__typeof__(out), offender) + (v4 ? sizeof out.offender.v4 : sizeof out.offender.v6));
}

void datagram_controls_of(const struct xts_sock *s, const struct xts_datagram *d, uint32_t dropped, struct about *about)
{
	int segment = d->record.segment_bytes;

	datagram_stamps_put(s, d, about);
	if (s->datagrams->tells_drops && dropped)
		about_put(about, SOL_SOCKET, SO_RXQ_OVFL, &dropped, sizeof dropped);
	if (segment)
		about_put(about, IPPROTO_UDP, UDP_GRO, &segment, sizeof segment);
	if (s->family == 4)
		put_v4(about, d);
	else
		put_v6(about, d);
}

void datagram_controls_put(struct xts_sock *s, struct about *about)
{
	const struct received_datagram *first = s->datagrams->first;
	struct xts_datagram d = { .record.segment_bytes = first->segment_bytes };

	if (first->control_bytes)
		datagram_read_controls(s, &d);
	datagram_controls_of(s, &d, first->dropped, about);
}
