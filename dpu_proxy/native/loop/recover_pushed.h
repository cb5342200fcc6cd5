/*
 * Pushed protocols of a process that has died, which it has written down (pushed/pushed_kept.h): found before this one
 * takes any lasting memory, and made again when a channel's turn has come. They may say anything: their record goes
 * through the decoder of those that come from another proxy.
 */
#ifndef XTS_RECOVER_PUSHED_H
#define XTS_RECOVER_PUSHED_H

#include "channel/ledger.h"
#include "connection/tcp_counts.h"
#include "connection/tcp_side.h"
#include "loop/worker_inside.h"

/* Copies what is there. */
void recover_pushed_begin(void);

/* What the host has been sent, and has sent, of one whose protocols are whole, and have read and written what the
 * kernel counts. 0 or -EBADMSG. */
int recover_pushed_count(int fd, const struct ledger_line *line, const struct tcp_counts *now, struct tcp_side *said);

/* Makes side->pushed. *taken: in place of the line's. 0 or -errno. */
int recover_pushed_make(struct worker_state *w, struct xts_tenant *t, int fd, struct tcp_side *side, uint64_t *taken);

#endif
