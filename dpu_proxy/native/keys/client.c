/*
 * Asking the process that has the keys. There are as many connections as it has threads, so whoever finds none free would have to wait
 * there, too.
 */
#include "client.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "keys.h"

#define PATIENCE_S 10 /* a signature takes a millisecond; a process that is stopped must not stop us for ever */

static struct {
	pthread_mutex_t mutex;
	pthread_cond_t given_back;
	int *free;
	uint32_t free_count, count; /* count: those that still work */
} keys = { .mutex = PTHREAD_MUTEX_INITIALIZER, .given_back = PTHREAD_COND_INITIALIZER };

int xts_keys_connect(const int *connections, uint32_t count)
{
	struct timeval patience = { .tv_sec = PATIENCE_S };

	keys.free = calloc(count, sizeof *keys.free);
	if (!keys.free)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		if (setsockopt(connections[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0)
			return -errno;
		keys.free[i] = connections[i];
	}
	keys.free_count = keys.count = count;
	return key_provider_load();
}

/* A connection, waited for; -EPIPE when none is left. */
static int take(void)
{
	int fd = -EPIPE;

	pthread_mutex_lock(&keys.mutex);
	while (keys.count && !keys.free_count)
		pthread_cond_wait(&keys.given_back, &keys.mutex);
	if (keys.count)
		fd = keys.free[--keys.free_count];
	pthread_mutex_unlock(&keys.mutex);
	return fd;
}

static void give_back(int fd, int works)
{
	pthread_mutex_lock(&keys.mutex);
	if (works)
		keys.free[keys.free_count++] = fd;
	else
		keys.count--; /* what is on its way there would be the answer to another question */
	if (keys.count)
		pthread_cond_signal(&keys.given_back);
	else
		pthread_cond_broadcast(&keys.given_back);
	pthread_mutex_unlock(&keys.mutex);
	if (!works)
		close(fd);
}

static ssize_t exchange(int fd, const struct msghdr *question, struct msghdr *answer)
{
	ssize_t n;

	do
		n = sendmsg(fd, question, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -1;
	do
		n = recvmsg(fd, answer, 0);
	while (n < 0 && errno == EINTR);
	return n;
}

ssize_t key_ask(const struct key_request *request, const void *data, size_t bytes, void *out, size_t room)
{
	struct key_answer answer;
	struct iovec asks[] = { { (void *)(uintptr_t)request, sizeof *request }, { (void *)(uintptr_t)data, bytes } };
	struct iovec answers[] = { { &answer, sizeof answer }, { out, room } };
	struct msghdr question = { .msg_iov = asks, .msg_iovlen = 2 }, reply = { .msg_iov = answers, .msg_iovlen = 2 };
	ssize_t n;
	int fd;

	if (bytes > KEY_DATA_MAX)
		return -EMSGSIZE;
	fd = take();
	if (fd < 0)
		return fd;
	n = exchange(fd, &question, &reply);
	give_back(fd, n > 0);
	if (n < (ssize_t)sizeof answer)
		return -EPIPE;
	if (reply.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	return answer.error ? answer.error : n - (ssize_t)sizeof answer;
}
