/*
 * Kernel sockets. A blocking receive of a program that wants to spin tries without waiting for so long, then sleeps:
 * what a latency-minded program does where SO_BUSY_POLL does nothing (veth).
 */
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "net_api.h"

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
	.shutdown = shutdown,
	.close = close,
	.setsockopt = setsockopt,
	.getsockopt = getsockopt,
	.set_create = kernel_set_create,
	.set_ctl = kernel_set_ctl,
	.set_wait = kernel_set_wait,
	.set_destroy = kernel_set_destroy,
};
