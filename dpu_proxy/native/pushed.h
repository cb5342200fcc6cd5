/*
 * Connections with pushed protocols, and those in peek mode (PROTOCOL.md, "Pushed protocols").
 *
 * Theory of operation
 *
 * A connection without any push has no struct pushed: its stack is empty, and TCP is read and written directly. With
 * one, data goes through its stack (ulp/ulp_stack.h) as soon as that has *started*. Until then TCP is read and written
 * directly, or not at all where that would bypass a pushed protocol. A stack starts when TCP is connected; on a
 * connected socket it starts with the push, but not in peek mode, and not before bytes that were sent before a push
 * onto the send side have left (raw runs, outgoing.h). The owner of the stack is the connection; it passes epoll's
 * events to the stack, drives handshakes (pushed_advance()) and runs its timer.
 *
 * to_tcp.c and to_host.c carry the data of all connections. The room that a protocol is offered for reading is always
 * XTS_PDU_CREDITS less than the credits held, so that whatever comes can be sent.
 *
 * A listener's struct pushed is a template: not started, copied for each connection that is accepted (accepting.c).
 *
 * A fault of a protocol ends the connection as an error of TCP does: RESET carries its errno to the host. The layers
 * may still send an alert. The TCP socket is shut down but stays open, with the stack, so that the host may ask for the
 * reason until it closes.
 */
#ifndef XTS_PUSHED_H
#define XTS_PUSHED_H

#include "channel.h"
#include "ulp/ulp_stack.h"

#define PUSHED_MAX (2 * ULP_DEPTH)
/* a host may give back at least so much at once, or window_bytes_max if that is more */
#define GIVE_BACK_MIN (1u << 20)

/* How the next bytes of a socket are peeked at. */
enum peek { PEEK_NEW, PEEK_ON, PEEK_FROM_FRONT };

struct pushed {
	struct connection *connection; /* NULL while nobody holds it */
	struct ulp_stack *stack;
	bool message_socket, typed; /* typed: a push has said which */
	bool started;
	bool ready;               /* and its handshakes are done */
	bool handshaking;         /* counted as such */
	uint64_t handshake_ns;    /* when that began */
	bool event_wanted;        /* the host waits for READY */
	bool tls_wanted;          /* the event TLS is to be sent */
	struct ulp_tls_state tls; /* as sent last, or as it will be sent next */
	bool with_connect;        /* pushed in CONNECT's payload: if a push fails, so does the connection */
	bool peeking;
	uint8_t peek; /* enum peek */
	bool pdus;    /* what was read last was of a PDU */
	/* bytes of a stream that the host was sent after the last PDU, or ever if there was none */
	uint64_t since_pdu;
	bool failed;
	bool finished; /* the protocols have said that no more is sent */
	/* The PDU that the host is in the middle of. */
	bool pdu_open;
	uint32_t pdu_bytes, pdu_left; /* of the whole PDU, if the host has sent its length */

	uint32_t give_back_left; /* bytes that the host has to give back yet */
	/* The stack wants to be called. */
	struct timer timer;
	bool timer_due; /* it has expired */
	/* an orphan ends then, unless bytes have left meanwhile */
	uint64_t orphan_ns, orphan_timeout_ns, orphan_sent_bytes;
	/* A listener's: connections it has accepted and not announced (connection.offers): with handshakes under way,
	 * and without. */
	struct accepting *accepting; /* NULL: none so far */
	struct xts_endpoint peer;    /* of such a connection: one that has been reset since could not be asked */
	uint64_t accepted_ns;
	/* What was pushed, to be counted for each accepted connection. */
	uint8_t ids[PUSHED_MAX];
	uint32_t id_count;
};

/* --- pushed.c ----------------------------------------------------------------------------------------------------- */

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
/* Starts the stack if nothing has to leave first. Goes on with handshakes; their end is reported to the host, or to the
 * listener. A failure of the stack fails the connection, which may be freed (c->fd is then -1). */
void pushed_start(struct connection *c);
void pushed_advance(struct connection *c);
/* Takes epoll's events. May free c, as above. */
void pushed_event(struct connection *c, uint32_t epoll_events);
/* The connection has failed: lets the layers send an alert, drops what waits. */
void pushed_fail(struct connection *c);
/* Bytes have arrived that no application will read. */
bool pushed_has_unread(struct connection *c);
/* Calls the stack, whose time has come. May free c, as above. */
void pushed_timer(struct connection *c);
/* It has no host any more; it ends when no waiting bytes have left for this time. */
void pushed_orphan(struct connection *c, uint32_t timeout_ms);
/* Reads what an orphan's peer still sends, as the protocols may need it (a window that opens). May free c, as above. */
void pushed_drain(struct connection *c);
/* SOCK_SEQPACKET or SOCK_STREAM: the first to say decides. 0 or -EINVAL, with a reason. */
int pushed_set_type(struct connection *c, bool message_socket);
void pushed_count(struct connection *c, uint16_t ulp_id);

/* --- push.c ------------------------------------------------------------------------------------------------------- */

bool push_is_request(uint32_t request);
#define PUSH_BYTES 8u              /* before its attributes: read_bytes, flags, ulp_id */
#define CONNECT_PUSH_HEAD_BYTES 8u /* of each push in a CONNECT: request, bytes */
/* Carries out a request; value holds *bytes of it and has room for SOCKET_CALL_BYTES_MAX of answer. 0 or -errno. */
int push_request(struct connection *c, uint32_t request, uint8_t *value, uint32_t *bytes);
/* Makes the pushes in the payload of a CONNECT, in order. 0, or -errno of the first that is refused. */
int push_with_connect(struct connection *c, const void *pushes, uint32_t bytes);
/* That CONNECT has failed, and its answer says so. The host can only ask for the reason, and close. */
void push_with_connect_failed(struct connection *c);

/* --- peek.c ------------------------------------------------------------------------------------------------------- */

int peek_begin(struct connection *c, bool on);
int peek_end(struct connection *c, uint32_t drop_bytes);
/* As ulp_stack_read(), of the bytes after those that were peeked at before. */
ssize_t peek_read(struct connection *c, void *out, size_t room);
/* Takes bytes off the socket unseen. 0 or -errno. */
int peek_drop(struct connection *c, uint64_t bytes);

/* --- to_host.c, to_tcp.c ------------------------------------------------------------------------------------------ */

/* There are new layers, or layers are ready: sends the event TLS if the encryption has changed. */
void pushed_note_tls(struct connection *c);
/* The protocols say that no more is sent: true when they have. May fail the connection. */
bool pushed_finish(struct connection *c);
/* Can the waiting bytes leave without further messages of the host? */
static inline bool pushed_deliverable(const struct connection *c)
{
	return c->pushed->started || outgoing_first_is_raw(&c->out);
}

/* --- accepting.c -------------------------------------------------------------------------------------------------- */

/* May a listener take another connection that has to shake hands, if need be in the place of one that keeps it
 * waiting? */
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
