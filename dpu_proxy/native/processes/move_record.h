/* What is before each record of a socket that goes to another process of the proxy (move.h), and the notes behind the
 * last one of a piece: which of them are shared listeners, under which keys (share_arrived.c). To a proxy that does not
 * know notes, one is the head of a record that is not all there, with which a piece ends. */
#ifndef XTS_MOVE_RECORD_H
#define XTS_MOVE_RECORD_H

#include <stdint.h>

#include "wire/wire.h"

#define MOVE_HEAD_BYTES 20u

struct move_head {
	uint64_t key;
	uint32_t bytes; /* of the record */
	uint8_t state;  /* enum connection_state */
	/* of what only workers may see, behind that of the records before (private_bytes.h); 0: it has nothing of that */
	uint32_t private_bytes;
};

static inline void move_head_write(uint8_t *at, const struct move_head *h)
{
	xts_put64(at, h->key);
	xts_put32(at + 8, h->bytes);
	xts_put32(at + 12, h->state);
	xts_put32(at + 16, h->private_bytes);
}

static inline void move_head_read(struct move_head *h, const uint8_t *at)
{
	uint32_t state = xts_get32(at + 12);

	h->key = xts_get64(at);
	h->bytes = xts_get32(at + 8);
	h->private_bytes = xts_get32(at + 16);
	h->state = state > UINT8_MAX ? UINT8_MAX : (uint8_t)state;
}

#define MOVE_IS_NOTE UINT32_MAX /* in place of a record's length */

struct move_note {
	uint64_t key; /* of the record */
	uint64_t shared_key;
};

static inline bool move_is_note(const struct move_head *h)
{
	return h->bytes == MOVE_IS_NOTE;
}

static inline void move_note_write(uint8_t *at, const struct move_note *n)
{
	xts_put64(at, n->key);
	xts_put32(at + 8, MOVE_IS_NOTE);
	xts_put64(at + 12, n->shared_key);
}

static inline void move_note_read(struct move_note *n, const uint8_t *at)
{
	n->key = xts_get64(at);
	n->shared_key = xts_get64(at + 12);
}

#endif
