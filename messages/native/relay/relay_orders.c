/* The agent's orders to the relay: a process has come, or has gone; and what the relay reports. relay_loop.h has the
 * theory of operation. */
#include "relay/relay_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay/mux.h"
#include "queues/queue_kinds.h"

#define LAST_FRAMES 256u /* of a process that has gone */
#define ORDERS_A_ROUND 16u

void relay_report(struct relay *r, uint32_t what, uint32_t number, int error, uint32_t dropped)
{
	struct xts_relay_report out = { .what = what, .number = number, .error = error, .dropped = dropped };

	if (r->control_fd >= 0 && send(r->control_fd, &out, sizeof out, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 &&
	    errno != EAGAIN)
		relay_agent_lost(r);
}

int relay_watch(struct relay *r, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	return epoll_ctl(r->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

void relay_process_free(struct relay *r, struct process *p)
{
	if (p->shm) {
		(void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, p->shm->wait_fd, NULL);
		xts_queue_close(p->shm);
	}
	xts_queue_close(p->channel);
	free(p);
}

static void close_all(const int *fds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]);
}

/* Takes over the descriptors. */
static int process_add(struct relay *r, const struct xts_relay_order *order, const int *fds, uint32_t count)
{
	struct process *p = r->count < r->config->channels_max ? calloc(1, sizeof *p) : NULL;
	int error = p ? xts_mux_add(&p->channel, r->mux, order->number, XTS_RELAYED_WINDOW) : -ENOMEM;

	if (!error) {
		const struct xts_queue_kind *kind = xts_queue_kind(order->geometry.kind);

		error = kind && kind->descriptors == count ?
				kind->adopt(&p->shm, XTS_QUEUE_PROXY, fds, &order->geometry) :
				-EPROTO;
		if (error)
			p->shm = NULL;
	}
	if (error)
		close_all(fds, count);
	else
		error = relay_watch(r, p->shm->wait_fd);
	if (error) {
		if (p)
			relay_process_free(r, p);
		return error;
	}
	p->number = order->number;
	p->uid = order->uid;
	p->pid = order->pid;
	if (order->number >= r->next)
		r->next = order->number + 1;
	p->epoch = order->geometry.epoch;
	r->processes[r->count++] = p;
	return 0;
}

static void process_gone(struct relay *r, uint32_t number)
{
	for (uint32_t i = 0; i < r->count; i++)
		if (r->processes[i]->number == number && !r->processes[i]->last_frames)
			r->processes[i]->last_frames = LAST_FRAMES;
}

static void obey(struct relay *r, const struct xts_relay_order *order, const int *fds, uint32_t count)
{
	int error;

	if (order->what == XTS_RELAY_ADD && count) {
		error = process_add(r, order, fds, count);
		if (error)
			relay_report(r, XTS_RELAY_ENDED, order->number, -error, 0);
		return;
	}
	close_all(fds, count);
	if (order->what == XTS_RELAY_REMOVE)
		process_gone(r, order->number);
	if (order->what == XTS_RELAY_OVER)
		relay_say_over(r, order->geometry.epoch, order->geometry.token, order->geometry.token_bytes);
}

/* False: there is no order to read. */
static bool take_order(struct relay *r)
{
	struct xts_relay_order order;
	union {
		char bytes[CMSG_SPACE(sizeof(int) * XTS_QUEUE_DESCRIPTORS_MAX)];
		struct cmsghdr alignment;
	} control;
	struct iovec piece = { .iov_base = &order, .iov_len = sizeof order };
	struct msghdr m = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
	};
	struct cmsghdr *c;
	int fds[XTS_QUEUE_DESCRIPTORS_MAX];
	uint32_t count = 0;
	ssize_t got = recvmsg(r->control_fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
		count = (uint32_t)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds, CMSG_DATA(c), count * sizeof(int));
	}
	if (got == sizeof order && order.what == XTS_RELAY_ADD && (m.msg_flags & MSG_CTRUNC)) {
		close_all(fds, count); /* the kernel has closed those for which there was no room here */
		relay_report(r, XTS_RELAY_ENDED, order.number, EMFILE, 0);
		return true;
	}
	if (got != sizeof order) { /* the agent has gone, or it is not the agent */
		close_all(fds, count);
		relay_agent_lost(r);
		return false;
	}
	obey(r, &order, fds, count);
	return true;
}

bool relay_take_orders(struct relay *r)
{
	uint32_t taken = 0;

	if (r->control_fd < 0 && !relay_agent_comes(r))
		return r->agent_gone;
	while (taken < ORDERS_A_ROUND && r->control_fd >= 0 && take_order(r))
		taken++;
	return taken || r->control_fd < 0;
}
