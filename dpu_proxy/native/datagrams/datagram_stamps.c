/*
 * Time stamps of datagrams, as the device's kernel has made them. They are in the time of the device's clock; stamps
 * made by a network card are in that card's time. Nothing here changes a stamp.
 *
 * The host's library converts them to the form that its program has asked for, so a stamp of SO_TIMESTAMP and one of
 * SO_TIMESTAMPNS are the same item.
 */
#include <time.h>

#include <linux/errqueue.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "datagrams/datagram_socket.h"
#include "common/timestamp_options.h"

_Static_assert(sizeof(time_t) == 8 && sizeof(struct timeval) == 16, "the old and the new options have one form");

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* Copies the value of an item, if it has the right length. */
static bool copy(void *to, const struct cmsghdr *item, size_t bytes)
{
	if (item->cmsg_len < CMSG_LEN(bytes))
		return false;
	memcpy(to, CMSG_DATA(item), bytes);
	return true;
}

static void take_time(struct xts_datagram *d, uint64_t ns)
{
	d->timestamp_ns = ns;
	d->controls |= 1u << XTS_DATAGRAM_TIMESTAMP_NS;
}

void datagram_take_stamp(struct xts_datagram *d, const struct cmsghdr *item)
{
	struct timespec stamp, stamps[3]; /* struct scm_timestamping: the second is obsolete */
	struct timeval time;
	uint32_t packet[4]; /* struct scm_ts_pktinfo */

	switch (item->cmsg_type) {
	case SO_TIMESTAMP:
	case SO_TIMESTAMP_NEW:
		if (copy(&time, item, sizeof time))
			take_time(d, (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_usec * 1000u);
		break;
	case SO_TIMESTAMPNS:
	case SO_TIMESTAMPNS_NEW:
		if (copy(&stamp, item, sizeof stamp))
			take_time(d, ns_of(&stamp));
		break;
	case SO_TIMESTAMPING:
	case SO_TIMESTAMPING_NEW:
		if (!copy(stamps, item, sizeof stamps))
			break;
		d->software_ns = ns_of(&stamps[0]);
		d->hardware_ns = ns_of(&stamps[2]);
		d->controls |= 1u << XTS_DATAGRAM_STAMPING;
		break;
	case SCM_TIMESTAMPING_PKTINFO:
		if (!copy(packet, item, sizeof packet))
			break;
		d->stamp_interface = packet[0];
		d->stamp_bytes = packet[1];
		d->controls |= 1u << XTS_DATAGRAM_STAMP_PKTINFO;
		break;
	default:
		break;
	}
}
