/*
 * Options that change nothing on an offloaded socket, and those that are about this host.
 *
 * Theory of operation
 *
 * What may be set, with which length and privilege, what is read back, and what an option is before it was set: all of
 * that this host's kernel knows, and its version decides. So the kernel is asked, with a socket of its own that lives
 * as long as the question. What the program has set is kept as it was given, and given to the kernel again before it is
 * asked what the option is. Such calls are rare, and cost some system calls instead of a round trip to the device.
 *
 * They belong to the socket at this host, and outlive what the proxy has of it. Over exec and Unix sockets they are not
 * kept (DIFFERENCES.md).
 */
#include "core/hint.h"

#include <errno.h>
#include <linux/in6.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "core/option_table.h"
#include "core/socket_kind.h"
#include "core/wait.h"
#include "xts_private.h"

#define STREAM (1u << SOCK_STREAM)
#define DATAGRAM (1u << SOCK_DGRAM)
#define BOTH (STREAM | DATAGRAM)

enum way { HINT, ANSWERED, KEPT, HERE, UNFORCED, PREVENTS };

static const struct entry {
	int level, option;
	unsigned sockets;
	enum way way;
} table[] = {
#define XTS_OPTION_AS_ENTRY(level, option, sockets, way, about) { level, option, sockets, way },
	XTS_OPTIONS(XTS_OPTION_AS_ENTRY)
#undef XTS_OPTION_AS_ENTRY
};

#define VALUE_BYTES_MAX 64u /* of those that are kept */

/* What was set, or, of KEPT, what was answered. */
struct hint {
	struct hint *next;
	const struct entry *entry;
	socklen_t length;
	uint8_t value[];
};

static _Atomic uint64_t taken;

uint64_t xts_hints_taken(void)
{
	return atomic_load_explicit(&taken, memory_order_relaxed);
}

static const struct entry *find(const struct xts_sock *s, int level, int option)
{
	unsigned sockets = 1u << kind_of(s)->type;

	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		if (table[i].option == option && table[i].level == level && table[i].sockets & sockets)
			return &table[i];
	return NULL;
}

/* --- what is kept ------------------------------------------------------------------------------------------------- */

static struct hint **place_of(struct xts_sock *s, const struct entry *entry)
{
	struct hint **at = &s->cold->hints;

	while (*at && (*at)->entry != entry)
		at = &(*at)->next;
	return at;
}

static int keep(struct xts_sock *s, const struct entry *entry, const void *value, socklen_t length)
{
	struct hint **at = place_of(s, entry), *old = *at;
	struct hint *made = length <= VALUE_BYTES_MAX ? malloc(sizeof *made + length) : NULL;

	if (!made)
		return -ENOBUFS;
	*made = (struct hint){ .next = old ? old->next : NULL, .entry = entry, .length = length };
	if (length)
		memcpy(made->value, value, length);
	*at = made;
	free(old);
	return 0;
}

void hints_forget(struct xts_sock *s)
{
	while (s->cold->hints) {
		struct hint *first = s->cold->hints;

		s->cold->hints = first->next;
		free(first);
	}
	s->cold->tells_inq = false;
}

void hints_inherit(struct xts_sock *s, const struct xts_sock *listener)
{
	s->cold->tells_inq = listener->cold->tells_inq;
	for (const struct hint *h = listener->cold->hints; h; h = h->next)
		if (h->entry->way != KEPT)
			(void)keep(s, h->entry, h->value, h->length); /* without memory it is as if it were not set */
}

/* --- asking the kernel -------------------------------------------------------------------------------------------- */

static int open_socket(const struct xts_sock *s)
{
	long fd = kernel_calls.syscall(SYS_socket, s->family == 4 ? AF_INET : AF_INET6, kind_of(s)->type | SOCK_CLOEXEC,
				       0);

	return fd < 0 ? -errno : (int)fd;
}

static int try_to_set(const struct xts_sock *s, const struct entry *entry, const void *value, socklen_t length)
{
	int fd = open_socket(s), r;

	if (fd < 0)
		return fd;
	r = kernel_calls.syscall(SYS_setsockopt, fd, entry->level, entry->option, value, length) < 0 ? -errno : 0;
	kernel_calls.syscall(SYS_close, fd);
	return r;
}

static int ask(struct xts_sock *s, const struct entry *entry, void *value, socklen_t *length)
{
	const struct hint *kept = *place_of(s, entry);
	int fd = open_socket(s), r;

	if (fd < 0)
		return fd;
	if (kept)
		(void)kernel_calls.syscall(SYS_setsockopt, fd, entry->level, entry->option, kept->value, kept->length);
	r = kernel_calls.syscall(SYS_getsockopt, fd, entry->level, entry->option, value, length) < 0 ? -errno : 0;
	kernel_calls.syscall(SYS_close, fd);
	return r;
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

/* Does the value switch the option off, which it is anyway? */
static bool is_off(const void *value, socklen_t length)
{
	const uint8_t *bytes = value;

	for (socklen_t i = 0; i < length; i++)
		if (bytes[i])
			return false;
	return true;
}

static bool is_on(const void *value)
{
	int on;

	memcpy(&on, value, sizeof on); /* the kernel has looked at the length */
	return on != 0;
}

int hint_set(struct xts_sock *s, int level, int *option, const void *value, socklen_t length)
{
	const struct entry *entry = find(s, level, *option);
	int r;

	if (!entry || (entry->way == PREVENTS && !is_off(value, length)))
		return 1; /* the proxy says no, and why */
	r = try_to_set(s, entry, value, length);
	if (r)
		return r;
	if (entry->way == UNFORCED) {
		*option = *option == SO_SNDBUFFORCE ? SO_SNDBUF : SO_RCVBUF;
		return 1;
	}
	if (entry->way == HERE)
		kind_of(s)->hint_was_set(s, is_on(value));
	else if (entry->way == HINT)
		atomic_fetch_add_explicit(&taken, 1, memory_order_relaxed);
	return keep(s, entry, value, length);
}

/* The first answer is kept: the socket that gave it is gone, so that no other has the number. */
static int get_kept(struct xts_sock *s, const struct entry *entry, void *value, socklen_t *length)
{
	const struct hint *kept = *place_of(s, entry);
	uint8_t answer[VALUE_BYTES_MAX];
	socklen_t bytes = sizeof answer;
	int r = 0;

	if (!kept) {
		r = ask(s, entry, answer, &bytes);
		if (!r)
			r = keep(s, entry, answer, bytes);
		kept = *place_of(s, entry);
	}
	if (r)
		return r;
	if (*length < kept->length)
		return -EINVAL;
	*length = kept->length;
	memcpy(value, kept->value, kept->length);
	return 0;
}

int hint_get(struct xts_sock *s, int level, int option, void *value, socklen_t *length)
{
	const struct entry *entry = find(s, level, option);

	if (!entry)
		return 1;
	return entry->way == KEPT ? get_kept(s, entry, value, length) : ask(s, entry, value, length);
}
