/*
 * Threads that write lines to one connection, each line by one call, as logs are written. None is parted: no other
 * thread's bytes are within it. Each thread has calls of its own, and the lines of each have a length of their own.
 * LISTEN_AT: where it listens.
 */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define THREADS 6
#define LINES 4000
#define LONGEST 300

static int writing;

static void check(int holds, const char *what)
{
	if (holds)
		return;
	perror(what);
	exit(1);
}

static size_t length_of(long thread)
{
	return 61 + 37 * (size_t)thread;
}

static void *write_lines(void *argument)
{
	long thread = (long)argument;
	size_t bytes = length_of(thread);
	char line[LONGEST];
	struct iovec parts[] = { { line, 1 }, { line + 1, 30 }, { line + 31, bytes - 31 } };

	memset(line, 'a' + (int)thread, bytes - 1);
	line[bytes - 1] = '\n';
	for (int i = 0; i < LINES; i++) {
		ssize_t n = thread % 3 == 0 ? write(writing, line, bytes) :
			    thread % 3 == 1 ? writev(writing, parts, 3) :
					      send(writing, line, bytes, MSG_NOSIGNAL);

		check(n == (ssize_t)bytes, "a blocking call has not written its line");
	}
	return NULL;
}

static int is_whole(const char *line, size_t bytes)
{
	long thread = line[0] - 'a';

	if (thread < 0 || thread >= THREADS || bytes != length_of(thread))
		return 0;
	for (size_t i = 0; i + 1 < bytes; i++)
		if (line[i] != line[0])
			return 0;
	return 1;
}

static unsigned read_lines(int reading)
{
	FILE *lines = fdopen(reading, "r");
	char line[THREADS * LONGEST];
	unsigned count = 0, parted = 0;

	check(lines != NULL, "fdopen");
	while (count + parted < THREADS * LINES && fgets(line, sizeof line, lines)) {
		if (is_whole(line, strlen(line)))
			count++;
		else
			parted++;
	}
	fclose(lines);
	return parted;
}

static void connect_to_myself(int ends[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr(getenv("LISTEN_AT")) };
	socklen_t length = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);

	check(bind(listener, (struct sockaddr *)&at, sizeof at) == 0, "bind");
	check(listen(listener, 1) == 0, "listen");
	check(getsockname(listener, (struct sockaddr *)&at, &length) == 0, "getsockname");
	ends[0] = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(ends[0], (struct sockaddr *)&at, sizeof at) == 0, "connect");
	ends[1] = accept(listener, NULL, NULL);
	check(ends[1] >= 0, "accept");
	close(listener);
}

int main(void)
{
	pthread_t threads[THREADS];
	int ends[2];

	connect_to_myself(ends);
	writing = ends[1];
	for (long i = 0; i < THREADS; i++)
		check(pthread_create(&threads[i], NULL, write_lines, (void *)i) == 0, "pthread_create");
	printf("%u parted\n", read_lines(ends[0]));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
