/*
 * Threads that race for one descriptor number: one connects and closes it, others shut it down, ask for its options,
 * read and write meanwhile, whatever socket it is just now. Errors are of no interest; that each call returns is. argv:
 * seconds. Exits with 1, and says in which call a thread has been since the end, if one does not return.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MEDDLERS 4
#define GRACE_S 10

static struct sockaddr_in address = { .sin_family = AF_INET };
static int number; /* that they race for */
static atomic_bool over;
static atomic_uint returned; /* threads */
static atomic_ulong lives, shut;
static const char *_Atomic doing[MEDDLERS + 1];

static void *serve(void *listener)
{
	for (;;) {
		int fd = accept(*(int *)listener, NULL, NULL);

		if (fd >= 0)
			close(fd);
	}
	return NULL;
}

static void *live(void *unused)
{
	unsigned turn = 0;

	while (!over) {
		int fd;

		doing[MEDDLERS] = "socket";
		fd = socket(AF_INET, SOCK_STREAM | (turn++ % 3 ? 0 : SOCK_NONBLOCK), 0);
		if (fd != number && fd >= 0) {
			dup2(fd, number);
			close(fd);
		}
		doing[MEDDLERS] = "connect";
		connect(number, (struct sockaddr *)&address, sizeof address);
		doing[MEDDLERS] = "close";
		close(number);
		lives++;
	}
	returned++;
	return unused;
}

static void *meddle(void *argument)
{
	const char *_Atomic *mine = argument;
	struct timeval soon = { .tv_usec = 1000 };
	char byte = 0;
	int value = 1;
	unsigned turn = 0;

	while (!over) {
		*mine = "shutdown";
		if (shutdown(number, SHUT_RDWR) == 0)
			shut++;
		switch (turn++ % 8) {
		case 0:
			*mine = "setsockopt";
			setsockopt(number, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value);
			break;
		case 1:
			*mine = "connect";
			connect(number, (struct sockaddr *)&address, sizeof address);
			break;
		case 2:
			*mine = "recv";
			setsockopt(number, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon);
			recv(number, &byte, 1, MSG_DONTWAIT);
			break;
		case 3:
			*mine = "send";
			send(number, &byte, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
			break;
		default:
			break;
		}
	}
	returned++;
	return NULL;
}

int main(int argc, char **argv)
{
	struct timespec run = { .tv_sec = argc > 1 ? atoi(argv[1]) : 5 }, moment = { .tv_nsec = 10000000 };
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	pthread_t thread;

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 100) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &length) < 0)
		return 2;
	pthread_create(&thread, NULL, serve, &listener);
	number = 100;
	pthread_create(&thread, NULL, live, NULL);
	for (int i = 0; i < MEDDLERS; i++)
		pthread_create(&thread, NULL, meddle, (void *)&doing[i]);
	nanosleep(&run, NULL);
	over = true;
	for (int i = 0; i < GRACE_S * 100 && returned <= MEDDLERS; i++)
		nanosleep(&moment, NULL);
	printf("%lu lives, %lu shut\n", (unsigned long)lives, (unsigned long)shut);
	fflush(stdout);
	if (returned <= MEDDLERS) {
		for (int i = 0; i <= MEDDLERS; i++)
			fprintf(stderr, "thread %d: %s\n", i, doing[i]);
		_exit(1);
	}
	_exit(0);
}
