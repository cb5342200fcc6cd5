/*
 * The socket calls the workloads use, as a table: the same workload source runs on kernel sockets (net_api_kernel.c)
 * and on libxts (net_api_xts.c). Which one is decided when linking; every executable has exactly one `net_api`.
 */
#ifndef BENCH_NET_API_H
#define BENCH_NET_API_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>

struct net_api {
	const char *name;
	/* Before the first socket: how long a blocking receive spins before it sleeps (microseconds; 0: never). */
	int (*setup)(uint32_t spin_us);
	int (*socket)(int domain, int type, int protocol);
	int (*bind)(int s, const struct sockaddr *address, socklen_t length);
	int (*connect)(int s, const struct sockaddr *address, socklen_t length);
	int (*listen)(int s, int backlog);
	int (*accept4)(int s, struct sockaddr *address, socklen_t *length, int flags);
	ssize_t (*send)(int s, const void *data, size_t bytes, int flags);
	ssize_t (*recv)(int s, void *data, size_t bytes, int flags);
	/* Of datagrams. NULL: not this one. */
	int (*sendmmsg)(int s, struct mmsghdr *messages, unsigned count, int flags);
	int (*recvmmsg)(int s, struct mmsghdr *messages, unsigned count, int flags);
	/* Names by the library. NULL: not this one. */
	int (*query_name)(const void *query, size_t query_bytes, void *answer, size_t answer_bytes, int timeout_ms);
	int (*shutdown)(int s, int how);
	int (*close)(int s);
	int (*setsockopt)(int s, int level, int option, const void *value, socklen_t length);
	int (*getsockopt)(int s, int level, int option, void *value, socklen_t *length);
	/* An epoll set. A program that uses one comes back to set_wait() after every round of events. */
	void *(*set_create)(void);
	int (*set_ctl)(void *set, int op, int s, struct epoll_event *event);
	int (*set_wait)(void *set, struct epoll_event *events, int maxevents, int timeout_ms);
	void (*set_destroy)(void *set);
	/* How often a thread found the lock of the calling thread's stack taken, and which stack that is. NULL: no stacks. */
	uint64_t (*lock_waits)(uint32_t *stack);
	/* How this process is served: "afxdp", "relay" or "shm", once it has a connection. NULL: by the kernel. */
	const char *(*queue_kind)(void);
	/* NVMe/TCP: a connection that gives PDUs whose digests have been checked, if there are any. NULL: not this
	 * one. */
	int (*nvme_connect)(const struct sockaddr *address, socklen_t length, bool digests);
	/* One PDU, or a part of one, without digests; bytes, or -1. */
	ssize_t (*nvme_recv)(int s, void *data, size_t bytes);
};

extern const struct net_api net_api;

#endif
