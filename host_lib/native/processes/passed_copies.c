/* Which programs have a copy of a connection that was passed. passed_copies.h has the theory of operation. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/socket.h"
#include "common/own_descriptors.h"
#include "processes/deed.h"
#include "processes/key_renewal.h"
#include "processes/passed_copies.h"
#include "processes/relatives.h"
#include "processes/socket_record.h"
#include "xts_private.h"

static bool was_passed(const struct xts_sock *s)
{
	return s->own.common && atomic_load(&s->own.common->passed);
}

bool passed_is(const struct xts_sock *s, const struct deed_id *id)
{
	return s->cold->sharing.has_deed && memcmp(&s->cold->sharing.deed_id, id, sizeof *id) == 0;
}

static void have(struct xts_sock *s, int fd, const struct deed_id *id, bool shared)
{
	s->cold->sharing.deed_fd = xts_own(fd);
	s->cold->sharing.deed_id = *id;
	s->cold->sharing.has_deed = true;
	s->cold->sharing.deed_is_shared = shared;
	s->cold->sharing.childs_deed = -1;
	if (s->own.common || s->cold->sharing.deed_status)
		return; /* a connection has memory in common with its relatives */
	s->cold->sharing.deed_status = deed_map(fd);
	shared_status_is(s, s->cold->sharing.deed_status);
}

/* Has an open file of its own from now on, if it may have shared one with another process. */
static bool is_alone_in_it(struct xts_sock *s)
{
	int fd;

	if (!s->cold->sharing.deed_is_shared)
		return true;
	fd = deed_again(s->cold->sharing.deed_fd);
	if (fd < 0)
		return false;
	xts_own_close(s->cold->sharing.deed_fd);
	have(s, fd, &s->cold->sharing.deed_id, false);
	return true;
}

int passed_make(struct xts_sock *s)
{
	struct deed_id id;
	int fd;

	if (s->cold->sharing.has_deed)
		return 0;
	fd = deed_make(&id);
	if (fd < 0)
		return fd;
	have(s, fd, &id, false);
	key_look_up(s); /* where else it is */
	key_tell(s);
	return 0;
}

int passed_begin(struct xts_sock *s)
{
	int r;

	if (was_passed(s) && s->cold->sharing.has_deed)
		return 0;
	if (was_passed(s))
		return -EOPNOTSUPP; /* another process has made its deed, which did not come here */
	r = passed_make(s);
	if (r)
		return r;
	/* before others can see that it was passed */
	deed_put_without(s->cold->sharing.deed_fd, relatives_seem_to_have(s->own.common));
	atomic_store(&s->own.common->passed, 1);
	return 0;
}

int passed_carrier(struct xts_sock *s)
{
	int own = s->cold->sharing.deed_fd, fd = deed_again(own), carrier;

	if (fd < 0)
		s->cold->sharing.deed_is_shared = true;
	carrier = deed_wrap(fd < 0 ? own : fd);
	if (fd >= 0)
		close(fd);
	return carrier;
}

void passed_receive(struct xts_sock *s, int carrier, const struct socket_record *b)
{
	int fd = deed_unwrap(carrier, &b->deed_id);

	if (fd < 0)
		return;
	have(s, fd, &b->deed_id, true);
	(void)is_alone_in_it(s);
}

/* May processes without a deed have it, of another program? This one's own are in the relatives' file. */
static bool is_of_a_program_with_others(const struct xts_sock *s, bool received)
{
	return received && deed_is_without(s->cold->sharing.deed_fd);
}

bool passed_others_have(struct xts_sock *s)
{
	if (!was_passed(s))
		return false;
	return !s->cold->sharing.has_deed || !is_alone_in_it(s) || deed_others_have(s->cold->sharing.deed_fd) ||
	       is_of_a_program_with_others(s, atomic_load(&s->own.common->received));
}

bool passed_some_have_no_deed(struct xts_sock *s)
{
	return was_passed(s) &&
	       (!s->cold->sharing.has_deed || is_of_a_program_with_others(s, atomic_load(&s->own.common->received)));
}

struct passed_leaving passed_leaves(struct xts_sock *s)
{
	struct passed_leaving l = { .passed = was_passed(s), .received = atomic_load(&s->own.common->received) };

	if (l.passed && s->cold->sharing.has_deed && is_alone_in_it(s) && !deed_leave(s->cold->sharing.deed_fd) &&
	    !is_of_a_program_with_others(s, l.received))
		atomic_store(&s->own.common->passed, 0);
	return l;
}

bool passed_is_left_to_others(struct xts_sock *s, struct passed_leaving l, bool relatives_have)
{
	bool others = true;

	if (!l.passed)
		return relatives_have;
	if (s->cold->sharing.has_deed) {
		if (!l.received && !relatives_have)
			deed_put_without(s->cold->sharing.deed_fd, false);
		others = !is_alone_in_it(s) || deed_leave(s->cold->sharing.deed_fd) ||
			 is_of_a_program_with_others(s, l.received);
		deed_note_leaving(s->cold->sharing.deed_fd);
	}
	passed_leave(s);
	return others || relatives_have;
}

void passed_leave(struct xts_sock *s)
{
	if (!s->cold->sharing.has_deed)
		return;
	if (s->cold->sharing.deed_status && s->cold->sharing.status == s->cold->sharing.deed_status)
		shared_status_is(s, NULL);
	deed_unmap(s->cold->sharing.deed_status);
	s->cold->sharing.deed_status = NULL;
	s->cold->sharing.has_deed = false;
	xts_own_close(s->cold->sharing.deed_fd);
}

void passed_before_fork(struct xts_sock *s)
{
	int fd;

	if (!s->cold->sharing.has_deed)
		return;
	fd = deed_again(s->cold->sharing.deed_fd);
	if (fd < 0)
		s->cold->sharing.deed_is_shared = true;
	s->cold->sharing.childs_deed = xts_own(fd);
}

void passed_after_fork_parent(struct xts_sock *s)
{
	if (!s->cold->sharing.has_deed || s->cold->sharing.childs_deed < 0)
		return;
	xts_own_close(s->cold->sharing.childs_deed);
	s->cold->sharing.childs_deed = -1;
}

void passed_after_fork(struct xts_sock *s, bool has_it)
{
	int fd = s->cold->sharing.childs_deed;

	if (!s->cold->sharing.has_deed)
		return;
	s->cold->sharing.childs_deed = -1;
	if (fd >= 0) {
		xts_own_close(s->cold->sharing.deed_fd);
		s->cold->sharing.deed_fd = fd;
		s->cold->sharing.deed_is_shared = false;
	}
	if (!has_it)
		passed_leave(s);
}

int passed_keep(const struct xts_sock *s, bool keep)
{
	if (!s->cold->sharing.has_deed)
		return -1;
	ioctl(s->cold->sharing.deed_fd, keep ? FIONCLEX : FIOCLEX);
	return s->cold->sharing.deed_fd;
}

void passed_adopt(struct xts_sock *s, const struct socket_record *b)
{
	if (b->deed_fd < 0 || !deed_is(b->deed_fd, &b->deed_id))
		return;
	have(s, b->deed_fd, &b->deed_id, b->deed_is_shared);
	passed_keep(s, false);
}
