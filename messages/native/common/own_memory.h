/*
 * Memory that may be a parent's: in a child that was made by another door than fork(), a thread that does not exist
 * there may have held the allocator's lock. So what is given up in such a child is not freed. This lasts until it
 * allocates for a queue of its own, which shows that it uses the allocator anyway.
 */
#ifndef XTS_OWN_MEMORY_H
#define XTS_OWN_MEMORY_H

#include <stdbool.h>

extern bool xts_memory_is_parents;

/* free(), for memory that may be given up in such a child. */
void xts_release(void *memory);

#endif
