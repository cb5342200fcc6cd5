/* poll(2) over XTS socket numbers. */
#include "library.h"

#include <poll.h>

static int scan(struct pollfd *fds, unsigned long count)
{
	int ready = 0;

	for (unsigned long i = 0; i < count; i++) {
		struct xts_sock *s;

		fds[i].revents = 0;
		if (fds[i].fd < 0)
			continue;
		s = table_open(fds[i].fd);
		if (!s)
			fds[i].revents = POLLNVAL;
		else /* the EPOLL* bits are the POLL* bits */
			fds[i].revents = (short)(socket_events(s) & ((uint32_t)(unsigned short)fds[i].events | POLLERR | POLLHUP));
		ready += fds[i].revents != 0;
	}
	return ready;
}

/* Marks the sockets, or takes the marks of those that are still there back. */
static void mark(struct pollfd *fds, unsigned long count, int by)
{
	for (unsigned long i = 0; i < count; i++) {
		struct xts_sock *s = fds[i].fd < 0 ? NULL : table_open(fds[i].fd);

		if (s)
			s->polled = (uint16_t)(s->polled + by);
	}
}

/* Inherited sockets are taken over by being waited for, and listeners are offered connections. */
static void use(const struct pollfd *fds, unsigned long count)
{
	for (unsigned long i = 0; i < count && (xts.untaken || xts.shared); i++) {
		struct xts_sock *s = fds[i].fd < 0 ? NULL : table_use(fds[i].fd);

		if (s && s->shared && (fds[i].events & POLLIN))
			share_interest(s);
	}
}

int xts_poll(struct pollfd *fds, unsigned long count, int timeout_ms)
{
	uint64_t deadline;
	int r;

	if (!fds && count)
		return finish(-EFAULT);
	library_enter();
	use(fds, count);
	channel_pump();
	r = scan(fds, count);
	if (!r && timeout_ms) {
		deadline = deadline_after(timeout_ms < 0 ? FOREVER : (uint64_t)timeout_ms * NS_PER_MS);
		mark(fds, count, 1);
		while (!r) {
			r = wait_for(&xts.poll_waiters, deadline, true);
			if (r)
				break;
			r = scan(fds, count);
		}
		mark(fds, count, -1);
		if (r == -ETIMEDOUT)
			r = scan(fds, count);
	}
	library_leave();
	return finish(r);
}
