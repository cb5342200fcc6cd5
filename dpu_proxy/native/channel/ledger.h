/*
 * What the process of the workers has open, written down where the next one finds it when this one has died:
 * PROTOCOL.md, "Crash".
 *
 * Theory of operation. The ledger is memory without a name, shared with the understudy (understudy.py), and inherited
 * by the process that the understudy makes when this one has died. It has a line for each TCP socket, at the number of
 * its descriptor, which is the same in that process; a page for each channel; and room for each channel's queue, whose
 * own struct is there instead of on the heap (xts_queue_place()).
 *
 * A line is written when the connection enters a state (connection_enter()), and says nothing of its bytes but where
 * they began: how many TCP has given and taken since, the kernel knows (tcp_counts.h), and how many have come to the
 * host and from it, the host knows (RESUME). Where the host sleeps, or has ended, the line and the frames behind the
 * last one that it counts say how many have come from it (ledger_took()). What is between is in the queue's memory,
 * which outlives the process:
 *
 *   - from the host: frames that were received and not given back, and those behind them. They are received again, by
 *     the next process (replay.h);
 *   - from the host: what was given back and TCP has not taken, in the spill buffer, whose first block the line says
 *     (connection/spill.h);
 *   - to the host: at most what was read from TCP into the frame that was being written. Where that is, the line says
 *     from before the read (ledger_reads()) until the frame is submitted (ledger_submitted()).
 *
 * With TLS, what has come and gone between the host and TLS is counted by TLS, which writes itself down at another
 * place (ulp/tls/tls_kept.h): the line says where. The same of other protocols (pushed/pushed_kept.h), but not of both
 * together: a connection of which nothing can be said has no line, and the next process resets it.
 *
 * A connection with a key that no process holds is of no queue, but of a tenant: it goes with one of its channels.
 *
 * Channels behind a relay have one queue, which is the trunk's. Each has a page of its own, by its number, and its
 * lines have that number; what is in the queue's memory is theirs together.
 *
 * Where frames have heads, the queue's page has what these are in the epoch of its host, written before the page says
 * that there is one. A head has no number, so nothing is written for a frame. What repeats lost frames has a number for
 * each, so its own struct is there, as the queue's is.
 *
 * Nobody reads a line while this process lives. Whoever reads it then believes nothing: lines are checked as records
 * from another process are, and descriptors by asking the kernel (recover.c). A line names its socket by the kernel's
 * cookie too, so one that was left behind by a socket before is found out.
 */
#ifndef XTS_LEDGER_H
#define XTS_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "channel/token.h"
#include "decorators/headed.h"
#include "worker/memory_sum.h"
#include "worker/worker.h"

struct channel;
struct connection;
struct spill_block;
struct xts_tenant;

#define LEDGER_NO_QUEUE UINT32_MAX

struct ledger_line {
	_Alignas(64) uint32_t sequence; /* odd: being changed; 0: never written */
	uint32_t queue_id, proxy_id;    /* queue_id LEDGER_NO_QUEUE: it is parked, and `place` is its tenant */
	uint8_t state;                  /* enum connection_state; 0 (idle): there is nothing that could go on */
	uint8_t ip_version;
	uint8_t accepted : 1, rebinding : 1;
	uint8_t protocols : 1; /* it has some, which `tls` or `pushed` say: neither changes what it is */
	uint8_t spare;
	uint32_t kernel_send, kernel_receive;
	uint64_t cookie; /* of the socket */
	/* the kernel's counts (tcp_counts.h), or those of TLS, where the host's are 0 */
	uint64_t read_from, written_from;
	/* of a shared one `place` is how often its key was renewed. Else the last read from TCP: to where, how many
	 * bytes had gone to the host before, and how many frames */
	uint64_t place, place_received;
	uint32_t place_frames;
	uint32_t keep_ms; /* of its key */
	uint64_t name;    /* by which other processes may ask for it (held_arrived.h), or share it; 0: none */
	uint32_t tls;     /* where TLS is written down, in the memory for keys (key_memory.h); 0: there is none */
	uint32_t number;  /* of its channel behind a relay; 0: it has the queue */
	/* its spill buffer's first block, in lasting memory, in units; 0: nothing waits, or not there. The number of a
	 * byte in it and spilled_from are its place as `written` counts */
	uint32_t spilled, spilled_from;
	uint64_t taken; /* what the host has sent (ledger_took()) */
	uint32_t sum;   /* ledger_sum() */
	/* where other protocols are written down (pushed/pushed_kept.h), in lasting memory, in units; 0: nowhere */
	uint32_t pushed;
	uint32_t place_sum, taken_sum, spilled_sum; /* ledger_place_sum(), ledger_count_sum() */
};
_Static_assert(sizeof(struct ledger_line) == 128, "a line is in two cache lines");

struct ledger_page {
	uint32_t sequence;
	uint8_t live; /* its host has an epoch, and can go on with another process. No bool: it may be any value */
	uint64_t epoch;
	uint64_t frames; /* that were submitted to its queue; memory_summed() */
	uint64_t came;   /* that its host has sent, as ledger_number() counts; memory_summed() */
	char tenant[XTS_TENANT_NAME_BYTES];
	struct identity identity;
	struct xts_owner owner;
	uint8_t heads[XTS_HEADED_STATE_BYTES]; /* of its frames; behind a relay, and without heads, 0 */
	uint32_t packet_bytes;                 /* its frames come in parts, in such packets; 0: they do not */
};

/* Of a channel behind a relay. */
struct ledger_relayed {
	uint32_t taken; /* it is somebody's; changed at once */
	uint32_t queue_id, number;
	struct ledger_page page;
};

/* An epoch that has ended on a queue, or behind its relay (processes/ended_epochs.h). */
struct ledger_ended {
	uint64_t epoch, ended_ns; /* epoch 0: none */
	char tenant[XTS_TENANT_NAME_BYTES];
	uint64_t sum; /* of the words before */
};

struct ledger_head {
	uint32_t highest; /* descriptor that has had a line */
	uint32_t relayed; /* pages of channels behind relays that have been taken are below this number */
	int32_t keys_fd;  /* 1 more than the descriptor of the memory for keys; 0: it has none */
};

#define LEDGER_QUEUE_BYTES 16384u
#define LEDGER_SESSION_BYTES 65536u
#define LEDGER_ENDED 64u                     /* of a queue */
#define LEDGER_RELAYED (4 * XTS_RELAYED_MAX) /* of all relays; more channels end in a crash */

/* Where it is: not itself in the shared memory, which may be changed. */
struct ledger {
	uint32_t lines, pages;
	struct ledger_head *head;
	struct ledger_line *line;
	struct ledger_page *page;
	struct ledger_relayed *relayed; /* LEDGER_RELAYED */
	uint8_t *queue;                 /* of each page, LEDGER_QUEUE_BYTES */
	struct ledger_ended *ended;     /* of each page, LEDGER_ENDED */
	uint8_t *session;               /* of each page, LEDGER_SESSION_BYTES: what repeats its frames (arq.h) */
};

/* Nothing is moved by the compiler over this. The process that reads begins when this one has ended. */
static inline void ledger_in_order(void)
{
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Of what stays as long as a line is not changed as a whole. The fault of which a process dies may have written over a
 * line, and it would be another connection's, or bytes would be missing. */
static inline uint32_t ledger_sum(const struct ledger_line *line)
{
	struct ledger_line l;

	memcpy(&l, line, sizeof l);
	l.sequence = l.sum = l.place_frames = l.spilled = 0;
	l.place = l.place_received = l.taken = 0;
	l.place_sum = l.taken_sum = l.spilled_sum = 0;
	return memory_sum(&l, sizeof l);
}

/* The others change with each read or frame, and each has a sum of its own. With the cookie: what another connection
 * has is wrong here. A process that dies between a count and its sum was serving this connection, which is reset. */
static inline uint32_t ledger_place_sum(const struct ledger_line *line)
{
	const uint64_t words[] = { line->cookie, line->place, line->place_received, line->place_frames };

	return memory_sum(words, sizeof words);
}
static inline uint32_t ledger_count_sum(const struct ledger_line *line, uint64_t count)
{
	const uint64_t words[] = { line->cookie, count };

	return memory_sum(words, sizeof words);
}

/* Of a page: does this word have this count, and its sum? */
static inline bool ledger_is_count(uint64_t word, uint32_t count)
{
	return word == memory_summed(count);
}

/* Has nothing written over it? */
static inline bool ledger_is_whole(const struct ledger_line *line)
{
	return line->sequence && !(line->sequence & 1) && line->sum == ledger_sum(line) &&
	       line->taken_sum == ledger_count_sum(line, line->taken) &&
	       line->spilled_sum == ledger_count_sum(line, line->spilled);
}

/* A line is changed between these two: who finds it half changed does not believe it. */
static inline void ledger_change_begins(struct ledger_line *line)
{
	*(volatile uint32_t *)&line->sequence |= 1;
	ledger_in_order();
}
static inline void ledger_change_ends(struct ledger_line *line)
{
	line->sum = ledger_sum(line);
	ledger_in_order();
	*(volatile uint32_t *)&line->sequence = line->sequence + 1;
}

/* NULL: there is none, and nothing is written. */
extern struct ledger *ledger;

/* Descriptors that have had a line are below this number. Of the highest, workers write without a lock: some more are
 * looked at. */
static inline uint32_t ledger_lines_used(void)
{
	uint32_t highest = *(volatile uint32_t *)&ledger->head->highest;

	return highest + 1024u < ledger->lines ? highest + 1024u : ledger->lines; /* of which there may be fewer */
}

/* connection/ledger_line.c: a connection has entered a state; what it was charged for buffers, or its counts, are
 * others than from the beginning; its key is another; it is about to be read from TCP. */
struct tcp_counts;
enum ledger_counts { LEDGER_NEW, LEDGER_AS_NOW }; /* of the kernel: of a socket that is new, or to be asked for */
void ledger_write(struct connection *c, enum ledger_counts counts, const struct tcp_counts *known);
void ledger_write_name(struct connection *c);
void ledger_write_place(const struct connection *c, const void *to);
static inline void ledger_entered(struct connection *c)
{
	if (ledger)
		ledger_write(c, LEDGER_NEW, NULL);
}
/* known: the kernel's counts; NULL: it is asked. */
static inline void ledger_count_as(struct connection *c, const struct tcp_counts *known)
{
	if (ledger)
		ledger_write(c, LEDGER_AS_NOW, known);
}
static inline void ledger_count(struct connection *c)
{
	ledger_count_as(c, NULL);
}
static inline void ledger_named(struct connection *c)
{
	if (ledger)
		ledger_write_name(c);
}
/* Other processes may join it by this key, which is so often another one. Each member has a line, and only who renews
 * the key writes its own. */
void ledger_write_shared(const struct connection *l, uint64_t key, uint32_t renewals);
static inline void ledger_shared(const struct connection *l, uint64_t key, uint32_t renewals)
{
	if (ledger)
		ledger_write_shared(l, key, renewals);
}
/* It is parked: other processes of its tenant may take it by this key. Its line says the rest. */
void ledger_write_parked(int fd, const struct xts_tenant *t, uint64_t key, uint32_t keep_ms);
static inline void ledger_parks(int fd, const struct xts_tenant *t, uint64_t key, uint32_t keep_ms)
{
	if (ledger)
		ledger_write_parked(fd, t, key, keep_ms);
}
/* In place of its name. */
uint64_t ledger_tenant(const char *name);
static inline void ledger_reads(const struct connection *c, const void *to)
{
	if (ledger)
		ledger_write_place(c, to);
}

/* What waits for TCP begins in this block now; NULL: nothing waits. Before a block is freed. */
void ledger_write_spilled(int fd, const struct spill_block *first);
static inline void ledger_spills(int fd, const struct spill_block *first)
{
	if (ledger)
		ledger_write_spilled(fd, first);
}

/* Its protocols are written down at another place from now on. */
void ledger_write_kept(int fd, uint32_t place);
static inline void ledger_keeps(int fd, uint32_t place)
{
	if (ledger)
		ledger_write_kept(fd, place);
}

/* Its host has sent data, or FIN: how many bytes so far, and in which frame, in one word, which is whole at each
 * moment. What is in a frame behind that one is not counted. */
#define LEDGER_TAKEN_FIN (UINT64_C(1) << 31)
#define LEDGER_NUMBER_MASK 0x7fffffffu
void ledger_write_taken(const struct connection *c);
static inline void ledger_took(const struct connection *c)
{
	if (ledger)
		ledger_write_taken(c);
}
/* The same, as it was heard after the death of the process before (processes/heard.h). */
void ledger_write_heard(int fd, uint32_t bytes, uint32_t number, bool fin);
static inline void ledger_heard(int fd, uint32_t bytes, uint32_t number, bool fin)
{
	if (ledger)
		ledger_write_heard(fd, bytes, number, fin);
}
/* How many frames its host has sent in this epoch, and some more: modulo 256 it is the number of the next one. */
uint32_t ledger_number(const struct channel *ch);
/* Another one has come. */
void ledger_write_came(const struct channel *ch);
static inline void ledger_received(const struct channel *ch)
{
	if (ledger)
		ledger_write_came(ch);
}

/* The same of a process that has died. */
uint32_t ledger_came(uint32_t queue_id, uint32_t number);

/* Its line says nothing any more. */
static inline void ledger_forget(int fd)
{
	if (ledger && fd >= 0 && (uint32_t)fd < ledger->lines)
		*(volatile uint8_t *)&ledger->line[fd].state = 0;
}

/* A frame was submitted to its queue. */
void ledger_write_frames(const struct channel *ch);
static inline void ledger_submitted(const struct channel *ch)
{
	if (ledger)
		ledger_write_frames(ch);
}

/* Its epoch has begun, or ended. */
void ledger_channel(const struct channel *ch);

/* The page of a channel behind a relay: the one that the process before has had, or a new one. NULL: there is none. */
struct ledger_page *ledger_take_relayed(uint32_t queue_id, uint32_t number);
/* The channel has ended, or does not come. */
void ledger_leave_relayed(uint32_t queue_id, uint32_t number);

/* An epoch of this tenant has ended on the queue. It takes the place of the one that ended first. */
void ledger_write_ended(uint32_t queue_id, uint64_t epoch, uint64_t now_ns, const char *tenant);
/* When it ended there, and its tenant: also of a process that has died. False: that is not known. */
bool ledger_has_ended(uint32_t queue_id, uint64_t epoch, uint64_t *ended_ns, char tenant[XTS_TENANT_NAME_BYTES]);

/* packet_bytes of the queue's page, of a process that has died; 0 also if it cannot be. */
uint32_t ledger_packet_bytes(uint32_t queue_id);

/* Room for the queue's struct; NULL: there is none. */
void *ledger_queue(uint32_t queue_id, uint32_t bytes);
/* The same for that of its decorator which repeats lost frames. */
void *ledger_session(uint32_t queue_id, uint32_t bytes);

#endif
