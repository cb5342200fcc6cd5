/*
 * The one memory for keys of connections: keys, IVs and traffic secrets of the record layer, and the cipher contexts of
 * OpenSSL that are made of them; and the keys of tickets (ulp/tls/tls_ticket_keys.c). Nothing else of the process is in
 * it, and they are nowhere else (dpu_proxy/SECURITY.md says what has others).
 *
 * It is one mapping of a fixed size, made before the process may make no such calls any more. Best is memory that even
 * the kernel does not map (memfd_secret(2), Linux 5.14): no other process can read it, root's neither, no dump has it,
 * and it is never swapped. Where that cannot be had it is ordinary memory that is locked, and last, ordinary memory.
 * Dumps have none of the three, and children neither. Pages are taken as they are needed and stay. The process that
 * goes on when this one has died finds it by its descriptor (loop/recover_tls.h).
 *
 * Blocks have a multiple of 64 bytes, of which there are a handful of sizes, and no lock (block_lists.h). They are
 * wiped when they are freed.
 */
#ifndef XTS_KEY_MEMORY_H
#define XTS_KEY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ulp/tls/tls_config.h"

/* Zeroed memory of at most 4 KB; NULL: the memory for keys is full. Any thread. */
void *key_memory_take(size_t bytes);
/* Wipes it. NULL does nothing. */
void key_memory_give(void *block);
/* Is this block in it? And how many bytes does it have? */
bool key_memory_has(const void *block);
size_t key_memory_bytes(const void *block);

/* The descriptor of the mapping, with which the process that goes on when this one has died finds what is in it
 * (channel/ledger.h); -1: there is none. Where nobody goes on, key_memory_close() closes it, and the mapping stays. */
int key_memory_descriptor(void);
void key_memory_close(void);
/* A number for a block, never 0, and where such a block begins, in bytes. */
uint32_t key_memory_place(const void *block);
uint64_t key_memory_offset(uint32_t place);
/* Shows the next process a block: its place is at the beginning of the mapping, as a uint32_t. And hides it, if it is
 * the one that is shown. */
void key_memory_show(const void *block);
void key_memory_hide(const void *block);

struct key_memory_counts {
	enum xts_tls_key_memory kind;
	uint64_t limit, used, most; /* bytes */
	uint64_t refused;           /* blocks, because it was full */
};
struct key_memory_counts key_memory_counts(void);

/* Between these, on this thread, what OpenSSL allocates is in it (tls_memory.c). Not nested. */
void key_memory_begin(void);
void key_memory_end(void);
bool key_memory_is_meant(void);

#endif
