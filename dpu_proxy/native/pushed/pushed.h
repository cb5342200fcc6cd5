/*
 * Connections with pushed protocols, and those in peek mode (PROTOCOL.md, "Pushed protocols").
 *
 * Theory of operation
 *
 * A connection without any push has no struct pushed: its stack is empty, and TCP is read and written directly. After a
 * push, data goes through its stack (ulp/ulp_stack.h) as soon as that has *started*. Until then TCP is read and written
 * directly, or not at all where that would bypass a pushed protocol. A stack starts when TCP is connected; on a
 * connected socket it starts with the push, except in peek mode, and except while bytes sent before a push onto the
 * send side have not left yet (raw runs, outgoing.h). The owner of the stack is the connection; it passes epoll's
 * events to the stack, drives handshakes (pushed_advance()) and runs its timer.
 *
 * to_tcp.c and to_host.c carry the data of all connections. The room that a protocol gets for reading is always
 * XTS_PDU_CREDITS less than the credits held, so that whatever it returns can be sent.
 *
 * A listener's struct pushed is a template: not started, copied for each connection that is accepted (accepting.c).
 *
 * A fault of a protocol ends the connection as an error of TCP does: RESET carries its errno to the host. The layers
 * may still send an alert. The TCP socket is shut down but stays open, with the stack, so that the host may ask for the
 * reason until it closes.
 */
#ifndef XTS_PUSHED_H
#define XTS_PUSHED_H

#include "channel/channel.h"
#include "ulp/ulp_stack.h"

#define PUSHED_MAX (2 * ULP_DEPTH)
/* how much a host may give back at once: at least this, or window_bytes_max if that is more */
#define GIVE_BACK_MIN (1u << 20)

/* How the next bytes of a socket are peeked at. */
enum peek { PEEK_NEW, PEEK_ON, PEEK_FROM_FRONT };

/* What a connection was when it was written down, if it rested then: of another one that does, nothing else differs. */
struct pushed_rest {
	uint64_t since_pdu;
	uint64_t rests; /* ulp_stack_rests() */
	bool pdus, typed, event_wanted, tls_wanted, finished;
};

struct pushed {
	struct connection *connection; /* NULL while no connection has it */
	struct ulp_stack *stack;
	bool message_socket, typed; /* typed: a push has set the type */
	bool started;
	bool ready;               /* started, and its handshakes are done */
	bool handshaking;         /* counted as a handshake */
	uint64_t handshake_ns;    /* when the handshake began */
	bool event_wanted;        /* the host waits for READY */
	bool tls_wanted;          /* the event TLS has to be sent */
	struct ulp_tls_state tls; /* as last sent, or as it will be sent next */
	bool with_connect;        /* pushed in CONNECT's payload: if a push fails, so does the connection */
	bool peeking;
	uint8_t peek; /* enum peek */
	bool pdus;    /* the last read returned bytes of a PDU */
	/* bytes of a stream sent to the host since the last PDU, or since the beginning if there was none */
	uint64_t since_pdu;
	bool failed;
	bool finished; /* the protocols have sent their end of stream */
	/* The PDU that the host has begun to send. */
	bool pdu_open;
	uint32_t pdu_bytes, pdu_left; /* of the whole PDU, if the host has sent its length */

	/* Where it is written down for a crash (pushed_kept.h); NULL: nowhere. */
	struct pushed_kept *kept;
	uint32_t kept_bytes;     /* of that block */
	struct pushed_rest rest; /* of what was written last */
	uint64_t kept_due_ns;    /* when its record is written; 0: it is right, or written at once */
	bool unproven;           /* a message without bytes was sent, and may not have left */
	uint32_t unproven_kicks; /* channel.kicks, when it was */
	uint32_t give_back_left; /* bytes that the host still has to give back */
	/* For wake-ups that the stack has asked for. */
	struct timer timer;
	bool timer_due; /* the timer has expired */
	/* when an orphan ends, unless bytes have left meanwhile */
	uint64_t orphan_ns, orphan_timeout_ns, orphan_sent_bytes;
	/* Of a listener: connections that it has accepted and not announced yet (connection.offers), with their
	 * handshakes in progress or done. */
	struct accepting *accepting; /* NULL: none yet */
	/* the peer of such a connection, noted because a socket that has been reset does not report it */
	struct xts_endpoint peer;
	uint64_t accepted_ns;
	/* The protocols pushed, to count them for each accepted connection. */
	uint8_t ids[PUSHED_MAX];
	uint32_t id_count;
};

/* --- pushed.c ----------------------------------------------------------------------------------------------------- */

/* Makes an empty c->pushed, unless there is one. 0 or -ENOMEM. */
int pushed_make(struct connection *c);
/* An empty one, of no connection. 0 or -ENOMEM. */
int pushed_make_for_none(struct pushed **out, const struct ulp_owner *owner);
/* Has it any protocol? (c->pushed made for a push that was refused stays.) */
static inline bool pushed_any(const struct connection *c)
{
	return c->tcp.pushed && (ulp_stack_receives(c->tcp.pushed->stack) || ulp_stack_sends(c->tcp.pushed->stack));
}
/* Copies the protocols of `from` for another connection, not started. c NULL: for a shared listener. 0 or -errno. */
int pushed_copy(struct pushed **out, const struct pushed *from, struct connection *c);
/* The protocols will go with the connection's TCP side, for another one to adopt, on any worker. */
void pushed_leave(struct connection *c);
/* Protocols have come with the connection's TCP side. False: c's tenant has no room for what they keep, and nothing has
 * changed. */
bool pushed_adopt(struct connection *c);
/* How many bytes are counted for p; p may be NULL. */
static inline uint64_t pushed_memory(const struct pushed *p)
{
	return p ? ulp_stack_memory(p->stack) : 0;
}
void pushed_free(struct pushed *p);
/* Starts the stack if nothing has to leave first, and continues its handshakes. Their end is reported to the host, or
 * to the listener. If the stack fails, so does the connection, which may be freed (c->fd is then -1). */
void pushed_start(struct connection *c);
void pushed_advance(struct connection *c);
/* Passes events of epoll to the stack. May free c, as above. */
void pushed_event(struct connection *c, uint32_t epoll_events);
/* The connection has failed: lets the layers send an alert, drops what waits. */
void pushed_fail(struct connection *c);
/* A protocol has failed before it was ready, or the connection has. Whoever waits for CONNECT_ACK is told; what a
 * listener has accepted is closed. */
void pushed_shaking_failed(struct connection *c, int error);
/* Have bytes arrived that no application will read? */
bool pushed_has_unread(struct connection *c);
/* The timer has expired: calls the stack. May free c, as above. */
void pushed_timer(struct connection *c);
/* The connection has no host any more. It ends when no waiting bytes have left for this time. */
void pushed_orphan(struct connection *c, uint32_t timeout_ms);
/* Reads what an orphan's peer still sends, as the protocols may need it (a window that opens). May free c, as above. */
void pushed_drain(struct connection *c);
/* Sets the type, SOCK_SEQPACKET or SOCK_STREAM; the first call decides. 0 or -EINVAL, with a reason. */
int pushed_set_type(struct connection *c, bool message_socket);
void pushed_count(struct connection *c, uint16_t ulp_id);

/* --- push.c ------------------------------------------------------------------------------------------------------- */

bool push_is_request(uint32_t request);
#define PUSH_BYTES 8u              /* length of the fields before the attributes: read_bytes, flags, ulp_id */
#define CONNECT_PUSH_HEAD_BYTES 8u /* header of each push in a CONNECT: request, bytes */
/* Carries out a request. value holds *bytes of it, and has room for an answer of SOCKET_CALL_BYTES_MAX. 0 or -errno. */
int push_request(struct connection *c, uint32_t request, uint8_t *value, uint32_t *bytes);
/* Makes the pushes in the payload of a CONNECT, in order. 0, or -errno of the first that is refused. */
int push_with_connect(struct connection *c, const void *pushes, uint32_t bytes);
/* A CONNECT with pushes has failed, and its answer says so. The host can only ask for the reason, and close. */
void push_with_connect_failed(struct connection *c);

/* --- peek.c ------------------------------------------------------------------------------------------------------- */

int peek_begin(struct connection *c, bool on);
int peek_end(struct connection *c, uint32_t drop_bytes);
/* As ulp_stack_read(), for the bytes after those that were peeked at before. */
ssize_t peek_read(struct connection *c, void *out, size_t room);
/* Reads and drops bytes from the socket. 0 or -errno. */
int peek_drop(struct connection *c, uint64_t bytes);

/* --- to_host.c, to_tcp.c ------------------------------------------------------------------------------------------ */

/* Called when there are new layers, or layers have become ready: sends the event TLS if the encryption has changed. */
void pushed_note_tls(struct connection *c);
/* Makes the protocols send their end of stream; true when they have. May fail the connection. */
bool pushed_finish(struct connection *c);
/* Can the waiting bytes leave without further messages from the host? */
static inline bool pushed_deliverable(const struct connection *c)
{
	return c->tcp.pushed->started || outgoing_first_is_raw(&c->tcp.out);
}

/* --- from_host.c -------------------------------------------------------------------------------------------------- */

/* Checks that the messages of one PDU agree with each other: NULL, or what is wrong. */
const char *pushed_check_pdu(struct pushed *p, const struct xts_send_pdu *m, bool more);
void pushed_mark_of(struct ulp_mark *mark, const struct xts_send_pdu *m, bool more);

/* --- accepting.c -------------------------------------------------------------------------------------------------- */

/* May a listener take another connection that has to do a handshake, if necessary in place of one that is slow? */
bool accepting_has_room(const struct connection *l);
/* Gives c, accepted for l, the protocols of l, unless another member had it, and it has brought its own. True: it can
 * be announced at once. */
bool accepting_begin(struct connection *l, struct connection *c, const struct xts_endpoint *peer);
/* The handshakes of an accepted connection are done, or (error) have failed: then c is freed. */
void accepting_done(struct connection *c, int error);
/* The next connection that may be announced, or NULL. */
struct connection *accepting_next(struct connection *l);
/* A connection whose handshake is done, or else one whose handshake is in progress, or NULL. */
struct connection *accepting_any(struct connection *l);
/* c leaves the listener's lists: it has been announced, or it ends. */
void accepting_ends(struct connection *c);
/* The listener ends: resets the connections that it has accepted and not announced. */
void accepting_drop(struct connection *l);
void accepting_free(struct pushed *p);

#endif
