/* A connection's TCP side as a record (record.h): what its table (tcp_side_table.c) needs, and the table. */
#ifndef XTS_TCP_RECORD_H
#define XTS_TCP_RECORD_H

#include "connection/outgoing.h"
#include "wire/record.h"

extern const struct xts_record tcp_side_record;

extern const struct xts_record_stream spill_stream;
extern const struct xts_record_list runs_list, returned_list;

/* What bounds cannot say: 0 or -EBADMSG. */
int outgoing_check(const void *made);
int returned_part_check(const void *made);
int tcp_side_check(const void *made);

#endif
