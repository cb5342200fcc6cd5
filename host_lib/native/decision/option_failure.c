/* An option that the program had set, and that fails on the XTS socket: the sentence about it. See decision.h. */
#include "decision/decision.h"

#include <errno.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <netinet/udp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "core/option_table.h"
#include "xts_private.h"

/* Options that the device carries out, and of which people know the names; those of the table have theirs there. */
#define DEVICE_OPTIONS(X) \
	X(SOL_SOCKET, SO_BINDTODEVICE) \
	X(SOL_SOCKET, SO_BROADCAST) \
	X(SOL_SOCKET, SO_ATTACH_FILTER) \
	X(SOL_SOCKET, SO_KEEPALIVE) \
	X(SOL_SOCKET, SO_MARK) \
	X(SOL_SOCKET, SO_PRIORITY) \
	X(SOL_SOCKET, SO_REUSEADDR) \
	X(SOL_SOCKET, SO_REUSEPORT) \
	X(SOL_SOCKET, SO_RCVBUF) \
	X(SOL_SOCKET, SO_SNDBUF) \
	X(SOL_SOCKET, SO_TIMESTAMPING) \
	X(IPPROTO_TCP, TCP_CONGESTION) \
	X(IPPROTO_TCP, TCP_MAXSEG) \
	X(IPPROTO_TCP, TCP_NODELAY) \
	X(IPPROTO_TCP, TCP_USER_TIMEOUT) \
	X(IPPROTO_IP, IP_TOS) \
	X(IPPROTO_IP, IP_TTL) \
	X(IPPROTO_IP, IP_MULTICAST_IF) \
	X(IPPROTO_IPV6, IPV6_MULTICAST_IF) \
	X(IPPROTO_IPV6, IPV6_V6ONLY) \
	X(IPPROTO_UDP, UDP_SEGMENT) \
	X(IPPROTO_UDP, UDP_GRO) \
	JOINS(X)
#define JOINS(X) \
	X(IPPROTO_IP, IP_ADD_MEMBERSHIP) \
	X(IPPROTO_IP, IP_ADD_SOURCE_MEMBERSHIP) \
	X(IPPROTO_IP, MCAST_JOIN_GROUP) \
	X(IPPROTO_IP, MCAST_JOIN_SOURCE_GROUP) \
	X(IPPROTO_IPV6, IPV6_JOIN_GROUP) \
	X(IPPROTO_IPV6, MCAST_JOIN_GROUP) \
	X(IPPROTO_IPV6, MCAST_JOIN_SOURCE_GROUP)

static const struct {
	int level, option;
	const char *name;
} names[] = {
#define NAMED(level, option, ...) { level, option, #option },
	XTS_OPTIONS(NAMED) DEVICE_OPTIONS(NAMED)
#undef NAMED
};

static void put_name(char *text, size_t size, int level, int option)
{
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		if (names[i].level == level && names[i].option == option) {
			snprintf(text, size, "%s", names[i].name);
			return;
		}
	}
	snprintf(text, size, "option %d of level %d", option, level);
}

static bool is_join(int level, int option)
{
#define IS(l, o) \
	if (level == (l) && option == (o)) \
		return true;
	JOINS(IS)
#undef IS
	return false;
}

/* What the errno says about this option; NULL: no more than its own text. */
static const char *cause_of(int level, int option, int error)
{
	if (is_join(level, option) && (error == ENODEV || error == EADDRNOTAVAIL))
		return "the device has no interface or route for this group: `xts status --interfaces` lists where groups "
		       "can be joined";
	if (level == SOL_SOCKET && option == SO_BINDTODEVICE && error == ENODEV)
		return "the device has no such interface: `xts status --interfaces` lists them";
	return xts_reason_of(error, false);
}

int xts_decision_option_failed(struct xts_decision *decision, int level, int option, int error)
{
	const char *cause = cause_of(level, option, error);
	char name[40];

	put_name(name, sizeof name, level, option);
	snprintf(decision->explanation, sizeof decision->explanation, "%s, which the program had set, fails: %s%s%s",
		 name, strerror(error), cause ? ": " : "", cause ? cause : "");
	xts_decision_failed(decision, XTS_STEP_OPTIONS, error);
	return 0;
}
