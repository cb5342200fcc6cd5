/*
 * Calls of the C library under each of their names, as programs are linked with them: compiled with
 * -D_FORTIFY_SOURCE, sizes that the compiler does not know make the checked ones. One connection to itself; every
 * call is made on an end of it. Asserts.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno)); \
			exit(1); \
		} \
	} while (0)

/* Public names that no header declares. */
ssize_t __read(int fd, void *data, size_t bytes);
ssize_t __write(int fd, const void *data, size_t bytes);
ssize_t __send(int fd, const void *data, size_t bytes, int flags);
int __connect(int fd, const struct sockaddr *address, socklen_t length);
int __close(int fd);
int __dup2(int from, int to);
int __fcntl(int fd, int command, ...);
int __poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timeval *timeout);
int __pipe(int fds[2]);
int __open(const char *path, int flags, ...);
FILE *_IO_fdopen(int fd, const char *mode);
int _IO_fclose(FILE *file);

static int client, server;
static volatile size_t unknown = 16; /* to the compiler */

/* What was said at one end has come to the other. */
static void heard(int fd, const char *expected)
{
	char got[64] = "";

	CHECK(recv(fd, got, strlen(expected), MSG_WAITALL) == (ssize_t)strlen(expected));
	CHECK(!strcmp(got, expected));
}

static void say(const char *what)
{
	CHECK(__send(server, what, strlen(what), 0) == (ssize_t)strlen(what));
}

static void connect_both(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(listener >= 0 && client >= 0);
	CHECK(bind(listener, (struct sockaddr *)&address, length) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&address, &length) == 0);
	CHECK(__connect(client, (struct sockaddr *)&address, length) == 0);
	server = accept(listener, NULL, NULL);
	CHECK(server >= 0 && __close(listener) == 0);
}

static void checked_reads(void)
{
	char buffer[32];
	size_t n = unknown;

	say("read");
	CHECK(read(client, buffer, n) == 4);
	say("recv");
	CHECK(recv(client, buffer, n, 0) == 4);
	say("recvfrom");
	CHECK(recvfrom(client, buffer, n, 0, NULL, NULL) == 8);
	say("__read");
	CHECK(__read(client, buffer, sizeof buffer) == 6 && !memcmp(buffer, "__read", 6));
}

static void checked_waits(void)
{
	struct pollfd fds[4] = { { .fd = client, .events = POLLIN } };
	struct timeval none = { 0 };
	nfds_t count = unknown / 16;
	fd_set readable;

	say("x");
	CHECK(poll(fds, count, 10000) == 1 && fds[0].revents == POLLIN);
	CHECK(ppoll(fds, count, NULL, NULL) == 1);
	CHECK(__poll(fds, 1, 10000) == 1);
	FD_ZERO(&readable);
	FD_SET(client, &readable);
	CHECK(__select(client + 1, &readable, NULL, NULL, &none) == 1);
	heard(client, "x");
}

static void format(int fd, const char *how, ...)
{
	va_list list;

	va_start(list, how);
	CHECK(vdprintf(fd, how, list) > 0);
	va_end(list);
}

static void writes(void)
{
	struct iovec piece = { .iov_base = "pwritev64v2", .iov_len = 11 };
	char buffer[32];

	CHECK(dprintf(server, "%s-%d", "dprintf", 1) == 9);
	heard(client, "dprintf-1");
	format(server, "%s-%d", "vdprintf", 2);
	heard(client, "vdprintf-2");
	CHECK(__write(server, "__write", 7) == 7);
	heard(client, "__write");
	CHECK(pwritev64v2(server, &piece, 1, -1, 0) == 11);
	piece.iov_base = buffer;
	CHECK(preadv64v2(client, &piece, 1, -1, 0) == 11 && !memcmp(buffer, "pwritev64v2", 11));
}

static void files(void)
{
	int fd = memfd_create("file", 0), other;
	off64_t offset = 5;
	char line[32];
	FILE *stream;

	CHECK(fd >= 0 && write(fd, "from sendfile64", 15) == 15);
	CHECK(sendfile64(server, fd, &offset, 10) == 10 && offset == 15);
	heard(client, "sendfile64");
	CHECK(__close(fd) == 0);
	other = __fcntl(client, F_DUPFD_CLOEXEC, 0);
	CHECK(other >= 0 && __dup2(client, other) == other && fcntl64(other, F_GETFD) == 0);
	say("to a copy");
	heard(other, "to a copy");
	stream = _IO_fdopen(other, "r+");
	CHECK(stream && fileno_unlocked(stream) == other);
	say("a line\n");
	CHECK(fgets(line, (int)unknown, stream) && !strcmp(line, "a line\n"));
	CHECK(_IO_fclose(stream) == 0 && fcntl(other, F_GETFD) < 0 && errno == EBADF);
}

/* Their numbers are those of sockets that were closed past the interposer (by instruction, so to say). */
static void numbers_given_out(void)
{
	int ends[2], fd;

	fd = __open("/dev/zero", O_RDONLY);
	CHECK(fd >= 0 && read(fd, ends, sizeof ends) == sizeof ends && !ends[0] && __close(fd) == 0);
	CHECK(__pipe(ends) == 0 && write(ends[1], "p", 1) == 1 && close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void sets(void)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = 7 }, got[1];
	int set = epoll_create(1);

	CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, client, &event) == 0);
	say("e");
	CHECK(epoll_wait(set, got, 1, 10000) == 1 && got[0].data.u64 == 7 && close(set) == 0);
	heard(client, "e");
}

/* What was said before it is heard after it. */
static void leaves(void)
{
	int status;
	pid_t child = fork();

	if (!child) {
		CHECK(send(client, "from a child", 12, 0) == 12);
		_Exit(7);
	}
	CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	heard(server, "from a child");
}

int main(void)
{
	connect_both();
	checked_reads();
	checked_waits();
	writes();
	files();
	numbers_given_out();
	sets();
	if (getenv("LD_PRELOAD") && strstr(getenv("LD_PRELOAD"), "libxts-preload"))
		CHECK(syscall(SYS_io_uring_setup, 1, NULL) < 0 && errno == ENOSYS);
	leaves();
	return 0;
}
