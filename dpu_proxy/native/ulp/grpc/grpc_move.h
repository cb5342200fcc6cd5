/* The state of GRPC as a record, for another process of the proxy; grpc_state.h has the structs. */
#ifndef XTS_ULP_GRPC_MOVE_H
#define XTS_ULP_GRPC_MOVE_H

#include "grpc_state.h"
#include "ulp/http2/http2_move.h"

extern const struct xts_record grpc_record;
extern const struct xts_record_list grpc_streams_list;
extern const struct xts_record_stream grpc_buffer_stream;

/* What bounds cannot say: 0 or -EBADMSG. */
int grpc_check(const void *made);
int grpc_receive_check(const void *made);
int grpc_send_check(const void *made);

#endif
