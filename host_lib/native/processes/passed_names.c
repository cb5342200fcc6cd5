/* Which programs have a copy of a connection that was passed. passed_names.h has the theory of operation. */
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/socket.h"
#include "own_descriptors.h"
#include "processes/passed_names.h"
#include "waiting/wait.h"

#define PLACES 16u

void passed_name_make(struct passed_name *name)
{
	while (getrandom(name->bytes, sizeof name->bytes, 0) != (ssize_t)sizeof name->bytes)
		;
}

static socklen_t address_of(const struct passed_name *name, uint8_t place, struct sockaddr_un *out)
{
	size_t at = 1; /* the first byte is 0: an abstract name */

	memset(out, 0, sizeof *out);
	out->sun_family = AF_UNIX;
	at += (size_t)snprintf(out->sun_path + at, sizeof out->sun_path - at, "xts-passed-%u-", place);
	for (size_t i = 0; i < sizeof name->bytes; i++)
		at += (size_t)snprintf(out->sun_path + at, sizeof out->sun_path - at, "%02x", name->bytes[i]);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + at);
}

static int make_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

static int bind_place(int fd, const struct passed_name *name, uint8_t place)
{
	struct sockaddr_un address;
	socklen_t length = address_of(name, place, &address);

	return bind(fd, (struct sockaddr *)&address, length) < 0 ? -errno : 0;
}

/* Returns a socket that is bound to a free place of the name, with the place (from 1 on) in *place; -errno, -EUSERS:
 * all are taken. */
static int take_place(const struct passed_name *name, uint8_t *place)
{
	int fd = make_socket(), r = -EADDRINUSE;

	if (fd < 0)
		return fd;
	for (*place = 1; *place <= PLACES; ++*place) {
		r = bind_place(fd, name, *place);
		if (r != -EADDRINUSE)
			break;
	}
	if (!r)
		return fd;
	close(fd);
	return r == -EADDRINUSE ? -EUSERS : r;
}

/* The place of this name that the descriptor holds; 0: none. */
static uint8_t place_of(int fd, const struct passed_name *name)
{
	struct sockaddr_un held, wanted;
	socklen_t length = sizeof held;

	memset(&held, 0, sizeof held);
	if (kernel_calls.syscall(SYS_getsockname, fd, &held, &length) < 0)
		return 0;
	for (uint8_t place = 1; place <= PLACES; place++)
		if (length == address_of(name, place, &wanted) && memcmp(&held, &wanted, length) == 0)
			return place;
	return 0;
}

/* Is any place taken except this one (0: any at all)? */
static bool is_taken_except(const struct passed_name *name, uint8_t own)
{
	for (uint8_t place = 1; place <= PLACES; place++) {
		int fd, r;

		if (place == own)
			continue;
		fd = make_socket();
		if (fd < 0)
			return true; /* unknown: the connection is kept */
		r = bind_place(fd, name, place);
		close(fd);
		if (r)
			return true;
	}
	return false;
}

bool passed_name_is_taken(const struct passed_name *name)
{
	return is_taken_except(name, 0);
}

/* --- of a connection ---------------------------------------------------------------------------------------------- */

static bool was_passed(const struct xts_sock *s)
{
	return s->own.common && atomic_load(&s->own.common->passed);
}

/* fd: the socket that holds the place; -errno: there is none. */
static void set_place(struct xts_sock *s, int fd, uint8_t place, bool shared)
{
	s->cold->sharing.passed_place = fd < 0 ? 0 : place;
	s->cold->sharing.passed_place_shared = fd >= 0 && shared;
	if (fd >= 0)
		s->cold->sharing.passed_fd = xts_own(fd);
}

static int duplicate(int fd)
{
	int made = (int)kernel_calls.syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);

	return made < 0 ? -errno : made;
}

void passed_names_join(struct xts_sock *s)
{
	uint8_t place = 0;
	int fd;

	if (!was_passed(s) || s->cold->sharing.passed_place)
		return;
	fd = take_place(&s->own.common->passed_name, &place);
	set_place(s, fd, place, false);
}

int passed_names_begin(struct xts_sock *s)
{
	if (!was_passed(s)) {
		passed_name_make(&s->own.common->passed_name);
		atomic_store(&s->own.common->passed, 1);
	}
	passed_names_join(s);
	return s->cold->sharing.passed_place ? 0 : -EUSERS;
}

int passed_names_carrier(struct xts_sock *s)
{
	uint8_t place;
	int fd = take_place(&s->own.common->passed_name, &place);

	if (fd != -EUSERS)
		return fd;
	fd = duplicate(s->cold->sharing.passed_fd);
	if (fd >= 0)
		s->cold->sharing.passed_place_shared = true;
	return fd;
}

bool passed_names_receive(struct xts_sock *s, int carrier)
{
	uint8_t place;

	passed_names_join(s);
	if (s->cold->sharing.passed_place)
		return true;
	place = place_of(carrier, &s->own.common->passed_name);
	if (place)
		set_place(s, duplicate(carrier), place, true);
	return s->cold->sharing.passed_place;
}

/* Moves from a place that may be shared to a free one. False: none is free. */
static bool move(struct xts_sock *s)
{
	uint8_t place;
	int fd = take_place(&s->own.common->passed_name, &place);

	if (fd < 0)
		return false;
	xts_own_close(s->cold->sharing.passed_fd);
	set_place(s, fd, place, false);
	return true;
}

bool passed_names_others_have(struct xts_sock *s)
{
	if (!was_passed(s))
		return false;
	if (s->cold->sharing.passed_place_shared && !move(s))
		return true;
	return is_taken_except(&s->own.common->passed_name, s->cold->sharing.passed_place);
}

void passed_names_leave(struct xts_sock *s)
{
	if (!s->cold->sharing.passed_place)
		return;
	s->cold->sharing.passed_place = 0;
	xts_own_close(s->cold->sharing.passed_fd);
}

void passed_names_before_fork(struct xts_sock *s)
{
	s->cold->sharing.passed_place_shared =
		s->cold->sharing.passed_place; /* the child may find no free place, and share this one */
}

void passed_names_after_fork(struct xts_sock *s, bool has_it)
{
	if (!s->cold->sharing.passed_place)
		passed_names_join(s);
	else if (!has_it)
		passed_names_leave(s);
	else
		(void)move(s); /* if that fails, both share this place */
}

int passed_names_keep(const struct xts_sock *s, bool keep)
{
	if (!s->cold->sharing.passed_place)
		return -1;
	ioctl(s->cold->sharing.passed_fd, keep ? FIONCLEX : FIOCLEX);
	return s->cold->sharing.passed_fd;
}

void passed_names_adopt(struct xts_sock *s, int fd, uint8_t place)
{
	if (fd >= 0 && place && place <= PLACES) {
		set_place(s, fd, place, true);
		passed_names_keep(s, false);
	} else {
		passed_names_join(s);
	}
}
