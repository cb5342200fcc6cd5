/* Options of core/option_table.h: accepted without effect, or answered by this host's kernel. */
#ifndef XTS_HINT_H
#define XTS_HINT_H

#include <stdbool.h>
#include <sys/socket.h>

struct xts_sock;

/* setsockopt(2): 0 or -errno; or 1: the option is not settled here, and *option is the one to set. */
int hint_set(struct xts_sock *s, int level, int *option, const void *value, socklen_t length);
/* getsockopt(2): 0 or -errno; or 1: it is not one of the table. */
int hint_get(struct xts_sock *s, int level, int option, void *value, socklen_t *length);

/* An accepted socket has what was set on its listener. */
void hints_inherit(struct xts_sock *s, const struct xts_sock *listener);
void hints_forget(struct xts_sock *s); /* frees them */

#endif
