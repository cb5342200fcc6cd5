/*
 * Memory files (memfd) in a process whose files may not grow (RLIMIT_FSIZE, `ulimit -f`). The kernel applies this limit
 * to them, too, and sends SIGXFSZ to a thread that goes beyond it, which ends a program that has not asked for it.
 * These calls fail with EFBIG, and no signal comes: it is blocked in the calling thread, and taken away after the call,
 * unless it was pending before. Then it is the program's.
 */
#ifndef XTS_FILE_LIMIT_H
#define XTS_FILE_LIMIT_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

struct xts_file_limit {
	sigset_t signal, mask; /* SIGXFSZ alone; the thread's own */
	bool pending;          /* before */
};

static inline void xts_file_limit_hold(struct xts_file_limit *l)
{
	sigset_t pending;

	sigemptyset(&l->signal);
	sigaddset(&l->signal, SIGXFSZ);
	l->pending = sigpending(&pending) == 0 && sigismember(&pending, SIGXFSZ) == 1;
	pthread_sigmask(SIG_BLOCK, &l->signal, &l->mask);
}

/* errno is kept. */
static inline void xts_file_limit_let_go(const struct xts_file_limit *l, bool failed)
{
	const struct timespec at_once = { 0 };
	int before = errno;

	if (failed && before == EFBIG && !l->pending)
		while (sigtimedwait(&l->signal, NULL, &at_once) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &l->mask, NULL);
	errno = before;
}

/* As ftruncate(), write() and pwrite(). */
static inline int xts_limited_truncate(int fd, off_t bytes)
{
	struct xts_file_limit limit;
	int r;

	xts_file_limit_hold(&limit);
	r = ftruncate(fd, bytes);
	xts_file_limit_let_go(&limit, r < 0);
	return r;
}

static inline ssize_t xts_limited_write(int fd, const void *data, size_t bytes)
{
	struct xts_file_limit limit;
	ssize_t r;

	xts_file_limit_hold(&limit);
	r = write(fd, data, bytes);
	xts_file_limit_let_go(&limit, r < 0);
	return r;
}

static inline ssize_t xts_limited_pwrite(int fd, const void *data, size_t bytes, off_t at)
{
	struct xts_file_limit limit;
	ssize_t r;

	xts_file_limit_hold(&limit);
	r = pwrite(fd, data, bytes, at);
	xts_file_limit_let_go(&limit, r < 0);
	return r;
}

#endif
