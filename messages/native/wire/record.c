/* Members of structs, by the tables of their records: loaded, stored, at their defaults, dropped; see record.h. */
#include "wire/record_inside.h"

uint64_t xts_record_load(const void *member, uint16_t bytes)
{
	uint8_t v8;
	uint16_t v16;
	uint32_t v32;
	uint64_t v64;

	switch (bytes) {
	case 1:
		return memcpy(&v8, member, 1), v8;
	case 2:
		return memcpy(&v16, member, 2), v16;
	case 4:
		return memcpy(&v32, member, 4), v32;
	default:
		return memcpy(&v64, member, 8), v64;
	}
}

void xts_record_store(void *member, uint16_t bytes, uint64_t value)
{
	uint8_t v8 = (uint8_t)value;
	uint16_t v16 = (uint16_t)value;
	uint32_t v32 = (uint32_t)value;

	switch (bytes) {
	case 1:
		memcpy(member, &v8, 1);
		break;
	case 2:
		memcpy(member, &v16, 2);
		break;
	case 4:
		memcpy(member, &v32, 4);
		break;
	default:
		memcpy(member, &value, 8);
		break;
	}
}

void xts_record_set_default(const struct xts_record_field *f, void *member)
{
	int no_fd = -1;

	switch (f->form) {
	case XTS_RECORD_NUMBER:
		xts_record_store(member, f->bytes, f->otherwise);
		break;
	case XTS_RECORD_DESCRIPTOR:
		memcpy(member, &no_fd, sizeof no_fd);
		break;
	case XTS_RECORD_STREAM:
		(void)f->stream->fill(member, NULL, 0);
		break;
	case XTS_RECORD_LIST:
		f->list->begin(member);
		break;
	case XTS_RECORD_RECORD:
		for (uint32_t i = 0; i < f->of->field_count; i++)
			xts_record_set_default(&f->of->fields[i], member_of(member, &f->of->fields[i]));
		break;
	default:
		memset(member, 0, f->bytes);
		if (f->form == XTS_RECORD_FLAG && f->otherwise)
			xts_record_store(member, f->bytes, 1);
		break;
	}
}

bool xts_record_is_default(const struct xts_record_field *f, const void *member)
{
	uint8_t element[XTS_RECORD_ELEMENT_BYTES] __attribute__((aligned(16)));
	const uint8_t *octets = member;
	uintptr_t at = 0;

	switch (f->form) {
	case XTS_RECORD_NUMBER:
	case XTS_RECORD_FLAG:
		return xts_record_load(member, f->bytes) == f->otherwise;
	case XTS_RECORD_DESCRIPTOR:
		return descriptor_load(member) < 0;
	case XTS_RECORD_STREAM:
		return !f->stream->bytes(member);
	case XTS_RECORD_LIST:
		return !f->list->next(member, &at, element);
	case XTS_RECORD_RECORD:
		for (uint32_t i = 0; i < f->of->field_count; i++) {
			if (!xts_record_is_default(&f->of->fields[i], member_in(member, &f->of->fields[i])))
				return false;
		}
		return true;
	default:
		for (uint16_t i = 0; i < f->bytes; i++) {
			if (octets[i])
				return false;
		}
		return true;
	}
}

void xts_record_drop(const struct xts_record *r, void *made)
{
	for (uint32_t i = 0; i < r->field_count; i++) {
		const struct xts_record_field *f = &r->fields[i];

		if (f->form == XTS_RECORD_STREAM)
			f->stream->drop(member_of(made, f));
		else if (f->form == XTS_RECORD_LIST)
			f->list->drop(member_of(made, f));
		else if (f->form == XTS_RECORD_RECORD)
			xts_record_drop(f->of, member_of(made, f));
	}
}

/* --- bytes that are somewhere else -------------------------------------------------------------------------------- */

static uint32_t elsewhere_bytes(const void *member)
{
	return ((const struct xts_record_bytes *)member)->bytes;
}

static void elsewhere_copy(const void *member, uint8_t *out)
{
	const struct xts_record_bytes *b = member;

	memcpy(out, b->data, b->bytes);
}

static int elsewhere_fill(void *member, const uint8_t *data, uint32_t bytes)
{
	*(struct xts_record_bytes *)member = (struct xts_record_bytes){ .data = data, .bytes = bytes };
	return 0;
}

static void elsewhere_drop(void *member)
{
	*(struct xts_record_bytes *)member = (struct xts_record_bytes){ 0 };
}

const struct xts_record_stream xts_record_bytes_stream = { elsewhere_bytes, elsewhere_copy, elsewhere_fill,
							   elsewhere_drop };
