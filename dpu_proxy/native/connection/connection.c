/* One offloaded connection between its channel and its TCP socket: made, watched, freed. What TCP says:
 * connection_event.c; the end: connection_close.c; data: from_host.c, to_tcp.c, to_host.c. */
#include "channel/tickets.h"
#include "connection/connection_inside.h"
#include "channel/ledger.h"
#include "connection/paced.h"
#include "connection/unowned.h"
#include "connection/socket_kind.h"
#include "connection/tcp_move.h"
#include "processes/share.h"
#include "pushed/pushed.h"
#include "tenants/mark.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PUSHED_BYTES 32768u /* about what a connection with TLS has in malloc's heap */

/* --- making and freeing ------------------------------------------------------------------------------------------- */

/* Its charges, as far as the limits allow. */
static bool charge(struct channel *ch, int *error)
{
	struct worker_state *w = ch->worker;

	if (!tenant_take(ch->tenant, XTS_USE_CONNECTIONS, 1)) {
		w->stats.refused_limit++;
		*error = command_refuse(ch, XTS_REFUSED_CONNECTIONS);
		return false;
	}
	while (!tenant_take_socket(ch->tenant)) {
		if (orphan_gives_way(w, ch->tenant))
			continue;
		w->stats.refused_limit++;
		*error = command_refuse(ch, XTS_REFUSED_SOCKETS);
		tenant_give(ch->tenant, XTS_USE_CONNECTIONS, 1);
		return false;
	}
	return true;
}

/* It is charged already. */
static struct connection *make(struct channel *ch, int fd, uint8_t ip_version, int *error)
{
	struct worker_state *w = ch->worker;
	struct connection *c;

	*error = command_refuse(ch, XTS_REFUSED_DEVICE_MEMORY);
	c = calloc(1, sizeof *c);
	if (!c)
		goto no_memory;
	c->proxy_id = identifier_take(ch, c);
	if (!c->proxy_id)
		goto no_identifier;
	c->buffers_untouched = fd < 0;
	if (fd < 0)
		fd = socket(ip_version == 6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
			    IPPROTO_TCP);
	if (fd < 0)
		goto no_socket;
	*error = command_refuse(ch, XTS_REFUSED_NONE);
	c->tenant = tenant_hold(ch->tenant);
	c->watch.kind = WATCH_CONNECTION;
	c->channel = ch;
	c->worker = w;
	c->tcp.fd = fd;
	c->tcp.ip_version = ip_version;
	mark_socket(c->tenant, fd, ip_version);
	c->gathered_first = c->gathered_last = BATCH_NONE;
	list_init(&c->ready);
	list_init(&c->noted);
	list_init(&c->offers);
	list_append(&ch->connections, &c->member);
	ch->connection_count++;
	w->stats.connections++;
	return c;
no_socket:
	*error = errno == EMFILE || errno == ENFILE ? command_refuse(ch, XTS_REFUSED_DEVICE_DESCRIPTORS) : errno;
	identifier_release(ch, c->proxy_id);
no_identifier:
	free(c);
no_memory:
	tenant_give_socket(ch->tenant);
	tenant_give(ch->tenant, XTS_USE_CONNECTIONS, 1);
	return NULL;
}

struct connection *connection_new(struct channel *ch, int fd, uint8_t ip_version, int *error)
{
	return charge(ch, error) ? make(ch, fd, ip_version, error) : NULL;
}

struct connection *connection_new_moved(struct channel *ch, int fd, uint8_t ip_version, int *error)
{
	tenant_take_anyway(ch->tenant, XTS_USE_CONNECTIONS, 1);
	tenant_take_socket_anyway(ch->tenant);
	return make(ch, fd, ip_version, error);
}

void connection_close_socket(struct connection *c, bool reset)
{
	struct linger abort_now = { .l_onoff = 1 };

	if (c->tcp.fd < 0)
		return;
	closed_end(c, reset);
	ledger_forget(c->tcp.fd);
	if (reset)
		(void)setsockopt(c->tcp.fd, SOL_SOCKET, SO_LINGER, &abort_now, sizeof abort_now);
	close(c->tcp.fd);
	c->tcp.fd = -1;
	c->in_epoll = false;
	bound_address_release(c->bound_to);
	c->bound_to = NULL;
}

void connection_leave_channel(struct connection *c)
{
	struct channel *ch = c->channel;

	ledger_forget(c->tcp.fd);
	held_forget(c);
	closed_leaves(c);
	tenant_give(c->tenant, kind_of(c)->use, 1);
	connection_return_window(c);
	if (kind_of(c)->use == XTS_USE_LISTENERS)
		ch->listener_count--;
	else
		ch->connection_count--;
	ch->spill_bytes -= c->tcp.out.spill.bytes;
	ch->ulp_bytes -= pushed_memory(c->tcp.pushed);
	waiting_leaves(c);
	channel_clean(ch, c);
	identifier_release(ch, c->proxy_id);
	c->proxy_id = c->xts_socket = 0;
	continuation_connection_gone(ch, c);
	list_remove(&c->ready);
	list_remove(&c->member);
	c->channel = NULL;
}

/* What it has towards TCP, and the charges for that. */
static void free_tcp(struct connection *c)
{
	outgoing_free(&c->tcp.out);
	returned_drop(&c->tcp.returned, c->worker, c->tenant);
	pushed_free(c->tcp.pushed);
	c->tcp.pushed = NULL;
	tcp_side_uncharge_buffers(&c->tcp, c->tenant);
}

void connection_free(struct connection *c, bool reset)
{
	kind_of(c)->free(c);
	if (c->shared)
		share_leave(c, false);
	if (c->listener && !c->announced)
		accepting_ends(c);
	listener_offer_ends(c);
	connection_close_socket(c, reset);
	closed_end(c, reset);               /* in case it had no socket any more */
	bound_address_release(c->bound_to); /* in case its socket has moved to another connection */
	c->bound_to = NULL;
	trim_count(&c->worker->trim, &c->worker->timers, c->worker->now_ns,
		   sizeof *c + (c->tcp.pushed ? PUSHED_BYTES : 0));
	kind_of(c)->count(c, -1);
	connection_spill_gone(c, c->tcp.out.spill.bytes);
	if (c->orphan)
		orphan_uncount(c);
	ticket_end(c);
	free_tcp(c);
	if (c->channel)
		connection_leave_channel(c);
	if (!c->as_orphan || !atomic_load(&c->as_orphan->cut)) /* else the orphan that replaced it is charged */
		tenant_give_socket(c->tenant);
	xts_tenant_release(c->tenant);
	c->tenant = NULL;
	connection_look_no_more(c);
	paced_free(c);
	list_remove(&c->noted);
	list_remove(&c->member); /* of orphans */
	/* Events already fetched may still point here: the worker frees the memory after them. */
	c->noted_events = 0;
	c->look_due = false;
	connection_enter(c, CONNECTION_FREED);
	free(c->as_orphan);
	c->as_orphan = NULL;
	free(c->look);
	c->look = NULL;
	list_append(&c->worker->dead, &c->member);
}

/* --- epoll and the ready list ------------------------------------------------------------------------------------- */

void connection_wake(struct connection *c)
{
	if (!c->channel || c->orphan || !list_empty(&c->ready))
		return;
	list_append(&c->channel->ready, &c->ready);
	waiting_ready(c);
}

int connection_watch(struct connection *c)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET,
		.data.ptr = &c->watch,
	};

	if (c->in_epoll)
		return 0;
	if (epoll_ctl(c->worker->epoll_fd, EPOLL_CTL_ADD, c->tcp.fd, &event))
		return -errno;
	c->in_epoll = true;
	return 0;
}
