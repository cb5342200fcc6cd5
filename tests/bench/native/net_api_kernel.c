/*
 * Kernel sockets. A blocking receive of a program that wants to spin tries without waiting for so long, then sleeps:
 * what a latency-minded program does where SO_BUSY_POLL does nothing (veth).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net_api.h"
#include "pdus.h"

static uint32_t spin_us;

static int kernel_setup(uint32_t us)
{
	spin_us = us;
	return 0;
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static ssize_t kernel_recv(int s, void *data, size_t bytes, int flags)
{
	if (spin_us && !(flags & MSG_DONTWAIT)) {
		uint64_t until = now_ns() + spin_us * 1000ull;

		do {
			ssize_t n = recv(s, data, bytes, flags | MSG_DONTWAIT);

			if (n >= 0 || errno != EAGAIN)
				return n;
		} while (now_ns() < until);
	}
	return recv(s, data, bytes, flags);
}

static int kernel_recvmmsg(int s, struct mmsghdr *messages, unsigned count, int flags)
{
	return recvmmsg(s, messages, count, flags, NULL);
}

/* The set is a descriptor, boxed so that it can never be a null pointer. */
static void *kernel_set_create(void)
{
	int *set = malloc(sizeof(*set));

	if (!set)
		return NULL;
	*set = epoll_create1(EPOLL_CLOEXEC);
	if (*set >= 0)
		return set;
	free(set);
	return NULL;
}

static int kernel_set_ctl(void *set, int op, int s, struct epoll_event *event)
{
	return epoll_ctl(*(int *)set, op, s, event);
}

static int kernel_set_wait(void *set, struct epoll_event *events, int maxevents, int timeout_ms)
{
	return epoll_wait(*(int *)set, events, maxevents, timeout_ms);
}

static void kernel_set_destroy(void *set)
{
	close(*(int *)set);
	free(set);
}

/* --- NVMe/TCP, taken apart and checked here ----------------------------------------------------------------------- */

static bool digests_wanted;

static int kernel_nvme_connect(const struct sockaddr *address, socklen_t length, bool digests)
{
	int s = socket(address->sa_family, SOCK_STREAM, 0);

	digests_wanted = digests;
	return s < 0 || connect(s, address, length) ? -1 : s;
}

static bool take(int s, void *data, size_t bytes)
{
	return recv(s, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

static bool digest_fits(const uint8_t *digest, const void *data, size_t bytes)
{
	uint32_t expected = (uint32_t)digest[0] | (uint32_t)digest[1] << 8 | (uint32_t)digest[2] << 16 |
			    (uint32_t)digest[3] << 24;

	return bench_crc32c(data, bytes) == expected;
}

/* As a host without offload does it: the header, then the data where the application wants it, then the digest. */
static ssize_t kernel_nvme_recv(int s, void *data, size_t bytes)
{
	uint8_t header[NVME_HEADER_BYTES + 4], digest[4], *at = data;
	size_t head = NVME_HEADER_BYTES + (digests_wanted ? 4 : 0);

	if (bytes < NVME_HEADER_BYTES + NVME_DATA_BYTES || !take(s, header, head) ||
	    !take(s, at + NVME_HEADER_BYTES, NVME_DATA_BYTES) || (digests_wanted && !take(s, digest, 4)))
		return -1;
	if (digests_wanted && (!digest_fits(header + NVME_HEADER_BYTES, header, NVME_HEADER_BYTES) ||
			       !digest_fits(digest, at + NVME_HEADER_BYTES, NVME_DATA_BYTES))) {
		errno = EBADMSG;
		return -1;
	}
	memcpy(at, header, NVME_HEADER_BYTES);
	return NVME_HEADER_BYTES + NVME_DATA_BYTES;
}

const struct net_api net_api = {
	.name = "kernel",
	.setup = kernel_setup,
	.socket = socket,
	.bind = bind,
	.connect = connect,
	.listen = listen,
	.accept4 = accept4,
	.send = send,
	.recv = kernel_recv,
	.sendmmsg = sendmmsg,
	.recvmmsg = kernel_recvmmsg,
	.shutdown = shutdown,
	.close = close,
	.setsockopt = setsockopt,
	.getsockopt = getsockopt,
	.set_create = kernel_set_create,
	.set_ctl = kernel_set_ctl,
	.set_wait = kernel_set_wait,
	.set_destroy = kernel_set_destroy,
	.nvme_connect = kernel_nvme_connect,
	.nvme_recv = kernel_nvme_recv,
};
