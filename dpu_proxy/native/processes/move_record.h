/* What is before each record of a socket that goes to another process of the proxy (move.h), and the notes behind the
 * last one of a piece: by which keys other processes know them (share_arrived.c, held_arrived.c). To a proxy that does
 * not know notes, one is the head of a record that is not all there, with which a piece ends. */
#ifndef XTS_MOVE_RECORD_H
#define XTS_MOVE_RECORD_H

#include <stdbool.h>
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

/* In place of a record's length. A proxy that knows only the first kind does not look behind the last one of it. */
#define MOVE_IS_NOTE UINT32_MAX
#define MOVE_IS_NAME (UINT32_MAX - 1)
#define MOVE_NAME_BYTES 28u

enum move_note_kind {
	NOTE_SHARED,      /* a member of a shared socket, which has this name */
	NOTE_HELD,        /* its host holds it, and other processes may ask for it by this name (held_arrived.c) */
	NOTE_PARKED,      /* no host has it, and one may take it, or claim it, by this name */
	NOTE_PARKED_DIED, /* the same; its last host has died */
	NOTE_KINDS
};

struct move_note {
	uint64_t key;     /* of the record */
	uint64_t name;    /* the key by which other processes know it */
	uint32_t kind;    /* enum move_note_kind */
	uint32_t keep_ms; /* of a connection: how long it outlives the process that holds it */
};

static inline bool move_is_note(const struct move_head *h)
{
	return h->bytes == MOVE_IS_NOTE || h->bytes == MOVE_IS_NAME;
}

/* Returns how long it is. */
static inline uint32_t move_note_write(uint8_t *at, const struct move_note *n)
{
	xts_put64(at, n->key);
	xts_put32(at + 8, n->kind == NOTE_SHARED ? MOVE_IS_NOTE : MOVE_IS_NAME);
	xts_put64(at + 12, n->name);
	if (n->kind == NOTE_SHARED)
		return MOVE_HEAD_BYTES;
	xts_put32(at + 20, n->keep_ms);
	xts_put32(at + 24, n->kind);
	return MOVE_NAME_BYTES;
}

/* How long it is; 0: it is none, or not all of it is there. */
static inline uint32_t move_note_read(struct move_note *n, const uint8_t *at, uint32_t bytes)
{
	struct move_head h;

	if (bytes < MOVE_HEAD_BYTES)
		return 0;
	move_head_read(&h, at);
	*n = (struct move_note){ .key = h.key, .name = xts_get64(at + 12) };
	if (h.bytes == MOVE_IS_NOTE)
		return MOVE_HEAD_BYTES;
	if (h.bytes != MOVE_IS_NAME || bytes < MOVE_NAME_BYTES)
		return 0;
	n->keep_ms = xts_get32(at + 20);
	n->kind = xts_get32(at + 24);
	return MOVE_NAME_BYTES;
}

#endif
