/*
 * sendfile() and splice() with an offloaded socket at one end: these copy one page or a few at a time. Nothing is
 * removed from one end before the other has accepted it. A file is read at an offset that advances only by what was
 * sent, a pipe is read through a duplicate (tee), a connection with MSG_PEEK. A datagram is removed first.
 */
#include "preload.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/arguments.h"

#define COPY_BYTES 32768u
#define SEND_BYTES_MAX 0x7ffff000u
#define OFF_MAX INT64_MAX
/* Each file system has a limit, and the kernel knows it: this is below all of them. */
#define SURE_OFFSET ((off_t)1 << 30)
#define SPLICE_FLAGS (unsigned)(SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT)

/* Is it open, and not only for the other direction? */
static bool is_open(int fd, int other_way)
{
	int status = real()->fcntl(fd, F_GETFL);

	return status >= 0 && (status & O_ACCMODE) != other_way;
}

/* --- sendfile ----------------------------------------------------------------------------------------------------- */

/* May the kernel's sendfile() read from it? Not from everything that can be read and has positions. Asks for a byte, or
 * for nothing. */
static int ask_kernel(int in, const off_t *offset, size_t count)
{
	off_t from = offset ? *offset : lseek(in, 0, SEEK_CUR);
	int aside[2], error;
	ssize_t r;

	if (real()->pipe2(aside, O_CLOEXEC) < 0)
		return -1;
	r = real()->sendfile(aside[1], in, offset ? &from : NULL, count != 0);
	error = errno;
	if (!offset)
		lseek(in, from, SEEK_SET);
	real()->close(aside[0]);
	real()->close(aside[1]);
	errno = error;
	return r < 0 ? -1 : 0;
}

static bool is_on_disk(const struct stat *status)
{
	return (S_ISREG(status->st_mode) && status->st_size) || S_ISBLK(status->st_mode);
}

/* Checks what the kernel would refuse: a source that it cannot read pages of, an invalid offset, too many bytes. */
static int check_source(int in, const off_t *offset, size_t count, off_t *at)
{
	struct stat status;
	bool refused;

	if (argument_is_bad(offset, offset ? sizeof *offset : 0)) {
		errno = EFAULT;
		return -1;
	}
	if (real()->fstat(in, &status) < 0)
		return -1;
	*at = offset ? *offset : lseek(in, 0, SEEK_CUR);
	if (!is_on_disk(&status) && lseek(in, 0, SEEK_CUR) < 0) {
		errno = offset ? ESPIPE : EINVAL; /* what cannot be sought in has no offset, and is no source either */
		return -1;
	}
	if (!is_on_disk(&status) && !S_ISDIR(status.st_mode) && ask_kernel(in, offset, count) < 0)
		return -1;
	refused = *at < 0 || count > (size_t)(OFF_MAX - *at);
	if ((refused || !count) && !is_open(in, O_WRONLY)) {
		errno = EBADF;
		return -1;
	}
	if (refused) {
		errno = EINVAL;
		return -1;
	}
	return *at >= SURE_OFFSET || S_ISDIR(status.st_mode) ? ask_kernel(in, offset, count) : 0;
}

/* Not on the stack: the kernel's calls use none, and so a program may have threads with little of it. */
static char *buffer_of(size_t room)
{
	char *buffer = malloc(room ? room : 1);

	if (!buffer)
		errno = ENOMEM;
	return buffer;
}

static void release(char *buffer)
{
	int before = errno;

	free(buffer);
	errno = before;
}

static ssize_t send_file(int s, int in, off_t *offset, size_t count)
{
	size_t done = 0, room = count < COPY_BYTES ? count : COPY_BYTES;
	ssize_t r = 0;
	char *buffer;
	off_t at;

	if (check_source(in, offset, count, &at) < 0)
		return -1;
	if (count > SEND_BYTES_MAX)
		count = SEND_BYTES_MAX;
	buffer = buffer_of(room);
	if (!buffer)
		return -1;
	while (done < count) {
		size_t part = count - done < room ? count - done : room;
		ssize_t had = real()->pread(in, buffer, part, at);

		r = had;
		if (had <= 0)
			break;
		r = XTS(xts_send(s, buffer, (size_t)had, done + (size_t)had < count ? MSG_MORE : 0));
		if (r < 0)
			break;
		done += (size_t)r;
		at += r;
		if (r < had)
			break;
	}
	release(buffer);
	if (offset)
		*offset = at;
	else if (done)
		lseek(in, at, SEEK_SET);
	return done ? (ssize_t)done : r;
}

/* --- splice ------------------------------------------------------------------------------------------------------- */

/* A pipe that polls writable accepts PIPE_BUF bytes without waiting. */
static int pipe_is_ready(int fd, short events, bool wait, const struct preload_undo *undo)
{
	struct pollfd state = { .fd = fd, .events = events };
	int r = wait ? preload_sleep_poll(&state, 1, NULL, NULL, undo) : real()->poll(&state, 1, 0);

	if (r == 0)
		errno = EAGAIN;
	else if (r < 0 && errno == EINTR)
		errno = ERESTART;
	return r > 0 ? 0 : -1;
}

static bool pipe_waits(int fd, unsigned flags)
{
	return !(flags & SPLICE_F_NONBLOCK) && !(real()->fcntl(fd, F_GETFL) & O_NONBLOCK);
}

static void close_both(void *aside)
{
	real()->close(((const int *)aside)[0]);
	real()->close(((const int *)aside)[1]);
}

/* Copies data of the pipe into buffer, without removing it. wait: waits for data if there is none. */
static ssize_t look_into_pipe(int pipe_in, const int aside[2], char *buffer, size_t bytes, bool wait)
{
	const struct preload_undo undo = { .undo = close_both, .argument = (void *)aside };
	ssize_t had;

	do {
		if (wait && pipe_is_ready(pipe_in, POLLIN, true, &undo) < 0)
			return -1;
		had = real()->tee(pipe_in, aside[1], bytes, SPLICE_F_NONBLOCK);
	} while (had < 0 && errno == EAGAIN && wait); /* try again if another reader has taken it */
	return had <= 0 ? had : real()->read(aside[0], buffer, (size_t)had);
}

static ssize_t pipe_to_socket(int pipe_in, int s, size_t bytes, unsigned flags)
{
	bool wait = pipe_waits(pipe_in, flags);
	size_t done = 0, room = bytes < COPY_BYTES ? bytes : COPY_BYTES;
	char *buffer = buffer_of(room);
	int aside[2];
	ssize_t r = 0;

	if (!buffer)
		return -1;
	if (real()->pipe2(aside, O_CLOEXEC) < 0) {
		release(buffer);
		return -1;
	}
	while (done < bytes) {
		size_t part = bytes - done < room ? bytes - done : room;
		ssize_t had = look_into_pipe(pipe_in, aside, buffer, part, wait && !done);

		r = had;
		if (had <= 0)
			break;
		r = XTS(xts_send(s, buffer, (size_t)had, flags & SPLICE_F_MORE ? MSG_MORE : 0));
		if (r < 0)
			break;
		done += (size_t)r;
		if (real()->read(pipe_in, buffer, (size_t)r) != r || r < had)
			break;
	}
	close_both(aside);
	release(buffer);
	return done ? (ssize_t)done : r;
}

/* The kernel looks at the pipe first: nobody reads it. */
static bool pipe_is_broken(int pipe_out)
{
	struct pollfd state = { .fd = pipe_out, .events = POLLOUT };

	if (real()->poll(&state, 1, 0) != 1 || !(state.revents & POLLERR))
		return false;
	pthread_kill(pthread_self(), SIGPIPE);
	errno = EPIPE;
	return true;
}

/* Data of the socket, without removing it. wait: waits for data if there is none. */
static ssize_t look_into_socket(int s, char *buffer, size_t bytes, bool wait)
{
	return XTS(xts_recv(s, buffer, bytes, MSG_PEEK | (wait ? 0 : MSG_DONTWAIT)));
}

/* Removes bytes that were looked at. One call may give fewer; if they are gone, another reader has them. */
static int take_away(int s, char *buffer, size_t bytes)
{
	while (bytes) {
		ssize_t r = XTS(xts_recv(s, buffer, bytes, MSG_DONTWAIT));

		if (r <= 0)
			return -1;
		bytes -= (size_t)r;
	}
	return 0;
}

/* As in the kernel, the pipe is waited for first. */
static ssize_t socket_to_pipe(int s, int pipe_out, size_t bytes, unsigned flags)
{
	bool wait = pipe_waits(pipe_out, flags);
	char buffer[PIPE_BUF];
	size_t done = 0;
	ssize_t r = 0;

	if (pipe_is_broken(pipe_out))
		return -1;
	while (done < bytes) {
		size_t part = bytes - done < sizeof buffer ? bytes - done : sizeof buffer;

		r = pipe_is_ready(pipe_out, POLLOUT, wait && !done, NULL);
		if (!r)
			r = look_into_socket(s, buffer, part, !done);
		if (r <= 0)
			break;
		r = real()->write(pipe_out, buffer, (size_t)r);
		if (r <= 0)
			break;
		done += (size_t)r;
		if (take_away(s, buffer, (size_t)r))
			break;
	}
	return done ? (ssize_t)done : r;
}

static bool is_datagrams(int s)
{
	int type = 0;
	socklen_t length = sizeof type;

	return XTS(xts_getsockopt(s, SOL_SOCKET, SO_TYPE, &type, &length)) == 0 && type == SOCK_DGRAM;
}

/* How much fits, if the pipe is writable and nobody else writes to it. */
static size_t room_of(int pipe_out)
{
	int size = real()->fcntl(pipe_out, F_GETPIPE_SZ), used = 0;

	if (size < 0 || real()->ioctl(pipe_out, FIONREAD, &used) < 0 || size - used < PIPE_BUF)
		return PIPE_BUF;
	return (size_t)(size - used);
}

/* One datagram, an empty one too: of what does not fit, the rest is lost, as with recv(). As in the kernel, the pipe is
 * waited for first. */
static ssize_t datagram_to_pipe(int s, int pipe_out, size_t bytes, unsigned flags)
{
	size_t room;
	char *buffer;
	ssize_t r;

	if (pipe_is_broken(pipe_out) || pipe_is_ready(pipe_out, POLLOUT, pipe_waits(pipe_out, flags), NULL) < 0)
		return -1;
	room = room_of(pipe_out);
	buffer = buffer_of(bytes < room ? bytes : room);
	if (!buffer)
		return -1;
	r = XTS(xts_recv(s, buffer, bytes < room ? bytes : room, 0));
	if (r > 0)
		r = real()->write(pipe_out, buffer, (size_t)r);
	release(buffer);
	return r;
}

static bool is_pipe(int fd)
{
	struct stat status;

	return real()->fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode);
}

/* The kernel's checks, in its order: neither end has an offset, and the other end is a pipe. */
static bool offsets_are_right(bool piped, const off64_t *of_socket, const off64_t *of_other)
{
	if (piped && of_other)
		errno = ESPIPE;
	else if (argument_is_bad(of_socket, of_socket ? sizeof *of_socket : 0) ||
		 argument_is_bad(of_other, of_other ? sizeof *of_other : 0))
		errno = EFAULT;
	else if (!piped || of_socket)
		errno = EINVAL;
	else
		return true;
	return false;
}

EXPORT ssize_t splice(int in, off64_t *in_offset, int out, off64_t *out_offset, size_t bytes, unsigned flags)
{
	int from = descriptor_offloaded(in), to = descriptor_offloaded(out);

	/* As in the kernel, a length of 0, unknown flags and a bad descriptor are reported first. */
	if ((from < 0 && to < 0) || !bytes || flags & ~SPLICE_FLAGS ||
	    (from < 0 ? !is_open(in, O_WRONLY) : to < 0 && !is_open(out, O_RDONLY)))
		return real()->splice(in, in_offset, out, out_offset, bytes, flags);
	if (!offsets_are_right(is_pipe(from < 0 ? in : out), from < 0 ? out_offset : in_offset,
			       from < 0 ? in_offset : out_offset))
		return -1;
	xts_cancellation_point();
	if (from < 0)
		return CALL_AGAIN(pipe_to_socket(in, to, bytes, flags));
	return is_datagrams(from) ? CALL_AGAIN(datagram_to_pipe(from, out, bytes, flags)) :
				    CALL_AGAIN(socket_to_pipe(from, out, bytes, flags));
}

/* --- both --------------------------------------------------------------------------------------------------------- */

/* Since Linux 5.12 a socket is a source for a pipe, as for splice(). It has no offset. */
static ssize_t file_is_socket(int out, int in, const off_t *offset, size_t count)
{
	if (offset)
		errno = argument_is_bad(offset, sizeof *offset) ? EFAULT : ESPIPE;
	else if (!is_open(out, O_RDONLY))
		errno = EBADF;
	else if (is_pipe(out))
		return splice(in, NULL, out, NULL, count, 0);
	else
		errno = EINVAL;
	return -1;
}

EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	int s = descriptor_offloaded(out), before;
	ssize_t r;

	if (s < 0 && descriptor_offloaded(in) < 0)
		return real()->sendfile(out, in, offset, count);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before); /* it is no cancellation point */
	r = s < 0 ? file_is_socket(out, in, offset, count) : CALL_AGAIN(send_file(s, in, offset, count));
	pthread_setcancelstate(before, &(int){ 0 });
	return r;
}
ssize_t sendfile64(int out, int in, off64_t *offset, size_t count) __attribute__((alias("sendfile"))) EXPORT;
