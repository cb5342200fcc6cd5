/*
 * Who encrypts for a socket whose keys the kernel has: the kernel itself, or a network card. The kernel tells it per socket (sock_diag(7), struct tls_info) to
 * those with CAP_NET_ADMIN. To others, which a confined proxy is, it tells by /proc/net/tls_stat alone, and in sum: if no card ever has, then
 * none does.
 */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tls_keys.h"

struct request {
	struct nlmsghdr head;
	struct inet_diag_req_v2 body;
};

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static void put_address(const union address *a, __be16 *port, __be32 out[4])
{
	if (a->any.sa_family == AF_INET) {
		*port = a->v4.sin_port;
		out[0] = a->v4.sin_addr.s_addr;
	} else {
		*port = a->v6.sin6_port;
		memcpy(out, &a->v6.sin6_addr, sizeof a->v6.sin6_addr);
	}
}

static int make_request(int fd, struct request *out)
{
	union address local = { 0 }, peer = { 0 };
	socklen_t local_bytes = sizeof local, peer_bytes = sizeof peer;

	if (getsockname(fd, &local.any, &local_bytes) || getpeername(fd, &peer.any, &peer_bytes))
		return -errno;
	*out = (struct request){
		.head = { .nlmsg_len = sizeof *out, .nlmsg_type = SOCK_DIAG_BY_FAMILY, .nlmsg_flags = NLM_F_REQUEST },
		.body = { .sdiag_family = (uint8_t)local.any.sa_family, .sdiag_protocol = IPPROTO_TCP, .idiag_states = UINT32_MAX,
			  .id.idiag_cookie = { INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE } },
	};
	put_address(&local, &out->body.id.idiag_sport, out->body.id.idiag_src);
	put_address(&peer, &out->body.id.idiag_dport, out->body.id.idiag_dst);
	return 0;
}

static const struct rtattr *find(const struct rtattr *a, size_t bytes, unsigned short type)
{
	for (; RTA_OK(a, bytes); a = RTA_NEXT(a, bytes)) {
		if ((a->rta_type & NLA_TYPE_MASK) == type)
			return a;
	}
	return NULL;
}

static const struct rtattr *find_within(const struct rtattr *a, unsigned short type)
{
	return a ? find(RTA_DATA(a), RTA_PAYLOAD(a), type) : NULL;
}

/* TLS_CONF_*, or -errno; -ENODATA: not told. */
static int ask(int netlink, int fd, bool receive)
{
	union {
		struct nlmsghdr head;
		uint8_t bytes[2048];
	} answer;
	const struct rtattr *a;
	struct request request;
	ssize_t n;
	int r = make_request(fd, &request);

	if (r)
		return r;
	if (send(netlink, &request, sizeof request, 0) < 0)
		return -errno;
	n = recv(netlink, &answer, sizeof answer, MSG_DONTWAIT); /* it has been made within send() */
	if (n < 0)
		return -errno;
	if (!NLMSG_OK(&answer.head, (size_t)n) || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
	    answer.head.nlmsg_len < NLMSG_LENGTH(sizeof(struct inet_diag_msg)))
		return -ENODATA;
	a = (const struct rtattr *)(answer.bytes + NLMSG_SPACE(sizeof(struct inet_diag_msg)));
	a = find(a, answer.head.nlmsg_len - NLMSG_SPACE(sizeof(struct inet_diag_msg)), INET_DIAG_ULP_INFO);
	a = find_within(find_within(a, INET_ULP_INFO_TLS), receive ? TLS_INFO_RXCONF : TLS_INFO_TXCONF);
	return a && RTA_PAYLOAD(a) >= sizeof(uint16_t) ? *(const uint16_t *)RTA_DATA(a) : -ENODATA;
}

/* Has a card ever done it, in this network namespace? True also when that is not known. */
static bool cards_have(void)
{
	FILE *file = fopen("/proc/net/tls_stat", "re");
	unsigned long long sum = 0;
	bool known = false;
	char line[80];

	if (!file)
		return true;
	while (fgets(line, sizeof line, file)) {
		size_t name = strcspn(line, " \t");

		if (name != strlen("TlsTxDevice") || (strncmp(line, "TlsTxDevice", name) && strncmp(line, "TlsRxDevice", name)))
			continue;
		known = true;
		sum += strtoull(line + name, NULL, 10);
	}
	fclose(file);
	return sum || !known;
}

enum tls_crypto tls_kernel_who(int fd, bool receive, char *reason)
{
	int netlink = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	int conf = netlink < 0 ? -errno : ask(netlink, fd, receive);

	if (netlink >= 0)
		close(netlink);
	reason[0] = 0;
	if (conf == TLS_CONF_HW || conf == TLS_CONF_HW_RECORD)
		return TLS_CRYPTO_DEVICE;
	if (conf >= 0 || !cards_have())
		snprintf(reason, ULP_REASON_BYTES, "the network device does not do TLS");
	else
		snprintf(reason, ULP_REASON_BYTES, "the network device may do it: that is told with CAP_NET_ADMIN only");
	return TLS_CRYPTO_KERNEL;
}
