/*
 * Time stamps of datagrams (SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING), in the form that the program has asked for.
 * The device's kernel or network card makes them, since the option is set on the device's socket. This side keeps track
 * of which option is set.
 */
#include <time.h> /* which errqueue.h needs */

#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <sys/time.h>

#include "datagrams/datagram_calls.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/device_clock.h"
#include "datagrams/datagrams.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/transfer.h"
#include "common/timestamp_options.h"
#include "ulps/pdu.h"
#include "xts.h"

#define HAS(d, type) ((d)->controls & (1u << (type)))

static struct timespec timespec_of(uint64_t ns)
{
	return (struct timespec){ .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };
}

static void put_time(const struct stamping *stamping, uint64_t ns, struct about *about)
{
	struct timespec t = timespec_of(ns);
	struct timeval coarse = { .tv_sec = t.tv_sec, .tv_usec = t.tv_nsec / 1000 };

	if (stamping->in_ns)
		about_put(about, SOL_SOCKET, stamping->is_new ? SO_TIMESTAMPNS_NEW : SO_TIMESTAMPNS, &t, sizeof t);
	else
		about_put(about, SOL_SOCKET, stamping->is_new ? SO_TIMESTAMP_NEW : SO_TIMESTAMP, &coarse, sizeof coarse);
}

/* Converts a stamp of the device's kernel to the clock that the program wants. */
static uint64_t wanted(const struct xts_sock *s, uint64_t device_ns)
{
	return s->datagrams->stamping.by_host && device_ns ? device_clock_to_host(s->stack, device_ns) : device_ns;
}

/* As on the kernel: a datagram that came before the option was set gets the time at which it is read. */
static uint64_t arrived_ns(const struct xts_sock *s, const struct xts_datagram *d)
{
	return HAS(d, XTS_DATAGRAM_TIMESTAMP_NS) ? d->timestamp_ns : device_clock_now(s->stack);
}

uint64_t datagram_stamp_of(const struct xts_sock *s, const struct xts_datagram *d)
{
	return s->datagrams->stamping.receives ? wanted(s, arrived_ns(s, d)) : 0;
}

void datagram_stamps_put(const struct xts_sock *s, const struct xts_datagram *d, struct about *about)
{
	const struct stamping *stamping = &s->datagrams->stamping;
	const uint32_t packet[4] = { d->stamp_interface, d->stamp_bytes };

	if (stamping->receives || HAS(d, XTS_DATAGRAM_STAMPING))
		device_clock_refresh(s->stack);
	if (stamping->receives)
		put_time(stamping, wanted(s, arrived_ns(s, d)), about);
	if (HAS(d, XTS_DATAGRAM_STAMPING)) {
		/* The stamp of the network card is by a clock of its own. */
		struct timespec stamps[3] = { timespec_of(wanted(s, d->software_ns)), { 0 }, timespec_of(d->hardware_ns) };

		about_put(about, SOL_SOCKET, stamping->is_new ? SO_TIMESTAMPING_NEW : SO_TIMESTAMPING, stamps,
			  sizeof stamps);
	}
	if (HAS(d, XTS_DATAGRAM_STAMP_PKTINFO))
		about_put(about, SOL_SOCKET, SCM_TIMESTAMPING_PKTINFO, packet, sizeof packet);
}

int datagram_stamps_read(const struct xts_sock *s, struct xts_datagram *out, const struct cmsghdr *c)
{
	const struct channel *channel = s->stack->channel;
	uint32_t value;

	if (c->cmsg_len != CMSG_LEN(sizeof value) || !channel || !(channel->link.features & XTS_FEATURE_STAMPS))
		return -EINVAL;
	memcpy(&value, CMSG_DATA(c), sizeof value);
	if (c->cmsg_type == SO_TIMESTAMPING || c->cmsg_type == SO_TIMESTAMPING_NEW) {
		if (value & ~(uint32_t)SOF_TIMESTAMPING_TX_RECORD_MASK)
			return -EINVAL;
		out->controls |= 1u << XTS_DATAGRAM_STAMP_SEND;
		out->stamp_send = value;
		return 0;
	}
	if (c->cmsg_type != SCM_TS_OPT_ID || !(s->datagrams->stamping.flags & SOF_TIMESTAMPING_OPT_ID))
		return -EINVAL;
	out->controls |= 1u << XTS_DATAGRAM_STAMP_ID;
	out->stamp_id = value;
	return 0;
}

static void receives(struct stamping *stamping, bool on, bool is_new, bool in_ns)
{
	stamping->receives = on;
	stamping->in_ns = on && in_ns;
	if (on)
		stamping->is_new = is_new;
}

void datagram_stamps_were_set(struct xts_sock *s, int option, const void *value, socklen_t length)
{
	struct stamping *stamping = &s->datagrams->stamping;
	uint32_t number = 0;

	memcpy(&number, value, length < sizeof number ? length : sizeof number);
	if (option == SO_TIMESTAMP || option == SO_TIMESTAMP_NEW) {
		receives(stamping, number != 0, option == SO_TIMESTAMP_NEW, false);
	} else if (option == SO_TIMESTAMPNS || option == SO_TIMESTAMPNS_NEW) {
		receives(stamping, number != 0, option == SO_TIMESTAMPNS_NEW, true);
	} else if (option == SO_TIMESTAMPING || option == SO_TIMESTAMPING_NEW) {
		stamping->flags = number;
		stamping->is_new = option == SO_TIMESTAMPING_NEW;
	}
}

/* --- SO_XTS_CLOCK ------------------------------------------------------------------------------------------------- */

int datagram_clock_set(struct xts_sock *s, const void *value, socklen_t length)
{
	int clock, r;

	if (length < sizeof clock)
		return -EINVAL;
	memcpy(&clock, value, sizeof clock);
	if (clock != XTS_CLOCK_DEVICE && clock != XTS_CLOCK_HOST)
		return -EINVAL;
	r = clock == XTS_CLOCK_HOST ? device_clock_need(s->stack) : 0;
	if (!r)
		s->datagrams->stamping.by_host = clock == XTS_CLOCK_HOST;
	return r;
}

int datagram_clock_get(const struct xts_sock *s)
{
	return s->datagrams->stamping.by_host ? XTS_CLOCK_HOST : XTS_CLOCK_DEVICE;
}
