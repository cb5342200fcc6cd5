/*
 * Records: structs as bytes, for another owner, process or version. The tables of fields are generated from
 * xts_messages/wire/record_table.py; RECORDS.md has the format.
 *
 * What is read may come from anybody. Every length and bound is checked, each byte is read once, nothing is allocated
 * for more than the record holds, and on an error nothing is left behind. Descriptors and objects are next to the
 * record: whoever reads it has taken them from where they may come from.
 */
#ifndef XTS_RECORD_H
#define XTS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define XTS_RECORD_HEAD_BYTES 8u
#define XTS_RECORD_FIELD_BYTES 8u /* what a value has in front */
#define XTS_RECORD_ELEMENT_BYTES 128u
#define XTS_RECORD_ATTACHED_MAX 4u

struct xts_record;

/* Bytes that are somewhere else: of a record that is read, in the record. */
struct xts_record_bytes {
	const uint8_t *data;
	uint32_t bytes;
};

/* How a member that holds any number of bytes is written and read. */
struct xts_record_stream {
	uint32_t (*bytes)(const void *member);
	void (*copy)(const void *member, uint8_t *out);
	/* Makes it hold these bytes, whatever was there. 0 or -ENOMEM, and then it is empty. */
	int (*fill)(void *member, const uint8_t *data, uint32_t bytes);
	void (*drop)(void *member);
};

/* How a member that holds a list is written and read. */
struct xts_record_list {
	/* Fills in the next element; *at is 0 for the first. False: there are no more. */
	bool (*next)(const void *member, uintptr_t *at, void *element);
	/* Makes it an empty list, whatever was there. */
	void (*begin)(void *member);
	/* Streams of the element point into the record. 0 or -ENOMEM. */
	int (*append)(void *member, const void *element);
	void (*drop)(void *member);
};

enum xts_record_form {
	XTS_RECORD_NUMBER,
	XTS_RECORD_FLAG,
	XTS_RECORD_OCTETS,
	XTS_RECORD_DESCRIPTOR, /* an int, -1 for none */
	XTS_RECORD_OBJECT,     /* a pointer, NULL for none */
	XTS_RECORD_STREAM,
	XTS_RECORD_LIST,
	XTS_RECORD_RECORD,
};

struct xts_record_field {
	const char *name;
	uint16_t number; /* in a table they grow */
	uint16_t since;  /* the version that has it first */
	uint8_t form;    /* enum xts_record_form */
	bool required;
	bool needed;        /* who does not know it cannot read the record, unless it has its default */
	uint16_t at, bytes; /* of the member */
	uint64_t otherwise; /* what a number is if the record does not have it */
	uint64_t most;      /* of a number; of a stream or list, the greatest length */
	uint64_t legal;     /* the only legal numbers, as bits; 0: all up to most */
	const struct xts_record_stream *stream;
	const struct xts_record_list *list;
	const struct xts_record *of; /* a part, or the elements of a list */
};

struct xts_record {
	const char *name;
	const struct xts_record_field *fields;
	uint32_t field_count;
	/* What bounds cannot say: 0 or -EBADMSG. NULL: nothing. */
	int (*check)(const void *made);
	/* What is written; the oldest version that may read it; the oldest that is read. */
	uint16_t version, compatible, oldest;
};

/* What lies next to a record, in the order of its fields. */
struct xts_record_attached {
	int fds[XTS_RECORD_ATTACHED_MAX];
	void *objects[XTS_RECORD_ATTACHED_MAX];
	uint32_t fd_count, object_count;
};

/* Writes a record for readers of this version. Returns its length, also if that is more than room: then what is in out
 * is worth nothing. -ENOTSUP: a field that the version does not know is not at its default. -EOVERFLOW: it is longer
 * than a record can be. attached gets what does not go into the record, which goes on to belong to the struct. */
ssize_t xts_record_encode(const struct xts_record *r, uint16_t version, const void *from, uint8_t *out, size_t room,
			  struct xts_record_attached *attached);

/* Reads a record into `to`, every member of which is written, whatever was there. 0; -EBADMSG, -EPROTONOSUPPORT (of a
 * version that this one cannot read) or -ENOMEM, and `to` holds nothing that would have to be freed. */
int xts_record_decode(const struct xts_record *r, const uint8_t *in, size_t bytes,
		      const struct xts_record_attached *attached, void *to);

/* Frees what streams and lists hold. Descriptors and objects stay. */
void xts_record_drop(const struct xts_record *r, void *made);

/* Writes a record of this version into memory of malloc(): its length, or -errno and NULL. */
ssize_t xts_record_make(const struct xts_record *r, const void *from, uint8_t **out,
			struct xts_record_attached *attached);
void xts_record_free(uint8_t *made, ssize_t bytes); /* wipes it first */

/* In builds with XTS_DEBUG: reads the record of `from` into `to`, which has so many bytes and is filled with rubbish
 * first, and aborts unless the record of that is the same. 0, or -ENOMEM: `to` holds nothing. Streams that are
 * somewhere else are not in memory any more. */
int xts_record_trip(const struct xts_record *r, const void *from, void *to, size_t bytes);

/* For members of type struct xts_record_bytes. */
extern const struct xts_record_stream xts_record_bytes_stream;

#endif
