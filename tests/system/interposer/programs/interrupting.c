/*
 * Calls that signal handlers interrupt at random instants, thousands of times. The handlers do what handlers may do on
 * the kernel: start children, write on a pipe and on sockets, close sockets, and leave by siglongjmp(). Data that is
 * echoed is compared; what handlers have written is counted by who receives it. The other end of everything is a thread
 * without signals. argv: how many interrupts, and the address where the other end listens (127.0.0.1). Says what was
 * done; exits with 1 at the first thing that is wrong.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) \
	do { \
		if (!(what)) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #what, strerror(errno)); \
			_exit(1); \
		} \
	} while (0)

#define BLOCK_BYTES 3000
#define GIVE_UP_S 50
#define INTERVAL_US 400 /* between signals, on average */

enum kind { ECHO, COUNT, KEEP, DROP }; /* what the other end does with a connection: its first byte */

static struct sockaddr_in address = { .sin_family = AF_INET };
static struct in_addr device;
static atomic_ulong counted;
static int echoed, idle, side, file, pipe_end[2];
static volatile sig_atomic_t spare = -1;
static volatile sig_atomic_t may_jump;
static sigjmp_buf back;
static volatile unsigned long interrupts, forks, jumps, closes, written, piped, exchanged;
static const char *volatile doing = "";

/* random() has a lock; a handler needs none of its own kind. */
static unsigned chance(void)
{
	static atomic_uint state = 1;
	unsigned next = state * 1664525u + 1013904223u;

	state = next;
	return next >> 8;
}

/* --- the other end ------------------------------------------------------------------------------------------------ */

static void *serve_one(void *argument)
{
	int fd = (int)(intptr_t)argument;
	char data[4096], kind = DROP;
	ssize_t got;

	if (recv(fd, &kind, 1, 0) != 1)
		kind = DROP;
	while (kind != DROP && (got = recv(fd, data, sizeof data, 0)) > 0) {
		if (kind == COUNT)
			counted += (unsigned long)got;
		for (ssize_t at = 0, r; kind == ECHO && at < got; at += r) {
			r = send(fd, data + at, (size_t)(got - at), MSG_NOSIGNAL);
			if (r <= 0)
				break;
		}
	}
	close(fd);
	return NULL;
}

static void *serve(void *listener)
{
	for (;;) {
		int fd = accept(*(int *)listener, NULL, NULL);
		pthread_t thread;

		if (fd >= 0 && pthread_create(&thread, NULL, serve_one, (void *)(intptr_t)fd) == 0)
			pthread_detach(thread);
	}
	return NULL;
}

static int connection(char kind)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	int r;

	CHECK(fd >= 0);
	r = connect(fd, (struct sockaddr *)&address, sizeof address);
	if (r < 0 && errno == EINTR) { /* it goes on: POSIX */
		struct pollfd p = { .fd = fd, .events = POLLOUT };

		while (poll(&p, 1, 1000) < 0)
			CHECK(errno == EINTR);
		errno = 0;
		r = connect(fd, (struct sockaddr *)&address, sizeof address);
		CHECK(r == 0 || errno == EISCONN || errno == EINTR || errno == EALREADY);
		r = 0;
	}
	CHECK(r == 0);
	while (send(fd, &kind, 1, MSG_NOSIGNAL) < 0)
		CHECK(errno == EINTR);
	return fd;
}

/* --- handlers ----------------------------------------------------------------------------------------------------- */

static void set_timer(void)
{
	struct itimerval timer = { .it_value.tv_usec = 20 + chance() % (2 * INTERVAL_US) };

	setitimer(ITIMER_REAL, &timer, NULL);
}

static void start_child(bool writes)
{
	pid_t child = fork();

	if (child == 0) {
		if (writes && write(pipe_end[1], "c", 1) < 0)
			_exit(1);
		_exit(0);
	}
	if (child > 0)
		forks++;
}

static void on_alarm(int number)
{
	int before = errno, fd = spare;

	(void)number;
	interrupts++;
	set_timer();
	switch (chance() % 12) {
	case 0:
		start_child(false);
		break;
	case 1:
		start_child(true);
		break;
	case 2:
	case 3:
		if (send(side, "h", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
			written++;
		break;
	case 4:
		if (write(pipe_end[1], "h", 1) == 1)
			piped++;
		break;
	case 5:
		spare = -1;
		if (fd >= 0 && close(fd) == 0)
			closes++;
		break;
	case 6: {
		struct pollfd p = { .fd = echoed, .events = POLLIN };
		int value = 0;
		socklen_t length = sizeof value;

		CHECK(poll(&p, 1, 0) >= 0 || errno == EINTR);
		CHECK(getsockopt(idle, SOL_SOCKET, SO_ERROR, &value, &length) == 0 && value == 0);
		break;
	}
	default:
		if (may_jump) {
			may_jump = 0;
			jumps++;
			errno = before;
			siglongjmp(back, 1);
		}
	}
	errno = before;
}

static void on_child(int number)
{
	int before = errno;

	(void)number;
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	errno = before;
}

/* --- what is interrupted ------------------------------------------------------------------------------------------ */

/* Made where it may be left by siglongjmp(). */
#define JUMPING(call) \
	do { \
		doing = #call; \
		if (sigsetjmp(back, 1) == 0) { \
			may_jump = 1; \
			if ((call) < 0) \
				CHECK(errno == EINTR || errno == EAGAIN); \
			may_jump = 0; \
		} \
	} while (0)

static int selecting(int fd, long us, bool with_mask)
{
	struct timespec nanoseconds = { .tv_nsec = us * 1000 };
	struct timeval microseconds = { .tv_usec = us };
	sigset_t none;
	fd_set set;

	FD_ZERO(&set);
	FD_SET(fd, &set);
	sigemptyset(&none);
	return with_mask ? pselect(fd + 1, &set, NULL, NULL, &nanoseconds, &none) :
			   select(fd + 1, &set, NULL, NULL, &microseconds);
}

static int polling(int fd, int ms, bool with_mask)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	struct timespec limit = { .tv_nsec = ms * 1000000L };
	sigset_t none;

	sigemptyset(&none);
	return with_mask ? ppoll(&p, 1, &limit, &none) : poll(&p, 1, ms);
}

static int sets[2]; /* epoll sets: with the echoing connection, with the idle one */

static int waiting(int set, int ms, bool with_mask)
{
	struct epoll_event event;
	sigset_t none;

	sigemptyset(&none);
	return with_mask ? epoll_pwait(set, &event, 1, ms, &none) : epoll_wait(set, &event, 1, ms);
}

static void wait_for_echo(unsigned how)
{
	switch (how % 8) {
	case 0:
		JUMPING(selecting(echoed, 300, false));
		break;
	case 1:
		JUMPING(selecting(echoed, 300, true));
		break;
	case 2:
		JUMPING(polling(echoed, 1, false));
		break;
	case 3:
		JUMPING(polling(echoed, 1, true));
		break;
	case 4:
		JUMPING(waiting(sets[0], 1, false));
		break;
	case 5:
		JUMPING(waiting(sets[0], 1, true));
		break;
	default:
		break; /* by the receiving call */
	}
}

static ssize_t receive(char *data, size_t bytes, unsigned how)
{
	struct iovec part = { .iov_base = data, .iov_len = bytes };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct mmsghdr one = { .msg_hdr = message };

	doing = "receive";
	switch (how % 6) {
	case 0:
		return read(echoed, data, bytes);
	case 1:
		return recv(echoed, data, bytes, 0);
	case 2:
		return recvmsg(echoed, &message, 0);
	case 3:
		return readv(echoed, &part, 1);
	case 4:
		return recvmmsg(echoed, &one, 1, 0, NULL) == 1 ? (ssize_t)one.msg_len : -1;
	default:
		return recv(echoed, data, bytes, MSG_DONTWAIT);
	}
}

static ssize_t transmit(const char *data, size_t bytes, unsigned how)
{
	struct iovec part = { .iov_base = (void *)data, .iov_len = bytes };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
	struct mmsghdr one = { .msg_hdr = message };
	off_t at = 0;

	doing = "transmit";
	switch (how % 7) {
	case 0:
		return write(echoed, data, bytes);
	case 1:
		return send(echoed, data, bytes, 0);
	case 2:
		return sendmsg(echoed, &message, 0);
	case 3:
		return writev(echoed, &part, 1);
	case 4:
		return sendmmsg(echoed, &one, 1, 0) == 1 ? (ssize_t)one.msg_len : -1;
	case 5:
		CHECK(pwrite(file, data, bytes, 0) == (ssize_t)bytes);
		return sendfile(echoed, file, &at, bytes);
	default:
		return send(echoed, data, bytes, MSG_DONTWAIT);
	}
}

/* A block goes and comes back, in whatever pieces. */
static void exchange(unsigned turn)
{
	size_t bytes = 1 + chance() % BLOCK_BYTES, sent = 0, got = 0;
	char out[BLOCK_BYTES], in[BLOCK_BYTES];
	ssize_t r;

	for (size_t i = 0; i < bytes; i++)
		out[i] = (char)(turn * 31 + i);
	while (got < bytes) {
		if (sent < bytes) {
			r = transmit(out + sent, bytes - sent, chance());
			CHECK(r > 0 || (r < 0 && (errno == EINTR || errno == EAGAIN)));
			sent += r > 0 ? (size_t)r : 0;
		}
		if (!sent || got == sent)
			continue;
		wait_for_echo(chance());
		r = receive(in + got, sent - got, chance());
		CHECK(r > 0 || (r < 0 && (errno == EINTR || errno == EAGAIN)));
		got += r > 0 ? (size_t)r : 0;
	}
	CHECK(memcmp(in, out, bytes) == 0);
	exchanged += bytes;
}

static void wait_idly(unsigned turn)
{
	char byte;

	switch (turn % 8) {
	case 0:
		JUMPING(recv(idle, &byte, 1, 0)); /* without SA_RESTART, or until a jump */
		break;
	case 1:
		JUMPING(read(idle, &byte, 1));
		break;
	case 2:
		JUMPING(selecting(idle, 2000, turn & 16));
		break;
	case 3:
		JUMPING(polling(idle, 2, turn & 16));
		break;
	case 4:
		JUMPING(waiting(sets[1], 2, turn & 16));
		break;
	case 5:
		JUMPING(recv(idle, &byte, 1, MSG_DONTWAIT));
		break;
	default:
		break;
	}
}

/* A socket's life; a jump out of it loses the socket, as on the kernel. */
static void live(unsigned turn)
{
	int fd, copy, value = 1;
	socklen_t length = sizeof value;
	struct sockaddr_in name;
	char data[8];

	doing = "connect";
	fd = connection(DROP);
	doing = "options";
	CHECK(setsockopt(fd, IPPROTO_TCP, 1 /* TCP_NODELAY */, &value, sizeof value) == 0);
	CHECK(getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length) == 0);
	CHECK(ioctl(fd, FIONREAD, &value) == 0);
	CHECK(fcntl(fd, F_GETFL) == O_RDWR);
	length = sizeof name;
	CHECK(getsockname(fd, (struct sockaddr *)&name, &length) == 0 && name.sin_port);
	doing = "dup";
	copy = dup(fd);
	CHECK(copy >= 0);
	doing = "shutdown";
	CHECK(shutdown(copy, turn & 1 ? SHUT_WR : SHUT_RDWR) == 0 || errno == ENOTCONN);
	doing = "end";
	while (recv(fd, data, sizeof data, 0) < 0 && errno == EINTR)
		;
	doing = "close";
	CHECK(close(fd) == 0 && close(copy) == 0);
	if (spare < 0)
		spare = connection(KEEP);
}

static void accept_one(int listener, const struct sockaddr_in *at)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), accepted;

	CHECK(fd >= 0);
	CHECK(connect(fd, (const struct sockaddr *)at, sizeof *at) == 0 || errno == EINPROGRESS);
	doing = "accept";
	do
		accepted = accept(listener, NULL, NULL);
	while (accepted < 0 && errno == EINTR);
	CHECK(accepted >= 0);
	CHECK(close(accepted) == 0 && close(fd) == 0);
}

static int listening(struct sockaddr_in *at)
{
	socklen_t length = sizeof *at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	*at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr = device };
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)at, length) == 0 && listen(fd, 64) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)at, &length) == 0);
	return fd;
}

static void install(bool restart)
{
	struct sigaction action = { .sa_handler = on_alarm, .sa_flags = restart ? SA_RESTART : 0 };

	CHECK(sigaction(SIGALRM, &action, NULL) == 0);
}

static void set_up(int *own, struct sockaddr_in *own_address)
{
	static int listener;
	struct epoll_event event = { .events = EPOLLIN };
	struct sigaction action = { .sa_handler = on_child, .sa_flags = SA_RESTART };
	sigset_t all, before;
	pthread_t thread;

	listener = listening(&address);
	*own = listening(own_address);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	CHECK(pthread_create(&thread, NULL, serve, &listener) == 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	CHECK(pipe2(pipe_end, O_NONBLOCK) == 0);
	file = memfd_create("data", 0);
	CHECK(file >= 0);
	echoed = connection(ECHO);
	idle = connection(KEEP);
	side = connection(COUNT);
	for (int i = 0; i < 2; i++) {
		sets[i] = epoll_create1(0);
		CHECK(sets[i] >= 0 && epoll_ctl(sets[i], EPOLL_CTL_ADD, i ? idle : echoed, &event) == 0);
	}
	CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
}

/* Somebody waits for ever, though nobody should: says where. */
static void *watch(void *unused)
{
	(void)unused;
	sleep(GIVE_UP_S);
	fprintf(stderr, "it hangs: %s\n", doing);
	_exit(1);
}

int main(int argc, char **argv)
{
	unsigned long wanted = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
	int own;
	struct sockaddr_in own_address;
	struct timespec moment = { .tv_nsec = 1000000 };
	sigset_t all, before;
	pthread_t thread;
	char data[256];

	CHECK(inet_aton(argc > 2 ? argv[2] : "127.0.0.1", &device));
	set_up(&own, &own_address);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	CHECK(pthread_create(&thread, NULL, watch, NULL) == 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	install(false);
	set_timer();
	for (volatile unsigned turn = 0; interrupts < wanted; turn++) {
		if (turn % 50 == 0)
			install(turn / 50 % 2);
		exchange(turn);
		wait_idly(turn);
		if (turn % 4 == 0)
			live(turn);
		if (turn % 4 == 2)
			accept_one(own, &own_address);
		while (read(pipe_end[0], data, sizeof data) > 0)
			;
	}
	signal(SIGALRM, SIG_IGN);
	for (int i = 0; i < 5000 && counted < written; i++)
		nanosleep(&moment, NULL);
	CHECK(counted == written);
	printf("%lu interrupts %lu forks %lu jumps %lu closes %lu written %lu bytes\n", interrupts, forks, jumps,
	       closes, written, exchanged);
	fflush(stdout);
	_exit(0);
}
