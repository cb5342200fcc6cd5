/*
 * Which mutexes of libxts do threads with connections of their own have in common? `locks_of_threads ADDRESS PORT`,
 * where an echo server is. This program's pthread_mutex_lock() and pthread_mutex_trylock() take the place of the C
 * library's, also in libxts. They note which of the threads have locked a mutex between the threads' first exchange and
 * their last. It prints how many mutexes were locked, and how many of these by several threads.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "xts.h"

#define THREADS 3u
#define ROUNDS 200
#define MUTEXES_MAX 4096u
#define DEADLINE_S 30u

static struct {
	_Atomic(pthread_mutex_t *) mutex;
	_Atomic uint32_t threads; /* a bit for each that has locked it */
} seen[MUTEXES_MAX];

static _Thread_local uint32_t bit; /* of this thread, while it is watched; 0: it is not */
static pthread_barrier_t together;
static struct sockaddr_in server;

static void note(pthread_mutex_t *mutex)
{
	for (uint32_t i = 0; bit && i < MUTEXES_MAX; i++) {
		pthread_mutex_t *none = NULL;

		if (!atomic_compare_exchange_strong(&seen[i].mutex, &none, mutex) && none != mutex)
			continue;
		atomic_fetch_or(&seen[i].threads, bit);
		return;
	}
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*_Atomic real)(pthread_mutex_t *);

	if (!real)
		real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
	note(mutex);
	return real(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t *mutex)
{
	static int (*_Atomic real)(pthread_mutex_t *);

	if (!real)
		real = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_trylock");
	note(mutex);
	return real(mutex);
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static int connected(void)
{
	int s = xts_socket(AF_INET, SOCK_STREAM, 0);

	if (s < 0 || xts_connect(s, (struct sockaddr *)&server, sizeof server))
		fail("connect");
	return s;
}

static void exchange(int s)
{
	struct pollfd wait = { .fd = s, .events = POLLIN };
	char text[16] = "some text";

	if (xts_send(s, text, sizeof text, 0) != sizeof text || xts_poll(&wait, 1, -1) != 1 ||
	    xts_recv(s, text, sizeof text, MSG_WAITALL) != sizeof text)
		fail("exchange");
}

static void *run(void *number)
{
	int s = connected();

	exchange(s);
	pthread_barrier_wait(&together);
	bit = 1u << (uintptr_t)number;
	for (int i = 0; i < ROUNDS; i++)
		exchange(s);
	for (int i = 0; i < ROUNDS / 10; i++) { /* connections that come and go */
		int one = connected();

		exchange(one);
		xts_close(one);
	}
	bit = 0;
	pthread_barrier_wait(&together);
	xts_close(s);
	return NULL;
}

int main(int argc, char **argv)
{
	uint32_t locked = 0, shared = 0;
	pthread_t thread[THREADS];

	if (argc != 3)
		return 2;
	alarm(DEADLINE_S);
	server = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])) };
	inet_pton(AF_INET, argv[1], &server.sin_addr);
	pthread_barrier_init(&together, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, run, (void *)i);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (; locked < MUTEXES_MAX && seen[locked].mutex; locked++) {
		uint32_t threads = seen[locked].threads;
		Dl_info where;

		if (!(threads & (threads - 1)))
			continue;
		shared++;
		fprintf(stderr, "%p: threads %x, of %s\n", (void *)seen[locked].mutex, threads,
			dladdr(seen[locked].mutex, &where) && where.dli_fname ? where.dli_fname : "the heap");
	}
	printf("%u %u\n", locked, shared);
	return 0;
}
