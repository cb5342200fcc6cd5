/*
 * The states of a socket: which combinations of struct xts_sock's state and phase are legal, which flags each allows,
 * and which state may follow which.
 *
 * The table is in socket_states.c. Builds with XTS_DEBUG assert it when a state has changed (status_state()) and
 * whenever the table of sockets returns a socket (table_find()), since the socket has been at rest until then.
 * state_table.h says what else uses it.
 */
#ifndef XTS_SOCKET_STATES_H
#define XTS_SOCKET_STATES_H

struct xts_sock;

#ifdef XTS_DEBUG
void socket_check(const struct xts_sock *s);
#else
#define socket_check(s) ((void)(s))
#endif

#endif
