/* Channels of the process that has died: recover_channels.c. */
#ifndef XTS_WORKER_RECOVER_CHANNELS_H
#define XTS_WORKER_RECOVER_CHANNELS_H

#include <stdbool.h>

struct ledger_line;

/* Is it parked, and this tenant's? */
bool recover_is_parked_by(const struct ledger_line *line, const char *tenant);
/* Is there a channel with which it goes? */
bool recover_has_channel(const struct ledger_line *line);
/* Forgets channels behind relays that do not go on. */
void recover_sweep_relayed(void);

#endif
