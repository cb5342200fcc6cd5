/* Reading a small file of settings as a whole: never half of a file that is just being written. */
#ifndef XTS_FILE_TEXT_H
#define XTS_FILE_TEXT_H

#include <stddef.h>
#include <sys/stat.h>

struct xts_file_text {
	char *text; /* malloc(); not terminated. NULL after a failure */
	size_t bytes;
	struct stat status; /* status of the file that was read */
};

/* 0, or -errno of open(2) or read(2); -EFBIG: longer than bytes_max, or not a regular file; -EAGAIN: it changed each
 * time it was read. A file that is replaced by rename() is read as a whole, either the old or the new one. */
int xts_file_text_read(struct xts_file_text *out, const char *path, size_t bytes_max);

#endif
