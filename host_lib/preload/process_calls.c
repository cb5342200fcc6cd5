/*
 * Processes: exec and exit. fork() and its like: doors.c.
 *
 * exec() keeps the offloaded sockets that are not close-on-exec. They are written into a memfd. The new program finds
 * its number in the environment (XTS_INHERITED) and takes the sockets over. posix_spawn(): spawn.c. The memfd has the
 * sockets' keys, so it is made only where the new program, or one that it starts, can be under the interposer.
 *
 * A child that shares its parent's memory (doors.c) must not end what is its parent's: exec and exit are the kernel's
 * there. The process's number tells it, whichever way the child was made.
 */
#include "preload.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/arguments.h"
#include "decide.h"
#include "kept_preload.h"
#include "process_page.h"
#include "once_per_run.h"
#include "run_notice.h"
#include "sharing_children.h"
#include "strict_outcome.h"
#include "summary.h"

#define INHERITED "XTS_INHERITED"

/* --- exec --------------------------------------------------------------------------------------------------------- */

/* The sockets that exec() keeps. They are in mapped memory, since the caller may be the child of a program with
 * threads. */
struct exec_sockets {
	struct xts_exec_socket *sockets;
	unsigned count, room, listeners;
};

static void pack(int fd, struct descriptor d, void *argument)
{
	struct exec_sockets *kept = argument;
	int flags = real()->fcntl(fd, F_GETFD);

	if (flags < 0 || flags & FD_CLOEXEC)
		return;
	if (kept->count < kept->room)
		kept->sockets[kept->count] = (struct xts_exec_socket){ .number = (int)d.number, .descriptor = fd };
	kept->count++;
	kept->listeners += !!(d.flags & DESCRIPTOR_LISTENS);
}

static size_t sockets_bytes(const struct exec_sockets *kept)
{
	return kept->room * sizeof *kept->sockets;
}

/* One of the four calls to which all others are reduced. */
enum exec_how { EXEC_PATH, EXEC_SEARCHED, EXEC_DESCRIPTOR, EXEC_AT };
struct exec_target {
	enum exec_how how;
	int fd, flags;
	const char *path;
};

/* Why neither the new program nor what it starts will be under the interposer; NULL: one of them may be. */
static const char *never_interposed(const struct exec_target *target, char *const *environment)
{
	char path[PATH_MAX];
	int length;

	if (target->how != EXEC_DESCRIPTOR && !xts_argument_is_readable(target->path, 1))
		return NULL; /* the kernel says EFAULT */
	if (target->how == EXEC_SEARCHED || (target->how == EXEC_PATH && strchr(target->path, '/')))
		return kept_preload_never(target->path, environment);
	if (target->how == EXEC_PATH)
		length = snprintf(path, sizeof path, "./%s", target->path);
	else if (target->how == EXEC_DESCRIPTOR || !*target->path)
		length = snprintf(path, sizeof path, "/proc/self/fd/%d", target->fd);
	else if (*target->path == '/' || target->fd == AT_FDCWD)
		length = snprintf(path, sizeof path, "%s%s", *target->path == '/' ? "" : "./", target->path);
	else
		length = snprintf(path, sizeof path, "/proc/self/fd/%d/%s", target->fd, target->path);
	return kept_preload_never(length < (int)sizeof path ? path : "/", environment);
}

/* A program may get connections by mistake. One that gets a listener is to serve it, and its clients would wait. */
static void tell_left(const struct exec_sockets *kept, const struct exec_target *target, const char *why)
{
	preload_log("exec: the new program cannot use its %u offloaded sockets: %s", kept->count, why);
	if (kept->listeners)
		run_notice(
			"%s (process %d): %s, which it executes, cannot serve the %u offloaded listeners that it gets: %s",
			report_program(), (int)getpid(), target->path ? target->path : "the program", kept->listeners,
			why);
}

/* The memfd with the sockets that are kept; -1: there are none, or nobody could take them; -errno. */
static int give_up_sockets(struct exec_sockets *kept, const struct exec_target *target, char *const *environment)
{
	const char *why;
	int memfd;

	descriptor_each(DESCRIPTOR_OFFLOADED, pack, kept);
	if (!kept->count)
		return -1;
	why = never_interposed(target, environment);
	if (why) {
		tell_left(kept, target, why);
		return -1;
	}
	kept->room = kept->count;
	kept->count = 0;
	kept->sockets = mmap(NULL, sockets_bytes(kept), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (kept->sockets == MAP_FAILED)
		return -ENOMEM;
	descriptor_each(DESCRIPTOR_OFFLOADED, pack, kept);
	memfd = XTS(xts_exec_prepare(kept->sockets, kept->count < kept->room ? kept->count : kept->room));
	if (memfd < 0)
		memfd = -errno;
	munmap(kept->sockets, sockets_bytes(kept));
	return memfd;
}

static int count_of(char *const *list)
{
	int count = 0;

	while (list && list[count])
		count++;
	return count;
}

static int exec_real(const struct exec_target *target, char *const *arguments, char *const *environment)
{
	switch (target->how) {
	case EXEC_PATH:
		return real()->execve(target->path, arguments, environment);
	case EXEC_SEARCHED:
		return real()->execvpe(target->path, arguments, environment);
	case EXEC_DESCRIPTOR:
		return real()->fexecve(target->fd, arguments, environment);
	default:
		return real()->execveat(target->fd, target->path, arguments, environment, target->flags);
	}
}

/* Executes with the environment and the memfd's number added to it. */
static int exec_with(int memfd, const struct exec_target *target, char *const *arguments, char *const *environment)
{
	int count = count_of(environment), at = 0;
	char *with[count + 2];
	char inherited[sizeof INHERITED + 16];

	for (int i = 0; i < count; i++) {
		if (strncmp(environment[i], INHERITED "=", sizeof INHERITED) != 0)
			with[at++] = environment[i];
	}
	snprintf(inherited, sizeof inherited, INHERITED "=%d", memfd);
	with[at++] = inherited;
	with[at] = NULL;
	return exec_real(target, arguments, with);
}

/* Sends all data that is still held back, before the program changes. */
static void send_held(void)
{
	if (!xts_inside.locked)
		xts_flush();
}

static int exec_kept(const struct exec_target *target, char *const *arguments, char *const *environment)
{
	struct exec_sockets kept = { 0 };
	int memfd, error;

	xts_look_who_calls();
	if (preload_shares_memory()) {
		sharing_ends();
		return exec_real(target, arguments, environment);
	}
	memfd = give_up_sockets(&kept, target, environment);
	send_held();
	if (memfd == -1)
		return exec_real(target, arguments, environment);
	if (memfd < 0) {
		preload_log("exec: its sockets cannot be kept: %s", strerror(-memfd));
		errno = -memfd;
		return -1;
	}
	exec_with(memfd, target, arguments, environment);
	error = errno;
	xts_resume(memfd);
	errno = error;
	return -1;
}

/* Shells try a name in one directory after the other: only one that can be started is told about. */
static void tell(const struct exec_target *target, char *const *environment)
{
	int before = errno;

	if (target->path && (target->how != EXEC_PATH || access(target->path, X_OK) == 0))
		kept_preload_tell(target->path, environment);
	errno = before;
}

static int exec_in_run(const struct exec_target *target, char *const *arguments, char *const *environment)
{
	int r, error;

	run_over_exec(true);
	r = exec_kept(target, arguments, environment);
	error = errno;
	run_over_exec(false);
	errno = error;
	return r;
}

static int exec_target(const struct exec_target *target, char *const *arguments, char *const *environment)
{
	size_t bytes;

	if (!environment_is_readable(environment))
		return exec_real(target, arguments, environment);
	bytes = kept_preload_bytes(environment);
	if (!bytes) {
		tell(target, environment);
		return exec_in_run(target, arguments, environment);
	}
	char *list[count_of(environment) + 1], text[bytes];

	kept_preload(list, text, bytes, environment);
	return exec_in_run(target, arguments, list);
}

EXPORT int execve(const char *path, char *const arguments[], char *const environment[])
{
	return exec_target(&(struct exec_target){ .how = EXEC_PATH, .path = path }, arguments, environment);
}

EXPORT int execv(const char *path, char *const arguments[])
{
	return execve(path, arguments, environ);
}

EXPORT int execvpe(const char *file, char *const arguments[], char *const environment[])
{
	return exec_target(&(struct exec_target){ .how = EXEC_SEARCHED, .path = file }, arguments, environment);
}

EXPORT int execvp(const char *file, char *const arguments[])
{
	return execvpe(file, arguments, environ);
}

EXPORT int fexecve(int fd, char *const arguments[], char *const environment[])
{
	return exec_target(&(struct exec_target){ .how = EXEC_DESCRIPTOR, .fd = fd }, arguments, environment);
}

EXPORT int execveat(int directory, const char *path, char *const arguments[], char *const environment[], int flags)
{
	return exec_target(&(struct exec_target){ .how = EXEC_AT, .fd = directory, .path = path, .flags = flags },
			   arguments, environment);
}

/* The arguments of execl() and similar calls: counted, then gathered on the stack.
 * NOLINTBEGIN(bugprone-macro-parentheses) */
#define GATHER(first, arguments, list) \
	int count_ = 1; \
	va_start(list, first); \
	while (va_arg(list, char *)) \
		count_++; \
	va_end(list); \
	char *arguments[count_ + 1]; \
	va_start(list, first); \
	arguments[0] = (char *)(first); \
	for (int i_ = 1; i_ <= count_; i_++) \
	arguments[i_] = va_arg(list, char *)
/* NOLINTEND(bugprone-macro-parentheses) */

EXPORT int execl(const char *path, const char *first, ...)
{
	va_list list;
	GATHER(first, arguments, list);
	va_end(list);
	return execve(path, arguments, environ);
}

EXPORT int execlp(const char *file, const char *first, ...)
{
	va_list list;
	GATHER(first, arguments, list);
	va_end(list);
	return execvpe(file, arguments, environ);
}

EXPORT int execle(const char *path, const char *first, ...)
{
	char *const *environment;
	va_list list;
	GATHER(first, arguments, list);
	environment = va_arg(list, char *const *);
	va_end(list);
	return execve(path, arguments, environment);
}

/* -1: not a number. */
static int parse_descriptor(const char *text)
{
	char *end;
	long number;

	errno = 0;
	number = strtol(text, &end, 10);
	return errno || end == text || *end || number < 0 || number >= (long)DESCRIPTORS_MAX ? -1 : (int)number;
}

/* Only the kernel half of a socket on a wildcard address is bound, and listens if that socket does; that of all others
 * is unbound. */
static uint8_t flags_after_exec(const struct xts_exec_socket *got)
{
	uint8_t flags = got->listens ? DESCRIPTOR_LISTENS : got->datagrams ? DESCRIPTOR_DATAGRAM : 0;
	union address local;

	if (decide_bound_to(got->descriptor, &local) &&
	    (!got->listens || decide_number_option(got->descriptor, SO_ACCEPTCONN) == 1))
		flags |= DESCRIPTOR_ALSO_LOCAL;
	return flags;
}

static enum xts_reason why_lost(void)
{
	return errno == ENOTCONN        ? XTS_REASON_ELSEWHERE :
	       errno == EPROTONOSUPPORT ? XTS_REASON_VERSION :
					  XTS_REASON_LOST;
}

void process_take_over(void)
{
	char inherited[16], *text = secure_getenv(INHERITED);
	struct xts_exec_socket got = { .number = -1, .descriptor = -1 };
	int memfd, r;

	if (!text)
		return;
	snprintf(inherited, sizeof inherited, "%s", text);
	unsetenv(INHERITED);
	memfd = parse_descriptor(inherited);
	if (memfd < 0) {
		preload_log("%s=%s: not a descriptor", INHERITED, inherited);
		return;
	}
	report_start();
	while ((r = XTS(xts_inherit_next(memfd, &got))) != 0) {
		if (r < 0) {
			preload_log("descriptor %d: not kept over exec: %s", got.descriptor, strerror(errno));
			if (got.descriptor >= 0)
				(void)decide_stay(got.descriptor, why_lost());
			continue;
		}
		descriptor_set(got.descriptor, (struct descriptor){ .kind = DESCRIPTOR_OFFLOADED,
								    .flags = flags_after_exec(&got),
								    .number = (uint32_t)got.number });
		if (got.again)
			descriptor_share(descriptor_get(got.descriptor));
		else
			atomic_fetch_add_explicit(&preload.offloaded, 1, memory_order_relaxed);
		stream_follow(got.descriptor);
	}
	report_counters();
}

bool preload_shares_memory(void)
{
	pid_t own = xts_caller_pid;

	return own && getpid() != own;
}

/* --- exit --------------------------------------------------------------------------------------------------------- */

EXPORT __attribute__((noreturn)) void _exit(int status)
{
	xts_look_who_calls();
	if (!preload_shares_memory() && !xts_inside.locked) {
		summary_tell();
		status = strict_outcome(status);
		xts_before_exit();
	}
	sharing_ends();
	real()->_exit(status);
	__builtin_unreachable();
}

/* quick_exit() comes neither through _exit() nor through destructors. Its handlers run in reverse order, so ours is
 * among the last. */
static int quick_status;

static void at_quick_exit_of_program(void)
{
	int wanted;

	if (preload_shares_memory() || xts_inside.locked)
		return;
	summary_tell();
	wanted = strict_outcome(quick_status);
	xts_before_exit();
	if (wanted != quick_status)
		real()->_exit(wanted);
}

__attribute__((constructor)) static void watch_quick_exit(void)
{
	at_quick_exit(at_quick_exit_of_program);
}

EXPORT __attribute__((noreturn)) void quick_exit(int status)
{
	xts_look_who_calls();
	quick_status = status;
	real()->quick_exit(status);
	__builtin_unreachable();
}

EXPORT __attribute__((noreturn)) void _Exit(int status)
{
	_exit(status);
}

/* --- daemon: after _exit(), which it calls ------------------------------------------------------------------------ */

/* Puts /dev/null in place of all three; a file of that name that is not the device is refused, as by the C library. 0,
 * or -1 and errno. */
static int silence_standard_descriptors(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), r = 0;
	struct stat is;

	if (null < 0)
		return -1;
	if (real()->fstat(null, &is) == 0 && !S_ISCHR(is.st_mode)) {
		errno = ENODEV;
		r = -1;
	}
	for (int fd = 0; r >= 0 && fd <= STDERR_FILENO; fd++)
		r = dup2(null, fd);
	if (null > STDERR_FILENO)
		real()->close(null);
	return r < 0 ? -1 : 0;
}

/* Sockets that were inherited and not used yet still need the endpoint, whose path may not exist inside. */
void preload_before_chroot(void)
{
	int before = errno;

	if (!xts_inside.locked && !preload_shares_memory())
		xts_before_chroot();
	errno = before;
}

EXPORT int chroot(const char *path)
{
	preload_before_chroot();
	return real()->chroot(path);
}

/* Replaces the C library's, in which the parent ends without an orderly close: the child's connections would end with
 * it. */
EXPORT int daemon(int keep_directory, int keep_descriptors)
{
	pid_t child = real()->fork();

	if (child < 0)
		return -1;
	if (child)
		_exit(EXIT_SUCCESS);
	if (setsid() < 0 || (!keep_directory && chdir("/") < 0))
		return -1;
	return keep_descriptors ? 0 : silence_standard_descriptors();
}
