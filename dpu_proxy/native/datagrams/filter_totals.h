/*
 * Totals of the operator's filters, by name: how many sockets have the filter now, and how many datagrams the device's
 * kernel has dropped at such sockets. The names are from the configuration, so there are few; totals stay for the life
 * of the process, also across reloads. Thread-safe.
 */
#ifndef XTS_FILTER_TOTALS_H
#define XTS_FILTER_TOTALS_H

#include <stdint.h>

#include "worker/worker.h"

struct filter_totals;

/* One more socket has the filter of this name. NULL: no memory. */
struct filter_totals *filter_totals_join(const char *name);
/* One socket less has it. */
void filter_totals_leave(struct filter_totals *t);
/* The operator's name of the filter; empty for NULL. */
const char *filter_totals_name(const struct filter_totals *t);
void filter_totals_dropped(struct filter_totals *t, uint32_t datagrams);

#endif
