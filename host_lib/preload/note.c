/* The notes of undecided sockets. */
#include "note.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "preload.h"

#define NOTES_MAX (1u << 14)
#define NOTE_BYTES 504u

struct note {
	bool used, full;
	uint16_t bytes;
	uint8_t data[NOTE_BYTES]; /* struct option_head, then its value, and again */
};

struct option_head {
	int32_t level, option;
	uint32_t length;
};

static struct note notes[NOTES_MAX];
static uint32_t next;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint32_t note_make(void)
{
	uint32_t number = 0;

	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < NOTES_MAX && !number; i++) {
		uint32_t at = (next + i) % NOTES_MAX;

		if (notes[at].used)
			continue;
		notes[at].used = true;
		notes[at].full = false;
		notes[at].bytes = 0;
		number = at + 1;
		next = i ? at + 1 : at; /* the lowest memory serves most */
	}
	pthread_mutex_unlock(&lock);
	return number;
}

void note_drop(uint32_t number)
{
	pthread_mutex_lock(&lock);
	notes[number - 1].used = false;
	next = number - 1;
	pthread_mutex_unlock(&lock);
}

/* The option's earlier value is of no consequence once it is set again. */
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

void note_option(uint32_t number, int level, int option, const void *value, socklen_t length)
{
	struct option_head head = {.level = level, .option = option, .length = length};
	struct note *n = &notes[number - 1];

	pthread_mutex_lock(&lock);
	forget(n, level, option);
	if (length > NOTE_BYTES || n->bytes + sizeof head + length > NOTE_BYTES) {
		n->full = true;
	} else {
		memcpy(n->data + n->bytes, &head, sizeof head);
		if (length)
			memcpy(n->data + n->bytes + sizeof head, value, length);
		n->bytes = (uint16_t)(n->bytes + sizeof head + length);
	}
	pthread_mutex_unlock(&lock);
}

int note_replay(uint32_t number, int s)
{
	struct option_head head;
	struct note n;

	if (!number)
		return 0;
	pthread_mutex_lock(&lock);
	n = notes[number - 1];
	pthread_mutex_unlock(&lock);
	if (n.full)
		return -ENOBUFS;
	for (uint16_t at = 0; at < n.bytes; at = (uint16_t)(at + sizeof head + head.length)) {
		memcpy(&head, n.data + at, sizeof head);
		if (XTS(xts_setsockopt(s, head.level, head.option, n.data + at + sizeof head, head.length)) < 0)
			return -errno;
	}
	return 0;
}
