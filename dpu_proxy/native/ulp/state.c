/* States of protocols that are records: of these the table says what their fields are, and their bounds. */
#include <errno.h>
#include <stdlib.h>

#include "ulp.h"
#include "wire/record.h"

ssize_t ulp_state_save(const struct xts_record *r, const struct ulp_layer *l, void *out, size_t room)
{
	struct xts_record_attached attached;

	return xts_record_encode(r, r->version, l->state, out, room, &attached);
}

int ulp_state_restore(const struct xts_record *r, struct ulp_layer *l, size_t state_bytes, const void *state,
		      size_t bytes)
{
	const struct xts_record_attached nothing = { 0 };

	l->state = calloc(1, state_bytes);
	return l->state ? xts_record_decode(r, state, bytes, &nothing, l->state) : -ENOMEM;
}
