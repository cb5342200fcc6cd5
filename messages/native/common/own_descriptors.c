/* The library's own descriptors: see own_descriptors.h. */
#include "common/own_descriptors.h"

#include <unistd.h>

struct xts_own_hooks xts_own_hooks;

void xts_own_close(int fd)
{
	if (xts_own_hooks.disown)
		xts_own_hooks.disown(fd);
	close(fd);
}
