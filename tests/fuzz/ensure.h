/* What a fuzz target makes sure of. */
#ifndef XTS_ENSURE_H
#define XTS_ENSURE_H

#include <stdio.h>
#include <stdlib.h>

#define ENSURE(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

#endif
