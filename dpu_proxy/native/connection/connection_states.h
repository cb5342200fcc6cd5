/*
 * The states of a connection: the flags that each state allows, and the transitions between states.
 *
 * The table is in connection_states.c. Builds with XTS_DEBUG assert it whenever work on a connection is done for the
 * moment (connection_check()), and at each change of state (connection_enter()). They also record the states and
 * transitions that they have seen, so that the tests can list the legal ones that they never visit. The documentation's
 * page about states is made from the same table (deploy/xts_docs/states.py).
 */
#ifndef XTS_CONNECTION_STATES_H
#define XTS_CONNECTION_STATES_H

#include <stdbool.h>
#include <stdint.h>

#include "channel/ledger.h"

#include "common/state_table.h"

struct channel;
struct connection;

enum connection_state { /* values as in struct xts_connection_stats */
			CONNECTION_IDLE,
			CONNECTION_CONNECTING,
			CONNECTION_ESTABLISHED,
			CONNECTION_LISTENER,
			CONNECTION_CLOSING,
			CONNECTION_FAILED,
			CONNECTION_DATAGRAM,
			CONNECTION_FREED,
			CONNECTION_STATES,
};

/* The flags of a connection: X(name, constant, meaning). They are bits of struct connection, in this order. */
#define CONNECTION_FLAGS(X) \
	X(in_epoll, IN_EPOLL, "The worker's epoll watches its TCP socket.") \
	X(connect_reply, CONNECT_REPLY, "CONNECT_ACK is to be sent.") \
	X(readable, READABLE, "TCP, or a protocol, may have bytes; a listener, connections. A short read clears it.") \
	X(read_to_end, READ_TO_END, \
	  "epoll has seen FIN, an error or urgent data: a short read does not mean that nothing more is there.") \
	X(urgent, URGENT, \
	  "The peer has sent urgent data, which reading skips: the kernel counts more than the host gets.") \
	X(writable, WRITABLE, "TCP took all it was offered last.") \
	X(eos_sent, EOS_SENT, "The host has been sent EOS.") \
	X(reset_sent, RESET_SENT, "The host has been sent RESET, or a CONNECT_ACK that says as much.") \
	X(lingering, LINGERING, "Closed with LINGER: CLOSED waits for the peer's acknowledgement.") \
	X(close_reply, CLOSE_REPLY, "CLOSED is to be sent.") \
	X(unwaited, UNWAITED, "Nobody waits for CLOSED: it need not wake the host.") \
	X(spent, SPENT, "A CONNECT through protocols has failed: only CLOSE is possible.") \
	X(announced, ANNOUNCED, "Accepted; NEWCONN has been sent and is not answered yet.") \
	X(orphan, ORPHAN, "The host has no part in it any more; bytes are still to be delivered.") \
	X(spilled, SPILLED, "TCP has refused bytes since the window was last used up.") \
	X(look_due, LOOK_DUE, "The timer has expired.") \
	X(send_buffer_set, SEND_BUFFER_SET, "The program has set SO_SNDBUF.") \
	X(receive_tuned, RECEIVE_TUNED, "The size of TCP's receive buffer is the kernel's or the program's business.")

enum connection_flag {
#define FLAG_NUMBER(name, bit, meaning) FLAG_##bit##_NUMBER,
	CONNECTION_FLAGS(FLAG_NUMBER)
#undef FLAG_NUMBER
	/* Flags made from other fields: those of struct tcp_side, fd < 0, pushed != NULL. */
	FLAG_ACCEPTED_NUMBER,
	FLAG_FIN_WANTED_NUMBER,
	FLAG_FIN_DONE_NUMBER,
	FLAG_MORE_NUMBER,
	FLAG_NO_SOCKET_NUMBER,
	FLAG_PUSHED_NUMBER,
	CONNECTION_FLAG_COUNT,
};

extern const struct xts_state_table xts_connection_states;

#ifdef XTS_DEBUG
void connection_enter(struct connection *c, enum connection_state state);
void connection_check(const struct connection *c);
/* Checks the connection that a message was about, if it has an identifier. */
void channel_check(struct channel *ch, uint32_t proxy_id);
#else
#define connection_enter(c, to) ((void)((c)->state = (to)), ledger_entered(c))
#define connection_check(c) ((void)(c))
#define channel_check(ch, proxy_id) ((void)(ch), (void)(proxy_id))
#endif

#endif
