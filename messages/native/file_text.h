/* The text of a small file of settings, read as a whole: never half of what somebody is writing over it. */
#ifndef XTS_FILE_TEXT_H
#define XTS_FILE_TEXT_H

#include <stddef.h>
#include <sys/stat.h>

struct xts_file_text {
	char *text; /* malloc(); not terminated. NULL after a failure */
	size_t bytes;
	struct stat status; /* of the file that was read */
};

/* 0, or -errno of open(2), read(2); -EFBIG: longer than that, or no regular file; -EAGAIN: it changed while it was
 * read, again and again. A file that is replaced by rename() is read whole, the old or the new one. */
int xts_file_text_read(struct xts_file_text *out, const char *path, size_t bytes_max);

#endif
