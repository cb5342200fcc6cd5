/* The records of undecided sockets. */
#include "undecided_options.h"

#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>

#include "preload.h"

#define NOTES_MAX (1u << 14)
#define NOTE_BYTES 500u

struct note {
	bool used, full;
	bool pushes;    /* protocols have been pushed */
	int push_error; /* errno of a push that was refused when it was repeated */
	/* errno with which this host's kernel has refused to join a group, or to send to groups; 0: none */
	int interface_error;
	uint16_t bytes;
	uint16_t next;            /* number of the note that continues this one; 0: none */
	uint8_t data[NOTE_BYTES]; /* a struct option_head and its value, repeated */
};
/* Values of level in option_head that are not levels of options. */
#define LEVEL_IOCTL (-1)    /* option is the ioctl request */
#define LEVEL_SHUTDOWN (-2) /* option is the direction that is shut down */

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

static void orphaned(void)
{
	pthread_mutex_init(&lock, NULL);
}

/* Registered before the table's handlers: the table's lock is taken before this one, and at fork() handlers that were
 * registered later run first. */
__attribute__((constructor(102))) static void keep_over_fork(void)
{
	static const struct xts_fork_part at_fork = {
		.before = lock_notes, .in_parent = unlock_notes, .in_child = unlock_notes, .orphaned = orphaned
	};

	xts_at_fork(&at_fork);
}

/* Called with the lock held. 0: none left. */
static uint32_t make(void)
{
	uint32_t number = 0;

	for (uint32_t i = 0; i < NOTES_MAX && !number; i++) {
		uint32_t at = (next + i) % NOTES_MAX;
		struct note *n = &notes[at];

		if (n->used)
			continue;
		n->used = true;
		n->full = n->pushes = false;
		n->push_error = n->interface_error = 0;
		n->bytes = n->next = 0;
		number = at + 1;
		next = i ? at + 1 : at; /* so that the lowest memory is used first */
	}
	return number;
}

uint32_t note_make(void)
{
	uint32_t number;

	lock_notes();
	number = make();
	unlock_notes();
	return number;
}

void note_drop(uint32_t number)
{
	bool pushes = notes[number - 1].pushes;

	lock_notes();
	while (number) {
		struct note *n = &notes[number - 1];

		if (pushes) /* they may contain keys */
			explicit_bzero(n->data, sizeof n->data);
		n->used = false;
		next = number - 1;
		number = n->next;
	}
	unlock_notes();
}

static struct note *behind(const struct note *n)
{
	return n->next ? &notes[n->next - 1] : NULL;
}

/* Removes the earlier value of an option that is set again. */
static void forget(struct note *first, int level, int option)
{
	for (struct note *n = first; n; n = behind(n)) {
		struct option_head head;
		uint16_t at = 0, bytes;

		for (; at < n->bytes; at = (uint16_t)(at + bytes)) {
			memcpy(&head, n->data + at, sizeof head);
			bytes = (uint16_t)(sizeof head + head.length);
			if (head.level != level || head.option != option)
				continue;
			memmove(n->data + at, n->data + at + bytes, (size_t)(n->bytes - at - bytes));
			n->bytes = (uint16_t)(n->bytes - bytes);
			return;
		}
	}
}

/* Called with the lock held. False: there is no room. */
static bool append(struct note *n, int level, int option, const void *value, uint32_t length)
{
	struct option_head head = { .level = level, .option = option, .length = length };

	if (length > NOTE_BYTES - sizeof head)
		return false;
	while (n->next)
		n = behind(n);
	if (n->bytes + sizeof head + length > NOTE_BYTES) {
		n->next = (uint16_t)make();
		if (!n->next)
			return false;
		n = behind(n);
	}
	memcpy(n->data + n->bytes, &head, sizeof head);
	if (length)
		memcpy(n->data + n->bytes + sizeof head, value, length);
	n->bytes = (uint16_t)(n->bytes + sizeof head + length);
	return true;
}

/* Records the program that the value points to, which the kernel has accepted: its memory may be gone when the option
 * is repeated. */
static bool append_filter(struct note *n, const void *value)
{
	struct sock_fprog program;

	memcpy(&program, value, sizeof program);
	return append(n, SOL_SOCKET, SO_ATTACH_FILTER, program.filter, program.len * sizeof program.filter[0]);
}

void note_option(uint32_t number, int level, int option, const void *value, socklen_t length)
{
	struct note *n = &notes[number - 1];
	bool noted = true;

	lock_notes();
	if (!note_is_membership(level, option))
		forget(n, level, option);
	if (level == SOL_SOCKET && option == SO_DETACH_FILTER)
		forget(n, level, SO_ATTACH_FILTER);
	else if (level == SOL_SOCKET && option == SO_ATTACH_FILTER)
		noted = append_filter(n, value);
	else
		noted = append(n, level, option, value, length);
	if (!noted)
		n->full = true;
	unlock_notes();
}

/* Is it an option of which every call counts? */
bool note_is_membership(int level, int option)
{
	if (level == IPPROTO_IP)
		return (option >= IP_ADD_MEMBERSHIP && option <= IP_MSFILTER) ||
		       (option >= MCAST_JOIN_GROUP && option <= MCAST_MSFILTER);
	return level == IPPROTO_IPV6 && (option == IPV6_JOIN_GROUP || option == IPV6_LEAVE_GROUP ||
					 (option >= MCAST_JOIN_GROUP && option <= MCAST_MSFILTER));
}

bool note_names_interface(int level, int option)
{
	return (level == IPPROTO_IP && option == IP_MULTICAST_IF) ||
	       (level == IPPROTO_IPV6 && option == IPV6_MULTICAST_IF);
}

bool note_is_join(int option)
{
	return option == IP_ADD_MEMBERSHIP || option == IP_ADD_SOURCE_MEMBERSHIP || option == IPV6_JOIN_GROUP ||
	       option == MCAST_JOIN_GROUP || option == MCAST_JOIN_SOURCE_GROUP;
}

void note_refused_interface(uint32_t number, int error)
{
	lock_notes();
	if (!notes[number - 1].interface_error)
		notes[number - 1].interface_error = error;
	unlock_notes();
}

int note_interface_error(uint32_t number)
{
	int error;

	if (!number)
		return 0;
	lock_notes();
	error = notes[number - 1].interface_error;
	unlock_notes();
	return error;
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

void note_shutdown(uint32_t number, int how)
{
	struct note *n = &notes[number - 1];

	lock_notes();
	forget(n, LEVEL_SHUTDOWN, how);
	if (!append(n, LEVEL_SHUTDOWN, how, NULL, 0))
		n->full = true;
	unlock_notes();
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

static int repeat_filter(const uint8_t *instructions, uint32_t bytes, int s)
{
	struct sock_filter copy[NOTE_BYTES / sizeof(struct sock_filter)];
	const struct sock_fprog program = { .len = (unsigned short)(bytes / sizeof copy[0]), .filter = copy };

	memcpy(copy, instructions, bytes);
	return XTS(xts_setsockopt(s, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program)) < 0 ? -errno : 0;
}

/* Repeats one recorded action: 0 or -errno. */
static int repeat(const struct option_head *head, const uint8_t *value, int s)
{
	int r;

	if (head->level == SOL_SOCKET && head->option == SO_ATTACH_FILTER)
		return repeat_filter(value, head->length, s);
	if (head->level == LEVEL_SHUTDOWN) {
		/* it fails with ENOTCONN, as before, and has its effect all the same */
		(void)XTS(xts_shutdown(s, head->option));
		return 0;
	}
	r = head->level == LEVEL_IOCTL ?
		    XTS(xts_ioctl(s, (unsigned long)(unsigned)head->option, (void *)(uintptr_t)value)) :
		    XTS(xts_setsockopt(s, head->level, head->option, value, head->length));

	return r < 0 ? -errno : 0;
}

/* Repeats the actions of one note, of those that begin with number `first`. */
static int replay_one(const struct note *n, uint32_t first, int s, struct note_failed_option *out)
{
	struct option_head head;
	int r = 0;

	for (uint16_t at = 0; !r && at < n->bytes; at = (uint16_t)(at + sizeof head + head.length)) {
		memcpy(&head, n->data + at, sizeof head);
		r = repeat(&head, n->data + at + sizeof head, s);
		if (r && head.level == LEVEL_IOCTL)
			push_failed(first, -r);
		else if (r)
			*out = (struct note_failed_option){ true, head.level, head.option };
	}
	return r;
}

int note_replay(uint32_t number, int s, struct note_failed_option *out)
{
	uint32_t first = number;
	bool pushes = false;
	int r = 0;

	*out = (struct note_failed_option){ .failed = false };
	while (number && !r) {
		struct note n;

		lock_notes();
		n = notes[number - 1];
		unlock_notes();
		pushes = pushes || n.pushes;
		r = n.full ? -ENOBUFS : replay_one(&n, first, s, out);
		number = n.next;
		if (pushes)
			explicit_bzero(n.data, sizeof n.data);
	}
	errno = -r;
	return r;
}
