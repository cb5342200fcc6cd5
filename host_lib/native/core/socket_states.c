/* The table of a socket's states, and its checks in builds with XTS_DEBUG; see socket_states.h. */
#include "core/socket.h"
#include "core/socket_states.h"
#include "core/signals.h"
#include "common/state_table.h"
#include "xts_private.h"

#ifdef XTS_DEBUG
#include <stdio.h>
#include <stdlib.h>
#endif

enum socket_state {
	SOCKET_UNCONNECTED,
	SOCKET_CONNECTING,
	SOCKET_CONNECTED,
	SOCKET_ESTABLISHED,
	SOCKET_LISTENING,
	SOCKET_REFUSED,
	SOCKET_ENDED,
	SOCKET_DISCONNECTING,
	SOCKET_DATAGRAM,
	SOCKET_FREE,
	SOCKET_STATES,
};

/* X(constant, name, condition on struct xts_sock, meaning) */
#define SOCKET_FLAGS(X) \
	X(OPEN, "open", s->open, "The program has it open.") \
	X(NAMED, "proxy_id", s->proxy_id, "The proxy has a socket for it, and its identifier is known.") \
	X(OPENING, "opening", s->opening, "The first request is out: its reply will have that identifier.") \
	X(CLOSING, "closing", s->closing, "CLOSE has been sent, or will be.") \
	X(CANCELLED, "cancelled", s->cancelled, "CANCEL has been sent in place of CLOSE: nothing counts until CLOSED.") \
	X(DISCONNECTING, "disconnecting", s->disconnecting, \
	  "The CLOSE is for the proxy's socket only: this one goes on.") \
	X(CUT, "cut", s->cut, "Disconnecting: a connection, or an attempt at one, that had not ended.") \
	X(LOST, "lost", s->lost, "Its channel has died, or the proxy's socket is not this one's any more.") \
	X(AWAY, "away", s->away, "Its channel has died, and it is made again.") \
	X(MAKING, "making", s->making, "A thread makes the proxy's socket for it.") \
	X(ABORT, "abort", s->abort, "CLOSE says ABORT.") \
	X(DONE, "done", s->done, "The peer's FIN has come.") \
	X(RECEIVE_ENDED, "RCV_SHUTDOWN", s->shutdown &RCV_SHUTDOWN, "Nothing more will be received.") \
	X(SEND_ENDED, "SEND_SHUTDOWN", s->shutdown &SEND_SHUTDOWN, "Nothing more may be sent.") \
	X(BOUND, "bound", s->bound, "The proxy's socket is bound.") \
	X(RENEWED, "renewed", s->renewed, "Disconnected: what was bound, or set by options, is gone.") \
	X(ERROR, "error", s->error, "An error that has not been reported yet.") \
	X(UNREAD, "unread", s->unread, "Bytes, or PDUs, that have been received and not read.") \
	X(PENDING, "pending", s->pending_bytes, "Bytes that were accepted and have not been sent.") \
	X(OUTBOX, "in_outbox", s->in_outbox, "Something waits for a frame: bytes, credits, FIN, CLOSE.") \
	X(ASKED, "asked", s->asked, "It has sent since it last received.") \
	X(CALL, "call", s->call, "A request is out whose reply a thread waits for.") \
	X(PUSHING, "pushing", s->pushing, "A push, or the end of peek mode, is under way.") \
	X(HANDSHAKING, "handshaking", s->cold->ulps.handshaking, "What was pushed shakes hands.") \
	X(QUEUED, "accept_first", s->cold->accept_first, "Connections wait to be accepted.") \
	X(UNACCEPTED, "listener", s->listener, "It waits to be accepted.") \
	X(INHERITED, "inherited", s->own.inherited != NOT_INHERITED, "Another process has it, or the proxy keeps it.") \
	X(MOVED, "moved", s->own.moved != NOT_MOVED, "It is being given up, for another process that has it.") \
	X(SHARED, "shared", s->own.shared, "It has a key with the proxy, by which other processes join it.") \
	X(OFFERED, "offered", s->own.offered, "NEWCONN is not answered yet: it may go back.")

enum socket_flag {
#define FLAG_NUMBER(bit, name, is, meaning) FLAG_##bit,
	SOCKET_FLAGS(FLAG_NUMBER)
#undef FLAG_NUMBER
		SOCKET_FLAG_COUNT,
};

/* A flag's mask. */
#define F(bit) (1u << FLAG_##bit)

/* Flags that are always allowed: requests and their replies cross all changes, and a socket may be closed, or
 * disconnected, in any state until CLOSED comes. shutdown() sets its bits even if it fails. */
#define ANY \
	(F(OPEN) | F(NAMED) | F(OPENING) | F(CLOSING) | F(CANCELLED) | F(DISCONNECTING) | F(CUT) | F(ABORT) | \
	 F(RECEIVE_ENDED) | F(SEND_ENDED) | F(BOUND) | F(RENEWED) | F(OUTBOX) | F(ASKED) | F(CALL))
/* There is, or was, a connection. */
#define CARRIED (F(DONE) | F(UNREAD) | F(INHERITED) | F(MOVED))
#define CARRIES (CARRIED | F(PENDING) | F(PUSHING) | F(HANDSHAKING))

static const struct xts_state_rule states[SOCKET_STATES] = {
	[SOCKET_UNCONNECTED] = { "unconnected",
				 "Neither connected nor listening, or it was a listener that ended with XTS in this "
				 "process; or another process's.",
				 .may = ANY | F(LOST) | F(AWAY) | F(MAKING) | F(DONE) | F(ERROR) | F(PUSHING) |
					F(QUEUED) | F(INHERITED) | F(MOVED) | F(SHARED) },
	[SOCKET_CONNECTING] = { "connecting", "CONNECT has been sent.", .may = ANY },
	[SOCKET_CONNECTED] = { "connected", "TCP is connected, and the program has not asked yet.", .may = ANY | CARRIES },
	[SOCKET_ESTABLISHED] = { "established", "Bytes go both ways.", .may = ANY | CARRIES | F(UNACCEPTED) | F(OFFERED) },
	[SOCKET_LISTENING] = { "listening", "It accepts connections.",
			       .may = ANY | F(AWAY) | F(MAKING) | F(ERROR) | F(PUSHING) | F(QUEUED) | F(INHERITED) |
				      F(SHARED) },
	[SOCKET_REFUSED] = { "refused", "Connecting has failed, or the connection, and the program has not asked yet.",
			     .may = ANY | CARRIED | F(LOST) | F(ERROR) | F(PUSHING) },
	[SOCKET_ENDED] = { "ended", "The connection has been reset, or is lost. What was received can be read.",
			   .may = ANY | CARRIED | F(LOST) | F(ERROR) | F(PUSHING) | F(UNACCEPTED) | F(OFFERED) },
	[SOCKET_DISCONNECTING] = { "disconnecting", "shutdown() after connecting has failed: no other connect().",
				   .may = ANY | CARRIED | F(LOST) | F(ERROR) },
	[SOCKET_DATAGRAM] = { "datagram", "A datagram socket, connected or not.",
			      .may = ANY | F(LOST) | F(AWAY) | F(MAKING) | F(ERROR) | F(UNREAD) | F(PENDING) |
				     F(INHERITED) | F(SHARED) },
	[SOCKET_FREE] = { "free", "The entry of the table waits for another socket.", .may = UINT32_MAX },
};

static const struct xts_state_flag flags[SOCKET_FLAG_COUNT] = {
#define FLAG_TEXT(bit, name, is, meaning) { name, meaning },
	SOCKET_FLAGS(FLAG_TEXT)
#undef FLAG_TEXT
};

static const struct xts_flag_rule rules[] = {
	{ FLAG_OPENING, .excludes = F(NAMED) },
	{ FLAG_DISCONNECTING, .needs = F(CLOSING) },
	{ FLAG_CANCELLED, .needs = F(CLOSING) | F(OPENING) },
	{ FLAG_UNACCEPTED, .excludes = F(OPEN) },
	{ FLAG_OFFERED, .excludes = F(OPEN) },
};

static const struct xts_state_change changes[] = {
	{ SOCKET_FREE, SOCKET_UNCONNECTED, "socket(), NEWCONN, or exec has brought it" },
	{ SOCKET_UNCONNECTED, SOCKET_DATAGRAM, "socket(), of type SOCK_DGRAM" },
	{ SOCKET_UNCONNECTED, SOCKET_CONNECTING, "connect()" },
	{ SOCKET_UNCONNECTED, SOCKET_ESTABLISHED, "NEWCONN, or it comes from another process" },
	{ SOCKET_UNCONNECTED, SOCKET_LISTENING, "listen(), or it comes from another process" },
	{ SOCKET_UNCONNECTED, SOCKET_CONNECTED, "it comes from another process" },
	{ SOCKET_UNCONNECTED, SOCKET_REFUSED, "it comes from another process" },
	{ SOCKET_UNCONNECTED, SOCKET_ENDED, "it comes from another process, and has ended" },
	{ SOCKET_UNCONNECTED, SOCKET_DISCONNECTING, "it comes from another process" },
	{ SOCKET_CONNECTING, SOCKET_CONNECTED, "CONNECT_ACK without an error" },
	{ SOCKET_CONNECTING, SOCKET_REFUSED, "CONNECT_ACK with an error, or its channel has died" },
	{ SOCKET_CONNECTING, SOCKET_UNCONNECTED, "shutdown(), or connect(AF_UNSPEC)" },
	{ SOCKET_CONNECTED, SOCKET_ESTABLISHED, "connect() has said so" },
	{ SOCKET_CONNECTED, SOCKET_REFUSED, "reset, or its channel has died" },
	{ SOCKET_CONNECTED, SOCKET_ENDED, "connect() has said so, and then it was reset" },
	{ SOCKET_CONNECTED, SOCKET_UNCONNECTED, "connect(AF_UNSPEC)" },
	{ SOCKET_ESTABLISHED, SOCKET_ENDED, "reset, or its channel has died" },
	{ SOCKET_ESTABLISHED, SOCKET_UNCONNECTED, "connect(AF_UNSPEC), or another process has it" },
	{ SOCKET_LISTENING, SOCKET_UNCONNECTED,
	  "shutdown(), connect(AF_UNSPEC), LISTEN has failed, or the process leaves XTS" },
	{ SOCKET_REFUSED, SOCKET_UNCONNECTED, "connect() has said why" },
	{ SOCKET_REFUSED, SOCKET_DISCONNECTING, "shutdown()" },
	{ SOCKET_ENDED, SOCKET_UNCONNECTED, "connect(AF_UNSPEC), or another process has it" },
	{ SOCKET_ENDED, SOCKET_ESTABLISHED, "a forked child has it, too, and is told of its end when it uses it" },
	{ SOCKET_DISCONNECTING, SOCKET_UNCONNECTED, "connect(AF_UNSPEC)" },
	{ SOCKET_DATAGRAM, SOCKET_FREE, "close(), and CLOSED has come" },
	{ SOCKET_UNCONNECTED, SOCKET_FREE, "close(), or another process has it" },
	{ SOCKET_CONNECTING, SOCKET_FREE, "close(), and CLOSED has come" },
	{ SOCKET_CONNECTED, SOCKET_FREE, "close(), and CLOSED has come" },
	{ SOCKET_ESTABLISHED, SOCKET_FREE, "close(), and CLOSED has come" },
	{ SOCKET_LISTENING, SOCKET_FREE, "close(), and CLOSED has come" },
	{ SOCKET_REFUSED, SOCKET_FREE, "close(), and CLOSED has come" },
	{ SOCKET_ENDED, SOCKET_FREE, "close(), and CLOSED has come" },
	{ SOCKET_DISCONNECTING, SOCKET_FREE, "close(), and CLOSED has come" },
};

const struct xts_state_table *xts_socket_states(void)
{
	static const struct xts_state_table table = {
		.what = "socket",
		.states = states,
		.flags = flags,
		.rules = rules,
		.changes = changes,
		.state_count = SOCKET_STATES,
		.flag_count = SOCKET_FLAG_COUNT,
		.rule_count = sizeof rules / sizeof *rules,
		.change_count = sizeof changes / sizeof *changes,
	};

	return &table;
}

#ifdef XTS_DEBUG

_Static_assert(SOCKET_STATES <= STATES_MAX && SOCKET_FLAG_COUNT <= 32, "struct xts_states_visited");

static struct xts_states_visited here, *visited = &here;
static uint8_t last_seen[SOCKETS_MAX]; /* SOCKET_FREE less the state, so that they begin as free */

#ifdef XTS_VISITED_STATES
__attribute__((constructor)) static void visited_open(void)
{
	visited = xts_states_visited_open(XTS_VISITED_STATES "-sockets", &here);
}
#endif

static enum socket_state state_of(const struct xts_sock *s)
{
	static const uint8_t legal[4][4] = {
		/* by state and phase; 0: this pair is not allowed */
		[TCP_STATE_CLOSE] = { SOCKET_UNCONNECTED + 1, SOCKET_REFUSED + 1, SOCKET_ENDED + 1,
				      SOCKET_DISCONNECTING + 1 },
		[TCP_STATE_SYN_SENT] = { [PHASE_CONNECTING] = SOCKET_CONNECTING + 1 },
		[TCP_STATE_ESTABLISHED] = { [PHASE_CONNECTING] = SOCKET_CONNECTED + 1,
					    [PHASE_CONNECTED] = SOCKET_ESTABLISHED + 1 },
		[TCP_STATE_LISTEN] = { [PHASE_UNCONNECTED] = SOCKET_LISTENING + 1 },
	};

	if (!s->in_use)
		return SOCKET_FREE;
	if (s->datagrams)
		return SOCKET_DATAGRAM;
	if (s->state > TCP_STATE_LISTEN || s->phase > PHASE_DISCONNECTING || !legal[s->state][s->phase]) {
		fprintf(stderr, "socket %08x: state %u and phase %u do not go together\n", s->id, s->state, s->phase);
		abort();
	}
	return (enum socket_state)(legal[s->state][s->phase] - 1);
}

static uint32_t flags_of(const struct xts_sock *s)
{
	uint32_t set = 0;

#define FLAG_BIT(bit, name, is, meaning) set |= (is) ? F(bit) : 0;
	SOCKET_FLAGS(FLAG_BIT)
#undef FLAG_BIT
	return set;
}

/* Its state has followed the one in which it was seen last: socket(), and what frees it, change more than state and
 * phase. */
static enum socket_state followed(const struct xts_sock *s)
{
	uint8_t *seen = &last_seen[SOCKET_INDEX(s->id)];
	enum socket_state state = state_of(s), before = SOCKET_FREE - *seen;

	xts_state_entered(xts_socket_states(), visited, s->id, before, state);
	*seen = (uint8_t)(SOCKET_FREE - state);
	return state;
}

void socket_enter(struct xts_sock *s, uint8_t state, uint8_t phase)
{
	s->state = state;
	s->phase = phase;
	(void)followed(s);
}

void socket_check(const struct xts_sock *s)
{
	xts_state_rests(xts_socket_states(), visited, s->id, followed(s), flags_of(s));
	owner_check(s);
}

void socket_check_held(const struct xts_sock *s)
{
	if (s->holders)
		return;
	fprintf(stderr, "socket %08x: a thread waits for it, and nobody holds it\n", s->id);
	abort();
}

void socket_check_none_held(void)
{
	if (!xts_inside.held)
		return;
	fprintf(stderr, "socket %08x: the thread's last call still holds it\n", xts_inside.held->id);
	abort();
}

#endif
