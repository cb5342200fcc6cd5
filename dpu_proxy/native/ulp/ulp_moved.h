/* What a stack is besides this process: for another one (ulp_stack_move.c). */
#ifndef XTS_ULP_MOVED_H
#define XTS_ULP_MOVED_H

#include "ulp/ulp_moved_layer.h"
#include "ulp/ulp_stack.h"

#define ULP_MOVED_LAYERS (2 * ULP_DEPTH)

/* From TCP up, in an order that is that of both directions. */
struct ulp_moved_layers {
	struct ulp_moved_layer layer[ULP_MOVED_LAYERS];
	uint32_t count;
};

struct ulp_moved {
	bool client;
	int read_error; /* -errno of the socket */
	/* of records: the first whose readers know all of it */
	uint16_t version;
	struct ulp_moved_layers layers;
};

extern const struct xts_record_list ulp_moved_layers_list;
extern const struct xts_record ulp_moved_layer_record;

#endif
