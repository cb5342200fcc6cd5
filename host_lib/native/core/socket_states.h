/*
 * The states of a socket: which combinations of struct xts_sock's state and phase there are, which flags each allows,
 * and how one follows another.
 *
 * The table is in socket_states.c. Builds with XTS_DEBUG assert it where a state has changed (status_state()) and
 * wherever the table of sockets gives one out (table_find()): it has rested until then. state_table.h says what else
 * is made of it.
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
