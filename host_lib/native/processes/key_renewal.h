/*
 * A key is good only for who has the socket now: key_renewal.c.
 *
 * A process that closes a socket may remember its key, or be taken over later by somebody who finds it in memory. So
 * whenever one of the processes that have a socket has left it, another one gives it a new key (the feature
 * RENEW_KEY). The new key goes where only the processes lead that still have it: the connection's entry in a relatives'
 * file (relatives.h), and the deed, if there is one (deed.h). A process looks there before it uses its key. Who leaves
 * leaves a note there, for the process that uses the connection: that one looks when it takes the connection, when it
 * is asked for it, and every 100 ms.
 *
 * Until then the old key is good. It opens nothing that a process holds, since its holder is asked first; but a
 * connection that no process holds at that moment may be taken.
 */
#ifndef XTS_KEY_RENEWAL_H
#define XTS_KEY_RENEWAL_H

#include <stdbool.h>
#include <stdint.h>

struct xts_sock;

/* Before s's key is used: takes over the one that is in force. */
void key_look_up(struct xts_sock *s);
/* It has a new key: tells the processes that have it, now and later. */
void key_tell(struct xts_sock *s);
/* In the process that uses it: a new key, if somebody has left who knows the present one. True: there is one, and SHARE
 * is about to leave. */
bool key_renew(struct xts_sock *s);
/* The socket is this process's alone, or is being forgotten: its key is not in memory any more. */
void key_wipe(struct xts_sock *s);

#endif
