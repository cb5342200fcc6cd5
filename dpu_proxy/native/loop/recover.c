/* The process that goes on when the one before has died: it goes through the ledger (ledger.h), keeps what can go on, and
 * ends everything else. Whatever is in the ledger, the dead process may have written, and it may have been broken into. */
#include "channel/ledger.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connection/socket_kind.h"
#include "connection/tcp_counts.h"
#include "connection/tcp_move.h"
#include "connection/tcp_record.h"
#include "loop/recover_channels.h"
#include "loop/recover_pushed.h"
#include "loop/recover_spilled.h"
#include "loop/recover_tls.h"
#include "loop/worker_inside.h"
#include "processes/ended_epochs.h"
#include "processes/heard.h"
#include "processes/held_arrived.h"
#include "processes/move.h"
#include "processes/move_record.h"

#define RECORD_BYTES 512u /* of a TCP side with nothing that waits */
#define LOOK_AT 4096u     /* descriptors in a call of poll() */

/* --- one line ----------------------------------------------------------------------------------------------------- */

bool recover_is_socket_of(int fd, const struct ledger_line *line)
{
	uint64_t cookie = 0;
	socklen_t length = sizeof cookie;
	int listens = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) || cookie != line->cookie)
		return false;
	length = sizeof listens;
	if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length))
		return false;
	return !listens == (line->state == CONNECTION_ESTABLISHED);
}

/* Through the decoder, with its bounds and checks. */
static int check(const struct tcp_side *said, struct tcp_side *out)
{
	struct xts_record_attached attached;
	uint8_t record[RECORD_BYTES];
	ssize_t bytes = xts_record_encode(&tcp_side_record, tcp_side_record.version, said, record, sizeof record,
					  &attached);

	if (bytes < 0 || (size_t)bytes > sizeof record)
		return -EBADMSG;
	return xts_record_decode(&tcp_side_record, record, (size_t)bytes, &attached, out);
}

/* TCP has no more of its host's bytes than had come. Else one of the two counts is wrong, and the bytes that are
 * between them would be left out of what is received again (parked_spilled.c). */
static bool had_come(const struct ledger_line *line, uint64_t accepted_bytes)
{
	return (int32_t)((uint32_t)(line->taken >> 32) - (uint32_t)accepted_bytes) >= 0;
}

/* What has gone through it, as the kernel has counted. */
static int count(struct tcp_side *said, const struct ledger_line *line)
{
	struct tcp_counts now;
	int error;

	if (line->state != CONNECTION_ESTABLISHED)
		return 0;
	error = tcp_counts(said->fd, &now);
	if (!error && now.ended && !tcp_closed_by_both(said->fd))
		error = -ECONNRESET;
	if (error)
		return error;
	error = line->tls ? recover_tls_count(said->fd, line, &now) : 0;
	said->received_bytes = now.read - line->read_from;
	said->accepted_bytes = said->out.sent_bytes = now.written - line->written_from;
	if (!error && !line->tls && line->pushed)
		error = recover_pushed_count(said->fd, line, &now, said);
	if (error)
		return error;
	said->fin_wanted = said->fin_done = now.fin_sent;
	return had_come(line, said->accepted_bytes) ? 0 : -EBADMSG;
}

/* The line as a TCP side, which its record has checked as one from another process, or -EBADMSG. A copy was made:
 * nobody changes it meanwhile. */
static int read_line(int fd, const struct ledger_line *line, struct tcp_side *out)
{
	struct tcp_side said = TCP_SIDE_NONE;
	int error;

	if (!ledger_is_whole(line))
		return -EBADMSG;
	if (line->state >= CONNECTION_STATES || socket_kinds[line->state]->arrives_as != line->state ||
	    !socket_kinds[line->state]->in_ledger)
		return -EBADMSG;
	if (!line->proxy_id || line->protocols != (line->tls || line->pushed) || !recover_is_socket_of(fd, line))
		return -EBADMSG;
	said.fd = fd;
	said.ip_version = line->ip_version;
	said.accepted = line->accepted;
	said.rebinding = line->rebinding;
	said.kernel_send = line->kernel_send;
	said.kernel_receive = line->kernel_receive;
	error = count(&said, line);
	return error ? error : check(&said, out);
}

/* --- everything that was open ------------------------------------------------------------------------------------- */

static bool is_one_of(int fd, const int *fds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		if (fds[i] == fd)
			return true;
	return false;
}

static bool is_connection(int fd)
{
	int protocol = 0, listens = 1;
	socklen_t length = sizeof protocol;

	if (getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length) || protocol != IPPROTO_TCP)
		return false;
	length = sizeof listens;
	return !getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) && !listens;
}

/* Of a line that was left behind by a socket before. Lines from `used` on are not looked at: each would get memory. */
static void forget(int fd, uint32_t used)
{
	if ((uint32_t)fd < used && ledger->line[fd].state)
		ledger_forget(fd);
}

static void sweep_one(int fd, uint32_t used, struct xts_swept *out)
{
	struct tcp_side side;

	if ((uint32_t)fd < used && ledger->line[fd].state && recover_has_channel(&ledger->line[fd]) &&
	    !read_line(fd, &ledger->line[fd], &side)) {
		xts_record_drop(&tcp_side_record, &side);
		out->kept++;
		return;
	}
	forget(fd, used);
	if (!is_connection(fd)) {
		close(fd);
		return;
	}
	out->reset++;
	reset_and_close(fd); /* its peer must not take this for the end of the stream */
}

int xts_ledger_sweep(uint32_t descriptors, const int *keep, uint32_t keep_count, struct xts_swept *out)
{
	struct pollfd *fds = calloc(LOOK_AT, sizeof *fds);
	uint32_t used = ledger_lines_used();

	*out = (struct xts_swept){ 0 };
	if (!fds)
		return -ENOMEM;
	worker_kinds_add();
	recover_tls_begin();
	recover_pushed_begin();
	recover_sweep_relayed();
	for (uint32_t first = 0; first < descriptors; first += LOOK_AT) {
		uint32_t count = descriptors - first < LOOK_AT ? descriptors - first : LOOK_AT;

		for (uint32_t i = 0; i < count; i++)
			fds[i] = (struct pollfd){ .fd = (int)(first + i) };
		if (poll(fds, count, 0) < 0) {
			free(fds);
			return -errno;
		}
		for (uint32_t i = 0; i < count; i++)
			if (fds[i].revents & POLLNVAL || is_one_of(fds[i].fd, keep, keep_count) ||
			    recover_tls_needs(fds[i].fd))
				forget(fds[i].fd, used);
			else
				sweep_one(fds[i].fd, used, out);
	}
	free(fds);
	return 0;
}

/* --- one channel -------------------------------------------------------------------------------------------------- */

struct recovering {
	struct xts_tenant *tenant;
	struct xts_queue *queue;
	uint64_t ticket;
	uint64_t frames; /* of its page */
	uint32_t queue_id, number, taken, parked;
};

/* What was read into the frame that was being written: it is sent again. Whether it is all that is missing, the host
 * says (claim.c). */
static void find_last_read(const struct recovering *r, const struct ledger_line *line, struct tcp_side *side)
{
	uint64_t bytes = side->received_bytes - line->place_received;
	struct returned_part last = { 0 };
	void *data;

	if (line->state != CONNECTION_ESTABLISHED || line->pushed || !line->place || !bytes ||
	    bytes > XTS_FRAME_BYTES_MAX || line->place_sum != ledger_place_sum(line) ||
	    !ledger_is_count(r->frames, line->place_frames))
		return;
	data = xts_queue_dead_slot(r->queue, ledger_queue(r->queue_id, LEDGER_QUEUE_BYTES), line->place, (uint32_t)bytes);
	last.data = (struct xts_record_bytes){ data, (uint32_t)bytes };
	if (data)
		(void)returned_add_part(&side->returned, &last);
}

/* Of the members of a shared socket, one has its present key. */
static bool key_is_old(const struct ledger_line *line)
{
	for (uint32_t fd = 0, used = ledger_lines_used(); fd < used; fd++) {
		const struct ledger_line *other = &ledger->line[fd];

		if (other->state == line->state && other->cookie == line->cookie && other->place > line->place)
			return true;
	}
	return false;
}

/* Others may ask for it, once its host has claimed it, or said that it does not. */
static void name(struct worker_state *w, const struct recovering *r, uint64_t key, const struct ledger_line *line)
{
	struct move_note n = { .key = key, .name = line->name, .kind = NOTE_HELD, .keep_ms = line->keep_ms };

	if (line->state == CONNECTION_ESTABLISHED && line->name) {
		(void)held_arrives(w, r->tenant, &n, true);
	} else if (line->name && !key_is_old(line)) {
		n.kind = NOTE_SHARED;
		(void)move_arrives_shared(w, r->tenant, &n); /* others join it without the member that sleeps */
	}
}

static void end(int fd, struct handed *come)
{
	handed_drop(come);
	ledger_forget(fd);
	reset_and_close(fd);
}

static void recover_one(struct worker_state *w, struct recovering *r, int fd, const struct ledger_line *line)
{
	struct move_head h = { .key = move_key(r->ticket, line->proxy_id), .state = line->state };
	struct handed come = HANDED_NONE;
	uint64_t written, taken = line->taken;
	int error;

	error = read_line(fd, line, &come.side);
	if (!error)
		find_last_read(r, line, &come.side);
	if (!error && line->tls)
		error = recover_tls_make(w, r->tenant, fd, line, &come.side);
	else if (!error && line->pushed)
		error = recover_pushed_make(w, r->tenant, fd, &come.side, &taken);
	written = come.side.accepted_bytes + line->written_from;
	if (!error && !move_arrive(w, r->tenant, &h, &come, NULL)) {
		if (!line->pushed)
			recover_spilled_of(fd, line, written, r->tenant, h.key);
		heard_begins(r->tenant, h.key, taken, line->pushed && !line->tls);
		name(w, r, h.key, line);
		r->taken++;
		return;
	}
	end(fd, &come);
}

/* No process holds it. Who takes it compares what the last one has counted, as if that had died. */
static void recover_parked(struct worker_state *w, struct recovering *r, int fd, const struct ledger_line *line)
{
	struct move_head h = { .key = move_key(r->ticket, move_no_socket(r->parked + 1)), .state = line->state };
	const struct move_note n = {
		.key = h.key, .name = line->name, .kind = NOTE_PARKED_DIED, .keep_ms = line->keep_ms
	};
	struct handed come = HANDED_NONE;
	uint64_t written;
	int error = r->parked < MOVE_NO_SOCKETS && line->state == CONNECTION_ESTABLISHED && !line->tls && !line->pushed ?
			    0 :
			    -EBADMSG;

	if (!error)
		error = read_line(fd, line, &come.side);
	written = come.side.accepted_bytes + line->written_from;
	if (!error && !move_arrive(w, r->tenant, &h, &come, NULL)) {
		recover_spilled_of(fd, line, written, r->tenant, h.key);
		heard_begins(r->tenant, h.key, line->taken, false);
		(void)held_arrives(w, r->tenant, &n, true); /* without it, it ends with the channel */
		r->parked++;
		r->taken++;
		return;
	}
	end(fd, &come);
}

static bool run_recover(struct worker_state *w, void *argument)
{
	struct recovering *r = argument;
	uint32_t used = ledger_lines_used();

	epochs_recovered(r->tenant, w->now_ns);
	for (uint32_t fd = 0; fd < used; fd++) {
		struct ledger_line line = ledger->line[fd];
		bool parked = !r->tenant->recovered && recover_is_parked_by(&line, r->tenant->name);

		if (!line.state || ((line.queue_id != r->queue_id || line.number != r->number) && !parked))
			continue;
		if (!recover_is_socket_of((int)fd, &line)) /* what has this number is something else */
			ledger_forget((int)fd);
		else if (parked)
			recover_parked(w, r, (int)fd, &line);
		else
			recover_one(w, r, (int)fd, &line);
	}
	r->tenant->recovered = true;
	return false;
}

int xts_worker_recover(struct xts_worker *worker, struct xts_queue *queue, struct xts_tenant *tenant, uint32_t queue_id,
		       uint32_t number, uint64_t ticket)
{
	struct recovering r = {
		.tenant = tenant, .queue = queue, .queue_id = queue_id, .number = number, .ticket = ticket
	};
	const struct ledger_page *page;

	if (!ledger || queue_id >= ledger->pages)
		return -ENOENT;
	page = number ? ledger_take_relayed(queue_id, number) : &ledger->page[queue_id];
	if (!page)
		return -ENOENT;
	r.frames = page->frames;
	worker_request(worker, run_recover, &r);
	return (int)r.taken;
}
