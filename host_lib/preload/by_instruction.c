/* Epoll sets that a program waits for by instruction: by_instruction.h has the theory of operation. */
#include "by_instruction.h"

#include <dirent.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FIRST_LOOK_MS 20u
#define LONGEST_PAUSE_MS 1000u
#define LOOKS_MAX 120u /* then only a new set makes it look again */
#define SETS_AT_ONCE 64u

/* 0 as soon as the process has had a second thread; not in C libraries before 2.32. */
extern char __libc_single_threaded __attribute__((weak));

static atomic_bool looking; /* changed under the sets' lock */
static atomic_bool found;   /* this program does so */

/* --- who sleeps in which call ------------------------------------------------------------------------------------- */

/* The C library's functions are made of these calls too, but who comes through them has marked the set (called). */
static bool waits_for_set(long number)
{
	switch (number) {
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
#endif
	case SYS_epoll_pwait:
#ifdef SYS_epoll_pwait2
	case SYS_epoll_pwait2:
#endif
		return true;
	default:
		return false;
	}
}

/* The set that this thread of the process waits for; -1: none. */
static int set_of_thread(int tasks, const char *thread)
{
	char name[64], text[128], *end;
	ssize_t length;
	long number;
	int fd;

	snprintf(name, sizeof name, "%s/syscall", thread);
	fd = real()->openat(tasks, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	length = real()->read(fd, text, sizeof text - 1);
	real()->close(fd);
	if (length <= 0)
		return -1;
	text[length] = '\0'; /* "running", or the number of a call and its arguments */
	number = strtol(text, &end, 10);
	return end != text && waits_for_set(number) ? (int)strtoul(end, NULL, 16) : -1;
}

static unsigned sets_in_sleep(int *sets, unsigned max)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *thread;
	unsigned n = 0;
	int fd;

	if (!tasks)
		return 0;
	while (n < max && (thread = readdir(tasks))) {
		fd = thread->d_name[0] == '.' ? -1 : set_of_thread(dirfd(tasks), thread->d_name);
		if (fd >= 0)
			sets[n++] = fd;
	}
	closedir(tasks);
	return n;
}

/* --- mirrors ------------------------------------------------------------------------------------------------------ */

int instruction_control(struct epoll_set *set, int epfd, int op, uint32_t number, struct epoll_event *event)
{
	int mirror = XTS(xts_fileno_until_connect((int)number)), r;

	if (mirror < 0)
		return -1;
	r = real()->epoll_ctl(epfd, op, mirror, event);
	if (r == 0 && op == EPOLL_CTL_ADD)
		atomic_fetch_add(&set->members, 1);
	else if (r == 0 && op == EPOLL_CTL_DEL && atomic_load(&set->members))
		atomic_fetch_sub(&set->members, 1);
	return r;
}

static void mirror_member(int fd, struct descriptor d, void *argument)
{
	struct epoll_set *set = argument;
	struct epoll_event event = { 0 };

	if (XTS(xts_epoll_registered(set->ctx, (int)d.number, (uint32_t)fd, &event)) == 0 &&
	    instruction_control(set, set->fd, EPOLL_CTL_ADD, d.number, &event) < 0 && errno != EEXIST)
		preload_log("descriptor %d: not seen by those who wait by instruction: %m", fd);
}

struct member {
	int fd;
	struct descriptor d;
};

static void mirror_again(struct epoll_set *set, void *argument)
{
	const struct member *member = argument;

	if (atomic_load(&set->mirrored) && set_descriptor(set) >= 0)
		mirror_member(member->fd, member->d, set);
}

void instruction_connects(int fd, struct descriptor d)
{
	struct member member = { .fd = fd, .d = d };
	int before = errno;

	if (!atomic_load(&found))
		return;
	sets_lock();
	sets_each(mirror_again, &member);
	sets_unlock();
	errno = before;
}

static bool is_expected(struct epoll_set *set)
{
	return atomic_load(&set->ctx) && !atomic_load(&set->called) && !atomic_load(&set->mirrored);
}

/* Somebody sleeps on this set. */
static void serve(int fd)
{
	struct descriptor d = descriptor_get(fd);
	struct epoll_set *set = d.kind == DESCRIPTOR_EPOLL ? set_hold(d.number, 1) : NULL;

	if (!set)
		return;
	if (is_expected(set)) {
		set->fd = fd;
		atomic_store(&set->mirrored, true);
		descriptor_each(DESCRIPTOR_OFFLOADED, mirror_member, set);
		atomic_store(&found, true);
		preload_log("descriptor %d: an epoll set that is waited for by instruction", fd);
	}
	set_drop(set, 1);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void count_expected(struct epoll_set *set, void *argument)
{
	*(unsigned *)argument += is_expected(set);
}

static bool look(bool last)
{
	unsigned expected = 0, n;
	int sets[SETS_AT_ONCE];

	sets_lock();
	sets_each(count_expected, &expected);
	if (!expected || last)
		atomic_store(&looking, false);
	sets_unlock();
	if (!expected || last)
		return false;
	n = sets_in_sleep(sets, SETS_AT_ONCE);
	sets_lock();
	for (unsigned i = 0; i < n; i++)
		serve(sets[i]);
	sets_unlock();
	return true;
}

static void *looker(void *unused)
{
	unsigned pause_ms = atomic_load(&found) ? 1 : FIRST_LOOK_MS;

	(void)unused;
	for (unsigned i = 0;; i++) {
		struct timespec pause = { .tv_sec = pause_ms / 1000, .tv_nsec = pause_ms % 1000 * 1000000L };

		nanosleep(&pause, NULL);
		if (!look(i == LOOKS_MAX))
			return NULL;
		pause_ms = pause_ms * 2 < LONGEST_PAUSE_MS ? pause_ms * 2 : LONGEST_PAUSE_MS;
	}
}

/* --- programs of one thread --------------------------------------------------------------------------------------- */

#define NEAR_BYTES 48u

/* Is the number of a call that waits for a set put into its register here, with the instruction right behind it? */
static bool has_call(const uint8_t *code, size_t bytes)
{
#if defined __x86_64__
	static const uint8_t instruction[] = { 0x0f, 0x05 };
	static const uint32_t numbers[] = { SYS_epoll_wait, SYS_epoll_pwait, SYS_epoll_pwait2 };

	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		uint8_t load[5] = { 0xb8 }; /* movl $number, %eax */
		const uint8_t *at = code, *end = code + bytes;

		memcpy(load + 1, &numbers[i], sizeof numbers[i]);
		while ((at = memmem(at, (size_t)(end - at), load, sizeof load))) {
			size_t left = (size_t)(end - (at += sizeof load));

			if (memmem(at, left < NEAR_BYTES ? left : NEAR_BYTES, instruction, sizeof instruction))
				return true;
		}
	}
#else
	(void)code;
	(void)bytes;
#endif
	return false;
}

/* The first object is the program itself. */
static int look_at_program(struct dl_phdr_info *object, size_t size, void *has)
{
	(void)size;
	for (int i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &object->dlpi_phdr[i];

		if (part->p_type == PT_LOAD && (part->p_flags & PF_X) && (part->p_flags & PF_R))
			*(bool *)has |= has_call((const uint8_t *)(object->dlpi_addr + part->p_vaddr), part->p_filesz);
	}
	return 1;
}

static bool program_has_call(void)
{
	static enum { UNKNOWN, NONE, SOME } known; /* under the sets' lock */
	bool has = false;

	if (known == UNKNOWN) {
		dl_iterate_phdr(look_at_program, &has);
		known = has ? SOME : NONE;
	}
	return known == SOME;
}

/* A process without threads is left alone, if its program does not look like one that does so: with a thread of ours it
 * could not make a namespace for users, for instance. */
static bool may_look(void)
{
	bool has_threads = &__libc_single_threaded && !__libc_single_threaded;

	return !preload_shares_memory() && (has_threads || program_has_call());
}

void instruction_expect(void)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;

	if (atomic_load(&looking) || !may_look() || pthread_attr_init(&attributes))
		return;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 128 * 1024);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	atomic_store(&looking, pthread_create(&thread, &attributes, looker, NULL) == 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
}

void instruction_after_fork(void)
{
	atomic_store(&looking, false);
}
