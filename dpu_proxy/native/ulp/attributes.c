/* The parameters of a push: type, length and value as in netlink, but without padding and in network byte order. */
#include <errno.h>
#include <string.h>

#include "config.h"
#include "ulp.h"

#define ATTRIBUTE_HEAD 4u
#define MAX_BYTES_DEFAULT (1u << 20)

static uint64_t integer(const uint8_t *value, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes; i++)
		v = v << 8 | value[i];
	return v;
}

static bool may_repeat(const struct ulp_layer *l, uint16_t type)
{
	static const uint32_t repeated[XTS_ULP_COUNT] = XTS_ULP_REPEATED;

	return type < 32 && l->protocol->id < XTS_ULP_COUNT && (repeated[l->protocol->id] & 1u << type);
}

/* Is there an attribute of this type in the first bytes, which have been parsed already? */
static bool seen(const uint8_t *attributes, uint32_t bytes, uint16_t type)
{
	for (uint32_t at = 0; at < bytes; at += ATTRIBUTE_HEAD + (uint32_t)integer(attributes + at + 2, 2)) {
		if (integer(attributes + at, 2) == type)
			return true;
	}
	return false;
}

int ulp_attribute_next(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes, uint32_t *offset,
		       struct ulp_attribute *out)
{
	uint32_t at = *offset;

	if (at == bytes)
		return 0;
	if (bytes - at < ATTRIBUTE_HEAD)
		return ulp_refuse(l, EINVAL, "%s: the parameters end inside the header of one, at byte %u",
				  l->protocol->name, at);
	out->type = (uint16_t)integer(attributes + at, 2);
	out->bytes = (uint16_t)integer(attributes + at + 2, 2);
	out->value = attributes + at + ATTRIBUTE_HEAD;
	if (bytes - at - ATTRIBUTE_HEAD < out->bytes) {
		return ulp_refuse(l, EINVAL, "%s: parameter %u at byte %u announces %u bytes, but only %u are left",
				  l->protocol->name, out->type, at, out->bytes, bytes - at - ATTRIBUTE_HEAD);
	}
	if (!may_repeat(l, out->type) && seen(attributes, at, out->type))
		return ulp_refuse(l, EINVAL, "%s: parameter %u is given twice", l->protocol->name, out->type);
	*offset = at + ATTRIBUTE_HEAD + out->bytes;
	return 1;
}

int ulp_attributes(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes,
		   int (*set)(struct ulp_layer *l, const struct ulp_attribute *a))
{
	struct ulp_attribute a;
	uint32_t offset = 0;
	int r;

	while ((r = ulp_attribute_next(l, attributes, bytes, &offset, &a)) > 0) {
		r = set(l, &a);
		if (r)
			break;
	}
	return r;
}

int ulp_attribute_unknown(struct ulp_layer *l, const struct ulp_attribute *a)
{
	return ulp_refuse(l, EINVAL, "%s has no parameter %u", l->protocol->name, a->type);
}

static int fixed(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, unsigned bytes, uint64_t *out)
{
	if (a->bytes != bytes) {
		return ulp_refuse(l, EINVAL, "%s: %s has %u byte%s, not %u", l->protocol->name, name, bytes,
				  bytes == 1 ? "" : "s", a->bytes);
	}
	*out = integer(a->value, bytes);
	return 0;
}

#define FIXED(type, bytes) \
	int ulp_attribute_u##type(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, \
				  uint##type##_t *out) \
	{ \
		uint64_t value = 0; \
		int r = fixed(l, a, name, bytes, &value); \
		if (!r) \
			*out = (uint##type##_t)value; \
		return r; \
	}

FIXED(8, 1)
FIXED(16, 2)
FIXED(32, 4)
FIXED(64, 8)

int ulp_attribute_flag(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, bool *out)
{
	uint64_t none = 0;
	int r = fixed(l, a, name, 0, &none);

	if (!r)
		*out = true;
	return r;
}

int ulp_attribute_string(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, char *out, size_t room)
{
	if (!a->bytes || a->bytes >= room)
		return ulp_refuse(l, EINVAL, "%s: %s has 1 to %zu bytes, not %u", l->protocol->name, name, room - 1,
				  a->bytes);
	if (memchr(a->value, 0, a->bytes))
		return ulp_refuse(l, EINVAL, "%s: %s has a zero byte", l->protocol->name, name);
	memcpy(out, a->value, a->bytes);
	out[a->bytes] = 0;
	return 0;
}

uint32_t ulp_max_bytes_default(const struct ulp_layer *l)
{
	uint32_t limit = xts_ulp_config_limits(ulp_config(l))->pdu_bytes_max;

	return limit < MAX_BYTES_DEFAULT ? limit : MAX_BYTES_DEFAULT;
}

int ulp_max_bytes(struct ulp_layer *l, const struct ulp_attribute *a, uint32_t *out)
{
	uint32_t limit = xts_ulp_config_limits(ulp_config(l))->pdu_bytes_max;
	int r = ulp_attribute_u32(l, a, "MAX_BYTES", out);

	if (r)
		return r;
	if (!*out || *out > limit)
		return ulp_refuse(l, EINVAL, "%s: MAX_BYTES is from 1 to %u here, not %u", l->protocol->name, limit,
				  *out);
	return 0;
}
