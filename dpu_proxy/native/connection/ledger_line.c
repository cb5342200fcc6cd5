/* A connection's line in the ledger (channel/ledger.h has the theory of operation). */
#include "channel/ledger.h"

#include <sys/socket.h>

#include "channel/channel.h"
#include "connection/socket_kind.h"
#include "connection/tcp_counts.h"
#include "processes/share.h"
#include "pushed/pushed_kept.h"
#include "ulp/lasting.h"

/* Protocols that may be written down, if they can. Not what is between two pushes. */
static bool can_be_kept(const struct pushed *p)
{
	return p->ready && !p->failed && !p->peeking && !p->give_back_left;
}

/* Can a line say all that is to be known of it? Protocols of a listener its host pushes again. */
static bool can_be_told(const struct connection *c)
{
	const struct socket_kind *kind = kind_of(c);

	return kind && kind->in_ledger && kind->arrives_as == c->state && c->channel && !c->urgent &&
	       c->channel->queue_id < ledger->pages && (!c->channel->relayed.number || c->channel->relayed.page) &&
	       !(c->state == CONNECTION_ESTABLISHED && c->tcp.pushed && !can_be_kept(c->tcp.pushed)) &&
	       !stream_stays_for_key(c);
}

static uint64_t cookie_of(int fd)
{
	uint64_t cookie = 0;
	socklen_t length = sizeof cookie;

	return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) ? 0 : cookie;
}

/* The counts of a socket that was connected just now: this kernel's are the same for all of them. */
static int counts_of_new(const struct connection *c, struct tcp_counts *out)
{
	static _Thread_local struct tcp_counts first[2];
	static _Thread_local bool known[2];
	bool accepted = c->tcp.accepted;

	if (!known[accepted]) {
		int error = tcp_counts(c->tcp.fd, &first[accepted]);

		/* SYN may be counted. One that has been claimed just now is not new. */
		if (error || first[accepted].ended || first[accepted].fin_sent || first[accepted].read ||
		    first[accepted].written > 1)
			return -EAGAIN;
		known[accepted] = true;
	}
	*out = first[accepted];
	return 0;
}

/* TLS writes itself down from now on, and its counts are in place of the kernel's; or a record of the protocols is
 * written. 0 or -errno. */
static int count_protocol(const struct connection *c, struct tcp_counts *now, struct ledger_line *line)
{
	struct ulp_kept k = { .read = now->read, .written = now->written };
	struct pushed *p = c->tcp.pushed;
	int error = p->message_socket || p->pdu_open ? -EOPNOTSUPP : ulp_stack_keep(p->stack, &k);

	if (error == -EOPNOTSUPP)
		return pushed_keep_begins(p, now, cookie_of(c->tcp.fd), &line->pushed);
	now->read = k.read;
	now->written = k.written;
	line->tls = k.place;
	return error;
}

/* In units; 0: it is not in lasting memory. */
static uint32_t place_of(const struct spill_block *b)
{
	return (uint32_t)(lasting_offset(b) / LASTING_UNIT);
}

static int kernel_counts(const struct connection *c, enum ledger_counts counts, struct tcp_counts *now)
{
	return counts == LEDGER_NEW && !c->tcp.pushed ? counts_of_new(c, now) : tcp_counts(c->tcp.fd, now);
}

/* Where the kernel's counts are when the host's are 0. known: these; NULL: nobody knows them. */
static int count(const struct connection *c, enum ledger_counts counts, const struct tcp_counts *known,
		 struct ledger_line *line)
{
	struct tcp_counts now = { 0 };
	int error = 0;

	line->read_from = line->written_from = 0;
	if (c->state != CONNECTION_ESTABLISHED)
		return 0;
	if (known)
		now = *known;
	else
		error = kernel_counts(c, counts, &now);
	if (!error && c->tcp.pushed)
		error = count_protocol(c, &now, line);
	line->read_from = now.read - c->tcp.received_bytes - returned_bytes(&c->tcp.returned);
	line->written_from = now.written + c->tcp.out.spill.bytes - c->tcp.accepted_bytes;
	line->spilled = place_of(c->tcp.out.spill.head);
	line->spilled_from = (uint32_t)(now.written - c->tcp.out.sent_bytes);
	return error;
}

static void name(const struct connection *c, struct ledger_line *line)
{
	line->name = c->key_held ? c->key_held->keyed.key : 0;
	line->keep_ms = c->key_held ? c->key_held->keep_ms : 0;
}

/* What ledger_write_shared() has written stays. */
static void keep_shared(const struct connection *c, const struct ledger_line *line, struct ledger_line *said)
{
	if (!c->shared || line->cookie != said->cookie)
		return;
	said->name = line->name;
	said->place = line->place;
}

static uint64_t taken(uint64_t bytes, uint32_t number, bool fin)
{
	return bytes << 32 | (fin ? LEDGER_TAKEN_FIN : 0) | (number & LEDGER_NUMBER_MASK);
}

static uint64_t taken_of(const struct connection *c)
{
	return taken(c->tcp.accepted_bytes, ledger_number(c->channel), c->tcp.fin_wanted);
}

/* The line was written when the connection entered its state, if it is not that of a socket before. */
static uint64_t known_cookie(const struct connection *c, enum ledger_counts counts, const struct ledger_line *line)
{
	bool is_its_own = counts == LEDGER_AS_NOW && line->state == c->state && line->proxy_id == c->proxy_id &&
			  line->queue_id == c->channel->queue_id && line->number == c->channel->relayed.number;

	return is_its_own && line->cookie ? line->cookie : cookie_of(c->tcp.fd);
}

void ledger_write(struct connection *c, enum ledger_counts counts, const struct tcp_counts *known)
{
	struct ledger_line *line, said = { 0 };

	if (c->tcp.fd < 0 || (uint32_t)c->tcp.fd >= ledger->lines)
		return;
	line = &ledger->line[c->tcp.fd];
	if (!can_be_told(c) || count(c, counts, known, &said)) {
		ledger_forget(c->tcp.fd);
		return;
	}
	said.queue_id = c->channel->queue_id;
	said.number = c->channel->relayed.number;
	said.taken = taken_of(c);
	said.proxy_id = c->proxy_id;
	said.ip_version = c->tcp.ip_version;
	said.state = c->state;
	said.accepted = c->tcp.accepted;
	said.rebinding = c->tcp.rebinding;
	said.protocols = said.tls || said.pushed;
	said.kernel_send = c->tcp.kernel_send;
	said.kernel_receive = c->tcp.kernel_receive;
	said.cookie = known_cookie(c, counts, line);
	name(c, &said);
	keep_shared(c, line, &said);
	ledger_change_begins(line);
	said.sequence = line->sequence;
	said.taken_sum = ledger_count_sum(&said, said.taken);
	said.spilled_sum = ledger_count_sum(&said, said.spilled);
	*line = said;
	ledger_change_ends(line);
	/* Of two workers one may be late: recover.c looks at some more. */
	if ((uint32_t)c->tcp.fd > ledger->head->highest)
		ledger->head->highest = (uint32_t)c->tcp.fd;
	pushed_keep(c);
}

void ledger_write_name(struct connection *c)
{
	struct ledger_line *line;

	if (c->tcp.fd < 0 || (uint32_t)c->tcp.fd >= ledger->lines)
		return;
	line = &ledger->line[c->tcp.fd];
	if (!line->state || !can_be_told(c)) {
		ledger_write(c, LEDGER_AS_NOW, NULL);
		return;
	}
	ledger_change_begins(line);
	name(c, line);
	ledger_change_ends(line);
}

/* What is written of this socket; NULL: nothing. */
static struct ledger_line *written(int fd)
{
	return fd >= 0 && (uint32_t)fd < ledger->lines && ledger->line[fd].state ? &ledger->line[fd] : NULL;
}

void ledger_write_spilled(int fd, const struct spill_block *first)
{
	struct ledger_line *line = written(fd);
	uint32_t place = place_of(first);

	ledger_in_order();
	if (line && line->spilled != place) {
		*(volatile uint32_t *)&line->spilled = place;
		*(volatile uint32_t *)&line->spilled_sum = ledger_count_sum(line, place);
	}
	ledger_in_order();
}

void ledger_write_kept(int fd, uint32_t place)
{
	struct ledger_line *line = written(fd);

	if (!line)
		return;
	ledger_change_begins(line);
	line->pushed = place;
	ledger_change_ends(line);
}

void ledger_write_shared(const struct connection *l, uint64_t key, uint32_t renewals)
{
	struct ledger_line *line = written(l->tcp.fd);

	if (!line)
		return;
	ledger_change_begins(line);
	line->name = key;
	line->place = renewals;
	ledger_change_ends(line);
}

static void write_taken(struct ledger_line *line, uint64_t count)
{
	*(volatile uint64_t *)&line->taken = count;
	*(volatile uint32_t *)&line->taken_sum = ledger_count_sum(line, count);
	ledger_in_order();
}

void ledger_write_taken(const struct connection *c)
{
	struct ledger_line *line = written(c->tcp.fd);

	if (line)
		write_taken(line, taken_of(c));
}

void ledger_write_heard(int fd, uint32_t bytes, uint32_t number, bool fin)
{
	struct ledger_line *line = written(fd);

	if (line)
		write_taken(line, taken(bytes, number, fin));
}

uint64_t ledger_tenant(const char *name)
{
	uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */

	while (*name)
		hash = (hash ^ (uint8_t)*name++) * UINT64_C(0x100000001b3);
	return hash;
}

void ledger_write_parked(int fd, const struct xts_tenant *t, uint64_t key, uint32_t keep_ms)
{
	struct ledger_line *line = written(fd);

	if (!line)
		return;
	ledger_change_begins(line);
	line->queue_id = LEDGER_NO_QUEUE;
	line->place = ledger_tenant(t->name);
	line->name = key;
	line->keep_ms = keep_ms;
	ledger_change_ends(line);
}

void ledger_write_place(const struct connection *c, const void *to)
{
	struct ledger_line *line;

	if ((uint32_t)c->tcp.fd >= ledger->lines || !c->channel)
		return;
	line = &ledger->line[c->tcp.fd];
	line->place = 0;
	ledger_in_order();
	line->place_received = c->tcp.received_bytes;
	line->place_frames = (uint32_t)c->channel->link.stats.sent_frames;
	ledger_in_order();
	line->place = (uintptr_t)to;
	line->place_sum = ledger_place_sum(line);
	ledger_in_order();
}
