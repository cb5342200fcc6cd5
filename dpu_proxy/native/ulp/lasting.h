/*
 * Memory that outlives this process: what the one that goes on (channel/ledger.h) finds where this one has left it.
 * Records of TLS that wait are in it. Nothing in it says how it is used: who needs to find something writes down where
 * it is, as an offset, and whoever reads that believes nothing of it.
 *
 * It has no name, and its pages are taken as they are needed. Blocks have a power of two of bytes; which are free is
 * known to this process alone, and the next one begins with none in use: so it copies what it needs before that.
 */
#ifndef XTS_LASTING_H
#define XTS_LASTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LASTING_BYTES (UINT64_C(1) << 30) /* all of it */
#define LASTING_UNIT 64u

/* Makes it. 0 or -errno. Without it, memory is ordinary. */
int lasting_make(void);
/* Memory of at least so many bytes, lasting if it can be; NULL. Any thread. */
void *lasting_take(size_t bytes);
void lasting_give(void *block);
/* A buffer of the thread of so many bytes, lasting if it can be, which *mine says from then on; else `otherwise`. */
uint8_t *lasting_of_thread(uint8_t **mine, uint8_t *otherwise, size_t bytes);
/* Drops all that another process has left. Before any is taken. */
void lasting_empty(void);
/* Gives pages of free blocks back to the system, some in each call. */
void lasting_trim(void);
/* Where a byte is, never 0; 0: not in it. Of a block, a multiple of LASTING_UNIT. */
uint64_t lasting_offset(const void *at);
/* Of another process: so many bytes at this offset; NULL: that is outside. */
const uint8_t *lasting_at(uint64_t offset, uint64_t bytes);

#endif
