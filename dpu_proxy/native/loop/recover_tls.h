/*
 * TLS connections of a process that has died (recover.c): the next one takes what was written down (ulp/tls/tls_kept.h)
 * out of the memory for keys that the dead one had, once, before it has workers, and then gives that memory up.
 */
#ifndef XTS_RECOVER_TLS_H
#define XTS_RECOVER_TLS_H

#include <stdbool.h>

#include "channel/ledger.h"
#include "connection/tcp_counts.h"
#include "connection/tcp_side.h"

struct worker_state;
struct xts_tenant;

/* Is it the socket that this line tells of? recover.c */
bool recover_is_socket_of(int fd, const struct ledger_line *line);

/* First. */
void recover_tls_begin(void);
/* Is this descriptor the one of that memory? Until it has been read. */
bool recover_tls_needs(int fd);
/* The counts of TCP become those of TLS; before that memory has been read, some. 0; -EBADMSG: nothing of this
 * connection was found. */
int recover_tls_count(int fd, const struct ledger_line *line, struct tcp_counts *counts);
/* Its protocol, which is then not there any more. 0 or -errno. */
int recover_tls_make(struct worker_state *w, struct xts_tenant *t, int fd, const struct ledger_line *line,
		     struct tcp_side *side);

#endif
