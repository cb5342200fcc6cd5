/*
 * Sends requests to the key process. There are as many connections as that process has threads, so waiting here for a
 * free connection is no longer than waiting there. One connection is urgent. The others, whose threads are in the
 * background (SCHED_IDLE), are for callers that are in the background themselves.
 *
 * Slowness is no failure: whoever needs a signature waits for it. The worker ends connections whose handshake takes too
 * long, and does not need the thread for it. When the process dies, the supervisor starts another one, with the same
 * keys, and connections to that take the place of these, under the same numbers of descriptors: the understudy, which
 * shares them, knows no others (understudy.py). Until then requests wait, too. One that has ended two processes is not
 * made a third time.
 *
 * A background thread of a busy core may get no time at all. So a request that it has not answered after ASK_AGAIN_MS
 * is made once more, over the urgent connection. The first one is still with the background thread, and will be
 * answered sometime, over a connection that others use by then. So requests have numbers: an answer with another number
 * than the one that is awaited is dropped. It is a signature for another handshake.
 */
#include "common/time_units.h"
#include "key_client.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "keys.h"

#define ASK_AGAIN_MS 200u /* a signature takes a millisecond, with RSA of 4096 bits on a slow core 20 ms */
#define LATE_MS 1000u
#define ENDS_MOST 2u            /* processes */
#define USES_MAX (2 * KEYS_MAX) /* those that are forgotten here and not yet there, too */
#define FOREVER UINT64_MAX

/* The connections: which of them are not in use, and which have no other end any more. */
struct set {
	pthread_cond_t given_back;
	int *all, *free, *gone; /* of free the last one is taken first */
	uint32_t count, free_count, gone_count;
};

/* A configuration that comes into force has keys of the one before, which some connections go on with. */
struct use {
	uint32_t number, count;
};

static struct {
	pthread_mutex_t mutex;
	struct set urgent, background;
	atomic_uint renewed; /* how often there were other connections */
	int forgets;         /* the descriptor over which numbers of forgotten keys go */
	uint32_t forgotten[KEYS_MAX], forgotten_count;
	struct use uses[USES_MAX];
	uint32_t use_count;
} keys = { .mutex = PTHREAD_MUTEX_INITIALIZER, .forgets = -1 };
static _Thread_local struct set *own_set = &keys.urgent;
static atomic_uint last_sequence;
static atomic_ullong late, late_now, unanswered;
static atomic_bool waits_end;

void key_in_background(void)
{
	own_set = &keys.background;
}

void key_end_waits(bool end)
{
	atomic_store(&waits_end, end);
}

struct key_counts key_counts(void)
{
	return (struct key_counts){ .late = late, .late_now = late_now, .unanswered = unanswered };
}

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static int wait_in_slices(int fd)
{
	struct timeval slice = { .tv_usec = ASK_AGAIN_MS * 1000 };

	if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &slice, sizeof slice) < 0)
		return -errno;
	return 0;
}

static int fill(struct set *s, const int *connections, uint32_t count)
{
	pthread_condattr_t attributes;
	int error;

	s->all = calloc(3 * (size_t)count, sizeof *s->all);
	if (!s->all)
		return -ENOMEM;
	s->free = s->all + count;
	s->gone = s->free + count;
	for (uint32_t i = 0; i < count; i++) {
		error = wait_in_slices(connections[i]);
		if (error)
			return error;
		s->all[i] = s->free[i] = connections[i];
	}
	s->free_count = s->count = count;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	error = pthread_cond_init(&s->given_back, &attributes);
	pthread_condattr_destroy(&attributes);
	return -error;
}

int xts_keys_connect(const int *connections, uint32_t count)
{
	int error = count < 2 ? -EINVAL : fill(&keys.urgent, connections, 1);

	if (!error)
		error = fill(&keys.background, connections + 1, count - 1);
	if (error)
		return error;
	keys.forgets = connections[0];
	return key_provider_load();
}

int xts_keys_go_on(void)
{
	uint32_t from;

	if (getrandom(&from, sizeof from, 0) != (ssize_t)sizeof from)
		return -EIO;
	atomic_store(&last_sequence, from);
	return 0;
}

struct question {
	struct key_request head;
	const void *data;
	size_t bytes;
	void *out;
	size_t room;
	uint64_t asked_ns;
	uint32_t renewed; /* keys.renewed, when its connection was taken */
	uint32_t ended;   /* processes that have ended after it was sent to them */
	bool late;        /* and counted */
};

/* With the lock held: other connections are there. Those in use come back by give_back(). */
static int renew(struct set *s, const int *connections)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (dup3(connections[i], s->all[i], O_CLOEXEC) < 0)
			return -errno;
	while (s->gone_count)
		s->free[s->free_count++] = s->gone[--s->gone_count];
	pthread_cond_broadcast(&s->given_back);
	return 0;
}

int xts_keys_renew(const int *connections, uint32_t count)
{
	int error = count == 1 + keys.background.count ? 0 : -EINVAL;

	for (uint32_t i = 0; i < count && !error; i++)
		error = wait_in_slices(connections[i]);
	pthread_mutex_lock(&keys.mutex);
	keys.renewed++;
	if (!error)
		error = renew(&keys.urgent, connections);
	if (!error)
		error = renew(&keys.background, connections + 1);
	keys.forgets = keys.urgent.all[0];
	pthread_mutex_unlock(&keys.mutex);
	for (uint32_t i = 0; i < count; i++)
		close(connections[i]);
	return error;
}

/* Waits for a free connection; -ETIMEDOUT: none is free after ASK_AGAIN_MS. */
static int take(struct set *s, struct question *q)
{
	struct timespec until;
	int fd, error = 0;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)(ASK_AGAIN_MS * NS_PER_MS);
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&keys.mutex);
	while (!s->free_count && !error)
		error = pthread_cond_timedwait(&s->given_back, &keys.mutex, &until);
	fd = s->free_count ? s->free[--s->free_count] : -ETIMEDOUT;
	q->renewed = keys.renewed;
	pthread_mutex_unlock(&keys.mutex);
	return fd;
}

/* result: of the exchange. A connection on which an answer is late is taken after all others. */
static void give_back(struct set *s, int fd, const struct question *q, ssize_t result)
{
	pthread_mutex_lock(&keys.mutex);
	if (result == -EPIPE && q->renewed == keys.renewed) {
		s->gone[s->gone_count++] = fd;
		if (fd == keys.forgets)
			keys.forgets = -1;
	} else if (result == -ETIMEDOUT) {
		memmove(s->free + 1, s->free, s->free_count++ * sizeof *s->free);
		s->free[0] = fd;
	} else {
		s->free[s->free_count++] = fd;
	}
	pthread_cond_signal(&s->given_back);
	pthread_mutex_unlock(&keys.mutex);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

/* A system call has ended with this errno, or 0 for the end of the connection. 0: it may be repeated. Lack of memory,
 * or whatever else it may be, ends the request and not the connection. */
static int go_on(struct question *q, int error, uint64_t until_ns)
{
	uint64_t now = now_ns();

	if (!error || error == EPIPE || error == ECONNRESET)
		return -EPIPE;
	if (error != EINTR && error != EAGAIN)
		return -error;
	if (q->renewed != atomic_load(&keys.renewed))
		return -EPIPE; /* it may wait at another connection than the one over which it was sent */
	if (!q->late && now - q->asked_ns >= (uint64_t)LATE_MS * NS_PER_MS) {
		q->late = true;
		atomic_fetch_add(&late, 1);
		atomic_fetch_add(&late_now, 1);
	}
	if (atomic_load(&waits_end))
		return -ECANCELED;
	return now >= until_ns ? -ETIMEDOUT : 0;
}

static int send_request(struct question *q, int fd, uint64_t until_ns)
{
	struct iovec pieces[] = { { &q->head, sizeof q->head }, { (void *)(uintptr_t)q->data, q->bytes } };
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };
	int r = 0;

	while (!r) { /* a message is sent as a whole */
		if (sendmsg(fd, &message, MSG_NOSIGNAL) >= 0)
			return 0;
		r = go_on(q, errno, until_ns);
	}
	return r;
}

/* Returns the answer's length, or its error; answers to earlier requests are dropped. */
static ssize_t receive_answer(struct question *q, int fd, uint64_t until_ns)
{
	struct key_answer answer = { 0 };
	struct iovec pieces[] = { { &answer, sizeof answer }, { q->out, q->room } };
	int r = 0;

	while (!r) {
		struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };
		ssize_t n = recvmsg(fd, &message, 0);

		if (n <= 0) {
			r = go_on(q, n ? errno : 0, until_ns);
			continue;
		}
		if (n < (ssize_t)sizeof answer || answer.sequence != q->head.sequence)
			continue;
		if (message.msg_flags & MSG_TRUNC)
			return -EMSGSIZE;
		return answer.error ? answer.error : n - (ssize_t)sizeof answer;
	}
	return r;
}

/* Asks over a connection of this set, with a number of its own. -ETIMEDOUT: there is no answer at until_ns. */
static ssize_t ask_over(struct set *s, struct question *q, uint64_t until_ns)
{
	ssize_t r;
	int fd;

	do
		fd = take(s, q);
	while (fd == -ETIMEDOUT && (fd = go_on(q, EAGAIN, until_ns)) == 0);
	if (fd < 0)
		return fd;
	q->head.sequence = atomic_fetch_add(&last_sequence, 1) + 1;
	r = send_request(q, fd, until_ns);
	if (!r) {
		r = receive_answer(q, fd, until_ns);
		q->ended += r == -EPIPE;
	}
	give_back(s, fd, q, r == -ECANCELED ? -ETIMEDOUT : r);
	return r;
}

/* Of this process, or of the next one when that has ended. */
static ssize_t ask(struct question *q)
{
	ssize_t r = -ETIMEDOUT;

	if (own_set != &keys.urgent)
		r = ask_over(own_set, q, now_ns() + (uint64_t)ASK_AGAIN_MS * NS_PER_MS);
	return r == -ETIMEDOUT ? ask_over(&keys.urgent, q, FOREVER) : r;
}

ssize_t key_ask(const struct key_request *request, const void *data, size_t bytes, void *out, size_t room)
{
	struct question q = {
		.head = *request, .data = data, .bytes = bytes, .out = out, .room = room, .asked_ns = now_ns()
	};
	ssize_t r;

	if (bytes > KEY_DATA_MAX)
		return -EMSGSIZE;
	do {
		key_send_forgotten();
		r = ask(&q);
	} while (r == -EPIPE && q.ended < ENDS_MOST);
	if (q.late)
		atomic_fetch_sub(&late_now, 1);
	if (r == -EPIPE)
		atomic_fetch_add(&unanswered, 1);
	return r;
}

/* --- keys that are not needed any more ---------------------------------------------------------------------------- */

/* How many identities use a key; NULL: none does. With the lock held. */
static struct use *use_of(uint32_t number)
{
	for (uint32_t i = 0; i < keys.use_count; i++) {
		if (keys.uses[i].number == number)
			return &keys.uses[i];
	}
	return NULL;
}

void key_use(uint32_t number)
{
	struct use *use;

	pthread_mutex_lock(&keys.mutex);
	use = use_of(number);
	if (!use && keys.use_count < USES_MAX) {
		use = &keys.uses[keys.use_count++];
		*use = (struct use){ .number = number };
	}
	if (use)
		use->count++;
	pthread_mutex_unlock(&keys.mutex);
}

void key_forget(uint32_t number)
{
	struct use *use;

	pthread_mutex_lock(&keys.mutex);
	use = use_of(number);
	if (use && --use->count) {
		pthread_mutex_unlock(&keys.mutex);
		return;
	}
	if (use)
		*use = keys.uses[--keys.use_count];
	if (keys.forgets >= 0 && keys.forgotten_count < KEYS_MAX) /* there are not more keys */
		keys.forgotten[keys.forgotten_count++] = number;
	pthread_mutex_unlock(&keys.mutex);
}

/* All in one message, which has no answer. What the process has no room for now goes with the next one. */
void key_send_forgotten(void)
{
	const struct key_request head = { .operation = KEY_FORGET };
	struct iovec pieces[] = { { (void *)(uintptr_t)&head, sizeof head }, { keys.forgotten, 0 } };
	struct msghdr message = { .msg_iov = pieces, .msg_iovlen = 2 };

	pthread_mutex_lock(&keys.mutex);
	pieces[1].iov_len = keys.forgotten_count * sizeof *keys.forgotten;
	if (keys.forgotten_count && keys.forgets >= 0 &&
	    sendmsg(keys.forgets, &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
		keys.forgotten_count = 0;
	pthread_mutex_unlock(&keys.mutex);
}
