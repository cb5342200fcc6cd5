/*
 * A program that calls libxts itself, and whose handlers fork in the middle of its calls. argv: "ours": they are
 * installed by xts_sigaction(), and make calls of libxts's too; "plain": by sigaction(), and only fork. Ends after
 * so many children (argv[2]).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xts.h"

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno)); \
			_exit(1); \
		} \
	} while (0)

static int side;
static bool ours;
static volatile unsigned long children, written;

static void set_timer(void)
{
	struct itimerval timer = { .it_value.tv_usec = 50 + (suseconds_t)(children * 7919 % 600) };

	setitimer(ITIMER_REAL, &timer, NULL);
}

static void on_alarm(int number)
{
	int before = errno;
	pid_t child;

	(void)number;
	if (ours && xts_send(side, "h", 1, MSG_DONTWAIT) == 1)
		written++;
	child = fork();
	if (child == 0)
		_exit(0);
	children += child > 0;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	set_timer();
	errno = before;
}

static int connected(int listener, const struct sockaddr_in *address, int *accepted)
{
	int s = xts_socket(AF_INET, SOCK_STREAM, 0);

	CHECK(s >= 0 && xts_connect(s, (const struct sockaddr *)address, sizeof *address) == 0);
	*accepted = xts_accept(listener, NULL, NULL);
	CHECK(*accepted >= 0);
	return s;
}

/* A few bytes from one end to the other. */
static void exchange(int from, int to, unsigned turn)
{
	struct pollfd p = { .fd = to, .events = POLLIN };
	char out[200], in[200];
	size_t bytes = 1 + turn % sizeof out, got = 0, sent = 0;
	ssize_t r;

	memset(out, (int)turn, sizeof out);
	while (got < bytes) {
		r = sent < bytes ? xts_send(from, out + sent, bytes - sent, 0) : 0;
		CHECK(r >= 0 || errno == EINTR);
		sent += r > 0 ? (size_t)r : 0;
		CHECK(xts_poll(&p, 1, turn % 3) >= 0 || errno == EINTR);
		r = xts_recv(to, in + got, bytes - got, turn % 2 ? MSG_DONTWAIT : 0);
		CHECK(r > 0 || errno == EINTR || errno == EAGAIN);
		got += r > 0 ? (size_t)r : 0;
	}
	CHECK(memcmp(in, out, bytes) == 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sigaction action = { .sa_handler = on_alarm }, old;
	unsigned long wanted = argc > 2 ? strtoul(argv[2], NULL, 10) : 100, counted = 0;
	socklen_t length = sizeof address;
	int listener = xts_socket(AF_INET, SOCK_STREAM, 0), client, server, heard;
	char data[256];
	ssize_t r;

	CHECK(listener >= 0 && xts_bind(listener, (struct sockaddr *)&address, length) == 0 &&
	      xts_listen(listener, 8) == 0);
	CHECK(xts_getsockname(listener, (struct sockaddr *)&address, &length) == 0);
	client = connected(listener, &address, &server);
	side = connected(listener, &address, &heard);
	ours = argc > 1 && !strcmp(argv[1], "ours");
	CHECK((ours ? xts_sigaction : sigaction)(SIGALRM, &action, NULL) == 0);
	if (ours)
		CHECK(xts_sigaction(SIGALRM, NULL, &old) == 0 && old.sa_handler == on_alarm);
	set_timer();
	for (unsigned turn = 0; children < wanted; turn++) {
		exchange(client, server, turn);
		while ((r = xts_recv(heard, data, sizeof data, MSG_DONTWAIT)) > 0)
			counted += (unsigned long)r;
	}
	signal(SIGALRM, SIG_IGN);
	while (counted < written) {
		r = xts_recv(heard, data, sizeof data, 0);
		CHECK(r > 0 || errno == EINTR);
		counted += r > 0 ? (unsigned long)r : 0;
	}
	printf("%lu children %lu written\n", children, written);
	return 0;
}
