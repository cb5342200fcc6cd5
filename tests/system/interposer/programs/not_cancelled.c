/*
 * Calls that are no cancellation points wait on when their thread is cancelled: sendfile(), and whatever is called by
 * number. Each returns what it has waited for, and the thread ends at its next cancellation point. Asserts.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%d: %s (%s)\n", __LINE__, #what, now_at); \
			_exit(1); \
		} \
	} while (0)

static const char *now_at = "";
static int client, server, file;
static atomic_int tid;
static atomic_long result;

static void receive(void)
{
	char data[9];

	result = syscall(SYS_recvfrom, client, data, sizeof data, 0, NULL, NULL);
}

static void wait_for_data(void)
{
	struct pollfd fd = { .fd = client, .events = POLLIN };

	result = syscall(SYS_ppoll, &fd, 1L, NULL, NULL, 8L);
}

/* More than all buffers take. */
static void send_file(void)
{
	long sent = 0, r;

	while (sent < 64 << 20 && (r = sendfile(client, file, NULL, 64 << 20)) > 0)
		sent += r;
	result = sent;
}

static void *run(void *call)
{
	tid = (int)syscall(SYS_gettid);
	((void (*)(void))call)();
	pthread_testcancel();
	return NULL;
}

/* The thread sleeps, as /proc shows. */
static void until_asleep(void)
{
	char path[64], state = 0;

	while (state != 'S') {
		FILE *status;

		usleep(20000);
		snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
		status = tid ? fopen(path, "re") : NULL;
		if (status) {
			CHECK(fscanf(status, "%*d %*s %c", &state) == 1);
			fclose(status);
		}
	}
}

static void try(const char *name, void (*call)(void), long expected)
{
	static char data[65536];
	pthread_t thread;
	void *end;

	now_at = name;
	tid = 0;
	result = -1;
	CHECK(!pthread_create(&thread, NULL, run, (void *)call));
	until_asleep();
	CHECK(!pthread_cancel(thread));
	usleep(50000);
	CHECK(result == -1);
	if (call == send_file) {
		for (long left = 64 << 20; left > 0;) {
			ssize_t n = recv(server, data, sizeof data, 0);

			CHECK(n > 0);
			left -= n;
		}
	} else {
		CHECK(send(server, "data", 4, 0) == 4);
	}
	CHECK(!pthread_join(thread, &end) && end == PTHREAD_CANCELED);
	CHECK(result == expected);
	while (call == wait_for_data && recv(client, data, sizeof data, MSG_DONTWAIT) > 0)
		;
}

int main(void)
{
	struct sockaddr_in where = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof where;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	CHECK(!bind(listener, (struct sockaddr *)&where, length) && !listen(listener, 1));
	CHECK(!getsockname(listener, (struct sockaddr *)&where, &length));
	client = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(!connect(client, (struct sockaddr *)&where, length));
	server = accept(listener, NULL, NULL);
	file = memfd_create("file", MFD_CLOEXEC);
	CHECK(server >= 0 && !ftruncate(file, 64 << 20));
	try("recvfrom", receive, 4);
	try("ppoll", wait_for_data, 1);
	try("sendfile", send_file, 64 << 20);
	return 0;
}
