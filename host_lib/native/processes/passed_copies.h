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
 * (a relative of it has passed the connection after the fork between them). It assumes that others have the connection,
 * and so never ends it too early. The deed says that there may be processes without one, and who has received the
 * connection from another program assumes the same. The last process with the deed says in the relatives' file that no
 * other program has it.
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
/* Do some of those that have it have no deed of it? They do not learn of a new key. */
bool passed_some_have_no_deed(struct xts_sock *s);
/*
 * Leaves it: passed_leaves(), then this process leaves the relatives' entry, then the result. Each gives up first and
 * looks then: if several processes leave at once, the last of them sees that it is the last. If no other program has it
 * any more, the entry says so to relatives that have no deed.
 */
struct passed_leaving {
	bool passed, received; /* of the entry, which may become another connection's */
};
struct passed_leaving passed_leaves(struct xts_sock *s);
bool passed_is_left_to_others(struct xts_sock *s, struct passed_leaving l, bool relatives_have);
/* Before a fork; then in the parent, and in the child, which may not have it. */
void passed_before_fork(struct xts_sock *s);
void passed_after_fork_parent(struct xts_sock *s);
void passed_after_fork(struct xts_sock *s, bool has_it);
/* Over exec: the descriptor that the new program keeps (or, after a failed exec, does not keep); -1: none. */
int passed_keep(const struct xts_sock *s, bool keep);
void passed_adopt(struct xts_sock *s, const struct socket_record *b);

#endif
