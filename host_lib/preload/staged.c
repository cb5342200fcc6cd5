/* Stands in for waiting, which comes with another branch. Dropped when it is there. */
#include "preload.h"

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
