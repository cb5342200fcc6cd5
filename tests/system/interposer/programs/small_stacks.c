/*
 * `small_stacks BYTES`: a thread with a stack of so many bytes makes all calls that have a buffer on the kernel's side.
 * The first one attaches. The kernel's calls need none of a thread's stack. Prints "passed".
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOME 100
#define CHECK(condition) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
			exit(1); \
		} \
	} while (0)

static void connected(int ends[2])
{
	const char *here = getenv("LISTEN_AT");
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t length = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(inet_pton(AF_INET, here ? here : "127.0.0.1", &at.sin_addr) == 1);
	CHECK(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&at, &length) == 0);
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(ends[0], (struct sockaddr *)&at, sizeof at) == 0);
	ends[1] = accept(listener, NULL, NULL);
	CHECK(ends[1] >= 0 && close(listener) == 0);
}

static int passed(int fd)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = { 0 };
	char byte = 0;
	struct iovec data = { &byte, 1 };
	struct msghdr m = { .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	int ways[2], got;

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ways) == 0 && sendmsg(ways[0], &m, 0) == 1);
	CHECK(recvmsg(ways[1], &m, 0) == 1);
	memcpy(&got, CMSG_DATA(c), sizeof got);
	close(ways[0]);
	close(ways[1]);
	return got;
}

static void copies(const int ends[2])
{
	int file = memfd_create("source", 0), ways[2], done = 0;
	char data[SOME];

	CHECK(ftruncate(file, SOME) == 0 && sendfile(ends[0], file, NULL, SOME) == SOME);
	CHECK(pipe(ways) == 0);
	while (done < SOME) {
		ssize_t n = splice(ends[1], NULL, ways[1], NULL, SOME, 0);

		CHECK(n > 0);
		done += (int)n;
	}
	CHECK(splice(ways[0], NULL, ends[1], NULL, SOME, 0) == SOME);
	CHECK(recv(ends[0], data, SOME, MSG_WAITALL) == SOME);
}

static void waits(const int ends[2])
{
	struct epoll_event event = { .events = EPOLLIN };
	struct pollfd state = { .fd = ends[1], .events = POLLIN };
	struct timeval limit = { 10, 0 };
	int set = epoll_create1(0);
	fd_set some;
	char data[2];

	CHECK(dprintf(ends[0], "%d", 42) == 2);
	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, ends[1], &event) == 0 && epoll_wait(set, &event, 1, 10000) == 1);
	FD_ZERO(&some);
	FD_SET(ends[1], &some);
	CHECK(select(ends[1] + 1, &some, NULL, NULL, &limit) == 1 && poll(&state, 1, 10000) == 1);
	CHECK(recv(ends[1], data, 2, MSG_WAITALL) == 2);
	close(set);
}

static void *calls(void *unused)
{
	int ends[2], on = 1, again;
	struct tcp_info info;
	socklen_t length = sizeof info;

	(void)unused;
	connected(ends);
	waits(ends);
	copies(ends);
	again = passed(ends[0]);
	CHECK(write(again, "x", 1) == 1 && read(ends[1], &info, 1) == 1);
	CHECK(setsockopt(ends[0], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
	CHECK(getsockopt(ends[0], IPPROTO_TCP, TCP_INFO, &info, &length) == 0);
	CHECK(shutdown(ends[0], SHUT_WR) == 0 && read(ends[1], &info, 1) == 0);
	close(again);
	close(ends[0]);
	close(ends[1]);
	return NULL;
}

static void *in_child(void *unused)
{
	int status;
	pid_t child = fork();

	if (!child) {
		calls(unused);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	return NULL;
}

int main(int count, char *arguments[])
{
	void *(*const each[])(void *) = { calls, in_child };
	pthread_attr_t attributes;
	pthread_t thread;

	CHECK(count == 2 && pthread_attr_init(&attributes) == 0);
	CHECK(pthread_attr_setstacksize(&attributes, (size_t)atol(arguments[1])) == 0);
	for (unsigned i = 0; i < 2; i++)
		CHECK(pthread_create(&thread, &attributes, each[i], NULL) == 0 && pthread_join(thread, NULL) == 0);
	puts("passed");
	return 0;
}
