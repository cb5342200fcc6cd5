/* Giving memory up: see own_memory.h. */
#include "common/own_memory.h"

#include <stdlib.h>

bool xts_memory_is_parents;

void xts_release(void *memory)
{
	if (!xts_memory_is_parents)
		free(memory);
}
