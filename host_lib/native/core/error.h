/* How a public call returns an error: errno, and the sentence about it (last_error.c). */
#ifndef XTS_ERROR_H
#define XTS_ERROR_H

#include <errno.h>

#include "core/signals.h"

/* Notes a sentence about an error that a call is about to return, if errno alone does not explain it. xts_last_error()
 * returns it. */
__attribute__((format(printf, 2, 3))) void last_error_note(int error, const char *format, ...);
/* A public call of this thread has failed, on this socket (-1: on none). */
void last_error_failed(int error, int number);
/* EBADF for this number; ENOTCONN where it is that of a parent's socket and the program expects to have it. */
int last_error_of_number(int number);

/* The result of a public call on a socket (-1: on none): -1 and errno for -errno. */
static inline int finish_of(int number, int result)
{
	if (result >= 0)
		return result;
	errno = result == -ERESTART && !xts_inside.depth ? EINTR :
		result == -EBADF                         ? last_error_of_number(number) :
							   -result;
	last_error_failed(errno, number);
	return -1;
}

static inline int finish(int result)
{
	return finish_of(-1, result);
}

#endif
