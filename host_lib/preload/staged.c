/* Stands in for the parts that come with other branches: the rules, and waiting. Dropped when they are there. */
#include "preload.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

struct xts_rules {
	bool loopback;
};
struct xts_rule_group {
	bool loopback;
};
static struct xts_rules defaults;

__attribute__((weak)) int xts_rules_read(struct xts_rules **out, const char *path, struct xts_rules_error *error)
{
	static struct xts_rules rules = {.loopback = true};

	(void)error;
	if (access(path, R_OK) < 0)
		return -errno;
	*out = &rules;
	return 0;
}
__attribute__((weak)) const struct xts_rules *xts_rules_default(void)
{
	return &defaults;
}
__attribute__((weak)) const struct xts_rule_group *xts_rules_group(const struct xts_rules *rules, const char *program, const char *id)
{
	(void)program;
	(void)id;
	return (const struct xts_rule_group *)rules;
}
__attribute__((weak)) struct xts_verdict xts_rules_ask(const struct xts_rule_group *group, enum xts_role role, const struct sockaddr *local,
				 const struct sockaddr *peer)
{
	const struct sockaddr *a = peer ? peer : local;
	bool loopback;

	(void)role;
	if (a && a->sa_family == AF_INET)
		loopback = (ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24) == 127;
	else
		loopback = a && IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
	return (struct xts_verdict){.offload = group->loopback || !loopback};
}
__attribute__((weak)) bool xts_rules_may_offload(const struct xts_rule_group *group, enum xts_role role)
{
	(void)group;
	(void)role;
	return true;
}

__attribute__((weak)) int xts_poll_mixed(struct pollfd *offloaded, nfds_t offloaded_count, struct pollfd *kernel, nfds_t kernel_count,
		   uint64_t deadline_ns, const sigset_t *mask)
{
	int r;
	(void)deadline_ns;
	(void)mask;
	do {
		r = XTS(xts_poll(offloaded, offloaded_count, 0)) + real()->poll(kernel, kernel_count, 1);
	} while (!r);
	return r;
}

__attribute__((weak)) void epoll_descriptor_gone(int fd, struct descriptor d)
{
	(void)fd;
	(void)d;
}
__attribute__((weak)) void epoll_descriptor_offloaded(int fd, struct descriptor d)
{
	(void)fd;
	(void)d;
}
__attribute__((weak)) void epoll_set_release(uint32_t number)
{
	(void)number;
}

/* Mirrors in their place: slow, but what it says is true. */
EXPORT __attribute__((weak)) int poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
	struct pollfd copy[count ? count : 1];
	int r;

	for (nfds_t i = 0; i < count; i++) {
		int s = descriptor_offloaded(fds[i].fd);

		copy[i] = fds[i];
		if (s >= 0)
			copy[i].fd = XTS(xts_fileno(s));
	}
	r = real()->poll(copy, count, timeout_ms);
	for (nfds_t i = 0; i < count; i++)
		fds[i].revents = copy[i].revents;
	return r;
}
