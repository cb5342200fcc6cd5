/*
 * A key is good only for who has the socket now: key_renewal.c.
 *
 * A process that closes a socket may remember its key, or be taken over later by somebody who finds it in memory. So
 * whenever one of the processes that have a socket has left it, another one gives it a new key (the feature
 * RENEW_KEY). The new key goes where only the processes lead that still have it: the connection's entry in a relatives'
 * file (relatives.h), the deed, if there is one (deed.h), the kernel's half of a listener (listener_key.h) or its
 * mirror (given.h). A process looks there before it uses its key. Who leaves leaves a note there. The process that uses
 * a connection looks for it when it takes the connection, when it is asked for it, and every 100 ms; the members of a
 * listener look every 100 ms. A member has no use for the key any more, and does not name an old one (key_to_say()).
 *
 * Two members may see one note and both renew, their messages come in any order, and one that renews may be killed
 * before its message leaves, or leave itself. The proxy would then have another key than the deed, for good, and no
 * child could join. So the deed decides. A member that finds another key there than it knows says this one to the
 * proxy, too; who has said one looks 100 ms later, and says once more what is there then; who leaves says none.
 *
 * So a child may find a key of which the proxy has not heard yet. If it took that for the end of the socket, and made
 * it again, there would be two where an address may be bound twice (SO_REUSEADDR of UDP, SO_REUSEPORT). As long as
 * another process has the socket, the child asks again instead, with what the deed says then (key_may_be_heard()).
 *
 * Until then the old key is good. It opens no connection that a process holds, since its holder is asked first.
 */
#ifndef XTS_KEY_RENEWAL_H
#define XTS_KEY_RENEWAL_H

#include <stdbool.h>
#include <stdint.h>

struct stack;
struct xts_sock;

/* Before s's key is used: takes over the one that is in force. */
void key_look_up(struct xts_sock *s);
/* It has a new key: tells the processes that have it, now and later. */
void key_tell(struct xts_sock *s);
/* In the process that uses it: a new key, if somebody has left who knows the present one. True: there is one, and SHARE
 * is about to leave. */
bool key_renew(struct xts_sock *s);
/* Joining. The proxy does not know the key: may it hear of it, or the process find another one, before the next of
 * these attempts? Else the socket has to be made again. */
#define JOIN_ATTEMPTS 100
#define JOIN_PAUSE_NS (5 * NS_PER_MS)
bool key_may_be_heard(struct xts_sock *s, int attempt);
/* What SHARE says of a socket that the proxy knows: 0, if another process may have renewed the key since. */
uint64_t key_to_say(const struct xts_sock *s);
/* Renews keys of sockets that members share. *deadline_ns: when to look again. */
void key_tick(struct stack *st, uint64_t now, uint64_t *deadline_ns);
/* The socket is this process's alone, or is being forgotten: its key is not in memory any more. */
void key_wipe(struct xts_sock *s);

#endif
