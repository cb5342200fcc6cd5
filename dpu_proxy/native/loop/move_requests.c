/* Requests of the supervisor about channels that go to another process of the proxy, or come from one.
 * processes/move.h has the theory of operation. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "channel/channel.h"
#include "connection/socket_kind.h"
#include "connection/tcp_move.h"
#include "connection/tcp_record.h"
#include "loop/move_inside.h"
#include "loop/worker_inside.h"
#include "processes/move.h"
#include "processes/move_record.h"
#include "processes/private_bytes.h"
#include "processes/share.h"
#include "pushed/pushed.h"
#include "pushed/pushed_move.h"
#include "queues/queue_kinds.h"

#define ACCEPTS_HELD_NS 100000000u /* longer than the supervisor takes to ask again */
#define HANDSHAKES_NS 1000000000u  /* so long they may delay an upgrade */
#define PIECE_BYTES (1u << 20)     /* of one piece, unless a single record is longer */

/* --- may it leave? ------------------------------------------------------------------------------------------------ */

bool move_waits_for_sockets(const struct channel *ch)
{
	for (struct list *node = ch->connections.next; node != &ch->connections; node = node->next) {
		struct connection *c = list_entry(node, struct connection, member);

		if (kind_of(c)->hand_over(c, NULL) == EBUSY)
			return true;
	}
	return !list_empty((struct list *)&ch->returning);
}

bool move_is_possible(const struct channel *ch)
{
	uint64_t feature = ch->relayed.mux ? XTS_FEATURE_MOVE_RELAYED : XTS_FEATURE_MOVE;

	return ch->link.state == XTS_LINK_UP && ch->epoch_live && ch->link.features & feature;
}

static void count_waiting(struct xts_move_waits *waits, const char *why)
{
	uint32_t i = 0;

	while (i < waits->count && waits->reasons[i].why != why && strcmp(waits->reasons[i].why, why) != 0)
		i++;
	if (i == XTS_MOVE_REASONS)
		return;
	waits->count += i == waits->count;
	waits->reasons[i].why = why;
	waits->reasons[i].sockets++;
}

/* What it waits for, for the operator. */
void move_tell_waiting(const struct channel *ch, struct xts_move_waits *waits)
{
	if (ch->epoch_live && !move_is_possible(ch))
		count_waiting(waits, "its host cannot go on with another process");
	for (struct list *node = ch->connections.next; node != &ch->connections; node = node->next) {
		struct connection *c = list_entry(node, struct connection, member);

		if (kind_of(c)->hand_over(c, NULL) == EBUSY)
			count_waiting(waits, stream_stays(c));
	}
	if (!list_empty((struct list *)&ch->returning))
		count_waiting(waits, "bytes were returned");
}

/* --- requests of the supervisor ----------------------------------------------------------------------------------- */

static struct channel *find(struct worker_state *w, uint32_t queue_id)
{
	for (struct list *node = w->channels.next; node != &w->channels; node = node->next) {
		struct channel *ch = list_entry(node, struct channel, member);

		if (ch->queue_id == queue_id && !ch->relayed.number && !ch->dying)
			return ch;
	}
	return NULL;
}

int move_begin(struct channel *ch, uint32_t within_ms)
{
	uint64_t ticket = 0;

	ch->move = calloc(1, sizeof *ch->move);
	if (!ch->move || getrandom(&ticket, sizeof ticket, 0) != (ssize_t)sizeof ticket) {
		move_free(ch);
		return -ENOMEM;
	}
	ch->move->ticket = ticket | UINT64_C(1) << 63; /* no key is 0 */
	if (!ch->epoch_live && ch->moved_epoch) {      /* its host has not noticed the last move so far */
		ch->move->ticket = ch->moved_ticket;
		ch->move->epoch = ch->moved_epoch;
	}
	ch->move->asked_ns = ch->worker->now_ns;
	ch->move->until_ns = ch->worker->now_ns + within_ms * UINT64_C(1000000);
	ch->move->received = ch->link.stats.received_frames;
	return 0;
}

int move_ask_host(struct channel *ch, uint32_t within_ms)
{
	struct xts_move m = { .within_ms = within_ms };
	struct xts_tx_slot slot;
	int error = 0;

	if (!channel_slot_of_move(ch, &slot))
		return -EAGAIN;
	if (!ch->move)
		error = move_begin(ch, within_ms);
	if (error) {
		channel_abandon(ch, &slot);
		return error;
	}
	m.ticket = ch->move->ticket;
	xts_head_encode(slot.data, XTS_REPLY_MOVE, 0, 0, 0);
	xts_move_encode(slot.data, &m);
	channel_submit(ch, &slot, XTS_MOVE_BYTES);
	channel_kick(ch);
	return 0;
}

/* Without its host. */
static int go_on_without(struct channel *ch)
{
	int error = move_begin(ch, 0);

	if (error)
		return error;
	if (ch->relayed.expected_count)
		move_unclaimed_end(ch, false);
	move_expect_none(ch);
	if (!ch->epoch_live) {
		channel_leave(ch); /* nobody has it */
		return 0;
	}
	ch->move->reset = ch->connection_count;
	ch->move->ends = true;
	xts_packets_end(&ch->packets);
	xts_link_goodbye(&ch->link, ESHUTDOWN); /* as at the end of the proxy */
	channel_end_epoch(ch, true);
	return 0;
}

static bool shakes_hands(const struct channel *ch)
{
	for (struct list *node = ch->connections.next; node != &ch->connections; node = node->next)
		if (list_entry(node, struct connection, member)->state == CONNECTION_CONNECTING &&
		    list_entry(node, struct connection, member)->listener)
			return true;
	return false;
}

/* Connections that a listener has accepted finish their handshakes here, as far as they do so soon; later ones wait in
 * its backlog. The supervisor asks again and again; if it does not, listeners go on. */
bool move_waits_for_handshakes(struct channel *ch)
{
	uint64_t now_ns = ch->worker->now_ns;

	if (now_ns >= ch->accepts_held_until_ns)
		ch->accepts_held_since_ns = now_ns;
	ch->accepts_held_until_ns = now_ns + ACCEPTS_HELD_NS;
	return now_ns - ch->accepts_held_since_ns < HANDSHAKES_NS && shakes_hands(ch);
}

struct ask {
	uint32_t queue_id, within_ms;
	enum xts_move_urgency urgency;
	struct xts_move_waits *waits;
	int result;
};

static bool run_ask(struct worker_state *w, void *argument)
{
	struct ask *a = argument;
	struct channel *ch = find(w, a->queue_id);

	if (!ch)
		a->result = -ENOENT;
	else if (ch->move || ch->ending)
		a->result = ch->move ? -EALREADY : -EAGAIN;
	else if (ch->relayed.mux && move_is_possible(ch) && a->urgency != XTS_MOVE_END)
		a->result = move_trunk_ask(ch, a->within_ms, a->urgency, a->waits);
	else if (move_is_possible(ch) && a->urgency != XTS_MOVE_END && (a->urgency || !move_waits_for_sockets(ch)))
		a->result = move_waits_for_handshakes(ch) ? -EAGAIN : move_ask_host(ch, a->within_ms);
	else if (ch->epoch_live && !a->urgency)
		a->result = move_is_possible(ch) ? -EBUSY : -EOPNOTSUPP;
	else if (ch->relayed.expected_count && !a->urgency)
		a->result = -EAGAIN; /* its relay is about to come */
	else
		a->result = go_on_without(ch);
	if (!ch || ch->relayed.mux)
		return false;
	if (a->result == -EBUSY || a->result == -EOPNOTSUPP)
		move_tell_waiting(ch, a->waits);
	return false;
}

int xts_worker_move_ask(struct xts_worker *worker, uint32_t queue_id, uint32_t within_ms, enum xts_move_urgency urgency,
			uint16_t records_version, struct xts_move_waits *waits)
{
	struct ask a = { .queue_id = queue_id, .within_ms = within_ms, .urgency = urgency, .waits = waits };

	*waits = (struct xts_move_waits){ 0 };
	pushed_next_reads(records_version);
	worker_request(worker, run_ask, &a);
	return a.result;
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

static int make_room(struct xts_moved *out, uint32_t more)
{
	uint32_t room = out->bytes + more;
	uint8_t *data;

	if (room <= out->room)
		return 0;
	room += PIECE_BYTES / 4;
	data = realloc(out->data, room);
	if (!data)
		return -ENOMEM;
	out->data = data;
	out->room = room;
	return 0;
}

/* What its protocol keeps, where only workers read it. */
static int write_pushed(struct xts_moved *out, struct pushed *p, uint32_t *bytes)
{
	uint8_t *record = NULL;
	int error = out->private_broken ? -EIO : pushed_give(p, &record, bytes);

	if (error)
		return error;
	error = private_write(out->private_fd, record, *bytes);
	private_drop(record, *bytes);
	out->private_bytes += *bytes;
	out->private_broken = error;
	return error;
}

/* Its record, as long as it is, as far as there is room; or -errno. */
static ssize_t encode(const struct handed *one, uint8_t *to, size_t room)
{
	struct xts_record_attached attached;

	if (!one->own)
		return xts_record_encode(&tcp_side_record, tcp_side_record.version, &one->side, to, room, &attached);
	if (to && room >= one->own->bytes)
		memcpy(to, one->own->data, one->own->bytes);
	return one->own->bytes;
}

/* Writes it behind the others; the descriptor goes with it. */
static int write_one(struct xts_moved *out, const struct handed *one, uint64_t key, uint8_t state)
{
	const struct tcp_side *side = &one->side;
	ssize_t bytes = encode(one, NULL, 0);
	struct move_head h = { .key = key, .bytes = (uint32_t)bytes, .state = state };
	int error;

	if (bytes < 0 || make_room(out, MOVE_HEAD_BYTES + (uint32_t)bytes))
		return bytes < 0 ? (int)bytes : -ENOMEM;
	error = side->pushed ? write_pushed(out, side->pushed, &h.private_bytes) : 0;
	if (error)
		return error;
	move_head_write(out->data + out->bytes, &h);
	(void)encode(one, out->data + out->bytes + MOVE_HEAD_BYTES, (size_t)bytes);
	out->bytes += MOVE_HEAD_BYTES + (uint32_t)bytes;
	out->fds[out->fd_count++] = side->fd;
	out->sockets++;
	return 0;
}

_Static_assert(XTS_MOVED_FDS *MOVE_HEAD_BYTES <= XTS_MOVED_NOTES_BYTES &&
		       XTS_MOVED_FDS * MOVE_NAME_BYTES <= XTS_MOVED_NAMES_BYTES,
	       "a note for each record");

/* For the end of the piece. */
static void note(struct xts_moved *out, const struct move_note *n)
{
	if (n->kind == NOTE_SHARED)
		out->note_bytes += move_note_write(out->notes + out->note_bytes, n);
	else
		out->name_bytes += move_note_write(out->names + out->name_bytes, n);
}

static void put(struct channel *ch, struct xts_moved *out, struct handed *one, const struct move_head *h,
		const struct move_note *n)
{
	tenant_give(ch->tenant, XTS_USE_KEPT_BYTES, returned_charge(&one->side.returned));
	if (write_one(out, one, h->key, h->state)) {
		ch->move->reset++;
		returned_free(&one->side.returned, NULL);
		tcp_side_end(&one->side, ch->tenant);
	} else {
		tcp_side_uncharge_buffers(&one->side, ch->tenant);
		if (n->name)
			note(out, n);
	}
	handed_drop(one); /* its protocols have nothing any more */
}

static bool is_lost(int error)
{
	return error == EBUSY || error == EAGAIN || error == ENOBUFS;
}

/* It becomes a record, or ends. */
static void give(struct channel *ch, struct connection *c, struct xts_moved *out)
{
	struct move_head h = { .key = move_key(ch->move->ticket, c->proxy_id), .state = c->state };
	int error = kind_of(c)->hand_over(c, NULL);
	struct move_note n = { .key = h.key, .name = share_key(c), .kind = NOTE_SHARED };
	struct handed one = HANDED_NONE;

	if (!error && held_tell(c, &n)) /* before it leaves, with its key */
		held_forget(c);
	if (!error)
		error = kind_of(c)->hand_over(c, &one);
	if (error) {
		ch->move->reset += is_lost(error);
		if (c->state == CONNECTION_CLOSING && c->tcp.fd >= 0)
			connection_orphan(c); /* what its host has closed is delivered here */
		else
			connection_free(c, is_lost(error));
		return;
	}
	put(ch, out, &one, &h, &n);
	connection_free(c, false);
}

static bool has_room(const struct xts_moved *out)
{
	return out->fd_count < XTS_MOVED_FDS && out->bytes < PIECE_BYTES;
}

/* 0 or -ENOMEM, and they are lost. */
static int put_notes(struct xts_moved *out)
{
	int error = out->note_bytes + out->name_bytes ? make_room(out, out->note_bytes + out->name_bytes) : 0;

	if (error || !(out->note_bytes + out->name_bytes))
		return error;
	memcpy(out->data + out->bytes, out->notes, out->note_bytes);
	out->bytes += out->note_bytes;
	memcpy(out->data + out->bytes, out->names, out->name_bytes);
	out->bytes += out->name_bytes;
	return 0;
}

/* Sockets, as many as there is room for. */
void move_take_sockets(struct channel *ch, struct xts_moved *out)
{
	struct handed one = HANDED_NONE;
	struct move_head h;
	struct move_note n;

	registry_moves(ch->tenant, ch->worker->now_ns, false);
	while (!list_empty(&ch->connections) && has_room(out))
		give(ch, list_entry(ch->connections.next, struct connection, member), out);
	while (has_room(out) && move_next_unclaimed(ch, &h, &n, &one))
		put(ch, out, &one, &h, &n);
	while (has_room(out) && move_next_parked(ch, &h, &n, &one))
		put(ch, out, &one, &h, &n);
	memcpy(out->tenant, ch->tenant->name, sizeof out->tenant);
	(void)put_notes(out);
}

/* The session of its queue, if that has one, is ready to go. 0 or -errno. */
static int settle(struct channel *ch)
{
	int bytes = ch->move->settled ? 0 : xts_queue_settle(ch->own_queue, ch->worker->now_ns, &ch->move->session);

	if (bytes < 0)
		return bytes;
	if (!ch->move->settled)
		ch->move->session_bytes = (uint32_t)bytes;
	ch->move->settled = true;
	return 0;
}

static int leave_queue(struct channel *ch, struct xts_moved *out, int *fds)
{
	const struct move_out *m = ch->move;
	int bytes;

	if (make_room(out, XTS_QUEUE_STATE_BYTES_MAX + m->session_bytes + (uint32_t)sizeof ch->identity + m->known_bytes))
		return -ENOMEM;
	bytes = xts_queue_leave(ch->own_queue, fds, out->data);
	if (bytes < 0)
		return bytes;
	out->state_bytes = (uint32_t)bytes;
	out->session_bytes = m->session_bytes;
	if (m->session_bytes)
		memcpy(out->data + bytes, m->session, m->session_bytes);
	out->bytes = out->state_bytes + out->session_bytes;
	memcpy(out->data + out->bytes, &ch->identity, sizeof ch->identity);
	out->bytes += (uint32_t)sizeof ch->identity;
	if (m->known_bytes)
		memcpy(out->data + out->bytes, m->known, m->known_bytes);
	out->bytes += m->known_bytes;
	return 0;
}

static int take(struct channel *ch, struct xts_moved *out)
{
	int fds[XTS_QUEUE_DESCRIPTORS_MAX] = { -1, -1, -1, -1 }, error;

	move_take_sockets(ch, out);
	if (!out->bytes && !out->fd_count && ch->relayed.mux)
		move_trunk_take(ch, out);
	if (out->bytes || out->fd_count)
		return 0;
	out->reset = ch->move->reset;
	if (xts_link_control_due(&ch->link) || ch->kick_again || ch->unkicked_bytes)
		return -EAGAIN;
	error = settle(ch);
	if (!error && ch->relayed.mux)
		error = move_trunk_list(ch, out);
	if (!error)
		error = leave_queue(ch, out, fds);
	if (error)
		return error;
	for (uint32_t i = 0; i < XTS_QUEUE_DESCRIPTORS_MAX && fds[i] >= 0; i++)
		out->fds[out->fd_count++] = fds[i];
	out->last = true;
	out->ticket = ch->move->ticket;
	out->epoch = ch->move->epoch;
	out->owner = ch->owner;
	channel_free(ch, false);
	return 0;
}

struct taking {
	uint32_t queue_id;
	struct xts_moved *out;
	int result;
};

static bool run_take(struct worker_state *w, void *argument)
{
	struct taking *t = argument;
	struct channel *ch = find(w, t->queue_id);

	t->result = !ch || !ch->move ? -ENOENT : -EAGAIN;
	if (t->result == -ENOENT)
		return false;
	if (ch->move->ends && !ch->move->left && !ch->ending)
		channel_leave(ch);
	if (!ch->move->left && !ch->move->ends && ch->link.state != XTS_LINK_UP) {
		t->result = -ECANCELED; /* its host has gone meanwhile */
		move_free(ch);
		return false;
	}
	if (!ch->move->left && !ch->move->ends && ch->relayed.mux)
		move_trunk_turn(ch);
	else if (!ch->move->left && !ch->move->ends && !ch->continuation.resume &&
		 (w->now_ns >= ch->move->until_ns || channel_is_quiet(ch)))
		channel_leave(ch);
	if (ch->move->left)
		t->result = take(ch, t->out);
	return false;
}

int xts_worker_move_take(struct xts_worker *worker, uint32_t queue_id, int private_fd, struct xts_moved *out)
{
	struct taking t = { .queue_id = queue_id, .out = out };

	*out = (struct xts_moved){ .private_fd = private_fd };
	worker_request(worker, run_take, &t);
	return t.result;
}

void xts_moved_free(struct xts_moved *m)
{
	free(m->data);
	free(m->relayed);
	*m = (struct xts_moved){ 0 };
}
