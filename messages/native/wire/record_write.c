/* Writing records by their tables; see record.h. */
#include "wire/record_inside.h"

#include <errno.h>

#include "wire/wire.h"

struct writer {
	uint8_t *out;
	size_t room, used;
	uint16_t version, compatible;
	struct xts_record_attached *attached;
};

static void put(struct writer *w, const void *data, size_t bytes)
{
	if (w->room >= bytes && w->used <= w->room - bytes)
		memcpy(w->out + w->used, data, bytes);
	w->used += bytes;
}

static void put16(struct writer *w, uint16_t value)
{
	uint8_t wire[2];

	xts_put16(wire, value);
	put(w, wire, sizeof wire);
}

static void put32(struct writer *w, uint32_t value)
{
	uint8_t wire[4];

	xts_put32(wire, value);
	put(w, wire, sizeof wire);
}

static void put_number(struct writer *w, uint64_t value, uint16_t bytes)
{
	uint8_t wire[8];

	xts_put64(wire, value);
	put(w, wire + sizeof wire - bytes, bytes);
}

/* A length is written when what it counts has been: room for it is left at `at`. */
static int put_length(struct writer *w, size_t at)
{
	size_t bytes = w->used - at - 4;

	if (bytes > UINT32_MAX)
		return -EOVERFLOW;
	if (w->used <= w->room)
		xts_put32(w->out + at, (uint32_t)bytes);
	return 0;
}

static void put_stream(struct writer *w, const struct xts_record_field *f, const void *member)
{
	uint32_t bytes = f->stream->bytes(member);

	if (bytes && w->room >= bytes && w->used <= w->room - bytes)
		f->stream->copy(member, w->out + w->used);
	w->used += bytes;
}

static int put_fields(struct writer *w, const struct xts_record *r, const void *from);

static int put_list(struct writer *w, const struct xts_record_field *f, const void *member)
{
	uint8_t element[XTS_RECORD_ELEMENT_BYTES] __attribute__((aligned(16)));
	uintptr_t next = 0;
	int error = 0;

	while (!error && f->list->next(member, &next, element)) {
		size_t at = w->used;

		put32(w, 0);
		error = put_fields(w, f->of, element);
		if (!error)
			error = put_length(w, at);
	}
	return error;
}

static int put_attached(struct writer *w, const struct xts_record_field *f, const void *member)
{
	struct xts_record_attached *b = w->attached;
	bool is_fd = f->form == XTS_RECORD_DESCRIPTOR;
	bool there = is_fd ? descriptor_load(member) >= 0 : object_load(member) != NULL;

	if (there && (!b || (is_fd ? b->fd_count : b->object_count) == XTS_RECORD_ATTACHED_MAX))
		return -ENOTSUP;
	if (there && is_fd)
		b->fds[b->fd_count++] = descriptor_load(member);
	else if (there)
		b->objects[b->object_count++] = object_load(member);
	put_number(w, there, 1);
	return 0;
}

static int put_value(struct writer *w, const struct xts_record_field *f, const void *member)
{
	switch (f->form) {
	case XTS_RECORD_NUMBER:
		put_number(w, xts_record_load(member, f->bytes), f->bytes);
		return 0;
	case XTS_RECORD_FLAG:
		put_number(w, flag_load(member), 1);
		return 0;
	case XTS_RECORD_OCTETS:
		put(w, member, f->bytes);
		return 0;
	case XTS_RECORD_STREAM:
		put_stream(w, f, member);
		return 0;
	case XTS_RECORD_LIST:
		return put_list(w, f, member);
	case XTS_RECORD_RECORD:
		return put_fields(w, f->of, member);
	default:
		return put_attached(w, f, member);
	}
}

static int put_fields(struct writer *w, const struct xts_record *r, const void *from)
{
	for (uint32_t i = 0; i < r->field_count; i++) {
		const struct xts_record_field *f = &r->fields[i];
		const void *member = member_in(from, f);
		size_t at;
		int error;

		if (f->since > w->version && !xts_record_is_default(f, member))
			return -ENOTSUP;
		if (f->since > w->version)
			continue;
		if (f->needed && f->since > w->compatible && !xts_record_is_default(f, member))
			w->compatible = f->since;
		put16(w, f->number);
		put16(w, 0);
		at = w->used;
		put32(w, 0);
		error = put_value(w, f, member);
		if (!error)
			error = put_length(w, at);
		if (error)
			return error;
	}
	return 0;
}

ssize_t xts_record_encode(const struct xts_record *r, uint16_t version, const void *from, uint8_t *out, size_t room,
			  struct xts_record_attached *attached)
{
	struct writer w = {
		.out = out, .room = room, .version = version < r->version ? version : r->version, .attached = attached
	};
	int error;

	if (attached)
		*attached = (struct xts_record_attached){ 0 };
	w.compatible = r->compatible < w.version ? r->compatible : w.version;
	put16(&w, w.version);
	put16(&w, 0);
	put32(&w, 0);
	error = put_fields(&w, r, from);
	if (!error)
		error = put_length(&w, XTS_RECORD_HEAD_BYTES - 4);
	if (!error && w.used <= room)
		xts_put16(out + 2, w.compatible);
	return error ? error : (ssize_t)w.used;
}
