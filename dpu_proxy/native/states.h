/*
 * The states of a connection: which there are, which flags each allows, and how one follows another.
 *
 * The table is in states.c. Builds with XTS_DEBUG assert it wherever a connection has been worked on and rests
 * (connection_check()), and at each change of state (connection_enter()). They also note what they have seen, so that
 * the tests can say which legal states they never visit. The documentation's page about states is made from the same
 * table (deploy/xts_docs/states.py).
 */
#ifndef XTS_STATES_H
#define XTS_STATES_H

#include <stdbool.h>
#include <stdint.h>

struct channel;
struct connection;

enum connection_state { /* values as in struct xts_connection_stats */
	CONNECTION_IDLE,
	CONNECTION_CONNECTING,
	CONNECTION_ESTABLISHED,
	CONNECTION_LISTENER,
	CONNECTION_CLOSING,
	CONNECTION_FAILED,
	CONNECTION_FREED,
	CONNECTION_STATES,
};

/* The flags of a connection: X(name, constant, meaning). They are bits of struct connection, in this order. */
#define CONNECTION_FLAGS(X) \
	X(in_epoll, IN_EPOLL, "The worker's epoll watches its TCP socket.") \
	X(connect_reply, CONNECT_REPLY, "CONNECT_ACK is to be sent.") \
	X(readable, READABLE, "TCP, or a protocol, may have bytes; a listener, connections. A short read clears it.") \
	X(read_to_end, READ_TO_END, "epoll has seen FIN, an error or urgent data: a short read does not mean that nothing more is there.") \
	X(writable, WRITABLE, "TCP took all it was offered last.") \
	X(eos_sent, EOS_SENT, "The host has been sent EOS.") \
	X(reset_sent, RESET_SENT, "The host has been sent RESET, or a CONNECT_ACK that says as much.") \
	X(lingering, LINGERING, "Closed with LINGER: CLOSED waits for the peer's acknowledgement.") \
	X(close_reply, CLOSE_REPLY, "CLOSED is to be sent.") \
	X(unwaited, UNWAITED, "Nobody waits for CLOSED: it need not wake the host.") \
	X(spent, SPENT, "A CONNECT through protocols has failed: only CLOSE is possible.") \
	X(announced, ANNOUNCED, "Accepted; NEWCONN has been sent and is not answered yet.") \
	X(orphan, ORPHAN, "The host has no part in it any more; bytes are still to be delivered.") \
	X(accepted, ACCEPTED, "The peer has connected to us.") \
	X(spilled, SPILLED, "TCP has refused bytes since the window was last used up.") \
	X(look_due, LOOK_DUE, "The timer has expired.") \
	X(send_buffer_set, SEND_BUFFER_SET, "The program has set SO_SNDBUF.") \
	X(receive_tuned, RECEIVE_TUNED, "The size of TCP's receive buffer is the kernel's or the program's business.")

enum connection_flag {
#define FLAG_NUMBER(name, bit, meaning) FLAG_##bit##_NUMBER,
	CONNECTION_FLAGS(FLAG_NUMBER)
#undef FLAG_NUMBER
	/* And what other fields say: of struct outgoing, fd < 0, pushed != NULL. */
	FLAG_FIN_WANTED_NUMBER,
	FLAG_FIN_DONE_NUMBER,
	FLAG_MORE_NUMBER,
	FLAG_NO_SOCKET_NUMBER,
	FLAG_PUSHED_NUMBER,
	CONNECTION_FLAG_COUNT,
};

/* What a state allows. Sets of flags are masks of 1 << enum connection_flag. */
struct xts_state_rule {
	const char *name, *meaning;
	uint32_t may;   /* flags that it may have */
	uint32_t must;  /* flags that it always has */
	uint32_t one;   /* exactly one of these; 0: no such rule */
};

struct xts_state_flag {
	const char *name, *meaning;
};

/* A flag that is only possible with others, or without others. */
struct xts_flag_rule {
	uint32_t flag;     /* enum connection_flag */
	uint32_t needs;    /* it has all of these */
	uint32_t excludes; /* and none of these */
};

struct xts_state_change {
	uint32_t before, after; /* enum connection_state */
	const char *when;
};

/* The table; each returns how many there are. */
uint32_t xts_states(const struct xts_state_rule **out);
uint32_t xts_state_flags(const struct xts_state_flag **out);
uint32_t xts_flag_rules(const struct xts_flag_rule **out);
uint32_t xts_state_changes(const struct xts_state_change **out);

/* What a build with XTS_DEBUG has seen. Where XTS_VISITED_STATES was defined for the build, this is the content of the
 * file of that name, which all processes of such builds share. */
struct xts_states_visited {
	uint32_t flags[8];   /* by state: all flags it has had */
	uint32_t changes[8]; /* by state: the states that have followed */
	uint32_t states;     /* those a connection has rested in */
};

#ifdef XTS_DEBUG
void connection_enter(struct connection *c, enum connection_state state);
void connection_check(const struct connection *c);
/* The connection that a message was about, if it has an identifier. */
void channel_check(struct channel *ch, uint32_t proxy_id);
#else
#define connection_enter(c, to) ((void)((c)->state = (to)))
#define connection_check(c) ((void)(c))
#define channel_check(ch, proxy_id) ((void)(ch), (void)(proxy_id))
#endif

#endif
