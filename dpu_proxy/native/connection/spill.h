/*
 * The spill buffer (the paper, "Offload proxy flow control"): bytes from the host that TCP would not take at once. Its
 * size is bounded by the post credits the proxy has granted for the connection, so it needs no limit of its own.
 *
 * It is in lasting memory (ulp/lasting.h), for its bytes are nowhere else once their frames have been given back: the
 * next process goes on with them when this one has died (loop/recover_spilled.h). Bytes have numbers by which that one
 * finds out which of them TCP has: each block says the number of its first byte.
 */
#ifndef XTS_SPILL_H
#define XTS_SPILL_H

#include <stdint.h>
#include <sys/uio.h>

struct spill_block;

struct spill {
	struct spill_block *head, *tail;
	uint32_t head_offset; /* bytes of the head block that were already dropped */
	uint32_t bytes;       /* waiting */
};

/* Appends the bytes of iov. number: of the first, as the owner counts. 0, or -ENOMEM with nothing appended. */
int spill_append(struct spill *s, const struct iovec *iov, int count, uint32_t number);
/* Appends the bytes of another one, which is empty then. As spill_append(). */
int spill_append_all(struct spill *s, struct spill *from, uint32_t number);

/* Describes the first bytes of the buffer in at most max pieces; returns the number of pieces. */
int spill_peek(const struct spill *s, struct iovec *iov, int max);

/* Copies all of it. */
void spill_read(const struct spill *s, uint8_t *out);

/* Drops the first bytes of the buffer, which must hold that many. */
void spill_drop(struct spill *s, uint32_t bytes);

/* The block that is the first one when so many bytes have been dropped; NULL: none. */
const struct spill_block *spill_first(const struct spill *s, uint32_t dropped);

/* Of another process: a copy of all bytes of the chain whose first block is at this offset of lasting memory, at most
 * so many. Its caller frees it. NULL: there is none, or no memory. *number: of the first byte. */
uint8_t *spill_found(uint64_t offset, uint64_t most, uint32_t *number, uint32_t *bytes);

void spill_free(struct spill *s);

/* Frees the blocks that this thread keeps for later spills. The thread may go on afterwards. */
void spill_thread_end(void);

#endif
