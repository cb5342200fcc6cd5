/* Reading a whole file: see file_text.h. */
#include "common/file_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ATTEMPTS 5u

static bool is_unchanged(const struct stat *a, const struct stat *b)
{
	return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
	       a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
	       a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int read_bytes(int fd, char *text, size_t room, size_t *bytes)
{
	for (*bytes = 0; *bytes < room;) {
		ssize_t n = read(fd, text + *bytes, room - *bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		*bytes += (size_t)n;
	}
	return 0;
}

static int read_open(int fd, struct xts_file_text *out, size_t bytes_max)
{
	struct stat after;
	int r;

	if (fstat(fd, &out->status) < 0)
		return -errno;
	if (!S_ISREG(out->status.st_mode) || (unsigned long long)out->status.st_size > bytes_max)
		return -EFBIG;
	out->text = malloc((size_t)out->status.st_size + 1);
	if (!out->text)
		return -ENOMEM;
	/* Reads one byte more, so that data appended meanwhile is noticed. */
	r = read_bytes(fd, out->text, (size_t)out->status.st_size + 1, &out->bytes);
	if (!r && fstat(fd, &after) < 0)
		r = -errno;
	if (!r && (out->bytes != (size_t)out->status.st_size || !is_unchanged(&out->status, &after)))
		r = -EAGAIN;
	return r;
}

int xts_file_text_read(struct xts_file_text *out, const char *path, size_t bytes_max)
{
	int r = -EAGAIN;

	for (unsigned i = 0; i < ATTEMPTS && r == -EAGAIN; i++) {
		/* O_NONBLOCK, since the open of a FIFO would wait for its writer */
		int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

		*out = (struct xts_file_text){ 0 };
		if (fd < 0)
			return -errno;
		r = read_open(fd, out, bytes_max);
		close(fd);
		if (r) {
			free(out->text);
			out->text = NULL;
		}
	}
	return r;
}
