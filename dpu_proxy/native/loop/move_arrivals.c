/* Requests of the supervisor about channels that come from another process of the proxy: their sockets, and then the
 * queue. processes/move.h has the theory of operation. */
#include <errno.h>
#include <string.h>

#include "addresses/socket_address.h"
#include "channel/channel.h"
#include "channel/ledger.h"
#include "connection/socket_kind.h"
#include "connection/tcp_counts.h"
#include "connection/tcp_move.h"
#include "loop/worker_inside.h"
#include "processes/held_arrived.h"
#include "processes/move.h"
#include "processes/move_record.h"
#include "processes/parked.h"
#include "processes/private_bytes.h"
#include "processes/share.h"
#include "pushed/pushed.h"
#include "pushed/pushed_move.h"

struct taking_in {
	struct xts_tenant *tenant;
	const uint8_t *data;
	uint32_t bytes;
	const int *fds;
	uint32_t fd_count, taken;
	int private_fd; /* -1: what could be read of it has been */
};

/* What its protocol has kept. 0 or -errno. */
static int take_pushed(struct worker_state *w, struct taking_in *t, uint32_t bytes, struct tcp_side *side)
{
	uint8_t *record = NULL;
	int error = private_read(t->private_fd, &record, bytes);

	if (error) {
		t->private_fd = -1;
		return error;
	}
	error = pushed_arrive(&side->pushed, w, t->tenant, record, bytes);
	private_drop(record, bytes);
	return error;
}

/* Nobody reads or writes there before its host claims it, where nothing waits to be written. */
static void ask_ahead(struct parked_facts *f, const struct tcp_side *s)
{
	socket_local(s->fd, &f->local);
	socket_peer(s->fd, &f->peer);
	f->known = true;
	f->counted = ledger && !s->pushed && !s->out.spill.bytes && !tcp_counts(s->fd, &f->counts);
}

/* A record with its descriptor. 0 or -errno, and nothing is left of it but the descriptor. */
static int take_side(struct worker_state *w, struct taking_in *t, const struct move_head *h, const uint8_t *record)
{
	struct parked_facts facts = { 0 };
	struct handed come;
	int error;

	if (h->state >= CONNECTION_STATES || socket_kinds[h->state]->arrives_as != h->state ||
	    (h->private_bytes && !socket_kinds[h->state]->streams))
		return -EBADMSG;
	error = socket_kinds[h->state]->arrive(&come, record, h->bytes, *t->fds, h->private_bytes != 0);
	if (error)
		return error;
	error = h->private_bytes ? take_pushed(w, t, h->private_bytes, &come.side) : 0;
	if (!error && h->state == CONNECTION_ESTABLISHED)
		ask_ahead(&facts, &come.side);
	if (!error)
		error = move_arrive(w, t->tenant, h, &come, &facts);
	if (!error)
		return 0;
	handed_drop(&come);
	return error;
}

/* One record. False: the rest cannot be read. */
static bool take_one(struct worker_state *w, struct taking_in *t)
{
	struct move_head h;
	bool arrived;

	if (t->bytes < MOVE_HEAD_BYTES || !t->fd_count)
		return false;
	move_head_read(&h, t->data);
	if (move_is_note(&h))
		return false;
	if (h.bytes > t->bytes - MOVE_HEAD_BYTES)
		return false;
	arrived = !take_side(w, t, &h, t->data + MOVE_HEAD_BYTES);
	if (!arrived)
		reset_and_close(*t->fds);
	t->taken += arrived;
	t->fds++;
	t->fd_count--;
	t->data += MOVE_HEAD_BYTES + h.bytes;
	t->bytes -= MOVE_HEAD_BYTES + h.bytes;
	return true;
}

/* What is behind the records. */
static void take_notes(struct worker_state *w, struct taking_in *t)
{
	struct move_note note;
	uint32_t bytes;

	while ((bytes = move_note_read(&note, t->data, t->bytes))) {
		if (note.kind == NOTE_SHARED)
			(void)move_arrives_shared(w, t->tenant, &note); /* without it, processes wait for that member */
		else
			(void)held_arrives(w, t->tenant, &note, false); /* without it, they lose the connection */
		t->data += bytes;
		t->bytes -= bytes;
	}
}

static bool run_take_in(struct worker_state *w, void *argument)
{
	struct taking_in *t = argument;

	registry_moves(t->tenant, w->now_ns, false);
	while (t->bytes && take_one(w, t))
		;
	take_notes(w, t);
	for (; t->fd_count; t->fd_count--)
		reset_and_close(*t->fds++);
	return false;
}

int xts_worker_take_in(struct xts_worker *worker, struct xts_tenant *tenant, const uint8_t *data, uint32_t bytes,
		       const int *fds, uint32_t fd_count)
{
	struct taking_in t = { .tenant = tenant, .data = data, .bytes = bytes, .fds = fds, .fd_count = fd_count };

	/* where keys are, if any are: it is behind the sockets, and closed with what is left of them */
	t.private_fd = fd_count ? fds[fd_count - 1] : -1;

	worker_request(worker, run_take_in, &t);
	return (int)t.taken;
}

static bool run_forget_arrived(struct worker_state *w, void *argument)
{
	(void)argument;
	move_forget_arrived(w);
	return false;
}

void xts_worker_forget_arrived(struct xts_worker *worker)
{
	worker_request(worker, run_forget_arrived, NULL);
}

struct resuming {
	struct xts_queue *queue;
	int life_fd;
	uint32_t queue_id;
	struct xts_tenant *tenant;
	const struct xts_resumed *how;
	struct identity identity;
	int result;
};

/* In one piece: its HELLO may be there already. */
static bool run_resume(struct worker_state *w, void *argument)
{
	struct resuming *r = argument;
	struct channel *ch;

	registry_moves(r->tenant, w->now_ns, r->how->died);
	r->result = channel_open(&ch, w, r->queue, r->life_fd, r->queue_id, r->tenant);
	if (r->result)
		return false;
	r->result = move_expect(ch, r->how);
	if (r->result)
		return false;
	move_collect(w, ch, r->tenant, r->how->ticket);
	ch->heard.number = ledger_came(r->queue_id, 0);
	ch->moved_epoch = r->how->epoch;
	ch->moved_ticket = r->how->ticket;
	ch->identity = r->identity;
	ch->owner = r->how->owner;
	if (r->how->died)
		xts_packets_again(&ch->packets, &ch->link, ledger_packet_bytes(r->queue_id));
	if (r->how->died && r->how->epoch)
		xts_link_replace(&ch->link, r->how->epoch, r->how->ticket);
	else if (!r->how->died)
		xts_link_expect(&ch->link, r->how->epoch);
	if (r->how->died)
		channel_kick(ch); /* what the process before had submitted */
	return false;
}

int xts_worker_resume_channel(struct xts_worker *worker, struct xts_queue *queue, int life_fd, uint32_t queue_id,
			      struct xts_tenant *tenant, const struct xts_resumed *how)
{
	struct resuming r = { .queue = queue, .life_fd = life_fd, .queue_id = queue_id, .tenant = tenant, .how = how };

	if (how->relayed_count > XTS_RELAYED_MAX || how->known_bytes != (how->relayed_count + 1u) * sizeof r.identity)
		return -EINVAL;
	for (uint32_t i = how->relayed_count + 1u; i-- > 0;) {
		memcpy(&r.identity, how->known + i * sizeof r.identity, sizeof r.identity);
		if (r.identity.cgroup_bytes > sizeof r.identity.cgroup)
			return -EINVAL;
	}
	worker_request(worker, run_resume, &r);
	return r.result;
}
