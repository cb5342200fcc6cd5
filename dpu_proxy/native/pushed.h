/*
 * Connections with pushed protocols, and those in peek mode (PROTOCOL.md, "Pushed protocols").
 *
 * Theory of operation
 *
 * A connection that nothing was ever pushed onto has no struct pushed, and the data path of stream.c to itself. With one, its
 * data goes through its stack (ulp/stack.h) as soon as that has *started*; until then TCP is read and written as it
 * is, or, where that would go past what was pushed, not at all. A stack starts when TCP is connected; on a connection that
 * is so already it starts with the push, but not in peek mode, and not before bytes that were spilled before a push onto the
 * send side have left (raw runs, below). The owner of the stack is the connection; it tells the stack what epoll says,
 * drives handshakes (pushed_advance()) and keeps time for it (the worker's list of timers).
 *
 * TCP to host (pdu_receive.c): the uppermost layer reads into the transmit slot, and its mark says whether that is RECV or
 * RECV_PDU. The room offered is always XTS_PDU_CREDITS less than the credits held, so that whatever comes can be sent.
 *
 * Host to TCP (pdu_send.c): the gathered messages are offered to the stack as they came, PDU by PDU, byte streams in as
 * large pieces as there are. What it does not take is spilled, as it came from the host. The marks wait beside the spill buffer, in
 * a ring of *runs*: so many bytes of it with this mark. Runs of a byte stream are joined; one of a PDU is one message, for which the
 * host has paid XTS_PDU_CREDITS, so that the ring is within the window, too. *Raw* runs leave past the protocols: they were sent before
 * the first push onto the send side.
 *
 * A listener's struct pushed is a template: not started, copied for each connection that is accepted (accepting.c).
 *
 * A fault of a protocol ends the connection as an error of TCP does: RESET tells the host its errno. The layers may still say farewell; the
 * TCP socket is shut down but stays open, with the stack, so that the host may ask for the reason until it closes.
 */
#ifndef XTS_PUSHED_H
#define XTS_PUSHED_H

#include "channel.h"
#include "ulp/stack.h"

#define PUSHED_MAX (2 * ULP_DEPTH)
#define GIVE_BACK_MIN (1u << 20) /* a host may give back at least so much at once, or window_bytes_max if that is more */

/* Bytes of the spill buffer that belong together. */
struct run {
	uint32_t bytes;
	bool raw;                 /* past the protocols */
	struct ulp_mark mark;
};

/* How the next bytes of a socket are peeked at. */
enum peek { PEEK_NEW, PEEK_ON, PEEK_FROM_FRONT };

struct pushed {
	struct connection *connection; /* NULL while nobody holds it */
	struct ulp_stack *stack;
	bool message_socket, typed;    /* typed: a push has said which */
	bool started;
	bool ready;                    /* and its handshakes are done */
	bool handshaking;              /* counted as such */
	bool event_wanted;             /* the host waits for READY */
	bool tls_wanted;               /* it is to be told the event TLS */
	struct ulp_tls_told tls;       /* as it was, or will be, told last */
	bool along;                    /* pushed by CONNECT itself: if that fails, all is over */
	bool peeking;
	uint8_t peek;                  /* enum peek */
	bool pdus;                     /* what was read last was of a PDU */
	uint64_t since_pdu;            /* bytes of a stream that the host was sent after the last PDU, or ever if there was none */
	bool failed;
	bool finished;                 /* the protocols have said that no more is sent */
	/* Waiting in the spill buffer. */
	struct run *runs;              /* ring of run_room, a power of two */
	uint32_t run_first, run_count, run_room;
	uint32_t run_pdus;             /* PDU messages among them */
	/* The PDU that the host is in the middle of. */
	bool pdu_open;
	uint32_t pdu_bytes, pdu_left;  /* of the whole, if the host has told */
	/* GIVE_BACK. */
	uint32_t owed;
	/* The stack wants to be called. */
	struct timer timer;
	bool timer_due;                /* it has expired */
	uint64_t orphan_ns, orphan_timeout_ns, orphan_sent_bytes; /* an orphan ends then, unless bytes have left meanwhile */
	/* A listener's: connections it has accepted and not announced (connection.offers): with handshakes under way, and without. */
	struct accepting *accepting;   /* NULL: none so far */
	struct xts_endpoint peer;      /* of such a connection: one that has been reset since could not be asked */
	uint64_t accepted_ns;
	/* What was pushed, to be counted for each accepted connection. */
	uint8_t ids[PUSHED_MAX];
	uint32_t id_count;
};

/* --- pushed.c -------------------------------------------------------------------------------------------------------- */

/* Makes c->pushed, with nothing on it, unless it has one. 0 or -ENOMEM. */
int pushed_make(struct connection *c);
/* Is there a protocol? (What was made for a push that has been refused stays.) */
static inline bool pushed_any(const struct connection *c)
{
	return c->pushed && (ulp_stack_receives(c->pushed->stack) || ulp_stack_sends(c->pushed->stack));
}
/* The same as from, for another connection: not started. c may be NULL: for a shared listener. 0 or -errno. */
int pushed_copy(struct pushed **out, const struct pushed *from, struct connection *c);
/* Takes it away from its connection, to be adopted by another, of any worker. */
struct pushed *pushed_leave(struct connection *c);
/* False: c's channel has no room for what p keeps, and nothing has changed. */
bool pushed_adopt(struct connection *c, struct pushed *p);
/* Bytes that are counted while a connection has it; p may be NULL. */
static inline uint64_t pushed_memory(const struct pushed *p)
{
	return p ? ulp_stack_memory(p->stack) : 0;
}
void pushed_free(struct pushed *p);
/* Starts the stack if nothing is in the way; goes on with handshakes, and tells their end: to the host, or to the listener. When it has
 * failed, so has the connection: it may be freed (c->fd is then -1). */
void pushed_start(struct connection *c);
void pushed_advance(struct connection *c);
/* What epoll says. May free c, as above. */
void pushed_event(struct connection *c, uint32_t epoll_events);
/* The connection has failed: says farewell, drops what waits. */
void pushed_fail(struct connection *c);
/* Bytes have arrived that no application will read. */
bool pushed_has_unread(struct connection *c);
/* Calls the stack, whose time has come. May free c, as above. */
void pushed_timer(struct connection *c);
/* It has no host any more; it ends when for so long nothing has left of what waits. */
void pushed_orphan(struct connection *c, uint32_t timeout_ms);
/* Reads what an orphan's peer sends yet, for what the protocols learn of it (a window that opens). May free c, as above. */
void pushed_drain(struct connection *c);
/* SOCK_SEQPACKET or SOCK_STREAM: the first to say decides. 0 or -EINVAL, with a reason. */
int pushed_set_type(struct connection *c, bool message_socket);
void pushed_count(struct connection *c, uint16_t ulp_id);

/* --- push.c ---------------------------------------------------------------------------------------------------------- */

bool push_is_request(uint32_t request);
/* Carries out a request; value holds *bytes of it and has room for SOCKET_CALL_BYTES_MAX of answer. 0 or -errno. */
int push_request(struct connection *c, uint32_t request, uint8_t *value, uint32_t *bytes);
/* Pushes what a CONNECT brings along, one after the other. 0, or -errno of the first that is refused. */
int push_along(struct connection *c, const void *pushes, uint32_t bytes);
/* That CONNECT has failed; its answer tells. The connection can only be asked why, and closed. */
void push_along_failed(struct connection *c);
void command_give_back(struct channel *ch, const struct xts_head *head, const struct xts_rx_frame *frame);

/* --- peek.c ---------------------------------------------------------------------------------------------------------- */

int peek_begin(struct connection *c, bool on);
int peek_end(struct connection *c, uint32_t drop_bytes);
/* As ulp_stack_read(), of what comes after the bytes that were read so before. */
ssize_t peek_read(struct connection *c, void *out, size_t room);
/* Takes bytes off the socket unseen. 0 or -errno. */
int peek_drop(struct connection *c, uint64_t bytes);

/* --- pdu_receive.c --------------------------------------------------------------------------------------------------- */

/* True while data would come, or has to wait for what is pushed. */
bool pushed_may_read(const struct connection *c);
/* Reads once and sends what came: true when a message was sent, and the slot with it. */
bool pushed_receive(struct connection *c, const struct xts_tx_slot *slot);
bool pushed_has_event(const struct connection *c);
/* Layers have come, or are ready: how the connection is encrypted is told if that is new. */
void pushed_note_tls(struct connection *c);
void pushed_send_event(struct connection *c, const struct xts_tx_slot *slot);

/* --- pdu_send.c ------------------------------------------------------------------------------------------------------ */

/* SEND_PDU; as command_send(). */
bool command_send_pdu(struct channel *ch, const struct xts_head *head, uint32_t entry);
/* As connection_flush(). */
void pushed_flush(struct connection *c);
/* Is there anything to be sent yet, but for the protocols' goodbye? */
bool pushed_waits(const struct connection *c);
/* No push onto the send side is possible now: bytes that go through what was pushed before still wait. */
bool pushed_send_busy(const struct connection *c);
/* What is spilled was sent before anything was pushed. 0 or -ENOMEM. */
int pushed_take_spill(struct connection *c);
/* Can what waits leave without the host's doing? */
bool pushed_deliverable(const struct connection *c);
/* Post credits that the host has paid for the PDU messages that wait, beside their bytes. */
uint32_t pushed_costs(const struct pushed *p);
/* Drops what waits; its PDUs' credits are free. */
void pushed_drop(struct connection *c);
/* The protocols say that no more is sent: true when they have. May fail the connection. */
bool pushed_finish(struct connection *c);

/* --- accepting.c ----------------------------------------------------------------------------------------------------- */

/* May a listener take another connection that has to shake hands, if need be in the place of one that keeps it waiting? */
bool accepting_has_room(const struct connection *l);
/* c, accepted for l, gets l's protocols, or p (given back by another): true when it can be announced at once. */
bool accepting_begin(struct connection *l, struct connection *c, struct pushed *p, const struct xts_endpoint *peer);
/* The handshakes of an accepted connection are done, or (error) have failed: then c is freed. */
void accepting_done(struct connection *c, int error);
/* The next that may be announced, or NULL. */
struct connection *accepting_next(struct connection *l);
/* One whose handshake is done, or else is under way, or NULL. */
struct connection *accepting_any(struct connection *l);
/* Not announced any more: it is, or it goes. */
void accepting_ends(struct connection *c);
/* The listener goes: resets what it has accepted and not announced. */
void accepting_drop(struct connection *l);
void accepting_free(struct pushed *p);

#endif
