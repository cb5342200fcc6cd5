/*
 * Durations, counted in fixed buckets: struct xts_histogram of worker.h. Counting takes no allocation and no system
 * call, and each histogram has one writer: the thread of its worker.
 */
#ifndef XTS_HISTOGRAM_H
#define XTS_HISTOGRAM_H

#include "worker/worker.h"

void histogram_add(struct xts_histogram *h, uint64_t ns);

#endif
