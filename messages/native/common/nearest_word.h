/* The word for which a mistyped one was probably meant: for "did you mean". */
#ifndef XTS_NEAREST_WORD_H
#define XTS_NEAREST_WORD_H

#include <stddef.h>

/* At most this many bytes of the mistyped word are compared. */
#define XTS_NEAREST_BYTES_MAX 32u

/* The nearest of count words, of which NULLs are ignored; NULL: none is near. Case is ignored. */
const char *xts_nearest_word(const char *text, size_t bytes, const char *const *words, unsigned count);

#endif
