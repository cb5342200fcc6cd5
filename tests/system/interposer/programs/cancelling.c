/*
 * Threads are cancelled while they wait in a call (pthread_cancel): each of them ends, its cleanup handler runs, nothing
 * is lost of what comes later, no descriptor is leaked, and other threads go on with the same socket. With -DOWN the
 * calls are those of libxts, else of the C library. argv: a port where a connect waits, or 0; how often. Asserts.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifdef OWN
#include "xts.h"
#define socket xts_socket
#define bind xts_bind
#define listen xts_listen
#define connect xts_connect
#define accept xts_accept
#define getsockname xts_getsockname
#define setsockopt xts_setsockopt
#define fcntl xts_fcntl
#define recv xts_recv
#define recvfrom xts_recvfrom
#define recvmsg xts_recvmsg
#define recvmmsg xts_recvmmsg
#define send xts_send
#define sendmsg xts_sendmsg
#define poll xts_poll
#define close xts_close
#define pthread_cancel xts_pthread_cancel
#endif

#define WAIT_S 20
#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s: %s (%s)\n", __FILE__, __LINE__, #what, strerror(errno), now_at); \
			_exit(1); \
		} \
	} while (0)

static const char *now_at = "";
static struct sockaddr_in where = { .sin_family = AF_INET }, full = { .sin_family = AF_INET };
static int listener, client, server, datagrams;
static int made = -1; /* by the thread */
#ifndef OWN
static int set, empty_set;
#endif
static _Atomic int cleaned, tid;

/* --- the calls ---------------------------------------------------------------------------------------------------- */

static char room[1 << 20];
static struct iovec piece = { .iov_base = room, .iov_len = sizeof room };
static struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };

static long receives(void)
{
	return recv(client, room, 9, 0);
}

static long receives_all(void)
{
	return recv(client, room, 9, MSG_WAITALL);
}

static long receives_from(void)
{
	return recvfrom(client, room, 9, 0, NULL, NULL);
}

static long receives_a_message(void)
{
	struct msghdr m = message;

	return recvmsg(client, &m, 0);
}

static long receives_messages(void)
{
	struct mmsghdr m = { .msg_hdr = message };

	return recvmmsg(datagrams, &m, 1, 0, NULL);
}

static long receives_a_datagram(void)
{
	return recv(datagrams, room, 9, 0);
}

static long sends(void)
{
	for (;;)
		if (send(client, room, sizeof room, MSG_NOSIGNAL) < 0)
			return -1;
}

static long sends_a_message(void)
{
	for (;;)
		if (sendmsg(client, &message, MSG_NOSIGNAL) < 0)
			return -1;
}

static long accepts(void)
{
	return accept(listener, NULL, NULL);
}

static long connects(void)
{
	made = socket(AF_INET, SOCK_STREAM, 0);
	return connect(made, (struct sockaddr *)&full, sizeof full);
}

static long polls(void)
{
	struct pollfd fds[] = { { .fd = client, .events = POLLIN }, { .fd = datagrams, .events = POLLIN } };

	return poll(fds, 2, -1);
}

#ifndef OWN
static long reads(void)
{
	return read(client, room, 9);
}

static long reads_pieces(void)
{
	return readv(client, &piece, 1);
}

static long writes(void)
{
	for (;;)
		if (write(client, room, sizeof room) < 0)
			return -1;
}

static long polls_many(void)
{
	struct pollfd fds[100];

	for (int i = 0; i < 100; i++)
		fds[i] = (struct pollfd){ .fd = i ? server : client, .events = POLLIN };
	return ppoll(fds, 100, NULL, NULL);
}

static long selects(void)
{
	fd_set readable;

	FD_ZERO(&readable);
	FD_SET(client, &readable);
	return select(client + 1, &readable, NULL, NULL, NULL);
}

static long selects_with_a_mask(void)
{
	fd_set readable;

	FD_ZERO(&readable);
	FD_SET(client, &readable);
	return pselect(client + 1, &readable, NULL, NULL, NULL, NULL);
}

static long waits(void)
{
	struct epoll_event events[4];

	return epoll_wait(set, events, 4, -1);
}

static long waits_with_a_mask(void)
{
	struct epoll_event events[4];
	sigset_t none;

	sigemptyset(&none);
	return epoll_pwait(set, events, 4, -1, &none);
}

static long waits_in_the_kernel(void)
{
	struct epoll_event events[4];

	return epoll_wait(empty_set, events, 4, -1);
}

static long polls_a_set(void)
{
	struct pollfd fd = { .fd = empty_set, .events = POLLIN };

	return poll(&fd, 1, -1);
}

static long receives_undecided(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	made = socket(AF_INET, SOCK_DGRAM, 0);
	bind(made, (struct sockaddr *)&any, sizeof any);
	return recv(made, room, 9, 0);
}
#endif

static const struct {
	const char *name;
	long (*call)(void);
	bool fills; /* the connection is full afterwards: made again */
} calls[] = {
	{ "recv", receives, false },
	{ "recv, MSG_WAITALL", receives_all, false },
	{ "recvfrom", receives_from, false },
	{ "recvmsg", receives_a_message, false },
	{ "recvmmsg of datagrams", receives_messages, false },
	{ "recv of datagrams", receives_a_datagram, false },
	{ "send", sends, true },
	{ "sendmsg", sends_a_message, true },
	{ "accept", accepts, false },
	{ "connect", connects, false },
	{ "poll", polls, false },
#ifndef OWN
	{ "read", reads, false },
	{ "readv", reads_pieces, false },
	{ "write", writes, true },
	{ "ppoll of many", polls_many, false },
	{ "select", selects, false },
	{ "pselect", selects_with_a_mask, false },
	{ "epoll_wait", waits, false },
	{ "epoll_pwait", waits_with_a_mask, false },
	{ "epoll_wait of an empty set", waits_in_the_kernel, false },
	{ "poll of an empty set", polls_a_set, false },
	{ "recv, undecided", receives_undecided, false },
#endif
};
#define CALLS (sizeof calls / sizeof *calls)

/* --- sockets ------------------------------------------------------------------------------------------------------ */

static void connect_both(void)
{
	client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(client, (struct sockaddr *)&where, sizeof where) == 0);
	server = accept(listener, NULL, NULL);
	CHECK(server >= 0);
#ifndef OWN
	struct epoll_event event = { .events = EPOLLIN };

	CHECK(epoll_ctl(set, EPOLL_CTL_ADD, client, &event) == 0);
#endif
}

static void set_up(int port)
{
	socklen_t length = sizeof where;

	where.sin_addr.s_addr = full.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	full.sin_port = htons((uint16_t)port);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(bind(listener, (struct sockaddr *)&where, sizeof where) == 0 && listen(listener, 5) == 0);
	CHECK(getsockname(listener, (struct sockaddr *)&where, &length) == 0);
#ifndef OWN
	set = epoll_create1(0);
	empty_set = epoll_create1(0);
#endif
	datagrams = socket(AF_INET, SOCK_DGRAM, 0);
	CHECK(bind(datagrams,
		   (struct sockaddr *)&(struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = where.sin_addr },
		   sizeof where) == 0);
	connect_both();
}

/* All that the threads used still works, and has lost nothing. */
static void goes_on(void)
{
	struct sockaddr_in to;
	socklen_t length = sizeof to;
	struct pollfd fd = { .fd = client, .events = POLLIN };
	int other, accepted;

	CHECK(send(server, "hello", 5, 0) == 5);
	CHECK(poll(&fd, 1, WAIT_S * 1000) == 1);
	CHECK(recv(client, room, 5, MSG_WAITALL) == 5 && !memcmp(room, "hello", 5));
	CHECK(send(client, "answer", 6, 0) == 6 && recv(server, room, 6, MSG_WAITALL) == 6);
	CHECK(getsockname(datagrams, (struct sockaddr *)&to, &length) == 0);
	other = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(connect(other, (struct sockaddr *)&where, sizeof where) == 0);
	accepted = accept(listener, NULL, NULL);
	CHECK(accepted >= 0 && close(accepted) == 0 && close(other) == 0);
}

static int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	int count = 0;

	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

static void clean(void *unused)
{
	(void)unused;
	cleaned++;
}

struct job {
	long (*call)(void);
	int type, state;
	bool at_once; /* the request comes before the call */
};

static void *thread(void *argument)
{
	const struct job *job = argument;
	long r;

	pthread_setcanceltype(job->type, NULL);
	pthread_setcancelstate(job->state, NULL);
	pthread_cleanup_push(clean, NULL);
	if (job->at_once)
		pthread_cancel(pthread_self());
	tid = (int)syscall(SYS_gettid);
	r = job->call();
	if (job->state == PTHREAD_CANCEL_DISABLE) {
		pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
		pthread_testcancel();
	}
	pthread_cleanup_pop(0);
	return (void *)r;
}

/* Until the thread sleeps: it has done so twice in a row, without running in between. */
static void until_it_sleeps(void)
{
	unsigned long before = 0, now = 1;
	char path[64], line[512], state = 'R';

	for (int tries = 0; tries < 4000 && !(state == 'S' && now == before); tries++) {
		FILE *file;

		usleep(5000);
		before = now;
		snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
		file = tid ? fopen(path, "r") : NULL;
		if (!file)
			continue;
		if (fgets(line, sizeof line, file))
			sscanf(strrchr(line, ')'), ") %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu", &state, &now);
		fclose(file);
	}
	CHECK(state == 'S');
}

static void *ended(pthread_t id)
{
	struct timespec until;
	void *result;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += WAIT_S;
	errno = pthread_timedjoin_np(id, &result, &until);
	CHECK(errno == 0);
	return result;
}

static pthread_t begin(struct job *job)
{
	pthread_t id;

	tid = 0;
	cleaned = 0;
	CHECK(pthread_create(&id, NULL, thread, job) == 0);
	if (!job->at_once)
		until_it_sleeps();
	return id;
}

static void cancel_it(struct job *job)
{
	pthread_t id = begin(job);

	if (!job->at_once)
		CHECK(pthread_cancel(id) == 0);
	CHECK(ended(id) == PTHREAD_CANCELED && cleaned == 1);
}

static void each_call(int type)
{
	for (size_t i = 0; i < CALLS; i++) {
		struct job job = { .call = calls[i].call, .type = type };

		if (calls[i].call == connects && !full.sin_port)
			continue;
		now_at = calls[i].name;
		cancel_it(&job);
		if (made >= 0)
			CHECK(close(made) == 0);
		made = -1;
		if (calls[i].fills) {
			close(client);
			close(server);
			connect_both();
		}
		goes_on();
	}
}

/* The thread sleeps on, and the call returns what comes; then the thread ends. */
static void disabled(void)
{
	struct job job = { .call = receives, .state = PTHREAD_CANCEL_DISABLE };
	pthread_t id = begin(&job);

	now_at = "disabled";
	CHECK(pthread_cancel(id) == 0);
	until_it_sleeps();
	CHECK(send(server, "x", 1, 0) == 1);
	CHECK(ended(id) == PTHREAD_CANCELED && cleaned == 1);
	goes_on();
}

/* A call that would not wait does not begin. */
static void before_the_call(void)
{
	struct job job = { .call = receives, .at_once = true };

	now_at = "before";
	CHECK(send(server, "kept", 4, 0) == 4);
	cancel_it(&job);
	CHECK(recv(client, room, 4, MSG_WAITALL) == 4 && !memcmp(room, "kept", 4));
	goes_on();
}

/* Of two that wait, the other goes on: also if the first was the one that looked at the queue for both. */
static void one_of_two(void)
{
	struct job job = { .call = receives };
	pthread_t first = begin(&job), second = begin(&job);

	now_at = "one of two";
	CHECK(pthread_cancel(first) == 0 && ended(first) == PTHREAD_CANCELED);
	CHECK(send(server, "x", 1, 0) == 1);
	CHECK(ended(second) == (void *)1);
	goes_on();
}

int main(int argc, char **argv)
{
	int before = 0, times = argc > 2 ? atoi(argv[2]) : 1;

	signal(SIGPIPE, SIG_IGN);
	set_up(atoi(argv[1]));
	for (int i = 0; i < times; i++) {
		each_call(PTHREAD_CANCEL_DEFERRED);
		each_call(PTHREAD_CANCEL_ASYNCHRONOUS);
		disabled();
		before_the_call();
		one_of_two();
		if (!i)
			before = descriptors();
	}
	now_at = "descriptors";
	for (int tries = 0; descriptors() > before && tries < 1000; tries++)
		usleep(5000); /* a queue that a thread had may be on its way back */
	CHECK(descriptors() <= before);
	printf("%zu calls\n", CALLS);
	return 0;
}
