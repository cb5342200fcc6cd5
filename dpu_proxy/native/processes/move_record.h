/* What is before each record of a socket that goes to another process of the proxy (move.h). */
#ifndef XTS_MOVE_RECORD_H
#define XTS_MOVE_RECORD_H

#include <stdint.h>

#include "wire.h"

#define MOVE_HEAD_BYTES 16u

struct move_head {
	uint64_t key;
	uint32_t bytes; /* of the record */
	uint8_t state;  /* enum connection_state */
};

static inline void move_head_write(uint8_t *at, const struct move_head *h)
{
	xts_put64(at, h->key);
	xts_put32(at + 8, h->bytes);
	xts_put32(at + 12, h->state);
}

static inline void move_head_read(struct move_head *h, const uint8_t *at)
{
	uint32_t state = xts_get32(at + 12);

	h->key = xts_get64(at);
	h->bytes = xts_get32(at + 8);
	h->state = state > UINT8_MAX ? UINT8_MAX : (uint8_t)state;
}

#endif
