/*
 * posix_spawn(): the C library makes the child, and the file actions act on kernel descriptors. So those descriptors
 * have to carry what the child may get: while the child is made, the descriptor of each offloaded socket that it may
 * have is the socket's carrier (xts_pass()), and not a placeholder. A program under the interposer finds carriers among
 * its descriptors when it starts (spawn_take_over()), wherever dup2() has put them; those that were closed are gone.
 *
 * A child may have every descriptor that is not close-on-exec, and every one that a dup2 of any file actions names. It
 * looks for sockets among the first few numbers only, so no others are made carriers for it: each costs a descriptor
 * (the connection's deed) for as long as the connection is open, and more time than the child takes to start.
 */
#include "preload.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "decide.h"
#include "kept_preload.h"
#include "passing.h"
#include "process_page.h"
#include "spawning.h"

#define DESCRIPTORS_LOOKED_AT 256 /* when a program starts */
#define NAMED_WORDS (DESCRIPTORS_MAX / 64)

static pthread_mutex_t spawn_lock = PTHREAD_MUTEX_INITIALIZER; /* held while a child is made: one at a time */
/* descriptors named by file actions; a page costs nothing until it is touched */
static _Atomic uint64_t named[NAMED_WORDS];

static bool is_named(int fd)
{
	return atomic_load_explicit(&named[fd / 64], memory_order_relaxed) & UINT64_C(1) << fd % 64;
}

EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *actions, int fd, int as)
{
	if (descriptor_offloaded(fd) >= 0)
		atomic_fetch_or(&named[fd / 64], UINT64_C(1) << fd % 64);
	return real()->posix_spawn_file_actions_adddup2(actions, fd, as);
}

/* --- the parent --------------------------------------------------------------------------------------------------- */

/* A descriptor that is a carrier at present, and what it was. */
struct carried {
	int fd;
	struct descriptor d;
	ino_t carrier;
	bool close_on_exec;
};

struct carrying {
	struct carried *list;
	unsigned count, room;
};

static ino_t inode_of(int fd)
{
	struct stat is;

	return real()->fstat(fd, &is) == 0 ? is.st_ino : 0;
}

/* The child gets what dup2 makes of it. A carrier that it never looks at would count as one more that has the socket,
 * also when the child and the parent have closed it. */
static bool is_only_a_source(int fd)
{
	return fd >= DESCRIPTORS_LOOKED_AT;
}

static bool may_go(int fd)
{
	int flags;

	if (is_named(fd))
		return true;
	if (is_only_a_source(fd))
		return false;
	flags = real()->fcntl(fd, F_GETFD);
	return flags >= 0 && !(flags & FD_CLOEXEC);
}

static bool is_close_on_exec(int fd)
{
	int flags = real()->fcntl(fd, F_GETFD);

	return flags >= 0 && flags & FD_CLOEXEC;
}

static void put(int fd, int other, bool close_on_exec)
{
	(void)real()->dup3(other, fd, close_on_exec ? O_CLOEXEC : 0);
}

static void count_one(int fd, struct descriptor d, void *argument)
{
	struct carrying *all = argument;

	(void)d;
	all->room += may_go(fd);
}

/* A socket that cannot be passed stays a placeholder, in which the child finds the reason LOST. */
static void put_carrier(int fd, struct descriptor d, void *argument)
{
	struct carrying *all = argument;
	int half = d.flags & DESCRIPTOR_ALSO_LOCAL ? fd : -1, carrier;

	if (all->count == all->room || !may_go(fd))
		return;
	carrier = XTS(xts_pass((int)d.number, half));
	if (carrier < 0) {
		if (errno != ENOTCONN)
			preload_log("descriptor %d: cannot be given to a new program: %s", fd, strerror(errno));
		return;
	}
	if (half < 0) {
		struct carried one = { fd, d, inode_of(carrier), is_close_on_exec(fd) };

		all->list[all->count++] = one;
		put(fd, carrier, one.close_on_exec || is_only_a_source(fd));
	}
	real()->close(carrier);
}

/* Puts it back, unless another thread has closed it meanwhile. */
static void put_back(const struct carried *one)
{
	struct descriptor now = descriptor_get(one->fd);
	int placeholder;

	if (now.kind != DESCRIPTOR_OFFLOADED || now.number != one->d.number || inode_of(one->fd) != one->carrier)
		return;
	placeholder = decide_placeholder();
	if (placeholder < 0)
		return;
	put(one->fd, placeholder, is_only_a_source(one->fd) ? one->close_on_exec : is_close_on_exec(one->fd));
	real()->close(placeholder);
}

static void put_carriers(struct carrying *all)
{
	int before = errno;

	descriptor_each(DESCRIPTOR_OFFLOADED, count_one, all);
	all->list = all->room ? malloc(all->room * sizeof *all->list) : NULL;
	if (all->list)
		descriptor_each(DESCRIPTOR_OFFLOADED, put_carrier, all);
	errno = before;
}

static void put_all_back(struct carrying *all)
{
	int before = errno;

	while (all->count)
		put_back(&all->list[--all->count]);
	free(all->list);
	all->list = NULL;
	all->room = 0;
	errno = before;
}

/* Sends all data that is still held back, before the child sends more. */
static void send_held(void)
{
	if (!xts_inside.locked)
		xts_flush();
}

static struct carrying carrying; /* for the child that is being made */

bool spawn_begin(void)
{
	if (xts_inside.locked)
		return false;
	send_held();
	xts_go_in();
	pthread_mutex_lock(&spawn_lock);
	put_carriers(&carrying);
	return true;
}

void spawn_end(bool begun)
{
	if (!begun)
		return;
	put_all_back(&carrying);
	pthread_mutex_unlock(&spawn_lock);
	xts_come_out();
}

typedef int spawn_call(pid_t *pid, const char *program, const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]);

static int spawn(spawn_call *call, pid_t *pid, const char *program, const posix_spawn_file_actions_t *actions,
		 const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
	bool begun = spawn_begin();
	int r = call(pid, program, actions, attributes, arguments, environment);

	spawn_end(begun);
	return r;
}

static int spawn_kept(spawn_call *call, pid_t *pid, const char *program, const posix_spawn_file_actions_t *actions,
		      const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
	size_t bytes = environment_is_readable(environment) ? kept_preload_bytes(environment) : 0, count = 0;
	int r;

	if (!bytes) {
		r = spawn(call, pid, program, actions, attributes, arguments, environment);
		if (r == 0)
			kept_preload_tell(program, environment);
		return r;
	}
	while (environment[count])
		count++;
	char *list[count + 1], text[bytes];

	kept_preload(list, text, bytes, environment);
	return spawn(call, pid, program, actions, attributes, arguments, list);
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
		       const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
	return spawn_kept(real()->posix_spawn, pid, path, actions, attributes, arguments, environment);
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions,
			const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[])
{
	return spawn_kept(real()->posix_spawnp, pid, file, actions, attributes, arguments, environment);
}

static void lock_spawning(void)
{
	xts_go_in();
	pthread_mutex_lock(&spawn_lock);
}

static void unlock_spawning(void)
{
	pthread_mutex_unlock(&spawn_lock);
	xts_come_out();
}

static void orphaned(void)
{
	pthread_mutex_init(&spawn_lock, NULL);
	carrying = (struct carrying){ 0 };
}

__attribute__((constructor)) static void keep_over_fork(void)
{
	static const struct xts_fork_part at_fork = {
		.before = lock_spawning, .in_parent = unlock_spawning, .in_child = unlock_spawning, .orphaned = orphaned
	};

	xts_at_fork(&at_fork);
}

/* --- the child ---------------------------------------------------------------------------------------------------- */

void spawn_take_over(void)
{
	int before = errno;

	for (int fd = 0; fd < DESCRIPTORS_LOOKED_AT; fd++)
		if (descriptor_get(fd).kind == DESCRIPTOR_KERNEL && passing_receive(fd, false))
			stream_follow(fd);
	errno = before;
}
