/*
 * system() and popen(). The C library starts the shell with a posix_spawn() of its own, which an interposer does not
 * see. popen() calls the C library's, between spawn_begin() and spawn_end() (spawning.h). system() waits for the
 * shell's end, and other threads must be able to start programs meanwhile: so it is implemented again here, with our
 * posix_spawn().
 */
#include "preload.h"

#include <pthread.h>
#include <string.h>

#include "spawning.h"

#define SHELL "/bin/sh"
#define SHELL_FAILED (127 << 8) /* the status of a shell that ended with _exit(127) */

EXPORT FILE *popen(const char *command, const char *mode)
{
	bool begun = spawn_begin();
	FILE *file = real()->popen(command, mode);

	spawn_end(begun);
	if (file)
		descriptor_forget_stale(real()->fileno(file));
	return file;
}

EXPORT FILE *_IO_popen(const char *command, const char *mode)
{
	return popen(command, mode);
}

/* --- the signals of the terminal ---------------------------------------------------------------------------------- */

/* While any thread is in system(), they are meant for its command, and not for this process. */
static struct {
	pthread_mutex_t lock;
	unsigned threads;
	struct sigaction interrupt, quit; /* the actions before system() */
} terminal = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void ignore_terminal(void)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN };

	pthread_mutex_lock(&terminal.lock);
	if (!terminal.threads++) {
		real()->sigaction(SIGINT, &ignore, &terminal.interrupt);
		real()->sigaction(SIGQUIT, &ignore, &terminal.quit);
	}
	pthread_mutex_unlock(&terminal.lock);
}

static void heed_terminal(void)
{
	pthread_mutex_lock(&terminal.lock);
	if (!--terminal.threads) {
		real()->sigaction(SIGINT, &terminal.interrupt, NULL);
		real()->sigaction(SIGQUIT, &terminal.quit, NULL);
	}
	pthread_mutex_unlock(&terminal.lock);
}

static void lock_terminal(void)
{
	xts_go_in();
	pthread_mutex_lock(&terminal.lock);
}

static void unlock_terminal(void)
{
	pthread_mutex_unlock(&terminal.lock);
	xts_come_out();
}

static void orphaned(void)
{
	pthread_mutex_init(&terminal.lock, NULL);
}

/* A child must not find it locked by a thread that it does not have. */
__attribute__((constructor)) static void keep_over_fork(void)
{
	static const struct xts_fork_part at_fork = {
		.before = lock_terminal, .in_parent = unlock_terminal, .in_child = unlock_terminal, .orphaned = orphaned
	};

	xts_at_fork(&at_fork);
}

/* --- system() ----------------------------------------------------------------------------------------------------- */

static int start_shell(const char *command, const sigset_t *mask, pid_t *child)
{
	char name[] = "sh", option[] = "-c", *const arguments[] = { name, option, (char *)command, NULL };
	posix_spawnattr_t attributes;
	sigset_t defaults;
	int r;

	sigemptyset(&defaults);
	if (terminal.interrupt.sa_handler != SIG_IGN)
		sigaddset(&defaults, SIGINT);
	if (terminal.quit.sa_handler != SIG_IGN)
		sigaddset(&defaults, SIGQUIT);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setsigmask(&attributes, mask);
	posix_spawnattr_setsigdefault(&attributes, &defaults);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	r = posix_spawn(child, SHELL, NULL, &attributes, arguments, environ);
	posix_spawnattr_destroy(&attributes);
	return r;
}

static int run_shell(const char *command)
{
	sigset_t child_ends, before;
	int status = SHELL_FAILED, r;
	pid_t child;

	ignore_terminal();
	sigemptyset(&child_ends);
	sigaddset(&child_ends, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &child_ends, &before);
	r = start_shell(command, &before, &child);
	if (!r) {
		while (waitpid(child, &status, 0) < 0) {
			if (errno == EINTR)
				continue;
			r = errno; /* another thread has waited for it, or none can (SIGCHLD is ignored) */
			status = -1;
			break;
		}
	}
	heed_terminal();
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r)
		errno = r;
	return status;
}

EXPORT int system(const char *command)
{
	return command ? run_shell(command) : run_shell("exit 0") == 0;
}
