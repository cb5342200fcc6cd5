/* shutdown(2) of a listener (SHUT_LISTENER): the socket stays, bound, with its options and protocols, and may listen
 * again. What waits for accept is reset, as by the kernel. */
#include "channel/channel.h"
#include "channel/tickets.h"
#include "connection/connection_inside.h"
#include "connection/socket_kind.h"
#include "processes/share.h"
#include "pushed/pushed.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* The kernel gives a port back that it has chosen itself, though getsockname() still says it. It is taken again, since
 * all that have the socket know it. This fails where the socket has kept its port, and where somebody has it by now:
 * then the next listen() chooses another one. */
void share_shut_socket(int fd)
{
	struct sockaddr_storage address;
	socklen_t length = sizeof address;
	bool known = !getsockname(fd, (struct sockaddr *)&address, &length);

	(void)shutdown(fd, SHUT_RD);
	if (known)
		(void)bind(fd, (const struct sockaddr *)&address, length);
}

void share_is_shut(struct connection *l)
{
	l->held = 0;
	l->readable = false;
	while (!list_empty(&l->offers))
		share_reset_offer(list_entry(l->offers.next, struct connection, offers));
	if (l->tcp.pushed)
		accepting_drop(l);
	if (l->in_epoll)
		(void)epoll_ctl(l->worker->epoll_fd, EPOLL_CTL_DEL, l->tcp.fd, NULL);
	l->in_epoll = false;
	l->noted_events = 0;
	connection_look_no_more(l);
	l->look_due = false;
	kind_of(l)->count(l, -1);
	connection_enter(l, CONNECTION_IDLE);
	kind_of(l)->count(l, 1);
	tenant_take_anyway(l->tenant, XTS_USE_CONNECTIONS, 1);
	tenant_give(l->tenant, XTS_USE_LISTENERS, 1);
	l->channel->listener_count--;
	l->channel->connection_count++;
}

/* True: it has ended. */
static bool shut_some(struct connection *l)
{
	if ((l->shared && !share_shut_some(l)) || !listener_refuse_some(l))
		return false;
	if (l->shared)
		share_shut_ends(l);
	else
		share_shut_socket(l->tcp.fd);
	share_is_shut(l);
	return true;
}

static bool goes_on(struct channel *ch)
{
	struct connection *l = ch->continuation.connection;
	uint32_t xts_socket = ch->continuation.shut.xts_socket, token = ch->continuation.shut.token;

	tickets_call_begins(ch);
	if (!shut_some(l))
		return true;
	continuation_done(ch);
	command_reply_local(ch, XTS_REPLY_SHUT_LISTENER_ACK, xts_socket, token, l, 0);
	tickets_call_goes_on(ch, XTS_CMD_SHUT_LISTENER, true);
	channel_check(ch, l->proxy_id);
	return true;
}

bool share_shut_goes_on(const struct connection *l)
{
	return l->channel->continuation.resume == goes_on && l->channel->continuation.connection == l;
}

static int begin(struct connection *l)
{
	if (!kind_of(l)->streams || (!kind_of(l)->members_accept && !l->shared))
		return EINVAL;
	if (!kind_of(l)->members_accept)
		return ENOTCONN; /* another member has shut it down, and this one's host does not know yet */
	return l->shared ? share_shut_begins(l) : 0;
}

enum command_result command_shut_listener(struct channel *ch, const struct xts_head *head,
					  const struct xts_shut_listener *m, struct batch_entry *e)
{
	struct connection *l = NULL;
	int error = EBADF;

	(void)e;
	if (head->id)
		l = command_target(ch, head->id, m->xts_socket, 0, &error);
	if (l)
		error = begin(l);
	if (l && !error && !shut_some(l)) {
		continuation_begin(ch, &(struct continuation){ .resume = goes_on,
							       .connection = l,
							       .replies_later = true,
							       .shut = { m->xts_socket, m->token } });
		return COMMAND_REPLIES;
	}
	command_reply_local(ch, XTS_REPLY_SHUT_LISTENER_ACK, m->xts_socket, m->token, l, error);
	return COMMAND_REPLIES;
}
