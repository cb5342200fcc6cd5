/*
 * libFuzzer target: records of state (native/wire/record.h), that of a connection's TCP side. The first byte says what
 * lies next to the record, which is the rest, and whether its length stays as it is. Whatever it is: it is refused with
 * nothing left behind, or what was read is within its bounds, and is the same when it has been written and read again.
 */
#include "record_again.h"
#include "wire/wire.h"

#define ROOM 16384u /* each field that is absent takes some bytes when it is written */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const uint8_t kinds[] = { 4, 6, 0, 1 };
	static uint8_t again[ROOM], twice[ROOM];
	struct xts_record_attached attached;
	ssize_t written;
	uint8_t *copy; /* for AddressSanitizer */

	if (!bytes || bytes > 4096)
		return 0;
	attached = attached_of(kinds[data[0] & 3], data[0] >> 2);
	copy = malloc(bytes);
	ENSURE(copy);
	memcpy(copy, data + 1, bytes - 1);
	if (!(data[0] & 16) && bytes > XTS_RECORD_HEAD_BYTES) /* else nearly no input would come further */
		xts_put32(copy + 4, (uint32_t)(bytes - 1 - XTS_RECORD_HEAD_BYTES));
	written = record_again(copy, bytes - 1, &attached, again, sizeof again);
	free(copy);
	if (written > (ssize_t)sizeof again)
		return 0; /* of hundreds of small elements: it is worth nothing here */
	if (written < 0) {
		ENSURE(written == -EBADMSG || written == -EPROTONOSUPPORT);
		return 0;
	}
	ENSURE(record_again(again, (size_t)written, &attached, twice, sizeof twice) == written);
	ENSURE(memcmp(again, twice, (size_t)written) == 0);
	return 0;
}
