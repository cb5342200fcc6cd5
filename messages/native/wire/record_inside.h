/* A member of a struct as the files of records see it: record.c, record_write.c, record_read.c. */
#ifndef XTS_RECORD_INSIDE_H
#define XTS_RECORD_INSIDE_H

#include "wire/record.h"

#include <string.h>

static inline void *member_of(void *object, const struct xts_record_field *f)
{
	return (uint8_t *)object + f->at;
}

static inline const void *member_in(const void *object, const struct xts_record_field *f)
{
	return (const uint8_t *)object + f->at;
}

static inline bool flag_load(const void *member)
{
	bool flag;

	memcpy(&flag, member, sizeof flag);
	return flag;
}

static inline int descriptor_load(const void *member)
{
	int fd;

	memcpy(&fd, member, sizeof fd);
	return fd;
}

static inline void *object_load(const void *member)
{
	void *object;

	memcpy(&object, member, sizeof object);
	return object;
}

/* A number of so many bytes: 1, 2, 4 or 8. */
uint64_t xts_record_load(const void *member, uint16_t bytes);
void xts_record_store(void *member, uint16_t bytes, uint64_t value);
/* Makes the member what it is where a record does not have it, whatever was there. */
void xts_record_set_default(const struct xts_record_field *f, void *member);
bool xts_record_is_default(const struct xts_record_field *f, const void *member);

#endif
