/*
 * Calls that return descriptors of other kinds. If a socket was closed past the interposer (io_uring, a system call
 * made by instruction), its word is still in the table. When the kernel reuses the number, the word has to be cleared,
 * or a read() of the new file would go to the old socket. Normally this costs one load.
 */
#include "preload.h"

void descriptor_forget_stale(int fd)
{
	struct descriptor d = descriptor_get(fd);

	/* New descriptors of libxts are moved at once, and locks may be held here. */
	if (d.kind == DESCRIPTOR_KERNEL || d.kind == DESCRIPTOR_INTERNAL || xts_inside.locked)
		return;
	INSIDE;
	epoll_descriptor_gone(fd, d);
	descriptor_release(descriptor_take(fd));
}

static int fresh(int fd)
{
	int before;

	if (descriptor_get(fd).kind == DESCRIPTOR_KERNEL)
		return fd;
	before = errno;
	descriptor_forget_stale(fd);
	errno = before;
	return fd;
}

static int fresh_pair(int r, const int fds[2])
{
	if (r == 0) {
		fresh(fds[0]);
		fresh(fds[1]);
	}
	return r;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

/* The mode argument exists only with flags that create a file. */
#define MODE_OF(flags) \
	({ \
		mode_t mode_ = 0; \
		if ((flags) & (O_CREAT | __O_TMPFILE)) { \
			va_list list_; \
			va_start(list_, flags); \
			mode_ = va_arg(list_, mode_t); \
			va_end(list_); \
		} \
		mode_; \
	})

EXPORT int open(const char *path, int flags, ...)
{
	return fresh(real()->open(path, flags, MODE_OF(flags)));
}

int __open(const char *path, int flags, ...) __attribute__((alias("open"))) EXPORT;

EXPORT int open64(const char *path, int flags, ...)
{
	return fresh(real()->open64(path, flags, MODE_OF(flags)));
}
int __open64(const char *path, int flags, ...) __attribute__((alias("open64"))) EXPORT;

EXPORT int openat(int directory, const char *path, int flags, ...)
{
	return fresh(real()->openat(directory, path, flags, MODE_OF(flags)));
}

EXPORT int openat64(int directory, const char *path, int flags, ...)
{
	return fresh(real()->openat64(directory, path, flags, MODE_OF(flags)));
}

EXPORT int creat(const char *path, mode_t mode)
{
	return fresh(real()->creat(path, mode));
}

EXPORT int creat64(const char *path, mode_t mode)
{
	return fresh(real()->creat64(path, mode));
}

/* The fortified names, for calls without a mode. */
EXPORT int __open_2(const char *path, int flags)
{
	return fresh(real()->__open_2(path, flags));
}

EXPORT int __open64_2(const char *path, int flags)
{
	return fresh(real()->__open64_2(path, flags));
}

EXPORT int __openat_2(int directory, const char *path, int flags)
{
	return fresh(real()->__openat_2(directory, path, flags));
}

EXPORT int __openat64_2(int directory, const char *path, int flags)
{
	return fresh(real()->__openat64_2(directory, path, flags));
}

static FILE *fresh_stream(FILE *file)
{
	if (file)
		fresh(real()->fileno(file));
	return file;
}

EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
	return fresh_stream(real()->fopen(path, mode));
}
FILE *_IO_fopen(const char *path, const char *mode) __attribute__((alias("fopen"))) EXPORT;

EXPORT FILE *fopen64(const char *restrict path, const char *restrict mode)
{
	return fresh_stream(real()->fopen64(path, mode));
}

/* --- others ------------------------------------------------------------------------------------------------------- */

EXPORT int pipe(int fds[2])
{
	return fresh_pair(real()->pipe(fds), fds);
}
int __pipe(int fds[2]) __attribute__((alias("pipe"))) EXPORT;

EXPORT int pipe2(int fds[2], int flags)
{
	return fresh_pair(real()->pipe2(fds, flags), fds);
}

EXPORT int socketpair(int domain, int type, int protocol, int fds[2])
{
	return fresh_pair(real()->socketpair(domain, type, protocol, fds), fds);
}

EXPORT int eventfd(unsigned count, int flags)
{
	return fresh(real()->eventfd(count, flags));
}

EXPORT int memfd_create(const char *name, unsigned flags)
{
	return fresh(real()->memfd_create(name, flags));
}

EXPORT int timerfd_create(clockid_t clock, int flags)
{
	return fresh(real()->timerfd_create(clock, flags));
}

EXPORT int signalfd(int fd, const sigset_t *mask, int flags)
{
	return fd < 0 ? fresh(real()->signalfd(fd, mask, flags)) : real()->signalfd(fd, mask, flags);
}

EXPORT int inotify_init(void)
{
	return fresh(real()->inotify_init());
}

EXPORT int inotify_init1(int flags)
{
	return fresh(real()->inotify_init1(flags));
}
