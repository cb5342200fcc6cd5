/* Options, fcntl() and ioctl(). While a socket is undecided its options are set on the kernel's socket, and
 * recorded. */
#include "preload.h"

#include <limits.h>
#include <string.h>
#include <sys/ioctl.h>

#include "decide.h"
#include "undecided_options.h"
#include "fallback_notice.h"

/* --- options ------------------------------------------------------------------------------------------------------ */

/* A non-blocking connect() has failed: writes the notice. */
static void tell_failed_connect(int fd, int error)
{
	int before = errno;

	errno = error;
	notice_refusal(fd, -1);
	errno = before;
}

/* The protocol that the program has asked for: the kernel's socket was made with it, and keeps the place of the
 * offloaded one. It may be MPTCP. */
static bool is_about_making(int fd, int level, int option)
{
	return level == SOL_SOCKET && option == SO_PROTOCOL && !(descriptor_get(fd).flags & DESCRIPTOR_DATAGRAM);
}

EXPORT int getsockopt(int fd, int level, int option, void *restrict value, socklen_t *restrict length)
{
	int s = descriptor_offloaded(fd), r, failed;

	if (s < 0 || is_about_making(fd, level, option))
		return real()->getsockopt(fd, level, option, value, length);
	r = XTS(xts_getsockopt(s, level, option, value, length));
	if (r == 0 && level == SOL_SOCKET && option == SO_ERROR && *length == sizeof failed) {
		memcpy(&failed, value, sizeof failed);
		if (failed)
			tell_failed_connect(fd, failed);
	}
	return r;
}

int option_note(int fd, struct descriptor d, uint32_t *number)
{
	struct descriptor noted = d;

	if (!d.number) {
		noted.number = note_make();
		if (!noted.number)
			return decide_stay(fd, XTS_REASON_LIMIT);
		if (!descriptor_become(fd, d, noted)) {
			note_drop(noted.number); /* another thread has decided it, or made a note for it, meanwhile */
			return 0;
		}
	}
	*number = noted.number;
	return 1;
}

/* May the device know the interface? The option joins or leaves a group on an interface that this host does not have,
 * or says over which interface to send to groups. */
static bool may_be_of_device(struct descriptor d, int level, int option, int error)
{
	if (note_names_interface(level, option))
		return error == ENODEV || error == EADDRNOTAVAIL;
	if (!note_is_membership(level, option))
		return false;
	if (note_interface_error(d.number))
		return error == ENODEV || error == EADDRNOTAVAIL;
	return error == ENODEV && note_is_join(option);
}

static int set_undecided(int fd, struct descriptor d, int level, int option, const void *value, socklen_t length)
{
	INSIDE;
	int r = real()->setsockopt(fd, level, option, value, length), error = r < 0 ? errno : 0, noted;
	uint32_t number = 0;

	if (r < 0 && !(d.flags & DESCRIPTOR_DATAGRAM && may_be_of_device(d, level, option, error)))
		return r;
	noted = option_note(fd, d, &number);
	if (noted == 1) {
		note_option(number, level, option, value, length);
		if (error)
			note_refused_interface(number, error);
		r = 0;
	} else if (noted == 0)
		return setsockopt(fd, level, option, value, length); /* again, now that it is decided */
	return noted < 0 ? -1 : r;
}

static bool names_loopback(const void *name, socklen_t length)
{
	return name && length >= 2 && length <= INT_MAX && !strncmp(name, "lo", length < 3 ? length : 3);
}

EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
	struct descriptor d = descriptor_get(fd);

	if (d.kind == DESCRIPTOR_UNDECIDED)
		return set_undecided(fd, d, level, option, value, length);
	if (d.kind != DESCRIPTOR_OFFLOADED)
		return real()->setsockopt(fd, level, option, value, length);
	if (level == SOL_SOCKET && option == SO_BINDTODEVICE && !(d.flags & DESCRIPTOR_PUSHED) &&
	    names_loopback(value, length) && decide_give_back(fd, d, XTS_REASON_RULE))
		return real()->setsockopt(fd, level, option, value, length);
	if (XTS(xts_setsockopt((int)d.number, level, option, value, length)) < 0)
		return -1;
	/* The kernel socket is used too, or may be used again. */
	if (d.flags & (DESCRIPTOR_ALSO_LOCAL | DESCRIPTOR_BOUND))
		(void)real()->setsockopt(fd, level, option, value, length);
	return 0;
}

/* --- fcntl -------------------------------------------------------------------------------------------------------- */

static int set_status(int fd, struct descriptor d, long argument)
{
	if (d.flags & (DESCRIPTOR_ALSO_LOCAL | DESCRIPTOR_BOUND))
		real()->fcntl(fd, F_SETFL, argument & O_NONBLOCK);
	return XTS(xts_fcntl((int)d.number, F_SETFL, argument));
}

static int duplicate(int fd, int command, long lowest)
{
	INSIDE;
	int copy = real()->fcntl(fd, command, lowest);

	if (copy >= 0) {
		descriptor_forget_stale(copy);
		descriptor_copy(fd, copy);
		stream_follow(copy);
	}
	return copy;
}

/* Does it ask for signals on readiness? Only kernel sockets have them. */
static bool asks_for_signals(int command, long argument)
{
	return (command == F_SETFL && argument & O_ASYNC) || command == F_SETOWN || command == F_SETOWN_EX ||
	       command == F_SETSIG;
}

/* libxts's own calls on its files come here, too. To the program, which may try all numbers, there is no such
 * descriptor. */
static bool is_of_libxts(int command)
{
	return command == F_SETLK || command == F_GETLK || command == F_ADD_SEALS || command == F_GET_SEALS;
}

static int control(int fd, struct descriptor d, int command, long argument)
{
	if (d.kind == DESCRIPTOR_INTERNAL && !is_of_libxts(command)) {
		errno = EBADF;
		return -1;
	}
	if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
		return duplicate(fd, command, argument);
	if (d.kind == DESCRIPTOR_UNDECIDED && asks_for_signals(command, argument) &&
	    decide_stay(fd, XTS_REASON_OPTION) < 0)
		return -1;
	if (d.kind != DESCRIPTOR_OFFLOADED)
		return real()->fcntl(fd, command, argument);
	switch (command) {
	case F_GETFL:
		return XTS(xts_fcntl((int)d.number, F_GETFL));
	case F_SETFL:
		return set_status(fd, d, argument);
	case F_SETOWN:
	case F_SETOWN_EX:
	case F_SETSIG:
		errno = EINVAL;
		return -1;
	default:
		return real()->fcntl(fd, command, argument); /* a command about the descriptor, not the socket */
	}
}

EXPORT int fcntl(int fd, int command, ...)
{
	struct descriptor d = descriptor_get(fd);
	va_list list;
	long argument;

	va_start(list, command);
	argument = va_arg(list, long);
	va_end(list);
	return d.kind == DESCRIPTOR_KERNEL ? real()->fcntl(fd, command, argument) : control(fd, d, command, argument);
}
int fcntl64(int fd, int command, ...) __attribute__((alias("fcntl"))) EXPORT;
int __fcntl(int fd, int command, ...) __attribute__((alias("fcntl"))) EXPORT;

/* --- ioctl -------------------------------------------------------------------------------------------------------- */

static int control_offloaded(int fd, struct descriptor d, unsigned long request, void *argument)
{
	switch (request) {
	case FIOCLEX:
	case FIONCLEX:
		return real()->ioctl(fd, request, argument);
	case FIONBIO:
		if (argument && d.flags & (DESCRIPTOR_ALSO_LOCAL | DESCRIPTOR_BOUND))
			real()->ioctl(fd, request, argument);
		return XTS(xts_ioctl((int)d.number, request, argument));
	default:
		return XTS(xts_ioctl((int)d.number, request, argument));
	}
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	struct descriptor d = descriptor_get(fd);
	va_list list;
	void *argument;

	va_start(list, request);
	argument = va_arg(list, void *);
	va_end(list);
	if (push_is_request(request))
		return push_request(fd, d, request, argument);
	return d.kind == DESCRIPTOR_OFFLOADED ? control_offloaded(fd, d, request, argument) :
						real()->ioctl(fd, request, argument);
}

EXPORT int sockatmark(int fd)
{
	int at_mark;

	return ioctl(fd, SIOCATMARK, &at_mark) < 0 ? -1 : at_mark;
}
