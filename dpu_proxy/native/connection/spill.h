/*
 * The spill buffer (the paper, "Offload proxy flow control"): bytes from the host that TCP would not take at once. Its
 * size is bounded by the post credits the proxy has granted for the connection, so it needs no limit of its own.
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

/* Appends the bytes of iov after the first skip. 0, or -ENOMEM with nothing appended. */
int spill_append(struct spill *s, const struct iovec *iov, int count, uint32_t skip);

/* Describes the first bytes of the buffer in at most max pieces; returns the number of pieces. */
int spill_peek(const struct spill *s, struct iovec *iov, int max);

/* Copies all of it. */
void spill_read(const struct spill *s, uint8_t *out);

/* Drops the first bytes of the buffer, which must hold that many. */
void spill_drop(struct spill *s, uint32_t bytes);

void spill_free(struct spill *s);

/* Frees the blocks that this thread keeps for later spills. The thread may go on afterwards. */
void spill_thread_end(void);

#endif
