/*
 * Which programs have a copy of a connection that was passed over a Unix socket: passed_names.c.
 *
 * The programs that get such a connection are not relatives (relatives.h), so they have no file in common. Instead
 * there is a name of random bytes in the abstract name space of Unix sockets, with a few places. A process that has a
 * copy holds a socket that is bound to a place; so does a descriptor in transit. The kernel frees a place when its last
 * descriptor is closed, however that happens. A process finds out whether others have a copy by trying to bind the
 * other places.
 *
 * The places are few, so that this is quick, and the programs may be many. When no place is free, the sender passes its
 * own place, and the receiver keeps that descriptor: several processes then share a place, which becomes free when all
 * of them have left. A process whose place may be shared cannot tell the other holders from itself. So before it looks,
 * it moves to a free place. If no place is free, others have the connection, since a process holds only one place.
 *
 * All users of the network namespace can see the names and bind their places. All that they achieve is that the
 * connection is kept for longer: the right to use it is its key, which is in no name.
 */
#ifndef XTS_PASSED_NAMES_H
#define XTS_PASSED_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "processes/relatives.h"

struct xts_sock;

void passed_name_make(struct passed_name *name);
bool passed_name_is_taken(const struct passed_name *name); /* is any place taken? */

/* For a connection with an entry in the relatives' file. */
int passed_names_begin(struct xts_sock *s); /* it is about to be passed: 0 or -errno, -EUSERS: it has no place */
/* After passed_names_begin(): the descriptor to send, which the caller closes when it has been sent; or -errno. */
int passed_names_carrier(struct xts_sock *s);
/* In the receiver. False: no place is free, and the carrier holds none. */
bool passed_names_receive(struct xts_sock *s, int carrier);
void passed_names_join(struct xts_sock *s); /* this process has the connection too, if it was passed */
bool passed_names_others_have(struct xts_sock *s);
void passed_names_leave(struct xts_sock *s);
/* In the parent and in the child; the child takes a place of its own if it can. */
void passed_names_before_fork(struct xts_sock *s);
void passed_names_after_fork(struct xts_sock *s, bool has_it);
/* Over exec: the descriptor that the new program keeps (or, after a failed exec, does not keep); -1: none. */
int passed_names_keep(const struct xts_sock *s, bool keep);
void passed_names_adopt(struct xts_sock *s, int fd, uint8_t place);

#endif
