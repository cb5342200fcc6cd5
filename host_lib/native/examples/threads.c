/*
 * Four threads, each with a connection of its own.
 *
 *	cc threads.c -o threads -pthread $(pkg-config --cflags --libs xts)
 *	./threads 198.18.0.2 7777	an echo server listens there
 *
 * Every call may be made by any thread, also on the same socket. xts_last_error() is each thread's
 * own, as errno is.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xts.h"

#define THREADS 4
#define ROUNDS 100

static struct sockaddr_in server = { .sin_family = AF_INET };

static void *talk(void *unused)
{
	char sent[64], received[64];
	long done = 0;
	int s = xts_socket(AF_INET, SOCK_STREAM, 0);

	(void)unused;
	if (s < 0 || xts_connect(s, (struct sockaddr *)&server, sizeof(server))) {
		fprintf(stderr, "connecting: %s\n", xts_last_error());
		return NULL;
	}
	for (; done < ROUNDS; done++) {
		snprintf(sent, sizeof(sent), "round %ld", done);
		if (xts_send(s, sent, sizeof(sent), 0) != (ssize_t)sizeof(sent) ||
		    xts_recv(s, received, sizeof(received), MSG_WAITALL) != (ssize_t)sizeof(received) ||
		    strcmp(sent, received) != 0) {
			fprintf(stderr, "talking: %s\n", xts_last_error());
			break;
		}
	}
	xts_close(s);
	return (void *)done;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	long total = 0;

	if (argc != 3 || inet_pton(AF_INET, argv[1], &server.sin_addr) != 1) {
		fprintf(stderr, "usage: threads ADDRESS PORT\nexample: threads 198.18.0.2 7777\n");
		return 2;
	}
	server.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, talk, NULL))
			return 1;
	for (int i = 0; i < THREADS; i++) {
		void *done;

		pthread_join(threads[i], &done);
		total += (long)done;
	}
	printf("%ld rounds\n", total);
	return total == THREADS * ROUNDS ? 0 : 1;
}
