/*
 * stdio on sockets. A stream made by fdopen() reads and writes by calls inside the C library, which cannot be replaced.
 * For an offloaded socket fdopen() therefore makes a stream with functions of ours (fopencookie). Such a stream does
 * not know its descriptor, so fileno() looks in a list. An undecided socket that becomes a stream stays with the
 * kernel.
 *
 * stdin, stdout and stderr exist before any socket. If the number of one of them becomes an offloaded socket (by
 * dup2(), as in inetd, or by exec), the variable gets such a stream instead, and its original one when the number is a
 * file again.
 */
#include "preload.h"

#include <pthread.h>
#include <string.h>

struct stream {
	struct stream *next;
	FILE *file;
	int fd;
	int orientation; /* as fwide() tells it */
};

static struct stream *_Atomic streams;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_streams(void)
{
	xts_go_in();
	pthread_mutex_lock(&lock);
}

static void unlock_streams(void)
{
	pthread_mutex_unlock(&lock);
	xts_come_out();
}

static void orphaned(void)
{
	pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void keep_over_fork(void)
{
	static const struct xts_fork_part at_fork = {
		.before = lock_streams, .in_parent = unlock_streams, .in_child = unlock_streams, .orphaned = orphaned
	};

	xts_at_fork(&at_fork);
}

static ssize_t stream_read(void *cookie, char *data, size_t bytes)
{
	return read(((struct stream *)cookie)->fd, data, bytes);
}

/* Writes all or fails: stdio treats a short count as an error. */
static ssize_t stream_write(void *cookie, const char *data, size_t bytes)
{
	size_t done = 0;

	while (done < bytes) {
		ssize_t r = write(((struct stream *)cookie)->fd, data + done, bytes - done);

		if (r < 0)
			return done ? (ssize_t)done : 0; /* fopencookie(3): 0 reports an error */
		done += (size_t)r;
	}
	return (ssize_t)done;
}

/* As a socket's: programs ask for it to find out whether they may seek. */
static int stream_seek(void *cookie, off64_t *at, int whence)
{
	(void)cookie;
	(void)at;
	(void)whence;
	errno = ESPIPE;
	return -1;
}

static int stream_close(void *cookie)
{
	struct stream *stream = cookie;
	struct stream *_Atomic *at = &streams;
	int r;

	lock_streams();
	while (*at && *at != stream)
		at = (struct stream * _Atomic *)&(*at)->next;
	if (*at)
		*at = stream->next;
	unlock_streams();
	r = stream->fd < 0 ? 0 : close(stream->fd);
	free(stream);
	return r;
}

static FILE *open_stream(int fd, const char *mode)
{
	cookie_io_functions_t functions = {
		.read = stream_read, .write = stream_write, .seek = stream_seek, .close = stream_close
	};
	struct stream *stream = calloc(1, sizeof *stream);

	if (!stream)
		return NULL;
	stream->fd = fd;
	stream->file = fopencookie(stream, mode, functions);
	if (!stream->file) {
		free(stream);
		return NULL;
	}
	if (strchr(mode, 'e'))
		real()->fcntl(fd, F_SETFD, FD_CLOEXEC);
	lock_streams();
	stream->next = streams;
	streams = stream;
	unlock_streams();
	return stream->file;
}

/* Checks that it is not a file that got the number of a socket which was closed without our knowledge. */
static bool is_socket(int fd)
{
	struct stat status;

	return real()->fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode);
}

EXPORT FILE *fdopen(int fd, const char *mode)
{
	struct descriptor d = descriptor_get(fd);

	if (d.kind == DESCRIPTOR_OFFLOADED && is_socket(fd))
		return open_stream(fd, mode);
	if (d.kind == DESCRIPTOR_UNDECIDED && decide_stay(fd, XTS_REASON_RAW) < 0)
		return NULL;
	if (d.kind == DESCRIPTOR_INTERNAL && !xts_inside.locked) { /* whose fclose() would close it */
		errno = EBADF;
		return NULL;
	}
	return real()->fdopen(fd, mode);
}
FILE *_IO_fdopen(int fd, const char *mode) __attribute__((alias("fdopen"))) EXPORT;

/* --- the standard streams ----------------------------------------------------------------------------------------- */

static FILE *originals[3]; /* while they are replaced */

static FILE **standard(int fd)
{
	return fd == STDIN_FILENO ? &stdin : fd == STDOUT_FILENO ? &stdout : &stderr;
}

/* Drops its stream, but not the descriptor, which is another file by now. */
static void drop_stream(FILE *file)
{
	lock_streams();
	for (struct stream *stream = streams; stream; stream = stream->next) {
		if (stream->file == file)
			stream->fd = -1;
	}
	unlock_streams();
	real()->fclose(file);
}

void stream_follow(int fd)
{
	FILE **variable, *made;
	bool ours;

	if (fd < 0 || fd > STDERR_FILENO)
		return;
	ours = descriptor_offloaded(fd) >= 0;
	if (!ours && !originals[fd])
		return;
	variable = standard(fd);
	if (originals[fd]) {
		made = *variable;
		*variable = originals[fd];
		originals[fd] = NULL;
		drop_stream(made);
	}
	if (!ours)
		return;
	made = open_stream(fd, fd == STDIN_FILENO ? "r" : "w");
	if (!made)
		return;
	if (fd == STDERR_FILENO)
		setvbuf(made, NULL, _IONBF, 0);
	originals[fd] = *variable;
	*variable = made;
}

void streams_follow(int number)
{
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (descriptor_offloaded(fd) == number)
			stream_follow(fd);
}

/* exit() ends libxts before it writes out the data that streams still hold: our streams have to be flushed earlier. */
__attribute__((destructor)) static void flush_streams(void)
{
	for (struct stream *stream = streams; stream; stream = stream->next)
		fflush(stream->file);
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

static int descriptor_of(FILE *file)
{
	int fd = -1;

	lock_streams();
	for (struct stream *stream = streams; stream && fd < 0; stream = stream->next) {
		if (stream->file == file)
			fd = stream->fd;
	}
	unlock_streams();
	return fd;
}

int *stream_orientation(FILE *file)
{
	int *of = NULL;

	xts_look_who_calls();
	if (!streams)
		return NULL;
	lock_streams();
	for (struct stream *stream = streams; stream && !of; stream = stream->next) {
		if (stream->file == file)
			of = &stream->orientation;
	}
	unlock_streams();
	return of;
}

EXPORT int fileno(FILE *file)
{
	int fd;

	xts_look_who_calls();
	fd = streams ? descriptor_of(file) : -1;
	return fd < 0 ? real()->fileno(file) : fd;
}

EXPORT int fileno_unlocked(FILE *file)
{
	return fileno(file);
}

/* The C library closes the descriptor itself: its entry in the table is removed first. */
static void forget(FILE *file)
{
	int fd = real()->fileno(file);
	struct descriptor d = descriptor_get(fd);

	if (fd < 0 || d.kind == DESCRIPTOR_KERNEL || d.kind == DESCRIPTOR_INTERNAL)
		return;
	epoll_descriptor_gone(fd, d);
	descriptor_release(descriptor_take(fd));
}

EXPORT int fclose(FILE *file)
{
	if (file)
		forget(file);
	return real()->fclose(file);
}
int _IO_fclose(FILE *file) __attribute__((alias("fclose"))) EXPORT;

/* A stream of ours cannot be turned into one of the C library's. A standard stream of ours replaces the program's own,
 * which can be reopened. */
static FILE *reopen_ours(const char *path, const char *mode, FILE *file, int fd)
{
	FILE *own = fd <= STDERR_FILENO && *standard(fd) == file ? originals[fd] : NULL;

	fflush(file);
	if (own) {
		epoll_descriptor_gone(fd, descriptor_get(fd));
		descriptor_release(descriptor_take(fd));
		stream_follow(fd);
		return real()->freopen(path, mode, own);
	}
	real()->fclose(file);
	preload_refused();
	preload_log("descriptor %d: a stream on an offloaded socket cannot become a file", fd);
	errno = EOPNOTSUPP;
	return NULL;
}

EXPORT FILE *freopen(const char *restrict path, const char *restrict mode, FILE *restrict file)
{
	int fd = file && streams ? descriptor_of(file) : -1;

	if (fd >= 0)
		return reopen_ours(path, mode, file, fd);
	if (file)
		forget(file);
	return real()->freopen(path, mode, file);
}
FILE *freopen64(const char *restrict path, const char *restrict mode, FILE *restrict file)
	__attribute__((alias("freopen"))) EXPORT;

/* --- dprintf ------------------------------------------------------------------------------------------------------ */

EXPORT int vdprintf(int fd, const char *restrict format, va_list arguments)
{
	char *text;
	int bytes, done = 0;

	if (descriptor_offloaded(fd) < 0)
		return real()->vdprintf(fd, format, arguments);
	bytes = vasprintf(&text, format, arguments);
	while (bytes >= 0 && done < bytes) {
		ssize_t r = write(fd, text + done, (size_t)(bytes - done));

		if (r < 0) {
			free(text);
			return -1;
		}
		done += (int)r;
	}
	if (bytes >= 0)
		free(text);
	return bytes;
}

EXPORT int dprintf(int fd, const char *restrict format, ...)
{
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = vdprintf(fd, format, arguments);
	va_end(arguments);
	return r;
}

EXPORT int __vdprintf_chk(int fd, int flag, const char *restrict format, va_list arguments)
{
	if (descriptor_offloaded(fd) < 0)
		return real()->__vdprintf_chk(fd, flag, format, arguments);
	return vdprintf(fd, format, arguments);
}

EXPORT int __dprintf_chk(int fd, int flag, const char *restrict format, ...)
{
	va_list arguments;
	int r;

	va_start(arguments, format);
	r = __vdprintf_chk(fd, flag, format, arguments);
	va_end(arguments);
	return r;
}
