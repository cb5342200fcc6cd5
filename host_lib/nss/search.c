/*
 * Lookups. The C library's own resolver builds queries and reads the search list (res_ninit(), res_nmkquery()), but
 * sends nothing: xts_query_name() does. Search list and ndots come from the host's resolv.conf(5), if there is one,
 * RES_OPTIONS and LOCALDOMAIN; its name servers are not used.
 */
#include "search.h"

#include <errno.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "mode.h"
#include "xts_private.h"

#define QUERY_BYTES 1024
#define ANSWER_BYTES 65536

/* The result that the C library would return for a name server that has failed in this way. */
static int failure(int error)
{
	switch (error) {
	case EOPNOTSUPP:
		return LOOKUP_UNSERVED;
	case EACCES:
	case EINVAL:
	case EMSGSIZE:
		return NO_RECOVERY;
	default:
		return TRY_AGAIN;
	}
}

static int ask(struct __res_state *state, struct answer *answer, const char *name, ns_type type, uint8_t *room)
{
	uint8_t query[QUERY_BYTES];
	int bytes = res_nmkquery(state, ns_o_query, name, ns_c_in, (int)type, NULL, 0, NULL, query, sizeof query);
	int got;

	answer->count = 0;
	if (bytes < 0)
		return HOST_NOT_FOUND; /* not a name that can be asked for */
	got = xts_query_name(query, (size_t)bytes, room, ANSWER_BYTES, -1);
	if (got < 0)
		return failure(errno);
	return answer_read(answer, room, got, type, name);
}

/* Asks for all types of one name. 0: at least one of them has an answer. */
static int ask_all(struct __res_state *state, struct answer *answers, const ns_type *types, unsigned count,
		   const char *name, uint8_t *room)
{
	int result = 0;
	bool any = false;

	for (unsigned i = 0; i < count; i++) {
		int r = ask(state, &answers[i], name, types[i], room);

		if (r == LOOKUP_UNSERVED)
			return r;
		any |= !r;
		/* "It does not exist" for one type counts less than "could not be asked" for another. */
		if (!i || r == TRY_AGAIN || (r == NO_DATA && result == HOST_NOT_FOUND))
			result = r;
	}
	return any ? 0 : result;
}

/* May the next name of the search list be tried after this result? */
static bool goes_on(int result)
{
	return result == HOST_NOT_FOUND || result == NO_DATA;
}

struct search {
	struct __res_state state;
	struct answer *answers;
	const ns_type *types;
	unsigned count;
	uint8_t *room;
};

static int try_name(struct search *s, const char *name, const char *domain, int before)
{
	char whole[NS_MAXDNAME];
	int r;

	if (snprintf(whole, sizeof whole, "%s%s%s", name, *domain ? "." : "", domain) >= (int)sizeof whole)
		return before;
	r = ask_all(&s->state, s->answers, s->types, s->count, whole, s->room);
	return r == HOST_NOT_FOUND && before == NO_DATA ? before : r;
}

/* As res_nsearch(): a name with enough dots is tried unchanged first, one with a dot at its end only unchanged. */
static int search(struct search *s, const char *name)
{
	unsigned dots = 0;
	size_t length = strlen(name);
	bool rooted = length && name[length - 1] == '.', as_is;
	char plain[NS_MAXDNAME];
	int r = HOST_NOT_FOUND;

	if (!length || length >= sizeof plain)
		return HOST_NOT_FOUND;
	memcpy(plain, name, length + 1);
	if (rooted)
		plain[length - 1] = 0;
	for (const char *c = plain; *c; c++)
		dots += *c == '.';
	as_is = rooted || dots >= s->state.ndots;
	if (as_is)
		r = try_name(s, plain, "", r);
	if (rooted || !goes_on(r))
		return r;
	if ((!dots && s->state.options & RES_DEFNAMES) || (dots && s->state.options & RES_DNSRCH))
		for (char **domain = s->state.dnsrch; *domain && goes_on(r); domain++)
			r = try_name(s, plain, strcmp(*domain, ".") != 0 ? *domain : "", r);
	if (!as_is && goes_on(r))
		r = try_name(s, plain, "", r);
	return r;
}

static int begin(struct search *s)
{
	if (nss_mode() == XTS_NSS_OFF || xts_names_served() != 1)
		return LOOKUP_UNSERVED;
	s->room = malloc(ANSWER_BYTES);
	if (!s->room)
		return TRY_AGAIN;
	if (!res_ninit(&s->state))
		return 0;
	free(s->room);
	return NO_RECOVERY;
}

static void end(struct search *s)
{
	res_nclose(&s->state);
	free(s->room);
}

int lookup_host(struct answer *answers, const ns_type *types, unsigned count, const char *name)
{
	struct search s = { .answers = answers, .types = types, .count = count };
	int r = begin(&s);

	if (r)
		return r;
	r = search(&s, name);
	end(&s);
	return r;
}

/* "2.0.18.198.in-addr.arpa", or the form for an IPv6 address, digit by digit. */
static void name_of(const uint8_t *address, int family, char out[NS_MAXDNAME])
{
	size_t at = 0;

	if (family == AF_INET) {
		snprintf(out, NS_MAXDNAME, "%u.%u.%u.%u.in-addr.arpa", address[3], address[2], address[1], address[0]);
		return;
	}
	for (int i = 15; i >= 0; i--)
		at += (size_t)snprintf(out + at, NS_MAXDNAME - at, "%x.%x.", address[i] & 0xfu,
				       (unsigned)address[i] >> 4);
	snprintf(out + at, NS_MAXDNAME - at, "ip6.arpa");
}

int lookup_address(struct answer *answer, const uint8_t *address, int family)
{
	static const ns_type pointer = ns_t_ptr;
	struct search s = { .answers = answer, .types = &pointer, .count = 1 };
	char name[NS_MAXDNAME];
	int r = begin(&s);

	if (r)
		return r;
	name_of(address, family, name);
	r = ask_all(&s.state, answer, &pointer, 1, name, s.room);
	end(&s);
	return r;
}
