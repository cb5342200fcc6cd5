/*
 * A process with a TCP connection makes a child by each door there is, and the child does each of these deeds. Then the
 * parent says what has become of the child, of what it wrote, and of the parent's own connection: one line for each
 * pair, which is the same whether the kernel or the offload proxy has the connection.
 *
 * argv: [DOOR [DEED]], "" for all. DOORS_ADDRESS: where it listens, and connects to. With DOORS_STORM=1 another thread
 * allocates and frees memory all the time.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SAID "from the child"
#define REPLY_MS 5000

extern char **environ;

static int connection, peer; /* both ends of the connection of this pair */
static struct sockaddr_in address;
static char stack[1 << 17] __attribute__((aligned(16)));

/* --- deeds: their results are the child's status ------------------------------------------------------------------ */

static int write_said(int fd)
{
	return write(fd, SAID, strlen(SAID)) == (ssize_t)strlen(SAID) ? 0 : errno;
}

static int run(const char *path, char *const arguments[])
{
	execve(path, arguments, environ);
	return 127;
}

static int run_true(void)
{
	return run("/bin/true", (char *const[]){ "true", NULL });
}

static int run_writer(int fd)
{
	char command[64];

	snprintf(command, sizeof command, "printf '" SAID "' >&%d", fd);
	return run("/bin/sh", (char *const[]){ "sh", "-c", command, NULL });
}

static int deed_exec(void)
{
	return run_true();
}

static int deed_exec_and_write(void)
{
	return run_writer(connection);
}

static int deed_exit(void)
{
	exit(3);
}

static int deed_exit_at_once(void)
{
	_exit(4);
}

static int deed_return(void)
{
	return 5;
}

static int deed_close(void)
{
	return close(connection) ? errno : 0;
}

static int deed_close_and_exec(void)
{
	return close(connection) ? errno : run_true();
}

static int deed_close_range_and_exec(void)
{
	return close_range(3, ~0u, 0) ? errno : run_true();
}

static int deed_dup_and_exec(void)
{
	return dup2(connection, 1) < 0 || close(connection) ? errno : run_writer(1);
}

static int deed_reuse_number(void)
{
	int fd;

	close(connection);
	fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	return fd != connection ? 99 : write_said(fd); /* to /dev/null */
}

static int deed_write(void)
{
	return write_said(connection);
}

static int deed_write_and_exit(void)
{
	exit(write_said(connection));
}

static int deed_receive(void)
{
	char data[8];
	ssize_t n = send(peer, "to you", 6, MSG_NOSIGNAL) == 6 ? recv(connection, data, sizeof data, 0) : -1;

	return n < 0 ? errno : n == 6 && !memcmp(data, "to you", 6) ? 0 : 98;
}

static int deed_connect_again(void)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
		return errno;
	return write_said(fd) ? errno : close(fd) ? errno : 0;
}

static int deed_spawn(void)
{
	char *const arguments[] = { "true", NULL };
	int status = 0;
	pid_t child;

	if (posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ) || waitpid(child, &status, 0) != child)
		return 97;
	return status ? 96 : 0;
}

static int deed_fork_and_write(void)
{
	pid_t child = fork();
	int status = 0;

	if (child == 0)
		_exit(write_said(connection));
	return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 95;
}

/* Its parent's other thread is in a call meanwhile. */
static int deed_answer_waiting_parent(void)
{
	struct timespec moment = { .tv_nsec = 20000000 };

	nanosleep(&moment, NULL);
	return write_said(connection);
}

static const struct deed {
	const char *name;
	int (*function)(void);
} deeds[] = {
	{ "exec", deed_exec },
	{ "exec_and_write", deed_exec_and_write },
	{ "exit", deed_exit },
	{ "_exit", deed_exit_at_once },
	{ "return", deed_return },
	{ "close", deed_close },
	{ "close_and_exec", deed_close_and_exec },
	{ "close_range_and_exec", deed_close_range_and_exec },
	{ "dup_and_exec", deed_dup_and_exec },
	{ "reuse_number", deed_reuse_number },
	{ "write", deed_write },
	{ "write_and_exit", deed_write_and_exit },
	{ "receive", deed_receive },
	{ "connect_again", deed_connect_again },
	{ "spawn", deed_spawn },
	{ "fork_and_write", deed_fork_and_write },
	{ "answer_waiting_parent", deed_answer_waiting_parent },
};
enum { DEEDS = sizeof deeds / sizeof *deeds };

/* --- doors -------------------------------------------------------------------------------------------------------- */

static int begin(void *deed)
{
	return ((const struct deed *)deed)->function();
}

/* What a call that returns in the child, too, does there. */
static pid_t in_child(long child, const struct deed *deed)
{
	if (child == 0)
		_exit(deed->function());
	return (pid_t)child;
}

static pid_t door_fork(const struct deed *deed, unsigned long flags)
{
	(void)flags;
	return in_child(fork(), deed);
}

static pid_t door_Fork(const struct deed *deed, unsigned long flags)
{
	(void)flags;
	return in_child(_Fork(), deed);
}

static pid_t door_vfork(const struct deed *deed, unsigned long flags)
{
	pid_t child = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork) */

	(void)flags;
	if (child == 0)
		_exit(deed->function());
	return child;
}

static pid_t door_clone(const struct deed *deed, unsigned long flags)
{
	static int pidfd, tid;
	pid_t child = clone(begin, stack + sizeof stack - 64, (int)flags | SIGCHLD, (void *)deed,
			    flags & CLONE_PIDFD ? &pidfd : &tid, NULL, &tid);

	if (child > 0 && flags & CLONE_PIDFD)
		close(pidfd);
	return child;
}

static pid_t door_number(const struct deed *deed, unsigned long flags)
{
	return in_child(syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0), deed);
}

static pid_t door_clone3(const struct deed *deed, unsigned long flags)
{
	struct clone_args arguments = { .flags = flags, .exit_signal = SIGCHLD };

	return in_child(syscall(SYS_clone3, &arguments, sizeof arguments), deed);
}

/* By an instruction of the program's own, as Go, and programs in assembler, make their processes. */
static long clone_by_instruction(unsigned long flags)
{
#if defined __x86_64__
	long r;

	__asm__ volatile("xorl %%r10d, %%r10d\n\txorl %%r8d, %%r8d\n\tsyscall"
			 : "=a"(r)
			 : "0"((long)SYS_clone), "D"(flags), "S"(0L), "d"(0L)
			 : "rcx", "r8", "r10", "r11", "memory");
	return r;
#elif defined __aarch64__
	register long number __asm__("x8") = SYS_clone, r __asm__("x0") = (long)flags, a __asm__("x1") = 0,
			     b __asm__("x2") = 0, c __asm__("x3") = 0, d __asm__("x4") = 0;

	__asm__ volatile("svc 0" : "+r"(r) : "r"(number), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
	return r;
#else
#error "which instruction is it here?"
#endif
}

static pid_t door_instruction(const struct deed *deed, unsigned long flags)
{
	return in_child(clone_by_instruction(flags | SIGCHLD), deed);
}

#if defined __x86_64__
/* As vfork() is made: in this memory, while this thread waits. On a stack of its own. */
static pid_t door_instruction_vfork_in_memory(const struct deed *deed, unsigned long flags)
{
	long r;

	__asm__ volatile("movq %[deed], %%r12\n\txorl %%r10d, %%r10d\n\txorl %%r8d, %%r8d\n\tsyscall\n\t"
			 "testq %%rax, %%rax\n\tjnz 1f\n\t"
			 "movq %%r12, %%rdi\n\tcall *%[begin]\n\tmovl %%eax, %%edi\n\tmovl $60, %%eax\n\tsyscall\n"
			 "1:"
			 : "=a"(r)
			 : "0"((long)SYS_clone), "D"(flags | CLONE_VM | CLONE_VFORK | SIGCHLD),
			   "S"(stack + sizeof stack - 64), "d"(0L), [deed] "r"(deed), [begin] "r"(begin)
			 : "rcx", "r8", "r10", "r11", "r12", "memory");
	return (pid_t)r;
}
#endif

static const struct deed *of_grandchild;
static pid_t (*door_of_grandchild)(const struct deed *deed, unsigned long flags);
static unsigned long flags_of_grandchild;

static int nest(void)
{
	int status = 0;
	pid_t child = door_of_grandchild(of_grandchild, flags_of_grandchild);

	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status))
		return 94;
	return WEXITSTATUS(status);
}

static const struct deed nesting = { "nest", nest };

/* A child by one door, whose child by another does the deed. */
static pid_t door_instruction_in_fork(const struct deed *deed, unsigned long flags)
{
	of_grandchild = deed;
	door_of_grandchild = door_instruction;
	flags_of_grandchild = flags;
	return door_fork(&nesting, 0);
}

static pid_t door_number_in_number(const struct deed *deed, unsigned long flags)
{
	of_grandchild = deed;
	door_of_grandchild = door_number;
	flags_of_grandchild = flags;
	return door_number(&nesting, flags);
}

static pid_t door_fork_in_instruction(const struct deed *deed, unsigned long flags)
{
	of_grandchild = deed;
	door_of_grandchild = door_fork;
	return door_instruction(&nesting, flags);
}

static const struct door {
	const char *name;
	pid_t (*function)(const struct deed *deed, unsigned long flags);
	unsigned long flags;
} doors[] = {
	{ "fork", door_fork, 0 },
	{ "vfork", door_vfork, 0 },
	{ "_Fork", door_Fork, 0 },
	{ "clone", door_clone, 0 },
	{ "clone_vfork", door_clone, CLONE_VFORK },
	{ "clone_tids", door_clone, CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID },
	{ "clone_vm_vfork", door_clone, CLONE_VM | CLONE_VFORK },
	{ "clone_vm_vfork_pidfd", door_clone, CLONE_VM | CLONE_VFORK | CLONE_PIDFD },
	{ "clone_vm_vfork_sighand", door_clone, CLONE_VM | CLONE_VFORK | CLONE_SIGHAND },
	{ "clone_vm_vfork_fs_tid", door_clone, CLONE_VM | CLONE_VFORK | CLONE_FS | CLONE_CHILD_CLEARTID },
	{ "number_clone", door_number, 0 },
	{ "number_clone_vfork", door_number, CLONE_VFORK },
	{ "number_clone_vm_vfork", door_number, CLONE_VM | CLONE_VFORK },
	{ "number_clone3", door_clone3, 0 },
	{ "number_clone3_clear", door_clone3, CLONE_CLEAR_SIGHAND },
	{ "number_clone3_vm_vfork", door_clone3, CLONE_VM | CLONE_VFORK },
	{ "number_in_number", door_number_in_number, 0 },
	/* with the parent's memory and descriptors, or one of them */
	{ "clone_files", door_clone, CLONE_FILES },
	{ "clone_vm", door_clone, CLONE_VM },
	{ "clone_vm_files", door_clone, CLONE_VM | CLONE_FILES },
	{ "clone_vm_files_vfork", door_clone, CLONE_VM | CLONE_FILES | CLONE_VFORK },
	/* by an instruction */
	{ "instruction", door_instruction, 0 },
	{ "instruction_vfork", door_instruction, CLONE_VFORK },
#if defined __x86_64__
	{ "instruction_vm_vfork", door_instruction_vfork_in_memory, 0 },
#endif
	{ "instruction_in_fork", door_instruction_in_fork, 0 },
	{ "fork_in_instruction", door_fork_in_instruction, 0 },
};
enum { DOORS = sizeof doors / sizeof *doors };

/* --- what has become of it ---------------------------------------------------------------------------------------- */

static void *storm(void *unused)
{
	(void)unused;
	for (;;) {
		void *some[64];

		for (unsigned i = 0; i < 64; i++)
			some[i] = malloc(64 + i * 200);
		for (unsigned i = 0; i < 64; i++)
			free(some[i]);
	}
	return NULL;
}

/* All that has arrived at fd by now, or does within a moment if something is expected. */
static ssize_t read_arrived(int fd, char *data, size_t room, size_t expected)
{
	size_t have = 0;

	while (have < room) {
		struct pollfd wait = { .fd = fd, .events = POLLIN };
		ssize_t n;

		if (poll(&wait, 1, have < expected ? REPLY_MS : 0) <= 0)
			break;
		n = read(fd, data + have, room - have);
		if (n <= 0)
			return have ? (ssize_t)have : n < 0 ? -errno : -1000;
		have += (size_t)n;
	}
	return (ssize_t)have;
}

static const char *said_of(const char *data, ssize_t n, char *out, size_t room)
{
	if (n < 0)
		snprintf(out, room, n == -1000 ? "the end" : "%s", strerror((int)-n));
	else
		snprintf(out, room, "'%.*s'", (int)n, data);
	return out;
}

/* The parent's own use of the connection, both ways. */
static bool lives(size_t also)
{
	char data[128], expected[] = "parent";
	ssize_t n;

	if (send(connection, expected, 6, MSG_NOSIGNAL) != 6)
		return false;
	n = read_arrived(peer, data, sizeof data, also + 6);
	if (n < 6 || memcmp(data + n - 6, expected, 6) || send(peer, "reply", 5, MSG_NOSIGNAL) != 5)
		return false;
	return read_arrived(connection, data, sizeof data, 5) == 5 && !memcmp(data, "reply", 5);
}

/* Each pair has a new one: some children close their parent's. */
static int listen_again(void)
{
	const char *where = getenv("DOORS_ADDRESS");
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	address = (struct sockaddr_in){ .sin_family = AF_INET };
	address.sin_addr.s_addr = inet_addr(where ? where : "127.0.0.1");
	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 8) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		_exit(2);
	return listener;
}

static void wait_in_a_call(void)
{
	struct timeval most = { .tv_sec = 2 };
	char first;

	setsockopt(peer, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
	(void)!recv(peer, &first, 1, MSG_PEEK);
}

/* Is it the parent's descriptor, too, that the child closes? */
static bool is_closed_by(const struct door *door, const struct deed *deed)
{
	return door->flags & CLONE_VM && door->flags & CLONE_FILES &&
	       (deed->function == deed_close || deed->function == deed_close_and_exec ||
		deed->function == deed_reuse_number);
}

static void try(const struct door *door, const struct deed *deed)
{
	int listener = listen_again();
	bool writes = strstr(deed->name, "write") || deed->function == deed_dup_and_exec ||
		      deed->function == deed_answer_waiting_parent;
	char data[128] = "", text[64];
	int status = 0, accepted = -1;
	ssize_t n;
	pid_t child;

	connection = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(connection, (struct sockaddr *)&address, sizeof address))
		_exit(2);
	peer = accept(listener, NULL, NULL);
	fflush(stdout);
	child = door->function(deed, door->flags);
	if (child > 0 && deed->function == deed_answer_waiting_parent)
		wait_in_a_call();
	if (child < 0 || waitpid(child, &status, __WALL) != child) {
		printf("%s %s: no child: %s\n", door->name, deed->name, strerror(errno));
	} else {
		bool well = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 255);

		if (!strcmp(deed->name, "connect_again") && well) {
			accepted = accept(listener, NULL, NULL);
			n = read_arrived(accepted, data, sizeof data, strlen(SAID));
		} else {
			n = read_arrived(peer, data, sizeof data,
					 is_closed_by(door, deed) ? 1 :
					 writes && well           ? strlen(SAID) :
								    0);
		}
		if (WIFSIGNALED(status))
			printf("%s %s: %s", door->name, deed->name, strsignal(WTERMSIG(status)));
		else
			printf("%s %s: %d", door->name, deed->name, WEXITSTATUS(status));
		printf(", came %s, the parent's %s\n", said_of(data, n, text, sizeof text),
		       lives(0) ? "lives" : "is dead");
	}
	if (accepted >= 0)
		close(accepted);
	close(connection);
	close(peer);
	close(listener);
}

/* Not those that would close the parent's standard output; not exit() in the parent's memory, which ends all libraries
 * there; and not fork() while the parent's thread waits, which POSIX forbids to a child of vfork(). */
static bool is_possible(const struct door *door, const struct deed *deed)
{
	bool as_vfork = !strcmp(door->name, "instruction_vm_vfork");
	bool shares = as_vfork || (door->function == door_clone && door->flags & CLONE_VM &&
				   (!(door->flags & CLONE_VFORK) || door->flags & CLONE_FILES));

	if ((door->flags & CLONE_FILES && deed->function == deed_dup_and_exec) ||
	    (as_vfork && deed->function == deed_fork_and_write))
		return false;
	return !shares || (deed->function != deed_exit && deed->function != deed_write_and_exit);
}

int main(int argc, char **argv)
{
	const char *door = argc > 1 ? argv[1] : "", *deed = argc > 2 ? argv[2] : "";
	pthread_t thread;

	alarm(240);
	if (getenv("DOORS_STORM") && pthread_create(&thread, NULL, storm, NULL))
		return 2;
	signal(SIGPIPE, SIG_IGN);
	for (unsigned i = 0; i < DOORS; i++)
		for (unsigned j = 0; j < DEEDS; j++)
			if ((!*door || !strcmp(door, doors[i].name)) && (!*deed || !strcmp(deed, deeds[j].name)) &&
			    is_possible(&doors[i], &deeds[j]))
				try(&doors[i], &deeds[j]);
	return 0;
}
