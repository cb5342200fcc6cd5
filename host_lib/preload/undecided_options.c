/* The records of undecided sockets. */
#include "undecided_options.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "preload.h"

#define NOTES_MAX (1u << 14)
#define NOTE_BYTES 504u

struct note {
	bool used, full;
	bool pushes;    /* protocols have been pushed */
	int push_error; /* errno of one that was refused when it was repeated */
	uint16_t bytes;
	uint8_t data[NOTE_BYTES]; /* struct option_head, then its value, and again */
};
#define LEVEL_IOCTL (-1) /* of option_head: option is the request */

struct option_head {
	int32_t level, option;
	uint32_t length;
};

static struct note notes[NOTES_MAX];
static uint32_t next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_notes(void)
{
	xts_go_in();
	pthread_mutex_lock(&lock);
}

static void unlock_notes(void)
{
	pthread_mutex_unlock(&lock);
	xts_come_out();
}

/* Registered before the table's handlers: the table's lock is taken before this one, and at fork() handlers
 * registered later run first. */
__attribute__((constructor(102))) static void keep_over_fork(void)
{
	pthread_atfork(lock_notes, unlock_notes, unlock_notes);
}

uint32_t note_make(void)
{
	uint32_t number = 0;

	lock_notes();
	for (uint32_t i = 0; i < NOTES_MAX && !number; i++) {
		uint32_t at = (next + i) % NOTES_MAX;

		if (notes[at].used)
			continue;
		notes[at].used = true;
		notes[at].full = notes[at].pushes = false;
		notes[at].push_error = 0;
		notes[at].bytes = 0;
		number = at + 1;
		next = i ? at + 1 : at; /* the lowest memory is used first */
	}
	unlock_notes();
	return number;
}

void note_drop(uint32_t number)
{
	lock_notes();
	if (notes[number - 1].pushes) /* among them may be keys */
		explicit_bzero(notes[number - 1].data, sizeof notes[number - 1].data);
	notes[number - 1].used = false;
	next = number - 1;
	unlock_notes();
}

/* An option's earlier value does not matter once it is set again. */
static void forget(struct note *n, int level, int option)
{
	struct option_head head;
	uint16_t at = 0, bytes;

	while (at < n->bytes) {
		memcpy(&head, n->data + at, sizeof head);
		bytes = (uint16_t)(sizeof head + head.length);
		if (head.level == level && head.option == option) {
			memmove(n->data + at, n->data + at + bytes, (size_t)(n->bytes - at - bytes));
			n->bytes = (uint16_t)(n->bytes - bytes);
			return;
		}
		at = (uint16_t)(at + bytes);
	}
}

/* With the lock held. false: there is no room. */
static bool append(struct note *n, int level, int option, const void *value, uint32_t length)
{
	struct option_head head = { .level = level, .option = option, .length = length };

	if (length > NOTE_BYTES || n->bytes + sizeof head + length > NOTE_BYTES)
		return false;
	memcpy(n->data + n->bytes, &head, sizeof head);
	if (length)
		memcpy(n->data + n->bytes + sizeof head, value, length);
	n->bytes = (uint16_t)(n->bytes + sizeof head + length);
	return true;
}

void note_option(uint32_t number, int level, int option, const void *value, socklen_t length)
{
	struct note *n = &notes[number - 1];

	lock_notes();
	forget(n, level, option);
	if (!append(n, level, option, value, length))
		n->full = true;
	unlock_notes();
}

bool note_push(uint32_t number, unsigned long request, const void *argument, uint32_t bytes)
{
	struct note *n = &notes[number - 1];
	bool noted;

	lock_notes();
	noted = append(n, LEVEL_IOCTL, (int)request, argument, bytes);
	n->pushes = n->pushes || noted;
	unlock_notes();
	return noted;
}

int note_push_error(uint32_t number)
{
	int error = 0;

	if (!number)
		return 0;
	lock_notes();
	if (notes[number - 1].pushes)
		error = notes[number - 1].push_error ? notes[number - 1].push_error : EOPNOTSUPP;
	unlock_notes();
	return error;
}

static void push_failed(uint32_t number, int error)
{
	lock_notes();
	notes[number - 1].push_error = error;
	unlock_notes();
}

/* One thing that was done: 0 or -errno. */
static int repeat(const struct option_head *head, const uint8_t *value, int s)
{
	int r = head->level == LEVEL_IOCTL ?
			XTS(xts_ioctl(s, (unsigned long)(unsigned)head->option, (void *)(uintptr_t)value)) :
			XTS(xts_setsockopt(s, head->level, head->option, value, head->length));

	return r < 0 ? -errno : 0;
}

int note_replay(uint32_t number, int s)
{
	struct option_head head;
	struct note n;
	int r;

	if (!number)
		return 0;
	lock_notes();
	n = notes[number - 1];
	unlock_notes();
	r = n.full ? -ENOBUFS : 0;
	for (uint16_t at = 0; !r && at < n.bytes; at = (uint16_t)(at + sizeof head + head.length)) {
		memcpy(&head, n.data + at, sizeof head);
		r = repeat(&head, n.data + at + sizeof head, s);
		if (r && head.level == LEVEL_IOCTL)
			push_failed(number, -r);
	}
	if (n.pushes)
		explicit_bzero(n.data, sizeof n.data);
	errno = -r;
	return r;
}
