/*
 * A server whose signal handlers start children, as database servers do: it waits in select() for 100 us at a time, a
 * timer starts a child every 2 ms, and each child's end another handler's. argv: seconds. Says how many; exits with 1
 * where the timer, or the data of its one client, has stopped.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long started, ended;

static void start(int number)
{
	int before = errno;
	pid_t child = fork();

	(void)number;
	if (child == 0)
		_exit(0);
	started += child > 0;
	errno = before;
}

/* Every tenth child's end starts one more. */
static void end(int number)
{
	int before = errno;

	while (waitpid(-1, NULL, WNOHANG) > 0) {
		if (++ended % 10 == 0)
			start(number);
	}
	errno = before;
}

int main(int argc, char **argv)
{
	struct itimerval timer = { .it_interval.tv_usec = 2000, .it_value.tv_usec = 2000 }, none = { 0 };
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	int seconds = argc > 1 ? atoi(argv[1]) : 3, listener = socket(AF_INET, SOCK_STREAM, 0);
	int client = socket(AF_INET, SOCK_STREAM, 0), server;
	unsigned long turns = 0, said = 0, heard = 0;
	time_t over;

	if (bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 8) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &length) < 0 ||
	    connect(client, (struct sockaddr *)&address, length) < 0)
		return 2;
	server = accept(listener, NULL, NULL);
	signal(SIGUSR1, start);
	signal(SIGALRM, start);
	signal(SIGCHLD, end);
	setitimer(ITIMER_REAL, &timer, NULL);
	for (over = time(NULL) + seconds; time(NULL) < over; turns++) {
		struct timeval moment = { .tv_usec = 100 };
		char data[64];
		fd_set set;

		if (turns % 100 == 0)
			raise(SIGUSR1);
		if (turns % 7 == 0)
			said += send(client, "x", 1, MSG_NOSIGNAL) == 1;
		FD_ZERO(&set);
		FD_SET(server, &set);
		FD_SET(listener, &set);
		if (select((server > listener ? server : listener) + 1, &set, NULL, NULL, &moment) > 0) {
			ssize_t got = recv(server, data, sizeof data, 0);

			heard += got > 0 ? (unsigned long)got : 0;
		}
	}
	setitimer(ITIMER_REAL, &none, NULL);
	shutdown(client, SHUT_WR);
	for (;;) {
		char data[64];
		ssize_t got = recv(server, data, sizeof data, 0);

		if (got == 0)
			break;
		heard += got > 0 ? (unsigned long)got : 0;
	}
	printf("%lu started %lu turns\n", started, turns);
	return said == heard && started > 20 ? 0 : 1;
}
