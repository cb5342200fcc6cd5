/* Programs that the C library starts by itself: spawn.c. */
#ifndef XTS_PRELOAD_SPAWNING_H
#define XTS_PRELOAD_SPAWNING_H

#include <stdbool.h>

/* Between these two a child may be made, whose program gets the offloaded sockets that it may have. One thread at a
 * time: nothing that sleeps. False: it is made by a handler in the midst of a call, and gets none. */
bool spawn_begin(void);
void spawn_end(bool begun);

#endif
