/* The lists of allowed system calls, and the filters (seccomp) made of them; allowed_syscalls.h describes them. */
#include "common/allowed_syscalls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#else
#error "the filter of system calls knows x86-64 and arm64"
#endif

#define BY_SIGSYS 159 /* exit status, the same as a shell's for a process killed by SIGSYS */

/* What an argument must be for the call to be allowed. */
enum condition {
	ALWAYS,
	ONE_OF_TWO, /* equal to the first or the second value */
	HAS_NONE,   /* none of the first value's bits */
	HAS_ALL,
	REFUSED, /* the call fails with the first value, an errno, and its caller continues without it */
	CHECKED, /* several arguments, each one of several values */
};

#define VALUES_MAX 6
#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

/* What an argument, without the bits that are not in the mask, must be one of. */
struct check {
	uint8_t argument, count;
	uint32_t mask;
	uint32_t values[VALUES_MAX];
};

struct call {
	int number;
	uint8_t condition;
	uint8_t argument;
	uint32_t values[2];
	const struct check *checks; /* the last one has no values */
};

#define ANY(name) { .number = __NR_##name }
#define ARGUMENT(name, what, which, ...) \
	{ \
		.number = __NR_##name, .condition = (what), .argument = (which), .values = { __VA_ARGS__ } \
	}
#ifndef __NR_memfd_secret
#define __NR_memfd_secret 447 /* the same number everywhere */
#endif
#define EXACTLY UINT32_MAX
#define SOCKET_TYPE 0xfu /* without SOCK_NONBLOCK and SOCK_CLOEXEC */

/* What every thread needs: memory that is not executable, locks, time, randomness, exit. */
static const struct call common[] = {
	ANY(read),
	ANY(close),
	ANY(brk),
	ARGUMENT(mmap, HAS_NONE, 2, PROT_EXEC, 0),
	ARGUMENT(mprotect, HAS_NONE, 2, PROT_EXEC, 0),
	ANY(munmap),
	ARGUMENT(mremap, REFUSED, 0, ENOMEM, 0), /* realloc() copies in that case */
	ANY(madvise),
	ANY(futex),
	ANY(getrandom),
	ANY(getpid),
	ANY(clock_gettime),
	ANY(sendmsg),
	ANY(recvmsg),
	ANY(sendto),
	ANY(recvfrom),
	ANY(write), /* for eventfds, and the line on stderr before the end */
	ANY(rt_sigprocmask),
	ANY(exit),
	ANY(exit_group),
	ANY(restart_syscall),
	/* Before it returns memory, malloc() tries to read /proc/sys/vm/overcommit_memory, and works without it. */
	ARGUMENT(openat, REFUSED, 0, EACCES, 0),
	ARGUMENT(newfstatat, REFUSED, 0, EACCES, 0), /* nor may files be looked up by name */
};

/* TCP and UDP. For others the kernel might load a module, and the worker has no use for them. */
static const struct check internet_sockets[] = {
	{ 0, 2, EXACTLY, { AF_INET, AF_INET6 } },
	{ 1, 2, SOCKET_TYPE, { SOCK_STREAM, SOCK_DGRAM } },
	{ 2, 4, EXACTLY, { 0, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_MPTCP } },
	{ .count = 0 },
};

/* Not, for example, those by which a descriptor sends signals (F_SETOWN, F_SETSIG). */
static const struct check descriptor_commands[] = {
	{ 1, 2, EXACTLY, { F_DUPFD_CLOEXEC, F_GET_SEALS } },
	{ .count = 0 },
};

/* Those that hosts may ask for (xts_ioctl_do()), and what TLS asks of a card. */
static const struct check socket_requests[] = {
	{ 1, 5, EXACTLY, { SIOCINQ, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK, SIOCETHTOOL } },
	{ .count = 0 },
};

static const struct call of_workers[] = {
	{ __NR_socket, CHECKED, .checks = internet_sockets },
	ANY(connect),
	ANY(bind),
	ANY(listen),
	ANY(accept4),
	ANY(shutdown),
	ANY(sendmmsg), /* for datagrams */
	ANY(recvmmsg),
	ANY(getsockname),
	ANY(getpeername),
	ANY(getsockopt),
	ANY(setsockopt),
	{ __NR_ioctl, CHECKED, .checks = socket_requests },
	{ __NR_fcntl, CHECKED, .checks = descriptor_commands },
	ANY(fstat), /* for shared memory (sealed_memory.h) */
	ANY(dup3),  /* for the connections to another key process (keys/key_client.c) */
#ifdef __NR_epoll_wait
	ANY(epoll_wait),
#else
	ANY(epoll_pwait),
#endif
	ANY(epoll_ctl),
	ANY(sched_yield),
	/* for threads of handshakes (ulp/handshake_pool.h) */
	ARGUMENT(sched_setscheduler, ONE_OF_TWO, 1, SCHED_BATCH, SCHED_IDLE),
};

/* The relay: one thread, with queues and shared memory that were passed to it. */
static const struct call of_relay[] = {
	ANY(getsockopt), /* the counters of an AF_XDP socket */
	ANY(fcntl),      ANY(fstat),       ANY(epoll_create1),
#ifdef __NR_epoll_wait
	ANY(epoll_wait),
#else
	ANY(epoll_pwait),
#endif
	ANY(epoll_ctl),  ANY(sched_yield), ANY(accept4), /* the next agent */
};

/* Threads; and a process that shares the descriptors, in the same namespaces. Its memory is a copy. */
#define NEW_NAMESPACES \
	(CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)
static const struct check sharing_or_threads[] = {
	{ 0,
	  2,
	  CLONE_THREAD | CLONE_VM | CLONE_SIGHAND | CLONE_FILES | CLONE_PARENT | CLONE_VFORK | NEW_NAMESPACES,
	  { CLONE_THREAD | CLONE_VM | CLONE_SIGHAND | CLONE_FILES, CLONE_FILES | CLONE_PARENT } },
	{ .count = 0 },
};

static const struct check of_a_child[] = {
	{ 0, 2, EXACTLY, { PR_SET_NAME, PR_SET_PDEATHSIG } },
	{ .count = 0 },
};

/* Before those of the start, some of which are more narrow. */
static const struct call of_understudy[] = {
	{ __NR_clone, CHECKED, .checks = sharing_or_threads },
	{ __NR_prctl, CHECKED, .checks = of_a_child },
	ANY(getppid),
#ifdef __NR_poll
	ANY(poll),
#else
	ANY(ppoll),
#endif
	ANY(prlimit64),
	/* Python begins a thread with these */
	ANY(gettid),
	ANY(sigaltstack),
	/* the memory for keys (ulp/tls_keys/key_memory.c) */
	ANY(memfd_secret),
	ANY(memfd_create),
	ANY(ftruncate),
	ANY(mlock2),
};

/* Allowed until all threads run, and have made their first calls and those of the C library. */
static const struct call of_start[] = {
	ANY(set_robust_list),
	ANY(rseq),
	ANY(getpriority),
	ANY(setpriority),
	ANY(epoll_create1),
	ANY(eventfd2),
	/* Threads, never processes. Flags of clone3() cannot be seen here. */
	ARGUMENT(clone, HAS_ALL, 0, CLONE_THREAD | CLONE_VM | CLONE_SIGHAND, 0),
	ARGUMENT(clone3, REFUSED, 0, ENOSYS, 0),
	/* the signals of the C library, which it sets up with the first thread */
	ARGUMENT(rt_sigaction, ONE_OF_TWO, 0, 32, 33),
	ANY(sched_setaffinity),
	ANY(sched_getaffinity),
	ANY(sched_getparam),
	ANY(sched_getscheduler),
	ARGUMENT(prctl, ONE_OF_TWO, 0, PR_SET_NAME, PR_SET_NAME),
	ANY(seccomp), /* a second filter on top of this one */
};

static const struct call of_parsers[] = {
	ARGUMENT(bpf, ONE_OF_TWO, 0, BPF_PROG_TEST_RUN, BPF_PROG_TEST_RUN),
};

/* Those of the workers, and all of an RDMA device: its queue pairs are made, and taken from state to state, here. */
static const struct check rdma_requests[] = {
	{ 1, 6, EXACTLY, { SIOCINQ, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK, SIOCETHTOOL, (uint32_t)RDMA_VERBS_IOCTL } },
	{ .count = 0 },
};

/* A queue over RDMA: what there is in `common`, to map a queue pair's rings and to write to its device, and this. */
static const struct call of_rdma[] = {
	{ __NR_ioctl, CHECKED, .checks = rdma_requests },
	ANY(epoll_create1), /* what wakes a queue is a set */
};

/* gcc tells by macros which sanitizer a file is compiled for, clang by features. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

/* Calls of the sanitizers' run-time libraries: stacks for signals, inspection of their own threads and memory,
 * reports. */
#ifdef SANITIZED
/* clang-format off */
static const struct call of_sanitizers[] = {
	ANY(sigaltstack), ANY(gettid), ANY(getppid), ANY(pipe2), ANY(tgkill), ANY(rt_sigaction), ANY(sched_yield),
	ANY(prlimit64), ANY(sched_getaffinity), ANY(sysinfo), ANY(readlinkat), ANY(set_robust_list), ANY(mincore), ANY(rt_sigreturn),
#ifdef __NR_readlink
	ANY(readlink), ANY(pipe), ANY(getrlimit), ANY(open), /* of /proc/self/maps: the position of a thread's stack */
#endif
};
/* clang-format on */
#endif

/* --- the program of the filter ------------------------------------------------------------------------------------ */

#define PROGRAM_MAX 512

struct program {
	struct sock_filter code[PROGRAM_MAX];
	unsigned short count;
};

static void emit(struct program *p, uint16_t code, uint32_t k, uint8_t if_true, uint8_t if_false)
{
	if (p->count < PROGRAM_MAX)
		p->code[p->count++] = (struct sock_filter){ .code = code, .k = k, .jt = if_true, .jf = if_false };
}

static void give(struct program *p, uint32_t action)
{
	emit(p, BPF_RET | BPF_K, action, 0, 0);
}

static void load(struct program *p, size_t offset)
{
	emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

/* Tests an argument. The next instruction is executed or skipped by the result, so each condition is followed by an
 * action. */
static void add_condition(struct program *p, const struct call *c)
{
	/* the low half is enough for flags and families */
	load(p, offsetof(struct seccomp_data, args) + c->argument * sizeof(uint64_t));
	switch (c->condition) {
	case ONE_OF_TWO:
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, c->values[0], 1, 0);
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, c->values[1], 0, 1);
		break;
	case HAS_NONE:
		emit(p, BPF_JMP | BPF_JSET | BPF_K, c->values[0], 1, 0);
		break;
	default:
		emit(p, BPF_ALU | BPF_AND | BPF_K, c->values[0], 0, 0);
		emit(p, BPF_JMP | BPF_JEQ | BPF_K, c->values[0], 0, 1);
	}
	give(p, SECCOMP_RET_ALLOW);
	give(p, SECCOMP_RET_TRAP);
}

static void add_checks(struct program *p, const struct check *c)
{
	for (; c->count; c++) {
		load(p, offsetof(struct seccomp_data, args) + c->argument * sizeof(uint64_t));
		if (c->mask != EXACTLY)
			emit(p, BPF_ALU | BPF_AND | BPF_K, c->mask, 0, 0);
		for (uint8_t i = 0; i < c->count; i++) /* to behind the action, which is after the last of them */
			emit(p, BPF_JMP | BPF_JEQ | BPF_K, c->values[i], (uint8_t)(c->count - i), 0);
		give(p, SECCOMP_RET_TRAP);
	}
	give(p, SECCOMP_RET_ALLOW);
}

static void add_call(struct program *p, const struct call *c)
{
	unsigned short at = p->count;

	emit(p, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)c->number, 0, 0);
	if (c->condition == ALWAYS)
		give(p, SECCOMP_RET_ALLOW);
	else if (c->condition == REFUSED)
		give(p, SECCOMP_RET_ERRNO | c->values[0]);
	else if (c->condition == CHECKED)
		add_checks(p, c->checks);
	else
		add_condition(p, c);
	p->code[at].jf = (uint8_t)(p->count - at - 1);
}

static void add_calls(struct program *p, const struct call *calls, size_t count)
{
	for (size_t i = 0; i < count; i++)
		add_call(p, &calls[i]);
}

#define COUNT(table) (sizeof(table) / sizeof *(table))

static void write_program(struct program *p, int calls)
{
	load(p, offsetof(struct seccomp_data, arch));
	emit(p, BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0);
	give(p, SECCOMP_RET_KILL_PROCESS);
	load(p, offsetof(struct seccomp_data, nr)); /* x32 has other numbers, so they are not on the list */
	add_calls(p, common, COUNT(common));
	if (calls & XTS_CALLS_OF_RDMA) /* before others: the first entry of a call decides */
		add_calls(p, of_rdma, COUNT(of_rdma));
	if (calls & XTS_CALLS_OF_WORKERS)
		add_calls(p, of_workers, COUNT(of_workers));
	if (calls & XTS_CALLS_OF_RELAY)
		add_calls(p, of_relay, COUNT(of_relay));
	if (calls & XTS_CALLS_OF_PARSERS)
		add_calls(p, of_parsers, COUNT(of_parsers));
	if (calls & XTS_CALLS_OF_UNDERSTUDY)
		add_calls(p, of_understudy, COUNT(of_understudy));
	if (calls & XTS_CALLS_OF_START)
		add_calls(p, of_start, COUNT(of_start));
#ifdef SANITIZED
	add_calls(p, of_sanitizers, COUNT(of_sanitizers));
#endif
	give(p, SECCOMP_RET_TRAP);
}

/* --- in force ----------------------------------------------------------------------------------------------------- */

/* It makes only calls that are allowed in a signal handler. */
static void on_forbidden(int signal_number, siginfo_t *info, void *context)
{
	static const char before[] = "xts: this process ends: it made a system call that none of its kind needs: number ";
	char line[sizeof before + 16], digits[12];
	size_t bytes = sizeof before - 1;
	int left = info->si_syscall, count = 0;

	(void)signal_number;
	(void)context;
	memcpy(line, before, bytes);
	do
		digits[count++] = (char)('0' + left % 10);
	while ((left /= 10) > 0 && count < (int)sizeof digits);
	while (count)
		line[bytes++] = digits[--count];
	line[bytes++] = '\n';
	(void)!write(STDERR_FILENO, line, bytes);
	_exit(BY_SIGSYS);
}

static int obey_signal(void)
{
	struct sigaction action = { .sa_sigaction = on_forbidden, .sa_flags = SA_SIGINFO };
	static atomic_bool done;

	return atomic_exchange(&done, true) ? 0 : sigaction(SIGSYS, &action, NULL);
}

int xts_calls_only(int calls)
{
	unsigned long flags = calls & XTS_CALLS_OF_WORKERS ? SECCOMP_FILTER_FLAG_TSYNC : 0;
	struct program p = { .count = 0 };
	struct sock_fprog whole = { .filter = p.code };
	long r;

	write_program(&p, calls);
	whole.len = p.count;
	if (p.count == PROGRAM_MAX)
		return -E2BIG;
	r = obey_signal() ? -1 : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &whole);
	return r < 0 ? -errno : r ? -ESRCH : 0; /* > 0: the number of a thread that has other filters */
}

static int count_allowed(const struct call *calls, size_t count)
{
	int allowed = 0;

	for (size_t i = 0; i < count; i++)
		allowed += calls[i].condition != REFUSED;
	return allowed;
}

int xts_calls_count(int calls)
{
	int count = count_allowed(common, COUNT(common));

	if (calls & XTS_CALLS_OF_WORKERS)
		count += count_allowed(of_workers, COUNT(of_workers));
	if (calls & XTS_CALLS_OF_RELAY)
		count += count_allowed(of_relay, COUNT(of_relay));
	if (calls & XTS_CALLS_OF_RDMA)
		count += count_allowed(of_rdma, COUNT(of_rdma));
	if (calls & XTS_CALLS_OF_PARSERS)
		count += count_allowed(of_parsers, COUNT(of_parsers));
	if (calls & XTS_CALLS_OF_UNDERSTUDY)
		count += count_allowed(of_understudy, COUNT(of_understudy));
	if (calls & XTS_CALLS_OF_START)
		count += count_allowed(of_start, COUNT(of_start));
	return count;
}

int xts_calls_sanitized(void)
{
#ifdef SANITIZED
	return 1;
#else
	return 0;
#endif
}
