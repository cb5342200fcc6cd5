/* Is a text UTF-8? */
#ifndef XTS_UTF8_H
#define XTS_UTF8_H

#include <stddef.h>

/* The length of the first character of `left` bytes, which must be at least one; 0: it is not UTF-8. */
size_t xts_utf8_bytes(const unsigned char *at, size_t left);

#endif
