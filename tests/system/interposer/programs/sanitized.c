/* A connection to itself; then, as the argument says: it ends, or makes a mistake that a sanitizer reports. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int shared;

static void *race(void *argument)
{
	shared++;
	return argument;
}

static void two_threads(void)
{
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, race, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}

int main(int count, char **arguments)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *mistake = count > 1 ? arguments[1] : "";
	socklen_t length = sizeof a;
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), accepted;
	volatile char *data = calloc(1, 8);

	if (bind(listener, (struct sockaddr *)&a, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&a, &length) || connect(client, (struct sockaddr *)&a, length))
		return 2;
	accepted = accept(listener, NULL, NULL);
	if (write(client, "1234567", 8) != 8 || read(accepted, (void *)data, 8) != 8)
		return 3;
	printf("%s\n", (const char *)data);
	fflush(stdout);
	if (!strcmp(mistake, "overflow"))
		data[atoi("8")] = 1;
	else if (!strcmp(mistake, "race"))
		two_threads();
	else if (!strcmp(mistake, "leak"))
		data = NULL;
	free((void *)data);
	return 0;
}
