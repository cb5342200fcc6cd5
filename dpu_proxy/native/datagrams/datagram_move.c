/*
 * A datagram socket for another process of the proxy, and from one (processes/move.h).
 *
 * What has come for it waits in the kernel's socket, which goes over as it is, with its address, peer, options, filter
 * and memberships. The record has what only the proxy knows: datagrams that the kernel had no room for, those that were
 * taken from it and not sent, those that members of a shared socket have given back, and the pending error. Of groups
 * it has the addresses, since the kernel does not list them; whether the socket is a member, the kernel is asked again.
 *
 * Of a shared socket, each member goes with its channel. What members have given back goes with the first, and is there
 * for all when that one has its key again, or when another process joins before that (processes/share_arrived.c).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "addresses/socket_address.h"
#include "connection/handed.h"
#include "connection/paced.h"
#include "connection/socket_kind.h"
#include "datagrams/datagram_record.h"
#include "datagrams/datagram_socket.h"
#include "datagrams/datagram_waiting.h"
#include "datagrams/filter_totals.h"
#include "processes/share.h"

/* --- giving ------------------------------------------------------------------------------------------------------- */

static struct datagram_side describe(const struct connection *c, const struct filter_use *filter)
{
	const struct datagrams *d = c->datagrams;
	const struct datagrams_unsent *u = &d->unsent;
	const char *name = filter_totals_name(filter->totals);

	return (struct datagram_side){
		.fd = c->tcp.fd,
		.ip_version = c->tcp.ip_version,
		.error = c->tcp.error,
		.kernel_send = c->tcp.kernel_send,
		.kernel_receive = c->tcp.kernel_receive,
		.coming = d->coming,
		.lost = d->lost && d->coming,
		.unsent = { .data = u->bytes + u->at, .bytes = u->end - u->at },
		.data_left = u->data_left,
		.returned_error = d->come_error,
		.delivered = d->delivered,
		.dropped = d->dropped,
		.bound = d->bound,
		.filter_instructions = filter->instructions,
		.filter_dropped = filter->dropped,
		.filter_name = { .data = (const uint8_t *)name, .bytes = (uint32_t)strlen(name) },
		.sent_bytes = c->tcp.out.sent_bytes,
		.returning = datagram_returning(c),
		.skipping = d->skipping,
		.window = c->window,
	};
}

/* What waits in the spill buffer, in the form of the record. 0 or -ENOMEM. */
static int copy_waiting(const struct connection *c, struct xts_record_bytes *out)
{
	uint32_t bytes = c->tcp.out.spill.bytes, at = 0, to = 0;
	uint8_t *all = bytes ? malloc(bytes) : NULL;

	if (!all)
		return bytes ? -ENOMEM : 0;
	spill_read(&c->tcp.out.spill, all);
	while (at < bytes) {
		struct xts_record_bytes rest;
		struct xts_datagram d;
		struct waiting waiting;
		uint32_t length = 0, missing;

		memcpy(&waiting, all + at, sizeof waiting);
		at += (uint32_t)sizeof waiting;
		rest = (struct xts_record_bytes){ all + at, bytes - at };
		if (!datagram_record_next(&rest, &length, &d, &missing))
			abort(); /* we have written it ourselves */
		xts_put32(all + to, waiting.refused);
		memmove(all + to + sizeof waiting.refused, all + at, length);
		to += (uint32_t)sizeof waiting.refused + length;
		at += length;
	}
	*out = (struct xts_record_bytes){ .data = all, .bytes = to };
	return 0;
}

/* What is for whichever member is next goes with this one. With the lock held. */
static void leave_nothing_returned(struct shared *s)
{
	while (returned_drop_block(&s->returned))
		;
	atomic_store(&s->returned.error, 0);
}

/* NULL: no memory. */
static struct kind_record *encode(const struct datagram_side *s)
{
	struct xts_record_attached attached;
	ssize_t bytes = xts_record_encode(&datagram_side_record, datagram_side_record.version, s, NULL, 0, &attached);
	struct kind_record *own = bytes > 0 ? malloc(sizeof *own + (size_t)bytes) : NULL;

	if (!own)
		return NULL;
	own->bytes = (uint32_t)bytes;
	(void)xts_record_encode(&datagram_side_record, datagram_side_record.version, s, own->data, (size_t)bytes,
				&attached);
	return own;
}

/* With the lock held if the socket is shared. NULL: no memory. */
static struct kind_record *make_record(struct connection *c, struct datagram_side *s)
{
	struct kind_record *own;

	if (c->shared && returned_copy(&c->shared->returned, &s->returned))
		return NULL;
	if (c->shared && !s->returned_error)
		s->returned_error = atomic_load(&c->shared->returned.error);
	own = encode(s);
	free((void *)(uintptr_t)s->returned.data);
	return own;
}

static struct kind_record *save(struct connection *c)
{
	struct filter_use filter = filter_of(c);
	struct datagram_side s = describe(c, &filter);
	struct kind_record *own = NULL;

	if (c->shared)
		registry_lock();
	if (!multicast_describe(c->datagrams->multicast, &s) && !copy_waiting(c, &s.waiting))
		own = make_record(c, &s);
	if (c->shared && own)
		leave_nothing_returned(c->shared);
	if (c->shared)
		registry_unlock();
	datagram_groups_list.drop(&s.groups);
	free((void *)(uintptr_t)s.waiting.data);
	return own;
}

int datagram_hand_over(struct connection *c, struct handed *to)
{
	struct tcp_side side = TCP_SIDE_NONE;

	if (c->tcp.fd < 0 || c->close_reply || c->datagrams->closing ||
	    !(c->channel->link.features & XTS_FEATURE_MOVE_DATAGRAM))
		return EOPNOTSUPP;
	if (!to)
		return 0;
	to->own = save(c);
	if (!to->own)
		return ENOBUFS;
	if (c->shared)
		share_is_elsewhere(c);
	datagram_forget_waiting(c);
	if (c->in_epoll)
		(void)epoll_ctl(c->worker->epoll_fd, EPOLL_CTL_DEL, c->tcp.fd, NULL);
	c->in_epoll = false;
	side.fd = c->tcp.fd;
	side.ip_version = c->tcp.ip_version;
	side.kernel_send = c->tcp.kernel_send;
	side.kernel_receive = c->tcp.kernel_receive;
	c->tcp.kernel_send = c->tcp.kernel_receive = 0;
	c->tcp.fd = -1;
	to->side = side;
	return 0;
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

/* What is read points into the record. */
static int read_record(const uint8_t *record, uint32_t bytes, int fd, struct datagram_side *s)
{
	const struct xts_record_attached attached = { .fds = { fd }, .fd_count = 1 };

	return xts_record_decode(&datagram_side_record, record, bytes, &attached, s);
}

int datagram_arrive(struct handed *to, const uint8_t *record, uint32_t bytes, int fd, bool protocols)
{
	struct datagram_side s;
	int error = protocols ? -EBADMSG : read_record(record, bytes, fd, &s);

	if (error)
		return error;
	*to = HANDED_NONE;
	to->side.fd = fd;
	to->side.ip_version = s.ip_version;
	to->side.kernel_send = s.kernel_send;
	to->side.kernel_receive = s.kernel_receive;
	xts_record_drop(&datagram_side_record, &s);
	to->own = malloc(sizeof *to->own + bytes);
	if (!to->own)
		return -ENOMEM;
	to->own->bytes = bytes;
	memcpy(to->own->data, record, bytes);
	return 0;
}

static int wait_again(struct connection *c, const struct datagram_side *s)
{
	uint32_t at = 0, before, missing;
	struct xts_datagram d;
	struct waiting w;

	for (; before = at + (uint32_t)sizeof w.refused,
	       datagram_record_next_waiting(&s->waiting, &at, &w.refused, &d, &missing);) {
		w.credits = xts_datagram_credits(&d.record);
		if (!datagram_wait_again(c, &w, s->waiting.data + before, at - before))
			return -ENOMEM;
	}
	c->datagrams->coming = s->coming;
	c->datagrams->lost = s->lost;
	return 0;
}

/* They are within the credits that the host will have. */
static int take_unsent(struct connection *c, const struct datagram_side *s)
{
	struct datagrams_unsent *u = &c->datagrams->unsent;

	if (!s->unsent.bytes)
		return 0;
	u->bytes = malloc(s->unsent.bytes);
	if (!u->bytes)
		return -ENOMEM;
	memcpy(u->bytes, s->unsent.data, s->unsent.bytes);
	u->end = u->room = s->unsent.bytes;
	u->data_left = s->data_left;
	tenant_take_anyway(c->tenant, XTS_USE_SOCKET_BYTES, u->room);
	return 0;
}

static int take_state(struct connection *c, const struct datagram_side *s)
{
	int error = wait_again(c, s);

	if (!error)
		error = take_unsent(c, s);
	if (!error)
		error = datagram_take_returned(c, s);
	if (!error)
		error = filter_arrives(c, s);
	return error ? error : multicast_arrives(c, s);
}

static void take_values(struct connection *c, const struct datagram_side *s)
{
	struct datagrams *d = c->datagrams;
	struct xts_endpoint local = { 0 };

	c->tcp.error = s->error;
	c->tcp.kernel_send = s->kernel_send;
	c->tcp.kernel_receive = s->kernel_receive;
	c->tcp.out.sent_bytes = s->sent_bytes;
	d->delivered = s->delivered;
	d->dropped = s->dropped;
	d->bound = s->bound;
	d->has_errors = c->readable = true; /* whatever epoll has reported before */
	paced_learn(c);
	datagram_learn_peer(c);
	socket_local(c->tcp.fd, &local);
	if (local.port)
		(void)connection_note_bound_address(c); /* if there is no memory, the address is not registered */
}

static int restore(struct connection *c, const struct datagram_side *s)
{
	int error = -ENOMEM;

	if (datagram_become(c) && connection_grant_datagrams(c, s->window, (uint32_t)datagram_record_credits(s)))
		error = take_state(c, s);
	if (!error)
		take_values(c, s);
	else if (c->datagrams)
		datagram_forget_waiting(c);
	return error;
}

int datagram_load(struct connection *c, struct tcp_side *from, const struct kind_record *own)
{
	struct datagram_side s;
	int error = own ? read_record(own->data, own->bytes, from->fd, &s) : -EBADMSG;

	if (error)
		return -error;
	error = restore(c, &s);
	xts_record_drop(&datagram_side_record, &s);
	if (!error)
		*from = TCP_SIDE_NONE;
	return -error;
}

/* What is for all members, for one that joins while the one sleeps that the record is of. */
static struct datagram_side for_all(const struct datagram_side *s)
{
	struct datagram_side all = *s;

	all.error = 0;
	all.window = all.data_left = all.skipping = 0;
	all.sent_bytes = 0;
	all.kernel_send = all.kernel_receive = 0;
	all.coming = 0;
	all.lost = false;
	all.unsent = all.waiting = all.returning = (struct xts_record_bytes){ 0 };
	return all;
}

int datagram_begins_again(struct connection *c, struct shared *s, struct kind_record **own,
			  int (*check)(struct connection *, const struct shared *))
{
	struct kind_record *rest = NULL;
	struct datagram_side side, all;
	int error = -read_record((*own)->data, (*own)->bytes, c->tcp.fd, &side);

	if (error)
		return error;
	all = for_all(&side);
	side.returned = (struct xts_record_bytes){ 0 };
	side.returned_error = 0;
	s->bound = side.bound;
	error = check(c, s);
	if (!error)
		rest = encode(&side);
	if (!error)
		error = rest ? -restore(c, &all) : ENOBUFS;
	xts_record_drop(&datagram_side_record, &side);
	if (error) {
		free(rest);
		return error;
	}
	datagram_share_begins(s, c);
	free(*own);
	*own = rest;
	return 0;
}
