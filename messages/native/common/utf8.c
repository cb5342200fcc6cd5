/* Is a text UTF-8? Decided byte by byte; see utf8.h. */
#include "common/utf8.h"

size_t xts_utf8_bytes(const unsigned char *at, size_t left)
{
	size_t bytes = at[0] < 0x80 ? 1 : at[0] >= 0xc2 && at[0] < 0xe0 ? 2 : at[0] >= 0xe0 && at[0] < 0xf0 ? 3 : 4;

	if (bytes == 1)
		return 1;
	if (at[0] < 0xc2 || at[0] > 0xf4 || bytes > left)
		return 0;
	for (size_t i = 1; i < bytes; i++)
		if ((at[i] & 0xc0) != 0x80)
			return 0;
	/* overlong, a surrogate, or beyond the last character */
	if ((at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xed && at[1] > 0x9f) || (at[0] == 0xf0 && at[1] < 0x90) ||
	    (at[0] == 0xf4 && at[1] > 0x8f))
		return 0;
	return bytes;
}
