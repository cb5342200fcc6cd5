/* Generated from messages/xts_messages/wire/host_record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_ASKED_PART_H
#define XTS_ASKED_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/record.h"
#include "wire/wire.h"

/* A request that the proxy has carried out, and that is made again of the next one: asked.c. */
struct asked_part {
	/* XTS_CMD_SETSOCKOPT, IOCTL, BIND or CONNECT_DATAGRAM */
	uint8_t type;
	/* of an option */
	uint32_t level;
	/* its number, or the request of an ioctl */
	uint32_t option;
	/* BIND: as it was answered; CONNECT_DATAGRAM: the peer */
	struct xts_endpoint address;
	/* what was set; of a push it may contain keys */
	struct xts_record_bytes value;
};

#endif
