/*
 * The states of a socket: which combinations of struct xts_sock's state and phase are legal, which flags each allows,
 * and which state may follow which.
 *
 * Who has a socket, of the processes that may, is a second state, with a table of its own: owner_states.c.
 *
 * The table is in socket_states.c. Builds with XTS_DEBUG assert it at each change (socket_enter()), and whenever the
 * table of sockets returns a socket (table_find()) or its state is shown (status_state()), since it is at rest then.
 * state_table.h says what else uses it.
 */
#ifndef XTS_SOCKET_STATES_H
#define XTS_SOCKET_STATES_H

struct xts_sock;

#ifdef XTS_DEBUG
#include <stdint.h>

void socket_enter(struct xts_sock *s, uint8_t state, uint8_t phase);
void socket_check(const struct xts_sock *s);
void owner_check(const struct xts_sock *s);       /* a part of it */
void socket_check_held(const struct xts_sock *s); /* what waits for it needs that: socket.h */
void socket_check_none_held(void);                /* by a call of this thread */
#else
#define socket_enter(s, to, in) ((void)((s)->state = (to), (s)->phase = (in)))
#define socket_check(s) ((void)(s))
#define socket_check_held(s) ((void)(s))
#define socket_check_none_held() ((void)0)
#endif

#endif
