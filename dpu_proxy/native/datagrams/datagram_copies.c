/*
 * A datagram that several sockets of a channel have received crosses the queue once (RECV_COPIES).
 *
 * The device's kernel gives each member of a group its own copy, and decides by that socket's memberships, filters,
 * peer and receive buffer. None of that is repeated here. When a socket has its turn and other sockets of the channel
 * are bound to the same port, their datagrams are taken together with its own. Datagrams that are equal, byte for byte
 * and including control data, are written once, and the message says which sockets get them.
 *
 * So it does not matter whether two equal datagrams are copies of one: each datagram that a socket had in the kernel is
 * sent to it once, in its order, and takes its credits. Datagrams that differ are sent separately: those of the socket
 * that has its turn in this message, those of the others in their own messages, which follow. A socket that lags behind
 * the others catches up in its own turn. Sockets of one port that are members of different groups, or want different
 * control data, often have different datagrams. Such a socket is peeked at first (MSG_PEEK), so that its datagrams stay
 * in the kernel and a third socket may still be found to have the same.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "addresses/socket_address.h"
#include "datagrams/datagram_making.h"

#define BUCKETS 1024u
#define LIST_PART 4u /* the list of sockets takes at most 1/LIST_PART of a message */
#define DIFFERS 64u  /* after a difference, how many times a socket's datagrams are peeked at before they are taken */
#define ASKED 8u     /* sockets that are checked even if the turn is over */

/* A datagram that was taken from the kernel. */
struct taken {
	struct xts_datagram d;
	const uint8_t *data;
	uint32_t head_bytes;
	uint8_t head[XTS_DATAGRAM_HEAD_BYTES_MAX];
};

struct datagram_copies {
	struct list bound[BUCKETS];     /* hashed by port; linked by datagrams.by_port */
	struct datagram_scratch others; /* buffers for the datagrams of a socket other than the one that has its turn */
	struct taken mine[XTS_COPIES_RECORDS_MAX], theirs[XTS_COPIES_RECORDS_MAX];
};
_Static_assert(DATAGRAM_RECEIVES <= XTS_COPIES_RECORDS_MAX, "a batch fits into a message");

/* --- sockets of one port ------------------------------------------------------------------------------------------ */

bool copies_begin(struct worker_state *w)
{
	if (w->datagram_copies)
		return true;
	w->datagram_copies = calloc(1, sizeof *w->datagram_copies);
	for (uint32_t i = 0; w->datagram_copies && i < BUCKETS; i++)
		list_init(&w->datagram_copies->bound[i]);
	return w->datagram_copies;
}

static uint16_t port_of(const struct connection *c)
{
	struct xts_endpoint local;

	socket_local(c->fd, &local);
	return local.port;
}

void copies_enter(struct connection *c)
{
	struct datagrams *d = c->datagrams;
	struct list *head, *node;

	if (!list_empty(&d->by_port))
		return;
	d->connection = c;
	d->port = port_of(c);
	head = &c->worker->datagram_copies->bound[d->port % BUCKETS];
	for (node = head->next; node != head; node = node->next) {
		struct datagrams *other = list_entry(node, struct datagrams, by_port);

		if (other->port == d->port && other->connection->channel == c->channel &&
		    other->connection->ip_version == c->ip_version) {
			list_append(&other->same_port, &d->same_port);
			break;
		}
	}
	list_append(head, &d->by_port);
}

void copies_leave(struct connection *c)
{
	list_remove(&c->datagrams->by_port);
	list_remove(&c->datagrams->same_port);
}

bool copies_are_possible(const struct connection *c)
{
	const struct datagrams *d = c->datagrams;

	return !list_empty(&d->same_port) && c->readable && !c->shared && c->xts_socket &&
	       atomic_load_explicit(&d->multicast->filters, memory_order_relaxed) &&
	       c->channel->link.features & XTS_FEATURE_COPIES;
}

/* May the socket's datagrams go into another socket's message? Not if it has something to send to its host first. */
static bool may_join_in(const struct connection *c)
{
	const struct datagrams *d = c->datagrams;

	return !c->shared && c->xts_socket && c->state == CONNECTION_DATAGRAM && !d->closing && !c->error &&
	       !d->has_errors && !d->unsent.end;
}

/* --- what has come ------------------------------------------------------------------------------------------------ */

/* Takes at most `most` datagrams and drops those that are not for the socket. Returns how many are left. *direct: none
 * of them was sent to a group. */
static uint32_t take(struct connection *c, struct datagram_scratch *s, struct taken *out, uint32_t most, bool *direct)
{
	struct mmsghdr messages[DATAGRAM_RECEIVES];
	uint32_t count = datagram_fetch(c, s, messages, most), kept = 0;

	*direct = true;
	for (uint32_t i = 0; i < count; i++) {
		struct taken *one = &out[kept];
		bool direct_one;

		if (!datagram_take(c, &messages[i], &one->d, &direct_one))
			continue;
		*direct = *direct && direct_one;
		one->head_bytes = xts_datagram_write(one->head, sizeof one->head, &one->d);
		one->data = s->data[i];
		kept++;
	}
	return kept;
}

/* How many of these datagrams the socket has credits for and fit into this many bytes. */
static uint32_t affordable(const struct connection *c, const struct taken *t, uint32_t count, uint32_t room)
{
	uint32_t credits = c->held, fits;

	for (fits = 0; fits < count; fits++) {
		uint32_t bytes = t[fits].head_bytes + t[fits].d.record.data_bytes;
		uint32_t takes = xts_datagram_credits(&t[fits].d.record);

		if (bytes > room || takes > credits)
			break;
		room -= bytes;
		credits -= takes;
	}
	return fits;
}

static bool is_equal(const struct taken *a, const struct taken *b)
{
	return a->head_bytes == b->head_bytes && a->d.record.data_bytes == b->d.record.data_bytes &&
	       !memcmp(a->head, b->head, a->head_bytes) && !memcmp(a->data, b->data, a->d.record.data_bytes);
}

/* The index, from `from` on, of the datagram of `mine` that is equal to this one; mine_count: none. */
static uint32_t find(const struct taken *mine, uint32_t mine_count, uint32_t from, const struct taken *one)
{
	while (from < mine_count && !is_equal(&mine[from], one))
		from++;
	return from;
}

static void keep(struct connection *c, struct taken *t, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (!datagram_keep(c, &t[i].d, t[i].data))
			datagram_lost(c);
	if (count || c->readable)
		connection_wake(c);
}

static void pay(struct connection *c, const struct taken *t, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		(void)datagram_pay(c, &t[i].d); /* affordable() has checked the credits */
}

/* --- the message -------------------------------------------------------------------------------------------------- */

static void write_socket(struct making *m, struct connection *c, uint32_t first, uint32_t count)
{
	const struct xts_datagram_copy copy = {
		.xts_socket = c->xts_socket,
		.dropped = c->datagrams->dropped,
		.first = (uint16_t)first,
		.count = (uint16_t)count,
	};

	xts_datagram_copy_encode(m->slot->data + m->at, &copy);
	m->at += XTS_DATAGRAM_COPY_BYTES;
}

/* Finds how many of the first datagrams of `theirs` are also in `mine`, in the same order, and writes that into the
 * list of sockets. Returns how many. */
static uint32_t match(struct making *m, struct connection *other, const struct taken *mine, uint32_t mine_count,
		      const struct taken *theirs, uint32_t count, uint32_t end)
{
	uint32_t from = 0, done = 0;

	while (done < count && m->at + XTS_DATAGRAM_COPY_BYTES <= end) {
		uint32_t first = find(mine, mine_count, from, &theirs[done]), same = 0;

		while (done + same < count && first + same < mine_count &&
		       is_equal(&mine[first + same], &theirs[done + same]))
			same++;
		if (!same)
			break;
		write_socket(m, other, first, same);
		from = first + same;
		done += same;
	}
	return done;
}

/* Is its first datagram in `mine`? Assumed for a socket that has not differed lately. */
static bool looks_equal(struct connection *other, struct datagram_copies *copies, const struct taken *mine,
			uint32_t mine_count)
{
	struct taken *one = &copies->theirs[0];
	struct mmsghdr message;
	uint32_t dropped;
	bool direct;

	if (!other->datagrams->differs)
		return true;
	if (!datagram_peek(other, &copies->others, &message) ||
	    !datagram_describe(other, &message, &one->d, &direct, &dropped))
		return false;
	one->head_bytes = xts_datagram_write(one->head, sizeof one->head, &one->d);
	one->data = copies->others.data[0];
	return find(mine, mine_count, 0, one) < mine_count;
}

/* No more datagrams were taken from this socket than the first socket had, so it may have more. It hardly ever has, and
 * checking that here costs a fraction of a turn of its own. */
static void look_for_more(struct connection *other)
{
	struct mmsghdr message = { 0 };

	if (!other->readable || recvmmsg(other->fd, &message, 1, MSG_PEEK | MSG_DONTWAIT, NULL) >= 0)
		return;
	if (errno == EAGAIN)
		other->readable = false;
	else
		datagram_fails(other, errno);
}

/* Takes the datagrams of another socket, and writes into the list of sockets which ones are equal. */
static void ask(struct making *m, struct connection *other, const struct taken *mine, uint32_t mine_count, uint32_t end)
{
	struct datagram_copies *copies = m->c->worker->datagram_copies;
	uint32_t most = affordable(other, mine, mine_count, UINT32_MAX), count, done;
	bool direct;

	if (!most || !looks_equal(other, copies, mine, mine_count))
		return;
	count = take(other, &copies->others, copies->theirs, most, &direct);
	done = match(m, other, mine, mine_count, copies->theirs, count, end);
	pay(other, copies->theirs, done);
	m->c->worker->stats.datagram_copies += done;
	if (done < count)
		other->datagrams->differs = DIFFERS;
	else if (done && other->datagrams->differs)
		other->datagrams->differs--;
	look_for_more(other);
	keep(other, copies->theirs + done, count - done);
}

/* Writes the list of sockets. Returns how many there are. */
static uint32_t write_sockets(struct making *m, const struct taken *mine, uint32_t mine_count, uint32_t end)
{
	struct list *self = &m->c->datagrams->same_port, *node;
	uint32_t begin = m->at, asked = 0;

	write_socket(m, m->c, 0, mine_count);
	for (node = self->next; node != self && m->at + XTS_DATAGRAM_COPY_BYTES <= end; node = node->next) {
		struct connection *other = list_entry(node, struct datagrams, same_port)->connection;

		if (m->over && asked >= ASKED)
			break;
		if (may_join_in(other))
			ask(m, other, mine, mine_count, end);
		if (++asked % ASKED == 0)
			m->over = worker_turn_is_over(m->c->worker);
	}
	return (m->at - begin) / XTS_DATAGRAM_COPY_BYTES;
}

static void submit(struct making *m, uint32_t sockets, const struct taken *t, uint32_t count)
{
	struct xts_recv_copies head = { .sockets = (uint16_t)sockets, .records = (uint16_t)count };

	for (uint32_t i = 0; i < count; i++) {
		memcpy(m->slot->data + m->at, t[i].head, t[i].head_bytes);
		memcpy(m->slot->data + m->at + t[i].head_bytes, t[i].data, t[i].d.record.data_bytes);
		m->at += t[i].head_bytes + t[i].d.record.data_bytes;
	}
	head.length = m->at - XTS_RECV_COPIES_BYTES;
	xts_head_encode(m->slot->data, XTS_REPLY_RECV_COPIES, 0, 0, 0);
	xts_recv_copies_encode(m->slot->data, &head);
	channel_submit(m->c->channel, m->slot, m->at);
}

bool copies_make(struct making *m)
{
	struct worker_state *w = m->c->worker;
	struct taken *mine = w->datagram_copies->mine;
	uint32_t begin = m->at, end = m->end, list_end = XTS_RECV_COPIES_BYTES + (end - begin) / LIST_PART;
	uint32_t most, count, whole, sockets = 0;
	bool direct = true;

	m->end = end - (list_end - XTS_RECV_COPIES_BYTES);
	most = datagram_may_take(m);
	count = most ? take(m->c, w->datagram_scratch, mine, most, &direct) : 0;
	m->over = worker_turn_is_over(w);
	whole = affordable(m->c, mine, count, end - list_end);
	m->at = XTS_RECV_COPIES_BYTES;
	if (whole && !direct)
		sockets = write_sockets(m, mine, whole, list_end);
	if (sockets > 1) {
		pay(m->c, mine, whole);
		submit(m, sockets, mine, whole);
		keep(m->c, mine + whole, count - whole);
		return true;
	}
	m->at = begin;
	m->end = end;
	for (uint32_t i = 0; i < count; i++)
		if (!datagram_put(m, &mine[i].d, mine[i].data))
			datagram_lost(m->c);
	return false;
}
