/* A datagram socket as a record (record.h): what its table (datagram_side_table.c) needs, and the table. */
#ifndef XTS_DATAGRAM_RECORD_H
#define XTS_DATAGRAM_RECORD_H

#include "datagrams/datagram_side.h"
#include "wire/datagram.h"
#include "wire/record.h"

extern const struct xts_record datagram_side_record;
extern const struct xts_record_list datagram_groups_list;

/* What bounds cannot say: 0 or -EBADMSG. */
int datagram_side_check(const void *made);

/* Reads the header of the datagram at *at, and goes behind its data. *missing: what of that is not there. False: there
 * is no header. */
bool datagram_record_next(const struct xts_record_bytes *all, uint32_t *at, struct xts_datagram *d, uint32_t *missing);
/* The same for those that wait, which have an errno in front. */
bool datagram_record_next_waiting(const struct xts_record_bytes *all, uint32_t *at, uint32_t *refused,
				  struct xts_datagram *d, uint32_t *missing);
/* The credits that the host has paid for those that wait. */
uint64_t datagram_record_credits(const struct datagram_side *s);

#endif
