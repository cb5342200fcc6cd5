/* Reading records by their tables; see record.h. */
#include "wire/record_inside.h"

#include <errno.h>

#include "wire/wire.h"

struct reader {
	const uint8_t *at;
	size_t left;
	uint16_t version; /* of the record */
	bool later;       /* than this one: fields may be unknown */
	const struct xts_record_attached *attached;
	uint32_t *fds, *objects; /* how many of them were taken */
};

/* The next bytes; NULL: there are not so many. */
static const uint8_t *take(struct reader *in, size_t bytes)
{
	const uint8_t *at = in->at;

	if (in->left < bytes)
		return NULL;
	in->at += bytes;
	in->left -= bytes;
	return at;
}

/* The next bytes, to be read alone. */
static int take_part(struct reader *in, uint32_t bytes, struct reader *part)
{
	const uint8_t *at = take(in, bytes);

	if (!at)
		return -EBADMSG;
	*part = *in;
	part->at = at;
	part->left = bytes;
	return 0;
}

static int get_number(struct reader *in, const struct xts_record_field *f, void *member)
{
	uint8_t wire[8] = { 0 };
	uint64_t value;

	if (in->left != f->bytes)
		return -EBADMSG;
	memcpy(wire + sizeof wire - f->bytes, in->at, f->bytes);
	value = xts_get64(wire);
	if (value > f->most || (f->legal && (value > 63 || !(f->legal >> value & 1))))
		return -EBADMSG;
	xts_record_store(member, f->bytes, value);
	return 0;
}

static int get_attached(struct reader *in, const struct xts_record_field *f, void *member)
{
	const uint8_t *there = in->left == 1 ? take(in, 1) : NULL;
	bool is_fd = f->form == XTS_RECORD_DESCRIPTOR;
	uint8_t how_many = there ? xts_get8(there) : 2;

	if (how_many > 1)
		return -EBADMSG;
	if (!how_many)
		return 0;
	if (!in->attached || (is_fd ? *in->fds == in->attached->fd_count : *in->objects == in->attached->object_count))
		return -EBADMSG;
	if (is_fd)
		memcpy(member, &in->attached->fds[(*in->fds)++], sizeof(int));
	else
		memcpy(member, &in->attached->objects[(*in->objects)++], sizeof(void *));
	return 0;
}

static int get_fields(struct reader *in, const struct xts_record *r, void *to);

static int get_list(struct reader *in, const struct xts_record_field *f, void *member)
{
	uint8_t element[XTS_RECORD_ELEMENT_BYTES] __attribute__((aligned(16)));
	uint64_t count = 0;

	while (in->left) {
		const uint8_t *bytes = take(in, 4);
		struct reader part;
		int error;

		if (!bytes || count++ == f->most)
			return -EBADMSG;
		error = take_part(in, xts_get32(bytes), &part);
		if (!error)
			error = get_fields(&part, f->of, element);
		if (!error)
			error = f->list->append(member, element);
		if (error)
			return error;
	}
	return 0;
}

static int get_value(struct reader *in, const struct xts_record_field *f, void *member)
{
	switch (f->form) {
	case XTS_RECORD_NUMBER:
	case XTS_RECORD_FLAG:
		return get_number(in, f, member);
	case XTS_RECORD_OCTETS:
		if (in->left != f->bytes)
			return -EBADMSG;
		memcpy(member, in->at, f->bytes);
		return 0;
	case XTS_RECORD_STREAM:
		return in->left > f->most ? -EBADMSG : f->stream->fill(member, in->at, (uint32_t)in->left);
	case XTS_RECORD_LIST:
		return get_list(in, f, member);
	case XTS_RECORD_RECORD:
		return get_fields(in, f->of, member);
	default:
		return get_attached(in, f, member);
	}
}

/* The fields up to this number are not in the record: may that be? */
static int pass_over(const struct reader *in, const struct xts_record *r, uint32_t *i, uint32_t number)
{
	for (; *i < r->field_count && r->fields[*i].number < number; (*i)++) {
		if (r->fields[*i].required && r->fields[*i].since <= in->version)
			return -EBADMSG;
	}
	return 0;
}

static int get_fields(struct reader *in, const struct xts_record *r, void *to)
{
	const struct xts_record_field whole = { .form = XTS_RECORD_RECORD, .of = r };
	uint32_t i = 0, before = 0;
	int error;

	xts_record_set_default(&whole, to);
	while (in->left) {
		const uint8_t *head = take(in, XTS_RECORD_FIELD_BYTES);
		uint16_t number = head ? xts_get16(head) : 0;
		struct reader part;

		if (number <= before || xts_get16(head + 2))
			return -EBADMSG;
		before = number;
		error = pass_over(in, r, &i, number);
		if (!error)
			error = take_part(in, xts_get32(head + 4), &part);
		if (error)
			return error;
		if (i < r->field_count && r->fields[i].number == number && r->fields[i].since <= in->version) {
			error = get_value(&part, &r->fields[i], member_of(to, &r->fields[i]));
			i++;
		} else if (!in->later) {
			error = -EBADMSG;
		}
		if (error)
			return error;
	}
	error = pass_over(in, r, &i, UINT32_MAX);
	return error || !r->check ? error : r->check(to);
}

int xts_record_decode(const struct xts_record *r, const uint8_t *in, size_t bytes,
		      const struct xts_record_attached *attached, void *to)
{
	uint32_t fds = 0, objects = 0;
	struct reader from = { .at = in, .left = bytes, .attached = attached, .fds = &fds, .objects = &objects };
	const uint8_t *head = take(&from, XTS_RECORD_HEAD_BYTES);
	uint16_t compatible;
	int error;

	if (!head)
		return -EBADMSG;
	from.version = xts_get16(head);
	compatible = xts_get16(head + 2);
	from.later = from.version > r->version;
	if (!compatible || compatible > from.version || xts_get32(head + 4) != from.left)
		return -EBADMSG;
	if (compatible > r->version || from.version < r->oldest)
		return -EPROTONOSUPPORT;
	error = get_fields(&from, r, to);
	if (!error && attached && (fds != attached->fd_count || objects != attached->object_count))
		error = -EBADMSG;
	if (error)
		xts_record_drop(r, to);
	return error;
}
