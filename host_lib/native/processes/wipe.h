/*
 * Wiping what must not stay in memory: keys. A child has a copy of all memory of its parent, and keeps it when it has
 * closed everything and given up its user. So a key is in memory only where it is needed: in the open socket
 * (struct sharing), and, for a moment, in the call that sends it.
 */
#ifndef XTS_WIPE_H
#define XTS_WIPE_H

#include <stddef.h>
#include <string.h>

static inline void wipe(void *data, size_t bytes)
{
	explicit_bzero(data, bytes);
}

#endif
