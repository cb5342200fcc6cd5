/* The state of MPA as a record, for another process of the proxy; mpa_state.h has the structs. */
#ifndef XTS_ULP_MPA_MOVE_H
#define XTS_ULP_MPA_MOVE_H

#include "mpa_state.h"
#include "wire/record.h"

extern const struct xts_record mpa_record;

/* What bounds cannot say: 0 or -EBADMSG. */
int mpa_check(const void *made);

#endif
