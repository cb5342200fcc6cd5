/* The reasons by number, for programs that show them. */
#include "core/reason.h"

#include <stddef.h>

static const struct {
	const char *name, *text;
} reasons[XTS_REASON_COUNT] = {
#define XTS_REASON_AS_ENTRY(number, name, text) [XTS_REASON_##name] = { #name, text },
	XTS_REASONS(XTS_REASON_AS_ENTRY)
#undef XTS_REASON_AS_ENTRY
};

const char *xts_reason_name(unsigned number)
{
	return number < XTS_REASON_COUNT ? reasons[number].name : NULL;
}

const char *xts_reason_text(unsigned number)
{
	return number < XTS_REASON_COUNT ? reasons[number].text : NULL;
}
