/* poll(2) of sockets of one stack (mixed_descriptors.c), and of several (poll_over_stacks.c). */
#ifndef XTS_POLL_H
#define XTS_POLL_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>

struct stack;
struct xts_polled_context;

/* What poll(2) asks for, of all stacks. */
struct several {
	struct pollfd *sockets;
	nfds_t count;
	struct xts_polled_context *contexts;
	nfds_t context_count;
	struct pollfd *kernel;
	nfds_t kernel_count;
};

/* Sockets and contexts that all belong to this stack. How many are ready, or -errno; -ESTALE: a context has got a
 * socket of another stack meanwhile. */
int poll_own(struct stack *st, struct pollfd *sockets, nfds_t count, struct xts_polled_context *contexts,
	     nfds_t context_count, struct pollfd *kernel, nfds_t kernel_count, uint64_t deadline_ns,
	     const sigset_t *mask);
/* st: the stack whose queue the wait sleeps on. How many are ready, or -errno. */
int poll_several(struct stack *st, const struct several *p, uint64_t deadline_ns, const sigset_t *mask);

#endif
