/* The members of a datagram socket's record that are lists, and what has to be true of one that was read (record.h). */
#include "datagrams/datagram_record.h"
#include "connection/socket_is.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "wire/wire.h"

#define ERROR_MAX 4095u /* of the kernel: include/linux/err.h */
#define GROUPS_FIRST 8u

/* --- groups ------------------------------------------------------------------------------------------------------- */

static bool groups_next(const void *member, uintptr_t *at, void *element)
{
	const struct datagram_groups *all = member;

	if (*at >= all->count)
		return false;
	*(struct datagram_group *)element = all->groups[(*at)++];
	return true;
}

static void groups_begin(void *member)
{
	*(struct datagram_groups *)member = (struct datagram_groups){ 0 };
}

static int groups_append(void *member, const void *element)
{
	struct datagram_groups *all = member;

	if (all->count == all->room) {
		uint32_t room = all->room ? 2 * all->room : GROUPS_FIRST;
		struct datagram_group *larger = realloc(all->groups, room * sizeof *larger);

		if (!larger)
			return -ENOMEM;
		all->groups = larger;
		all->room = room;
	}
	all->groups[all->count++] = *(const struct datagram_group *)element;
	return 0;
}

static void groups_drop(void *member)
{
	free(((struct datagram_groups *)member)->groups);
	groups_begin(member);
}

const struct xts_record_list datagram_groups_list = { groups_next, groups_begin, groups_append, groups_drop };

/* --- datagrams ---------------------------------------------------------------------------------------------------- */

bool datagram_record_next(const struct xts_record_bytes *all, uint32_t *at, struct xts_datagram *d, uint32_t *missing)
{
	uint32_t left = all->bytes - *at;
	int head = left ? xts_datagram_read(d, all->data + *at, left) : -EBADMSG;

	if (head < 0)
		return false;
	left -= (uint32_t)head;
	*missing = d->record.data_bytes > left ? d->record.data_bytes - left : 0;
	*at += (uint32_t)head + d->record.data_bytes - *missing;
	return true;
}

bool datagram_record_next_waiting(const struct xts_record_bytes *all, uint32_t *at, uint32_t *refused,
				  struct xts_datagram *d, uint32_t *missing)
{
	if (all->bytes - *at < sizeof *refused)
		return false;
	*refused = xts_get32(all->data + *at);
	*at += (uint32_t)sizeof *refused;
	return datagram_record_next(all, at, d, missing);
}

uint64_t datagram_record_credits(const struct datagram_side *s)
{
	uint32_t at = 0, refused, missing;
	struct xts_datagram d;
	uint64_t credits = 0;

	while (datagram_record_next_waiting(&s->waiting, &at, &refused, &d, &missing))
		credits += xts_datagram_credits(&d.record);
	return credits;
}

/* --- what has to be true ------------------------------------------------------------------------------------------ */

static bool waiting_is_sound(const struct datagram_side *s)
{
	uint32_t at = 0, refused, missing = 0;
	struct xts_datagram d;

	while (at < s->waiting.bytes)
		if (missing || !datagram_record_next_waiting(&s->waiting, &at, &refused, &d, &missing) ||
		    refused > ERROR_MAX)
			return false;
	if (s->lost ? !s->coming || missing : missing != s->coming)
		return false;
	return datagram_record_credits(s) <= XTS_CREDITS_MAX;
}

/* From `at` on: whole ones, except the last if that goes on. */
static bool are_records(const struct xts_record_bytes *all, uint32_t at, bool goes_on, bool errors)
{
	uint32_t missing = 0;
	struct xts_datagram d;

	while (at < all->bytes)
		if (missing || !datagram_record_next(all, &at, &d, &missing) ||
		    (!errors && d.controls & 1u << XTS_DATAGRAM_ERROR))
			return false;
	return goes_on == (missing != 0);
}

int datagram_side_check(const void *made)
{
	const struct datagram_side *s = made;

	if (!waiting_is_sound(s) || s->data_left > s->unsent.bytes ||
	    !are_records(&s->unsent, s->data_left, false, true) || !are_records(&s->returned, 0, false, false) ||
	    !are_records(&s->returning, 0, s->returning.bytes, false) ||
	    (s->filter_name.bytes && s->filter_instructions != 1))
		return -EBADMSG;
	return socket_is(s->fd, s->ip_version, SOCK_DGRAM, IPPROTO_UDP) ? 0 : -EBADMSG;
}
