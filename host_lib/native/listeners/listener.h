/* Listeners, and sockets that are bound and may listen. processes/inherit.h has the theory of operation of shared ones. */
#ifndef XTS_LISTENER_H
#define XTS_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

struct xts_sock;

/* --- listen_accept.c ---------------------------------------------------------------------------------------------- */

int listener_listen(struct xts_sock *s, int backlog);
int listener_accept(struct xts_sock *s, struct sockaddr *address, socklen_t *length, int flags);
int listener_listen_again(struct xts_sock *s);
int listener_ask_first(struct xts_sock *s);

/* --- listener_shut.c ---------------------------------------------------------------------------------------------- */

int listener_shutdown(struct xts_sock *s, int how); /* waits */
/* Before this process makes or joins it: another one may have shut it down. */
void listener_look_whether_shut(struct xts_sock *s);
/* The program has it listen (again): who joins it may, too. */
void listener_not_shut(const struct xts_sock *s);
/* It has joined a socket that was there: waits until the proxy has said whether it listens; 0 or -errno. */
int listener_wait_until_told(struct xts_sock *s);

/* --- shared_listener.c -------------------------------------------------------------------------------------------- */

int share_name(struct xts_sock *s); /* registers its key at the proxy; waits; 0 or -errno */
/* joins another process's listener, or bound socket, by its key; waits; 0 or -errno */
int share_join(struct xts_sock *s);
/* A thread waits for a connection of this listener, or accepts: if it is shared, the proxy may offer connections
 * now. */
void listener_interest(struct xts_sock *s, bool accepts);
/* After a fork: the proxy shall offer nothing to this process for what it promised when it had the listener alone. */
void listener_withdraw(struct xts_sock *s);
uint32_t listener_promised(const struct xts_sock *s); /* credits that the proxy has, or is about to get */
/* Credits were posted for a call that does not wait: makes sure that the proxy has them. Waits; 0 or -EBADF. */
int share_ask(struct xts_sock *s);

/* --- listener_offers.c -------------------------------------------------------------------------------------------- */

void listener_drop_offers(struct xts_sock *s);              /* they go back with the listener or the channel */
void listener_refuse_offers(struct xts_sock *s);            /* they go back at once */
void listener_give_back_offers(struct xts_sock *s);         /* at once, if this process has waited and never accepted */
void listener_share_tick(struct xts_sock *s, uint64_t now); /* gives back what nobody accepts */
/* Does this process neither wait nor accept, so that its offers have to go elsewhere? */
bool listener_is_away(const struct xts_sock *s, uint64_t now, uint64_t *deadline_ns);

#endif
