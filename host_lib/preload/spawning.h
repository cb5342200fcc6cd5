/* Programs that the C library starts itself: spawn.c. */
#ifndef XTS_PRELOAD_SPAWNING_H
#define XTS_PRELOAD_SPAWNING_H

#include <stdbool.h>

/* Between these two calls a child may be made whose program gets the offloaded sockets that it may have. Only one
 * thread at a time, which must not sleep in between. False: a handler that has interrupted a call makes the child, and
 * the child gets no sockets. */
bool spawn_begin(void);
void spawn_end(bool begun);

#endif
