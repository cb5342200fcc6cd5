/* The state of HTTP2 as a record, for another process of the proxy; http2_state.h has the structs. */
#ifndef XTS_ULP_HTTP2_MOVE_H
#define XTS_ULP_HTTP2_MOVE_H

#include "http2_state.h"
#include "wire/record.h"

extern const struct xts_record http2_record;
/* Parts of it, which GRPC has, too. */
extern const struct xts_record http2_passing_record, http2_walk_record;

/* What bounds cannot say: 0 or -EBADMSG. */
int http2_passing_check(const void *made);

#endif
