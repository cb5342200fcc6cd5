/*
 * How signals that end a wait are delivered: their siginfo, on which stack, with which mask, how often, and what is as
 * before afterwards. Some are blocked but in the wait. Says all of it: to be compared with what it says on the kernel.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <unistd.h>

static char alternate[65536];

static unsigned long mask_now(void)
{
	unsigned long mask;
	sigset_t set;

	sigprocmask(SIG_BLOCK, NULL, &set);
	memcpy(&mask, &set, sizeof mask);
	return mask;
}

static void handle(int number, siginfo_t *info, void *context)
{
	char here;
	int before = errno;

	(void)context;
	dprintf(1, "signal %d code %d value %d mask %lx alternate %d\n", number, info->si_code,
		info->si_code == SI_QUEUE ? info->si_value.sival_int : 0, mask_now(),
		&here > alternate && &here < alternate + sizeof alternate);
	errno = before;
}

static void install(void)
{
	struct sigaction action = { .sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	stack_t stack = { .ss_sp = alternate, .ss_size = sizeof alternate };

	sigaltstack(&stack, NULL);
	sigaddset(&action.sa_mask, SIGHUP);
	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGRTMIN + 3, &action, NULL);
	action.sa_flags |= SA_NODEFER | (int)SA_RESETHAND;
	sigaction(SIGUSR2, &action, NULL);
	action.sa_flags = SA_SIGINFO;
	sigaction(SIGTSTP, &action, NULL);
	sigaction(SIGCONT, &action, NULL);
}

static void send_all(void)
{
	union sigval value = { .sival_int = 7 };

	kill(getpid(), SIGUSR1);
	kill(getpid(), SIGUSR1); /* one with the first */
	kill(getpid(), SIGUSR2);
	sigqueue(getpid(), SIGRTMIN + 3, value);
	value.sival_int = 8;
	sigqueue(getpid(), SIGRTMIN + 3, value);
}

static void wait_with(int fd, const sigset_t *mask)
{
	struct timespec limit = { .tv_nsec = 50000000 };
	struct sigaction now;
	fd_set set;
	int r;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	r = pselect(fd + 1, &set, NULL, NULL, &limit, mask);
	dprintf(1, "pselect %d errno %d mask %lx", r, r < 0 ? errno : 0, mask_now());
	sigaction(SIGUSR2, NULL, &now);
	dprintf(1, " usr2 %s\n", now.sa_handler == SIG_DFL ? "default" : "handled");
}

/* It waits: field 3 of proc(5)'s stat. */
static void until_asleep(pid_t process)
{
	char path[64], text[256] = "";

	snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
	do {
		FILE *file = fopen(path, "r");

		usleep(1000);
		if (!file || !fgets(text, sizeof text, file))
			return;
		fclose(file);
	} while (!strstr(text, ") S "));
}

int main(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), server;
	sigset_t blocked, waiting;
	char byte;

	if (bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&address, &length) < 0 ||
	    connect(client, (struct sockaddr *)&address, length) < 0)
		return 1;
	server = accept(listener, NULL, NULL);
	install();
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigaddset(&blocked, SIGUSR2);
	sigaddset(&blocked, SIGRTMIN + 3);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	sigemptyset(&waiting);
	sigaddset(&waiting, SIGTERM);
	send_all();
	wait_with(server, NULL);
	wait_with(server, &waiting);
	wait_with(server, &waiting);
	if (fork() == 0) { /* one by one, while the parent waits */
		pid_t parent = getppid();

		until_asleep(parent);
		kill(parent, SIGTSTP);
		until_asleep(parent);
		kill(parent, SIGCONT);
		_exit(0);
	}
	while (recv(server, &byte, 1, 0) < 0 && errno == EINTR && write(1, "EINTR\n", 6) == 6) {
		static int interrupts;

		if (++interrupts == 2)
			break;
	}
	return 0;
}
