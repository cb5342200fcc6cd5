/*
 * `waits_by_instruction CASE`, with its address in LISTEN_AT: waits for an epoll set by an instruction of its own, as
 * Bun does, and makes all other calls through the C library. Says what it has seen, which is the same on the kernel and
 * under the interposer.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEADLINE_MS 20000
#define NOTHING_MS 300
#define MANY 40

#define SURE(call) \
	({ \
		__typeof__(call) sure_ = (call); \
		if (sure_ < 0) { \
			perror(#call); \
			exit(1); \
		} \
		sure_; \
	})

static long by_instruction(long set, struct epoll_event *events, long max, long timeout_ms)
{
#if defined __x86_64__
	register long mask __asm__("r8") = 0, mask_bytes __asm__("r9") = 8, limit __asm__("r10") = timeout_ms;
	long r;

	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "0"((long)SYS_epoll_pwait), "D"(set), "S"(events), "d"(max), "r"(limit), "r"(mask),
			   "r"(mask_bytes)
			 : "rcx", "r11", "memory");
	return r;
#elif defined __aarch64__
	register long number __asm__("x8") = SYS_epoll_pwait, r __asm__("x0") = set, at __asm__("x1") = (long)events,
			     most __asm__("x2") = max, limit __asm__("x3") = timeout_ms, mask __asm__("x4") = 0,
			     mask_bytes __asm__("x5") = 8;

	__asm__ volatile("svc 0"
			 : "+r"(r)
			 : "r"(number), "r"(at), "r"(most), "r"(limit), "r"(mask), "r"(mask_bytes)
			 : "memory");
	return r;
#else
#error "which instruction is it here?"
#endif
}

/* --- sockets ------------------------------------------------------------------------------------------------------ */

static int set;
static const char *here = "127.0.0.1";

static int listener(struct sockaddr_in *address)
{
	socklen_t length = sizeof *address;
	int fd = SURE(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));

	*address = (struct sockaddr_in){ .sin_family = AF_INET };
	SURE(inet_pton(AF_INET, here, &address->sin_addr) - 1);
	SURE(bind(fd, (struct sockaddr *)address, sizeof *address));
	SURE(listen(fd, 100));
	SURE(getsockname(fd, (struct sockaddr *)address, &length));
	return fd;
}

static int attempt(int fd, const struct sockaddr_in *address)
{
	if (fd < 0)
		fd = SURE(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
	if (connect(fd, (const struct sockaddr *)address, sizeof *address) < 0 && errno != EINPROGRESS)
		printf("connect: %s\n", strerror(errno));
	return fd;
}

static void control(int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = { .events = events, .data.u64 = data };

	SURE(epoll_ctl(set, op, fd, &event));
}

/* The events of the one registration that has some, whose data is this; 0: none has, in the time. */
static uint32_t await(uint64_t data, int timeout_ms)
{
	struct epoll_event events[4];
	long n = by_instruction(set, events, 4, timeout_ms);

	if (n <= 0)
		return 0;
	if (n > 1 || events[0].data.u64 != data)
		printf("%ld events, the first of %llu\n", n, (unsigned long long)events[0].data.u64);
	return events[0].events;
}

/* An end comes in steps: with FIN first, and then with what follows from it. */
static void expect(const char *what, uint64_t data, uint32_t events)
{
	uint32_t came = await(data, DEADLINE_MS);

	for (int i = 0; i < 1000 && came && came != events && !(came & ~events); i++) {
		usleep(1000);
		came = await(data, DEADLINE_MS);
	}
	printf("%s: %s\n", what, (came & events) == events ? "yes" : "no");
}

static void expect_nothing(const char *what)
{
	printf("%s: %s\n", what, await(0, NOTHING_MS) ? "no" : "yes");
}

static void expect_data(int fd, const char *data)
{
	char room[100] = "";

	SURE(recv(fd, room, sizeof room - 1, 0));
	printf("%s\n", strcmp(room, data) ? room : "the data");
}

/* A connection, whose ends are registered with the data 2 and 3, in level-triggered ways or as events say. */
static void connection(int *client, int *served, uint32_t events)
{
	struct sockaddr_in address;
	int at = listener(&address);

	control(EPOLL_CTL_ADD, at, EPOLLIN, 1);
	*client = attempt(-1, &address);
	expect("a client has come", 1, EPOLLIN);
	*served = SURE(accept4(at, NULL, NULL, SOCK_NONBLOCK));
	control(EPOLL_CTL_DEL, at, 0, 0);
	close(at);
	control(EPOLL_CTL_ADD, *client, EPOLLOUT, 2);
	expect("it is connected", 2, EPOLLOUT);
	control(EPOLL_CTL_MOD, *client, events, 2);
	control(EPOLL_CTL_ADD, *served, events, 3);
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

static void case_both_ends(void)
{
	int client, served;

	connection(&client, &served, EPOLLIN | EPOLLRDHUP);
	expect_nothing("nothing is there yet");
	SURE(send(client, "ask", 3, 0));
	expect("a request", 3, EPOLLIN);
	expect("it is still there", 3, EPOLLIN);
	expect_data(served, "ask");
	expect_nothing("it has been read");
	SURE(send(served, "answer", 6, 0));
	expect("the answer", 2, EPOLLIN);
	expect_data(client, "answer");
	SURE(shutdown(client, SHUT_WR));
	expect("the end", 3, EPOLLIN | EPOLLRDHUP);
	control(EPOLL_CTL_MOD, served, 0, 3);
	SURE(close(served));
	expect("the other end", 2, EPOLLIN | EPOLLRDHUP | EPOLLHUP);
	SURE(close(client));
	expect_nothing("nobody is left");
}

static void case_edges(void)
{
	int client, served;

	connection(&client, &served, EPOLLIN | EPOLLET);
	SURE(send(client, "1", 1, 0));
	expect("an edge", 3, EPOLLIN);
	expect_nothing("only one");
	SURE(send(client, "2", 1, 0));
	expect("another one, with something unread", 3, EPOLLIN);
	expect_data(served, "12");
	control(EPOLL_CTL_MOD, served, EPOLLIN | EPOLLONESHOT, 3);
	SURE(send(client, "3", 1, 0));
	expect("once", 3, EPOLLIN);
	SURE(send(client, "4", 1, 0));
	expect_nothing("not twice");
	control(EPOLL_CTL_MOD, served, EPOLLIN | EPOLLONESHOT, 3);
	expect("once more", 3, EPOLLIN);
	control(EPOLL_CTL_DEL, served, 0, 0);
	SURE(send(client, "5", 1, 0));
	expect_nothing("not registered");
}

static void case_refused(void)
{
	struct sockaddr_in address, living;
	int fd, at = listener(&address), error = 0;
	socklen_t length = sizeof error;

	close(at);
	fd = attempt(-1, &address);
	control(EPOLL_CTL_ADD, fd, EPOLLOUT, 2);
	expect("it has failed", 2, EPOLLOUT | EPOLLHUP);
	SURE(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
	printf("%s\n", strerror(error));
	listener(&living);
	attempt(fd, &living); /* tells of the first attempt once more */
	attempt(fd, &living);
	expect("it is connected now", 2, EPOLLOUT);
	printf("and has not hung up: %s\n", await(2, 0) & EPOLLHUP ? "no" : "yes");
}

static void case_full(void)
{
	static char much[1 << 16];
	int client, served;
	ssize_t sent = 0, got = 0, n;

	connection(&client, &served, EPOLLIN);
	control(EPOLL_CTL_MOD, client, EPOLLOUT, 2);
	control(EPOLL_CTL_MOD, served, 0, 3);
	do {
		while ((n = send(client, much, sizeof much, 0)) > 0)
			sent += n;
	} while (await(2, NOTHING_MS)); /* what has left makes room */
	while (got < sent) {
		if ((n = recv(served, much, sizeof much, 0)) > 0)
			got += n;
		else
			poll(&(struct pollfd){ .fd = served, .events = POLLIN }, 1, 1000);
	}
	expect("there is", 2, EPOLLOUT);
}

static void case_many(void)
{
	struct sockaddr_in address;
	struct epoll_event events[MANY];
	int at = listener(&address), fds[MANY], seen = 0;
	bool told[MANY] = { 0 };

	for (int i = 0; i < MANY; i++) {
		int client = attempt(-1, &address);

		SURE(poll(&(struct pollfd){ .fd = at, .events = POLLIN }, 1, DEADLINE_MS));
		fds[i] = SURE(accept4(at, NULL, NULL, SOCK_NONBLOCK));
		SURE(send(client, "x", 1, 0));
	}
	for (int i = 0; i < MANY; i++)
		control(EPOLL_CTL_ADD, fds[i], EPOLLIN | EPOLLET, (uint64_t)i);
	while (seen < MANY) {
		long n = by_instruction(set, events, MANY, DEADLINE_MS);

		if (n <= 0)
			break;
		for (long i = 0; i < n; i++) {
			seen += !told[events[i].data.u64];
			told[events[i].data.u64] = true;
		}
	}
	printf("%d have something to read\n", seen);
}

static void case_calls_too(void)
{
	struct epoll_event events[4];
	int client, served;

	connection(&client, &served, EPOLLIN);
	SURE(send(client, "x", 1, 0));
	printf("%d event by a call", epoll_wait(set, events, 4, DEADLINE_MS));
	printf(", of %llu\n", (unsigned long long)events[0].data.u64);
	expect("and by instruction", 3, EPOLLIN);
	expect_data(served, "x");
	printf("%d events by a call\n", epoll_wait(set, events, 4, NOTHING_MS));
}

/* --- which -------------------------------------------------------------------------------------------------------- */

static void *sleeps(void *unused)
{
	pause();
	return unused;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "alone", case_both_ends },     { "both_ends", case_both_ends }, { "edges", case_edges },
		{ "refused", case_refused },     { "full", case_full },           { "many", case_many },
		{ "calls_too", case_calls_too },
	};
	pthread_t thread;

	if (argc < 2)
		return 1;
	if (getenv("LISTEN_AT"))
		here = getenv("LISTEN_AT");
	if (strcmp(argv[1], "alone") != 0)
		pthread_create(&thread, NULL, sleeps, NULL);
	set = SURE(epoll_create1(EPOLL_CLOEXEC));
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (!strcmp(cases[i].name, argv[1])) {
			cases[i].run();
			fflush(stdout);
			quick_exit(7);
		}
	}
	return 1;
}
