/*
 * A listener for programs that are started with its mirror: given.c.
 *
 * Under the Python package's install() a socket's descriptor is a mirror, a Unix socket that shows its readiness.
 * Programs inherit it when it is made inheritable, and then find the listener by the mirror's label, which has the
 * listener's record and its key. No connection is accepted from a mirror, so nothing inherits that label (compare
 * listener_key.h). A mirror has no room for a deed (deed.h). So each process that can renew the key keeps a descriptor
 * of the mirror, and writes the label again.
 */
#ifndef XTS_GIVEN_H
#define XTS_GIVEN_H

struct xts_sock;

int given_begin(struct xts_sock *s, int mirror); /* 0 or -errno */
void given_tell(struct xts_sock *s);             /* it has a new key */
void given_end(struct xts_sock *s);              /* this process does not have the listener any more */

#endif
