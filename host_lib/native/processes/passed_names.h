/*
 * Which programs have a copy of a connection that was passed over a Unix socket: passed_names.c.
 *
 * Those that get it are no relatives (relatives.h), so there is no file that all have. In its place is a name, of
 * random bytes, in the abstract name space of Unix sockets, with a few places in it. A process that has a copy holds a
 * socket that is bound to a place, and so does a descriptor that is on its way. The kernel frees a place when its last
 * descriptor is closed, however that happens. Whether others have a copy shows by trying to bind the other places.
 *
 * The places are few, so that this is quick, and the programs may be many. When no place is free, the sender's own
 * place is sent, and the receiver keeps that descriptor: several processes then share a place, and it is free when all
 * of them have left. A process whose place may be shared cannot tell the others from itself. Before it looks, it moves
 * to a free place. If there is none, others have the connection, since fewer than all places are its own.
 *
 * All users of the network namespace can see the names and bind their places. What one can do so is to have the
 * connection kept for longer: the right to use it is its key, which is in no name.
 */
#ifndef XTS_PASSED_NAMES_H
#define XTS_PASSED_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "processes/relatives.h"

struct xts_sock;

void passed_name_make(struct passed_name *name);
bool passed_name_is_taken(const struct passed_name *name); /* any place */

/* Of a connection with an entry in the relatives' file. */
int passed_names_begin(struct xts_sock *s); /* it is about to be passed: 0 or -errno, -EUSERS: it has no place */
/* After that: the descriptor to send, to be closed when it is on its way; or -errno. */
int passed_names_carrier(struct xts_sock *s);
/* In the receiver. False: there is no place for it, and the carrier is of none. */
bool passed_names_receive(struct xts_sock *s, int carrier);
void passed_names_join(struct xts_sock *s); /* this process has it too, if it was passed */
bool passed_names_others_have(struct xts_sock *s);
void passed_names_leave(struct xts_sock *s);
/* In the parent, and in the child, which takes a place of its own if it can. */
void passed_names_before_fork(struct xts_sock *s);
void passed_names_after_fork(struct xts_sock *s, bool has_it);
/* Over exec: the descriptor that the new program keeps (or not after all); -1: none */
int passed_names_keep(const struct xts_sock *s, bool keep);
void passed_names_adopt(struct xts_sock *s, int fd, uint8_t place);

#endif
