/* Which programs have a copy of a connection that was passed. passed_names.h has the theory of operation. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/socket.h"
#include "own_descriptors.h"
#include "processes/passed_names.h"

#define PLACES 16u

void passed_name_make(struct passed_name *name)
{
	while (getrandom(name->bytes, sizeof name->bytes, 0) != (ssize_t)sizeof name->bytes)
		;
}

static socklen_t address_of(const struct passed_name *name, uint8_t place, struct sockaddr_un *out)
{
	size_t at = 1; /* the first byte is 0: abstract */

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

int passed_name_take(const struct passed_name *name, uint8_t *place)
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

/* Is any place taken except this one (0: any at all)? */
static bool is_taken_except(const struct passed_name *name, uint8_t own)
{
	for (uint8_t place = 1; place <= PLACES; place++) {
		int fd, r;

		if (place == own)
			continue;
		fd = make_socket();
		if (fd < 0)
			return true; /* not known: it is kept */
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

void passed_names_join(struct xts_sock *s)
{
	int fd;

	if (!was_passed(s) || s->own.passed_place)
		return;
	fd = passed_name_take(&s->own.common->passed_name, &s->own.passed_place);
	if (fd < 0)
		s->own.passed_place = 0;
	else
		s->own.passed_fd = xts_own(fd);
}

int passed_names_begin(struct xts_sock *s)
{
	if (!was_passed(s)) {
		passed_name_make(&s->own.common->passed_name);
		atomic_store(&s->own.common->passed, 1);
	}
	passed_names_join(s);
	return s->own.passed_place ? 0 : -EUSERS;
}

bool passed_names_others_have(const struct xts_sock *s)
{
	return was_passed(s) && is_taken_except(&s->own.common->passed_name, s->own.passed_place);
}

void passed_names_leave(struct xts_sock *s)
{
	if (!s->own.passed_place)
		return;
	s->own.passed_place = 0;
	xts_own_close(s->own.passed_fd);
}

void passed_names_after_fork(struct xts_sock *s, bool has_it)
{
	uint8_t parents_place = s->own.passed_place;
	int parents = s->own.passed_fd;

	s->own.passed_place = 0;
	if (has_it)
		passed_names_join(s);
	if (!parents_place)
		return;
	if (has_it && !s->own.passed_place) {
		s->own.passed_place = parents_place; /* none is free: both have this one */
		return;
	}
	xts_own_close(parents);
}

int passed_names_keep(const struct xts_sock *s, bool keep)
{
	if (!s->own.passed_place)
		return -1;
	ioctl(s->own.passed_fd, keep ? FIONCLEX : FIOCLEX);
	return s->own.passed_fd;
}

void passed_names_adopt(struct xts_sock *s, int fd, uint8_t place)
{
	if (fd >= 0 && place && place <= PLACES) {
		s->own.passed_fd = xts_own(fd);
		s->own.passed_place = place;
		passed_names_keep(s, false);
	} else {
		passed_names_join(s);
	}
}
