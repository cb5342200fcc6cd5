/* The tables of socket options and ioctls that hosts may use, and how each is carried out; see sockopt.h. */
#include "connection/sockopt.h"
#include "common/timestamp_options.h"

#include <errno.h>
#include <limits.h>
#include <linux/in6.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Not in the headers of every distribution we build on. */
#ifndef IPV6_MINHOPCOUNT
#define IPV6_MINHOPCOUNT 73
#endif

#define SOF_OPT_ID_TCP (1u << 16)
#define SOF_OPT_RX_FILTER (1u << 17)
/* All flags up to OPT_TX_SWHW, and these two. The kernel refuses those that it does not know. */
#define STAMPING_FLAGS (((SOF_TIMESTAMPING_OPT_TX_SWHW << 1) - 1u) | SOF_OPT_ID_TCP | SOF_OPT_RX_FILTER)

#define TCP_CA_NAME_BYTES 16u /* TCP_CA_NAME_MAX, with the terminator */
#define GET 1u
#define SET 2u
#define DENY 4u     /* known and refused, with EPERM, which is clearer than ENOPROTOOPT */
#define DATAGRAM 8u /* only for datagram sockets; options only for TCP have their own level */

struct allowed {
	int level, option;
	unsigned access;
	/* a check of a value to set, in addition to the kernel's */
	int (*check)(const void *value, uint32_t bytes, const char *congestion_controls);
};

/* SO_PRIORITY above 6 needs CAP_NET_ADMIN. */
static int check_priority(const void *value, uint32_t bytes, const char *congestion_controls)
{
	int priority;

	(void)congestion_controls;
	if (bytes < sizeof priority)
		return -EINVAL;
	memcpy(&priority, value, sizeof priority);
	return priority >= 0 && priority <= 6 ? 0 : -EPERM;
}

/* With CAP_NET_ADMIN the kernel allows, and even loads, any congestion control; without it, only those on the
 * administrator's list. Another that exists is EPERM, and one that does not ENOENT. */
static int check_congestion(const void *value, uint32_t bytes, const char *names)
{
	const char *name = value, *at = names ? names : "";
	bool allowed = true;
	size_t wanted = strnlen(name, bytes < TCP_CA_NAME_BYTES ? bytes : TCP_CA_NAME_BYTES);

	if (wanted == 0 || wanted == TCP_CA_NAME_BYTES)
		return -EINVAL;
	while (*(at += strspn(at, " \n"))) {
		size_t length = strcspn(at, " \n;");

		if (length == wanted && memcmp(at, name, length) == 0)
			return allowed ? 0 : -EPERM;
		at += length;
		if (*at == ';') {
			allowed = false;
			at++;
		}
	}
	return -ENOENT;
}

/* With 2 it is saved with the Ethernet header, which is of the device's own network. */
static int check_save_syn(const void *value, uint32_t bytes, const char *congestion_controls)
{
	int save;

	(void)congestion_controls;
	if (bytes < sizeof save)
		return -EINVAL;
	memcpy(&save, value, sizeof save);
	return save == 2 ? -EPERM : 0;
}

/* Time stamps of what the socket sends and receives. Only the operator may choose the clock of a network card
 * (BIND_PHC), or anything that later kernels may do with other bits. */
static int check_stamping(const void *value, uint32_t bytes, const char *congestion_controls)
{
	uint32_t flags;

	(void)congestion_controls;
	if (bytes < sizeof flags)
		return -EINVAL;
	memcpy(&flags, value, sizeof flags);
	return flags & ~STAMPING_FLAGS ? -EINVAL : 0;
}

static const struct allowed list[] = {
	/* The socket itself: harmless to read. */
	{ SOL_SOCKET, SO_TYPE, GET, NULL },
	{ SOL_SOCKET, SO_DOMAIN, GET, NULL },
	{ SOL_SOCKET, SO_PROTOCOL, GET, NULL },
	{ SOL_SOCKET, SO_ACCEPTCONN, GET, NULL },
	{ SOL_SOCKET, SO_INCOMING_CPU, GET, NULL }, /* a CPU of the device; setting it would place the device's work */
	/* Liveness. */
	{ SOL_SOCKET, SO_KEEPALIVE, GET | SET, NULL },
	/* Sharing of local addresses: as everywhere, bind and policy decide who may listen. */
	{ SOL_SOCKET, SO_REUSEADDR, GET | SET, NULL },
	{ SOL_SOCKET, SO_REUSEPORT, GET | SET, NULL },
	/* Kernel buffers: the kernel bounds them by wmem_max and rmem_max. */
	{ SOL_SOCKET, SO_SNDBUF, GET | SET, NULL },
	{ SOL_SOCKET, SO_RCVBUF, GET | SET, NULL },
	/* Urgent bytes stay in the stream, the only way they can reach a host. */
	{ SOL_SOCKET, SO_OOBINLINE, GET | SET, NULL },
	/* Shaping of its own traffic only. */
	{ SOL_SOCKET, SO_PRIORITY, GET | SET, check_priority },
	{ SOL_SOCKET, SO_MAX_PACING_RATE, GET | SET, NULL },
	/* Only narrows where packets may go. */
	{ SOL_SOCKET, SO_DONTROUTE, GET | SET, NULL },
	/* Without effect on TCP, in the kernel too. What datagrams may be sent to is policy. */
	{ SOL_SOCKET, SO_BROADCAST, GET | SET, NULL },
	/* What the kernel reports with each datagram. */
	{ SOL_SOCKET, SO_TIMESTAMP, GET | SET | DATAGRAM, NULL },
	{ SOL_SOCKET, SO_TIMESTAMPNS, GET | SET | DATAGRAM, NULL },
	{ SOL_SOCKET, SO_TIMESTAMPING, GET | SET | DATAGRAM, check_stamping },
	{ SOL_SOCKET, SO_TIMESTAMP_NEW, GET | SET | DATAGRAM, NULL },
	{ SOL_SOCKET, SO_TIMESTAMPNS_NEW, GET | SET | DATAGRAM, NULL },
	{ SOL_SOCKET, SO_TIMESTAMPING_NEW, GET | SET | DATAGRAM, check_stamping },
	/* Locks a filter; datagram_filter.c has the options that set one. */
	{ SOL_SOCKET, SO_LOCK_FILTER, GET | SET | DATAGRAM, NULL },
	{ SOL_SOCKET, SO_RXQ_OVFL, GET | DATAGRAM, NULL }, /* the proxy sets it, as each message reports drops */

	/* Would choose routes, marks or devices around the device's own policy; some need CAP_NET_ADMIN or
	 * CAP_NET_RAW. */
	{ SOL_SOCKET, SO_MARK, DENY, NULL },
	{ SOL_SOCKET, SO_BINDTODEVICE, DENY, NULL },
	{ SOL_SOCKET, SO_BINDTOIFINDEX, DENY, NULL },
	{ SOL_SOCKET, SO_SNDBUFFORCE, DENY, NULL },
	{ SOL_SOCKET, SO_RCVBUFFORCE, DENY, NULL },
	{ SOL_SOCKET, SO_DEBUG, DENY, NULL },
	/* Programs in the device's kernel, and the device's CPU time. */
	{ SOL_SOCKET, SO_ATTACH_FILTER, DENY, NULL },
	{ SOL_SOCKET, SO_ATTACH_BPF, DENY, NULL },
	{ SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, DENY, NULL },
	{ SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF, DENY, NULL },
	{ SOL_SOCKET, SO_BUSY_POLL, DENY, NULL },
	{ SOL_SOCKET, SO_PREFER_BUSY_POLL, DENY, NULL },
	{ SOL_SOCKET, SO_BUSY_POLL_BUDGET, DENY, NULL },

	/* How TCP sends and acknowledges this connection. */
	{ IPPROTO_TCP, TCP_NODELAY, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_CORK, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_MAXSEG, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_QUICKACK, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_WINDOW_CLAMP, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_CONGESTION, GET | SET, check_congestion },
	/* How long TCP keeps trying. */
	{ IPPROTO_TCP, TCP_KEEPIDLE, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_KEEPINTVL, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_KEEPCNT, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_SYNCNT, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_LINGER2, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, GET | SET, NULL },
	/* Listeners. */
	{ IPPROTO_TCP, TCP_DEFER_ACCEPT, GET | SET, NULL },
	{ IPPROTO_TCP, TCP_FASTOPEN, GET | SET, NULL },
	/* The peer's first segment. */
	{ IPPROTO_TCP, TCP_SAVE_SYN, GET | SET, check_save_syn },
	{ IPPROTO_TCP, TCP_SAVED_SYN, GET, NULL },
	/* Figures. */
	{ IPPROTO_TCP, TCP_INFO, GET, NULL },
	{ IPPROTO_TCP, TCP_CC_INFO, GET, NULL },

	/* Would break the proxy's own account of the stream: forged state, a changed connect, another owner of the
	 * data. */
	{ IPPROTO_TCP, TCP_REPAIR, DENY, NULL },
	{ IPPROTO_TCP, TCP_FASTOPEN_CONNECT, DENY, NULL },
	{ IPPROTO_TCP, TCP_ULP, DENY, NULL }, /* only the proxy attaches ULPs */
	{ IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE, DENY, NULL },
	/* Keys and memory of the device's kernel. */
	{ IPPROTO_TCP, TCP_MD5SIG, DENY, NULL },
	{ IPPROTO_TCP, TCP_MD5SIG_EXT, DENY, NULL },
	{ IPPROTO_TCP, TCP_FASTOPEN_KEY, DENY, NULL },

	/* Marking and reach of its own packets. */
	{ IPPROTO_IP, IP_TOS, GET | SET, NULL },
	{ IPPROTO_IP, IP_TTL, GET | SET, NULL },
	{ IPPROTO_IP, IP_MINTTL, GET | SET, NULL },
	{ IPPROTO_IP, IP_MTU_DISCOVER, GET | SET, NULL },
	{ IPPROTO_IP, IP_MTU, GET, NULL },
	{ IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, GET | SET, NULL },
	{ IPPROTO_IP, IP_PKTINFO, GET | SET | DATAGRAM, NULL },
	{ IPPROTO_IP, IP_RECVTTL, GET | SET | DATAGRAM, NULL },
	{ IPPROTO_IP, IP_RECVTOS, GET | SET | DATAGRAM, NULL },
	/* Multicast. What is only read here is set in multicast_option.c, which also asks policy. */
	{ IPPROTO_IP, IP_MULTICAST_IF, GET | DATAGRAM, NULL },
	{ IPPROTO_IP, IP_MULTICAST_TTL, GET | SET | DATAGRAM, NULL },
	{ IPPROTO_IP, IP_MULTICAST_LOOP, GET | SET | DATAGRAM, NULL },
	{ IPPROTO_IP, IP_MULTICAST_ALL, GET | DATAGRAM, NULL },
	{ IPPROTO_IP, IP_MSFILTER, GET | DATAGRAM, NULL },
	{ IPPROTO_IP, MCAST_MSFILTER, GET | DATAGRAM, NULL },
	{ IPPROTO_IP, IP_RECVERR, GET | SET | DATAGRAM, NULL },
	/* A source route (IP_OPTIONS) would lead around policy; foreign local addresses need CAP_NET_ADMIN. */
	{ IPPROTO_IP, IP_OPTIONS, DENY, NULL },
	{ IPPROTO_IP, IP_TRANSPARENT, DENY, NULL },
	{ IPPROTO_IP, IP_FREEBIND, DENY, NULL },

	{ IPPROTO_IPV6, IPV6_V6ONLY, GET | SET, NULL },
	{ IPPROTO_IPV6, IPV6_UNICAST_HOPS, GET | SET, NULL },
	{ IPPROTO_IPV6, IPV6_MINHOPCOUNT, GET | SET, NULL },
	{ IPPROTO_IPV6, IPV6_TCLASS, GET | SET, NULL },
	{ IPPROTO_IPV6, IPV6_MTU_DISCOVER, GET | SET, NULL },
	{ IPPROTO_IPV6, IPV6_MTU, GET | SET, NULL },
	{ IPPROTO_IPV6, IPV6_RECVPKTINFO, GET | SET | DATAGRAM, NULL },
	{ IPPROTO_IPV6, IPV6_RECVHOPLIMIT, GET | SET | DATAGRAM, NULL },
	{ IPPROTO_IPV6, IPV6_RECVTCLASS, GET | SET | DATAGRAM, NULL },
	{ IPPROTO_IPV6, IPV6_MULTICAST_IF, GET | DATAGRAM, NULL },
	{ IPPROTO_IPV6, IPV6_MULTICAST_HOPS, GET | SET | DATAGRAM, NULL },
	{ IPPROTO_IPV6, IPV6_MULTICAST_LOOP, GET | SET | DATAGRAM, NULL },
	{ IPPROTO_IPV6, IPV6_MULTICAST_ALL, GET | DATAGRAM, NULL },
	{ IPPROTO_IPV6, MCAST_MSFILTER, GET | DATAGRAM, NULL },
	{ IPPROTO_IPV6, IPV6_RECVERR, GET | SET | DATAGRAM, NULL },
	/* A source for all datagrams: instead it comes with each datagram, and policy is checked for it. */
	{ IPPROTO_IPV6, IPV6_PKTINFO, DENY, NULL },
	{ IPPROTO_IPV6, IPV6_RTHDR, DENY, NULL },
	{ IPPROTO_IPV6, IPV6_HOPOPTS, DENY, NULL },
	{ IPPROTO_IPV6, IPV6_DSTOPTS, DENY, NULL },
	{ IPPROTO_IPV6, IPV6_RTHDRDSTOPTS, DENY, NULL },
	{ IPPROTO_IPV6, IPV6_2292PKTOPTIONS, DENY, NULL },
	{ IPPROTO_IPV6, IPV6_TRANSPARENT, DENY, NULL },
	{ IPPROTO_IPV6, IPV6_FREEBIND, DENY, NULL },

	/* How datagrams are segmented into packets, and packets merged into datagrams. */
	{ SOL_UDP, UDP_CORK, GET | SET | DATAGRAM, NULL },
	{ SOL_UDP, UDP_SEGMENT, GET | SET | DATAGRAM, NULL },
	{ SOL_UDP, UDP_GRO, GET | SET | DATAGRAM, NULL },
	/* Would hand datagrams to tunnels of the device's kernel. */
	{ SOL_UDP, UDP_ENCAP, DENY, NULL },
};

bool xts_sockopt_needs_stamps(int level, int option)
{
	if (level == SOL_SOCKET)
		return option == SO_TIMESTAMP || option == SO_TIMESTAMPNS || option == SO_TIMESTAMPING ||
		       (option >= SO_TIMESTAMP_NEW && option <= SO_TIMESTAMPING_NEW);
	return (level == IPPROTO_IP && option == IP_RECVERR) || (level == IPPROTO_IPV6 && option == IPV6_RECVERR);
}

static bool is_datagram(int fd)
{
	int type = 0;
	socklen_t length = sizeof type;

	return !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) && type == SOCK_DGRAM;
}

static int find(int fd, int level, int option, unsigned access, const struct allowed **entry)
{
	for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
		if (list[i].level != level || list[i].option != option)
			continue;
		if (list[i].access & DENY)
			return -EPERM;
		*entry = &list[i];
		if (list[i].access & DATAGRAM && !is_datagram(fd))
			return -ENOPROTOOPT;
		return (list[i].access & access) ? 0 : -ENOPROTOOPT;
	}
	return -ENOPROTOOPT;
}

int xts_sockopt_set(int fd, int level, int option, const void *value, uint32_t bytes, const char *congestion_controls)
{
	const struct allowed *entry;
	int error;

	if (bytes > INT_MAX)
		return -EINVAL;
	error = find(fd, level, option, SET, &entry);
	if (!error && entry->check)
		error = entry->check(value, bytes, congestion_controls);
	if (error)
		return error;
	return setsockopt(fd, level, option, value, (socklen_t)bytes) < 0 ? -errno : 0;
}

int xts_sockopt_get(int fd, int level, int option, void *value, uint32_t *bytes)
{
	const struct allowed *entry;
	socklen_t length;
	int error;

	if (*bytes > INT_MAX)
		return -EINVAL;
	error = find(fd, level, option, GET, &entry);
	if (error)
		return error;
	length = (socklen_t)*bytes;
	if (getsockopt(fd, level, option, value, &length) < 0)
		return -errno;
	*bytes = length;
	return 0;
}

int xts_ioctl_do(int fd, uint32_t request, void *value, uint32_t *bytes)
{
	int result = 0;

	switch (request) {
	case SIOCINQ:     /* received and not yet read by the proxy */
	case SIOCOUTQ:    /* sent and not yet acknowledged */
	case SIOCOUTQNSD: /* accepted and not yet sent */
	case SIOCATMARK:
		break;
	default: /* among others FIONBIO and FIOASYNC: the host decides whether a call may wait */
		return -ENOTTY;
	}
	if (*bytes < sizeof result)
		return -EINVAL;
	if (ioctl(fd, request, &result) < 0)
		return -errno;
	memcpy(value, &result, sizeof result);
	*bytes = sizeof result;
	return 0;
}
