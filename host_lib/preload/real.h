/*
 * The C library's own functions, which ours of the same name replace. Looked up once, when the library is loaded (or at
 * the first call, if it comes earlier: constructors of other libraries make some), without allocating.
 */
#ifndef XTS_PRELOAD_REAL_H
#define XTS_PRELOAD_REAL_H

#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wchar.h>

/* The names fortified programs call (-D_FORTIFY_SOURCE); declared by no header without it. */
ssize_t __read_chk(int fd, void *data, size_t bytes, size_t room);
ssize_t __recv_chk(int fd, void *data, size_t bytes, size_t room, int flags);
ssize_t __recvfrom_chk(int fd, void *data, size_t bytes, size_t room, int flags, struct sockaddr *address,
		       socklen_t *length);
int __vdprintf_chk(int fd, int flag, const char *format, va_list arguments);
int __dprintf_chk(int fd, int flag, const char *format, ...);
wchar_t *__fgetws_chk(wchar_t *line, size_t size, int room, FILE *file);
wchar_t *__fgetws_unlocked_chk(wchar_t *line, size_t size, int room, FILE *file);
int __fwprintf_chk(FILE *file, int flag, const wchar_t *format, ...);
int __vfwprintf_chk(FILE *file, int flag, const wchar_t *format, va_list arguments);
int __wprintf_chk(int flag, const wchar_t *format, ...);
int __vwprintf_chk(int flag, const wchar_t *format, va_list arguments);
void __chk_fail(void) __attribute__((noreturn));
int __poll_chk(struct pollfd *fds, nfds_t count, int timeout_ms, size_t room);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask, size_t room);
int __open_2(const char *path, int flags);
int __open64_2(const char *path, int flags);
int __openat_2(int directory, const char *path, int flags);
int __openat64_2(int directory, const char *path, int flags);
/* Other names of the same functions, used by programs that were linked earlier. */
int __fcntl(int fd, int command, ...);
int __close(int fd);
ssize_t __read(int fd, void *data, size_t bytes);
ssize_t __write(int fd, const void *data, size_t bytes);
ssize_t __send(int fd, const void *data, size_t bytes, int flags);
int __connect(int fd, const struct sockaddr *address, socklen_t length);
int __dup2(int from, int to);
int __open(const char *path, int flags, ...) __attribute__((nonnull(1)));
int __open64(const char *path, int flags, ...) __attribute__((nonnull(1)));
int __pipe(int fds[2]) __attribute__((nothrow, leaf));
int __fxstat(int version, int fd, struct stat *status);
int __fxstat64(int version, int fd, struct stat64 *status);
int __fxstatat(int version, int fd, const char *path, struct stat *status, int flags);
int __fxstatat64(int version, int fd, const char *path, struct stat64 *status, int flags);
/* Of C99, and of C23. */
int __isoc99_vfscanf(FILE *file, const char *format, va_list arguments);
int __isoc23_vfscanf(FILE *file, const char *format, va_list arguments) __attribute__((weak));
int __isoc99_vfwscanf(FILE *file, const wchar_t *format, va_list arguments);
int __isoc99_vwscanf(const wchar_t *format, va_list arguments);
int __isoc99_fwscanf(FILE *file, const wchar_t *format, ...);
int __isoc99_wscanf(const wchar_t *format, ...);
int __isoc23_vfwscanf(FILE *file, const wchar_t *format, va_list arguments);
int __isoc23_vwscanf(const wchar_t *format, va_list arguments);
int __isoc23_fwscanf(FILE *file, const wchar_t *format, ...);
int __isoc23_wscanf(const wchar_t *format, ...);
FILE *_IO_fopen(const char *path, const char *mode) __attribute__((malloc));
FILE *_IO_popen(const char *command, const char *mode);
FILE *_IO_fdopen(int fd, const char *mode) __attribute__((nothrow, leaf, malloc));
int _IO_fclose(FILE *file);
pid_t __vfork(void) __attribute__((nothrow, leaf));
int __clone(int (*function)(void *), void *stack, int flags, void *argument, ...) __attribute__((nothrow, leaf));
int __sigaction(int number, const struct sigaction *action, struct sigaction *old);
__sighandler_t bsd_signal(int number, __sighandler_t handler) __attribute__((nothrow, leaf));
int __poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __select(int count, fd_set *readable, fd_set *writable, fd_set *exceptional, struct timeval *timeout);

/* Functions that a C library may lack come last: see real.c. */
/* clang-format off */
#define XTS_REAL_CALLS(X) \
	X(socket) X(bind) X(connect) X(listen) X(accept4) X(shutdown) X(close) \
	X(getsockname) X(getpeername) X(getsockopt) X(setsockopt) X(fcntl) X(ioctl) \
	X(recv) X(recvfrom) X(recvmsg) X(recvmmsg) X(send) X(sendto) X(sendmsg) X(sendmmsg) \
	X(read) X(readv) X(pread) X(preadv2) X(write) X(writev) X(pwritev2) X(sendfile) X(splice) X(tee) \
	X(__read_chk) X(__recv_chk) X(__recvfrom_chk) X(dup) X(dup2) X(dup3) \
	X(fdopen) X(fclose) X(freopen) X(fileno) X(vdprintf) X(__vdprintf_chk) \
	X(fwide) X(fgetwc) X(fgetwc_unlocked) X(fgetws) X(fgetws_unlocked) X(__fgetws_chk) X(__fgetws_unlocked_chk) X(ungetwc) \
	X(fputwc) X(fputwc_unlocked) X(fputws) X(fputws_unlocked) X(vfwprintf) X(__vfwprintf_chk) \
	X(vfwscanf) X(__isoc99_vfwscanf) \
	X(select) X(pselect) X(poll) X(ppoll) X(__poll_chk) X(__ppoll_chk) \
	X(epoll_create) X(epoll_create1) X(epoll_ctl) X(epoll_wait) X(epoll_pwait) \
	X(popen) X(sigaction) X(pthread_cancel) X(fork) X(clone) X(_exit) X(quick_exit) X(chroot) \
	X(setuid) X(seteuid) X(setreuid) X(setresuid) X(setgid) X(setegid) X(setregid) X(setresgid) X(setgroups) X(initgroups) \
	X(unshare) X(setns) X(execve) X(execvpe) X(fexecve) \
	X(posix_spawn) X(posix_spawnp) X(posix_spawn_file_actions_adddup2) X(syscall) \
	X(open) X(open64) X(openat) X(openat64) X(creat) X(creat64) X(__open_2) X(__open64_2) X(__openat_2) X(__openat64_2) \
	X(fopen) X(fopen64) X(pipe) X(pipe2) X(socketpair) X(eventfd) X(memfd_create) X(timerfd_create) X(signalfd) \
	X(inotify_init) X(inotify_init1) X(dlopen) \
	X(getaddrinfo) X(getnameinfo) X(gethostbyname) X(gethostbyname2) X(gethostbyaddr) X(gethostbyname_r) \
	X(gethostbyname2_r) X(gethostbyaddr_r) X(getaddrinfo_a) \
	X(closefrom) X(close_range) X(execveat) X(epoll_pwait2) X(_Fork) \
	X(fstat) X(fstatat) X(statx) X(__fxstat) X(__fxstatat)
/* clang-format on */

#define XTS_REAL_AS_POINTER(name) __typeof__(name) *name; /* NOLINT(bugprone-macro-parentheses) */
struct real {
	XTS_REAL_CALLS(XTS_REAL_AS_POINTER)
};
#undef XTS_REAL_AS_POINTER

extern struct real real_calls;
extern _Atomic bool real_resolved;
void real_resolve(void);

/* real()->read(...) is the C library's read(). */
static inline const struct real *real(void)
{
	if (!atomic_load_explicit(&real_resolved, memory_order_acquire))
		real_resolve();
	return &real_calls;
}

#endif
