/* The state of NVME_TCP as a record, for another process of the proxy; nvme_tcp_state.h has the structs. */
#ifndef XTS_ULP_NVME_TCP_MOVE_H
#define XTS_ULP_NVME_TCP_MOVE_H

#include "nvme_tcp_state.h"
#include "wire/record.h"

extern const struct xts_record nvme_tcp_record;

/* What bounds cannot say: 0 or -EBADMSG. */
int nvme_tcp_check(const void *made);

#endif
