/*
 * Sends requests to the key process. There are as many connections as that process has threads, so waiting here for a
 * free connection is no longer than waiting there. One connection is for urgent callers. The others, whose threads are
 * in the background (SCHED_IDLE), are for callers that are in the background themselves.
 */
#include "key_client.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include "keys.h"

#define PATIENCE_S 10 /* a signature takes a millisecond; a stopped process must not block us for ever */

/* The connections, and which of them are not in use. */
struct set {
	pthread_cond_t given_back;
	int *free;
	uint32_t free_count, count; /* count: those that still work */
};

static struct {
	pthread_mutex_t mutex;
	struct set ordinary, background;
} keys = {
	.mutex = PTHREAD_MUTEX_INITIALIZER,
	.ordinary = { .given_back = PTHREAD_COND_INITIALIZER },
	.background = { .given_back = PTHREAD_COND_INITIALIZER },
};
static _Thread_local struct set *own_set = &keys.ordinary;

void key_in_background(void)
{
	own_set = &keys.background;
}

static int fill(struct set *s, const int *connections, uint32_t count)
{
	struct timeval patience = { .tv_sec = PATIENCE_S };

	s->free = calloc(count, sizeof *s->free);
	if (!s->free)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++) {
		if (setsockopt(connections[i], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) < 0)
			return -errno;
		s->free[i] = connections[i];
	}
	s->free_count = s->count = count;
	return 0;
}

int xts_keys_connect(const int *connections, uint32_t count)
{
	int error = count < 2 ? -EINVAL : fill(&keys.ordinary, connections, 1);

	if (!error)
		error = fill(&keys.background, connections + 1, count - 1);
	return error ? error : key_provider_load();
}

/* Waits for a free connection; -EPIPE when none works any more. */
static int take(struct set *s)
{
	int fd = -EPIPE;

	pthread_mutex_lock(&keys.mutex);
	while (s->count && !s->free_count)
		pthread_cond_wait(&s->given_back, &keys.mutex);
	if (s->count)
		fd = s->free[--s->free_count];
	pthread_mutex_unlock(&keys.mutex);
	return fd;
}

static void give_back(struct set *s, int fd, int works)
{
	pthread_mutex_lock(&keys.mutex);
	if (works)
		s->free[s->free_count++] = fd;
	else
		s->count--; /* the late answer to this request would be taken for the answer to the next one */
	if (s->count)
		pthread_cond_signal(&s->given_back);
	else
		pthread_cond_broadcast(&s->given_back);
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
	struct set *set = own_set;
	struct msghdr question = { .msg_iov = asks, .msg_iovlen = 2 }, reply = { .msg_iov = answers, .msg_iovlen = 2 };
	ssize_t n;
	int fd;

	if (bytes > KEY_DATA_MAX)
		return -EMSGSIZE;
	fd = take(set);
	if (fd < 0)
		return fd;
	n = exchange(fd, &question, &reply);
	give_back(set, fd, n > 0);
	if (n < (ssize_t)sizeof answer)
		return -EPIPE;
	if (reply.msg_flags & MSG_TRUNC)
		return -EMSGSIZE;
	return answer.error ? answer.error : n - (ssize_t)sizeof answer;
}
