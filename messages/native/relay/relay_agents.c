/*
 * The relay outlives its agent.
 *
 * Theory of operation. An agent ends when it is stopped, upgraded, or killed. The processes behind its relay need it as
 * little as those that have a queue of their own: the relay has the queue, their memory, and sees when one of them ends
 * by its bell. So it goes on without an agent for as long as it has processes. The next agent connects to the socket at
 * which the relay listens. It is told all that it has to know, is given that socket for the relays that it starts
 * itself, and is the agent from then on. Who may connect the mode of the socket's file decides.
 *
 * A relay whose last process ends while there is no agent ends, too.
 */
#include "relay/relay_inside.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

void relay_agent_lost(struct relay *r)
{
	if (r->control_fd < 0)
		return;
	(void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, r->control_fd, NULL);
	close(r->control_fd);
	r->control_fd = -1;
	if (r->config->listen_fd < 0 || !r->count || relay_watch(r, r->config->listen_fd))
		r->agent_gone = true;
}

/* All of it is one message, so that half of it is never taken for the whole. */
static bool tell(struct relay *r, int fd)
{
	struct xts_relay_state state = { .magic = XTS_RELAY_STATE_MAGIC, .version = XTS_RELAY_STATE_VERSION };
	struct xts_relay_member members[XTS_RELAYED_MAX];
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr alignment;
	} control = { .bytes = { 0 } };
	struct iovec pieces[2] = { { .iov_base = &state, .iov_len = sizeof state }, { .iov_base = members } };
	struct msghdr m = {
		.msg_iov = pieces, .msg_iovlen = 2, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	for (uint32_t i = 0; i < r->count && state.count < XTS_RELAYED_MAX; i++) {
		const struct process *p = r->processes[i];

		members[state.count++] = (struct xts_relay_member){
			.number = p->number, .uid = p->uid, .pid = p->pid, .epoch = p->epoch
		};
	}
	state.next = r->next;
	state.geometry = *r->config->geometry;
	pieces[1].iov_len = state.count * sizeof *members;
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &r->config->listen_fd, sizeof(int));
	return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)(sizeof state + pieces[1].iov_len);
}

bool relay_agent_comes(struct relay *r)
{
	int fd;

	if (r->agent_gone || !r->count) { /* nobody needs it any more */
		r->agent_gone = true;
		return false;
	}
	fd = accept4(r->config->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return false;
	if (relay_watch(r, fd) || !tell(r, fd)) {
		close(fd);
		return false;
	}
	(void)epoll_ctl(r->epoll_fd, EPOLL_CTL_DEL, r->config->listen_fd, NULL);
	r->control_fd = fd;
	return true;
}
