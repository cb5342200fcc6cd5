/* Records in memory of their own, and there and back again; see record.h. */
#include "wire/record_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

ssize_t xts_record_make(const struct xts_record *r, const void *from, uint8_t **out, struct xts_record_attached *attached)
{
	ssize_t bytes = xts_record_encode(r, r->version, from, NULL, 0, attached);

	*out = bytes < 0 ? NULL : malloc((size_t)bytes);
	if (bytes < 0 || !*out)
		return bytes < 0 ? bytes : -ENOMEM;
	return xts_record_encode(r, r->version, from, *out, (size_t)bytes, attached);
}

void xts_record_free(uint8_t *made, ssize_t bytes)
{
	if (made)
		explicit_bzero(made, (size_t)bytes);
	free(made);
}

#ifdef XTS_DEBUG

#define RUBBISH 0xA5

static void complain(const struct xts_record *r, const char *what)
{
	fprintf(stderr, "a %s is not what its record says: %s\n", r->name, what);
	abort();
}

int xts_record_trip(const struct xts_record *r, const void *from, void *to, size_t bytes)
{
	struct xts_record_attached attached[2];
	uint8_t *made[2] = { NULL, NULL };
	ssize_t length[2] = { 0, 0 };
	int error;

	length[0] = xts_record_make(r, from, &made[0], &attached[0]);
	if (length[0] == -ENOMEM)
		return -ENOMEM;
	if (length[0] < 0)
		complain(r, "it cannot be written");
	memset(to, RUBBISH, bytes);
	error = xts_record_decode(r, made[0], (size_t)length[0], &attached[0], to);
	if (error && error != -ENOMEM)
		complain(r, "it cannot be read");
	if (!error)
		length[1] = xts_record_make(r, to, &made[1], &attached[1]);
	if (!error && length[1] != -ENOMEM) {
		if (length[0] != length[1] || memcmp(made[0], made[1], (size_t)length[0]) != 0)
			complain(r, "something was lost");
		if (memcmp(&attached[0], &attached[1], sizeof attached[0]) != 0)
			complain(r, "a descriptor or an object was lost");
	}
	xts_record_free(made[0], length[0]);
	xts_record_free(made[1], length[1]);
	return error;
}

#endif
