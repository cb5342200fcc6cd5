/*
 * What a process has to know about a socket that comes from another process: socket_record.c. RECORDS.md has the
 * fields. In a file for exec: record_file.h. In the label of a descriptor: record_label.h.
 */
#ifndef XTS_SOCKET_RECORD_H
#define XTS_SOCKET_RECORD_H

#include "core/asked.h"
#include "processes/socket_record_struct.h"
#include "ulps/pdu.h"

enum { KEY_IS_HERE, KEY_IN_LISTENER, KEY_IN_DEED }; /* only a descriptor leads to the last two */

extern const struct xts_record socket_record_record;

struct socket_kind;
struct xts_sock;

void record_fill(struct socket_record *b, const struct xts_sock *s); /* leaves out what is unread, and was asked */
/* The same, for a label: names the endpoint, since the other program's default endpoint may differ. */
void record_for_label(struct socket_record *b, const struct xts_sock *s);
/* What kind of socket it is about. */
const struct socket_kind *record_kind(const struct socket_record *b);
/* Is what it says possible, beyond the bounds of each field? 0 or -EBADMSG. */
int socket_record_check(const void *made);
/* Is there a key, here or elsewhere? */
static inline bool record_has_key(const struct socket_record *b)
{
	return b->key || b->key_is_apart;
}
/* Gives s, a new socket, the state of the record; does not look at which other processes have it. */
void record_apply(const struct socket_record *b, struct xts_sock *s);

#endif
