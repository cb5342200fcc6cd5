/*
 * Totals of the operator's filters, by their names: how many sockets have one now, and what the device's kernel has
 * dropped of what came for them meanwhile. Names are those of the configuration, so they are few; they stay for the
 * life of the process, reloads included. Thread-safe.
 */
#ifndef XTS_FILTER_TOTALS_H
#define XTS_FILTER_TOTALS_H

#include <stdint.h>

#include "worker.h"

struct filter_totals;

/* One more socket has the filter of this name. NULL: no memory. */
struct filter_totals *filter_totals_join(const char *name);
/* It has it no more. */
void filter_totals_leave(struct filter_totals *t);
/* The operator's name of it. Empty for NULL. */
const char *filter_totals_name(const struct filter_totals *t);
void filter_totals_dropped(struct filter_totals *t, uint32_t datagrams);

#endif
