/*
 * A program that calls libxts itself, and makes children in ways that run no handlers of fork(). Each child finds that
 * the connection is not its own, makes one itself, and ends by exit() or exec. The parent's connection goes on. argv:
 * port of a listener of the kernel's at 127.0.0.1, which sends back what it receives. Prints a line for each child.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "xts.h"

static struct sockaddr_in address;
static int connection;

static int connected(void)
{
	int s = xts_socket(AF_INET, SOCK_STREAM, 0);

	if (s < 0 || xts_connect(s, (struct sockaddr *)&address, sizeof address))
		_exit(90);
	return s;
}

static int echoes(int s)
{
	char back[4];

	return xts_send(s, "echo", 4, 0) == 4 && xts_recv(s, back, 4, MSG_WAITALL) == 4 && !memcmp(back, "echo", 4);
}

static void child(int executes)
{
	char byte;

	if (xts_send(connection, "lost", 4, 0) != -1 || errno != EBADF)
		_exit(91);
	if (xts_recv(connection, &byte, 1, 0) != -1 || errno != EBADF || xts_close(connection) != -1)
		_exit(92);
	if (!echoes(connected()))
		_exit(93);
	if (executes)
		execl("/bin/true", "true", (char *)NULL);
	exit(executes ? 94 : 0);
}

static long made(unsigned door)
{
	struct clone_args arguments = { .exit_signal = SIGCHLD };

	switch (door) {
	case 0:
		return _Fork();
	case 1:
		return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	case 2:
		return syscall(SYS_clone3, &arguments, sizeof arguments);
	default:
		return fork();
	}
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "_Fork", "SYS_clone", "SYS_clone3", "fork" };
	int bad = 0;

	alarm(60);
	address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	address.sin_port = htons((uint16_t)atoi(argc > 1 ? argv[1] : "0"));
	connection = connected();
	for (unsigned i = 0; i < 8; i++) {
		int status = 0, lives;
		long pid;

		fflush(stdout);
		pid = made(i / 2);
		if (pid == 0)
			child(i % 2);
		if (pid < 0 || waitpid((pid_t)pid, &status, 0) != pid)
			return 2;
		lives = echoes(connection);
		printf("%s %s: %x, the parent's %s\n", names[i / 2], i % 2 ? "exec" : "exit", (unsigned)status,
		       lives ? "lives" : "is dead");
		bad |= status || !lives;
	}
	return bad;
}
