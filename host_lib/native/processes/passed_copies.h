/*
 * Which programs have a copy of a connection that was passed over a Unix socket: passed_copies.c.
 *
 * The programs that get such a connection are not relatives (relatives.h), so they have no file in common. It gets a
 * deed (deed.h) when it is first passed, which goes with each carrier. A process that has a copy has an open file of
 * the deed, and so has a carrier that nobody has received. So the right to a connection is a descriptor, which is
 * inherited, passed and closed as the kernel's own, and there is no name that others could see.
 *
 * Listeners, bound sockets and datagram sockets have a deed from the first fork on, in the same way
 * (sharing_processes.c).
 *
 * A process that cannot have an open file of its own shares one with another process (there is no /proc), or has none
 * (it was forked before its parent passed the connection). It assumes that others have the connection, and so never
 * ends it too early.
 */
#ifndef XTS_PASSED_COPIES_H
#define XTS_PASSED_COPIES_H

#include <stdbool.h>

struct deed_id;
struct socket_record;
struct xts_sock;

/* For a socket that processes have by its key (sharing_processes.c): it has a deed from now on. 0 or -errno. */
int passed_make(struct xts_sock *s);
/* For a connection with an entry in the relatives' file. */
int passed_begin(struct xts_sock *s); /* it is about to be passed: 0 or -errno */
/* The socket has a deed: the descriptor to send, which the caller closes when it has been sent; or -errno. */
int passed_carrier(struct xts_sock *s);
bool passed_is(const struct xts_sock *s, const struct deed_id *id);                  /* is it the one with that deed? */
void passed_receive(struct xts_sock *s, int carrier, const struct socket_record *b); /* in the receiver */
bool passed_others_have(struct xts_sock *s);
void passed_leave(struct xts_sock *s);
/* Leaves it. For one that was passed, whatever the entry has become meanwhile. */
bool passed_is_left_to_others(struct xts_sock *s);
/* Before a fork; then in the parent, and in the child, which may not have it. */
void passed_before_fork(struct xts_sock *s);
void passed_after_fork_parent(struct xts_sock *s);
void passed_after_fork(struct xts_sock *s, bool has_it);
/* Over exec: the descriptor that the new program keeps (or, after a failed exec, does not keep); -1: none. */
int passed_keep(const struct xts_sock *s, bool keep);
void passed_adopt(struct xts_sock *s, const struct socket_record *b);

#endif
