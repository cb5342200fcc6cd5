/*
 * libnss_xts.so.2: a service of the name service switch (nss(5)) that asks the device's name servers.
 *
 * Theory of operation
 *
 * The C library's resolver is not replaced: getaddrinfo() and related functions still read nsswitch.conf and
 * /etc/hosts, and call this service when they would ask the DNS. libxts-preload loads this library by its path, so that
 * the C library finds it by its name, and puts `xts` where the machine has `dns` (preload/resolver.c). A machine may
 * also name the service in its own nsswitch.conf, for programs that use libxts.
 *
 * The statuses and numbers of netdb.h are the same as those of `dns`. UNAVAIL, after which the next service is asked,
 * means that no proxy looks up names for this process.
 */
#include <errno.h>
#include <netdb.h>
#include <nss.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "mode.h"
#include "search.h"

#define EXPORT __attribute__((visibility("default")))

enum nss_status _nss_xts_gethostbyname4_r(const char *name, struct gaih_addrtuple **pat, char *buffer, size_t buflen,
					  int *errnop, int *herrnop, int32_t *ttlp);
enum nss_status _nss_xts_gethostbyname3_r(const char *name, int af, struct hostent *result, char *buffer, size_t buflen,
					  int *errnop, int *herrnop, int32_t *ttlp, char **canonp);
enum nss_status _nss_xts_gethostbyname2_r(const char *name, int af, struct hostent *result, char *buffer, size_t buflen,
					  int *errnop, int *herrnop);
enum nss_status _nss_xts_gethostbyname_r(const char *name, struct hostent *result, char *buffer, size_t buflen,
					 int *errnop, int *herrnop);
enum nss_status _nss_xts_gethostbyaddr2_r(const void *address, socklen_t length, int af, struct hostent *result,
					  char *buffer, size_t buflen, int *errnop, int *herrnop, int32_t *ttlp);
enum nss_status _nss_xts_gethostbyaddr_r(const void *address, socklen_t length, int af, struct hostent *result,
					 char *buffer, size_t buflen, int *errnop, int *herrnop);

/* --- results ------------------------------------------------------------------------------------------------------ */

static enum nss_status failed(int result, int *errnop, int *herrnop)
{
	if (result == LOOKUP_UNSERVED && nss_mode() == XTS_NSS_STRICT)
		result = TRY_AGAIN;
	*herrnop = result == LOOKUP_UNSERVED ? NO_RECOVERY : result;
	switch (result) {
	case LOOKUP_UNSERVED:
		*errnop = ENOENT;
		return NSS_STATUS_UNAVAIL;
	case TRY_AGAIN:
		*errnop = EAGAIN;
		return NSS_STATUS_TRYAGAIN;
	default:
		*errnop = ENOENT;
		return NSS_STATUS_NOTFOUND;
	}
}

/* The caller calls again with a larger buffer. */
static enum nss_status too_small(int *errnop, int *herrnop)
{
	*errnop = ERANGE;
	*herrnop = NETDB_INTERNAL;
	return NSS_STATUS_TRYAGAIN;
}

static enum nss_status no_memory(int *errnop, int *herrnop)
{
	*errnop = ENOMEM;
	*herrnop = NETDB_INTERNAL;
	return NSS_STATUS_UNAVAIL;
}

/* The caller's buffer, filled from the front. */
struct room {
	char *at;
	size_t left;
};

static void *take(struct room *room, size_t bytes, size_t alignment)
{
	size_t gap = -(uintptr_t)room->at & (alignment - 1);
	char *taken = room->at + gap;

	if (room->left < gap || room->left - gap < bytes)
		return NULL;
	room->at = taken + bytes;
	room->left -= gap + bytes;
	return taken;
}

static char *take_text(struct room *room, const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = take(room, bytes, 1);

	return copy ? memcpy(copy, text, bytes) : NULL;
}

/* --- addresses of a name ------------------------------------------------------------------------------------------ */

static bool put_tuples(struct room *room, const struct answer *answers, struct gaih_addrtuple **pat)
{
	static const int families[2] = { AF_INET, AF_INET6 };
	const struct answer *named = answers[0].count ? &answers[0] : &answers[1];
	char *name = take_text(room, named->name);
	struct gaih_addrtuple **end = pat;
	bool first = true;

	for (int f = 0; name && f < 2; f++) {
		for (unsigned i = 0; i < answers[f].count; i++, first = false) {
			struct gaih_addrtuple *t = first && *pat ?
							   *pat :
							   take(room, sizeof *t, _Alignof(struct gaih_addrtuple));

			if (!t)
				return false;
			*t = (struct gaih_addrtuple){ .name = first ? name : NULL, .family = families[f] };
			memcpy(t->addr, answers[f].addresses[i], families[f] == AF_INET ? 4 : 16);
			*end = t;
			end = &t->next;
		}
	}
	return name;
}

static int32_t smaller_ttl(const struct answer *answers)
{
	uint32_t a = answers[0].count ? answers[0].ttl : INT32_MAX, b = answers[1].count ? answers[1].ttl : INT32_MAX;

	return (int32_t)(a < b ? a : b);
}

EXPORT enum nss_status _nss_xts_gethostbyname4_r(const char *name, struct gaih_addrtuple **pat, char *buffer,
						 size_t buflen, int *errnop, int *herrnop, int32_t *ttlp)
{
	static const ns_type types[2] = { ns_t_a, ns_t_aaaa };
	struct answer *answers = calloc(2, sizeof *answers);
	struct room room = { buffer, buflen };
	enum nss_status status = NSS_STATUS_SUCCESS;
	int r;

	if (!answers)
		return no_memory(errnop, herrnop);
	r = lookup_host(answers, types, 2, name);
	if (r)
		status = failed(r, errnop, herrnop);
	else if (!put_tuples(&room, answers, pat))
		status = too_small(errnop, herrnop);
	else if (ttlp)
		*ttlp = smaller_ttl(answers);
	free(answers);
	return status;
}

static bool put_host(struct room *room, const struct answer *answer, int family, struct hostent *out)
{
	size_t bytes = family == AF_INET ? 4 : 16;
	char **aliases = take(room, (answer->alias_count + 1) * sizeof *aliases, _Alignof(char *));
	char **addresses = take(room, (answer->count + 1) * sizeof *addresses, _Alignof(char *));

	if (!aliases || !addresses)
		return false;
	for (unsigned i = 0; i < answer->count; i++) {
		addresses[i] = take(room, bytes, 4);
		if (!addresses[i])
			return false;
		memcpy(addresses[i], answer->addresses[i], bytes);
	}
	for (unsigned i = 0; i < answer->alias_count; i++) {
		aliases[i] = take_text(room, answer->aliases[i]);
		if (!aliases[i])
			return false;
	}
	addresses[answer->count] = aliases[answer->alias_count] = NULL;
	*out = (struct hostent){ .h_name = take_text(room, answer->name),
				 .h_aliases = aliases,
				 .h_addrtype = family,
				 .h_length = (int)bytes,
				 .h_addr_list = addresses };
	return out->h_name;
}

EXPORT enum nss_status _nss_xts_gethostbyname3_r(const char *name, int af, struct hostent *result, char *buffer,
						 size_t buflen, int *errnop, int *herrnop, int32_t *ttlp, char **canonp)
{
	ns_type type = af == AF_INET ? ns_t_a : ns_t_aaaa;
	struct room room = { buffer, buflen };
	enum nss_status status = NSS_STATUS_SUCCESS;
	struct answer *answer;
	int r;

	if (af != AF_INET && af != AF_INET6) {
		*errnop = EAFNOSUPPORT;
		*herrnop = NO_DATA;
		return NSS_STATUS_UNAVAIL;
	}
	answer = malloc(sizeof *answer);
	if (!answer)
		return no_memory(errnop, herrnop);
	r = lookup_host(answer, &type, 1, name);
	if (r)
		status = failed(r, errnop, herrnop);
	else if (!put_host(&room, answer, af, result))
		status = too_small(errnop, herrnop);
	if (!r && ttlp)
		*ttlp = (int32_t)answer->ttl;
	if (status == NSS_STATUS_SUCCESS && canonp)
		*canonp = result->h_name;
	free(answer);
	return status;
}

EXPORT enum nss_status _nss_xts_gethostbyname2_r(const char *name, int af, struct hostent *result, char *buffer,
						 size_t buflen, int *errnop, int *herrnop)
{
	return _nss_xts_gethostbyname3_r(name, af, result, buffer, buflen, errnop, herrnop, NULL, NULL);
}

EXPORT enum nss_status _nss_xts_gethostbyname_r(const char *name, struct hostent *result, char *buffer, size_t buflen,
						int *errnop, int *herrnop)
{
	return _nss_xts_gethostbyname3_r(name, AF_INET, result, buffer, buflen, errnop, herrnop, NULL, NULL);
}

/* --- the name of an address --------------------------------------------------------------------------------------- */

static bool put_name(struct room *room, const struct answer *answer, const void *address, int family, struct hostent *out)
{
	size_t bytes = family == AF_INET ? 4 : 16;
	char **lists = take(room, 3 * sizeof *lists, _Alignof(char *));
	char *copy = take(room, bytes, 4), *name = take_text(room, answer->host);

	if (!lists || !copy || !name)
		return false;
	memcpy(copy, address, bytes);
	lists[0] = copy;
	lists[1] = lists[2] = NULL;
	*out = (struct hostent){
		.h_name = name, .h_aliases = &lists[2], .h_addrtype = family, .h_length = (int)bytes, .h_addr_list = lists
	};
	return true;
}

EXPORT enum nss_status _nss_xts_gethostbyaddr2_r(const void *address, socklen_t length, int af, struct hostent *result,
						 char *buffer, size_t buflen, int *errnop, int *herrnop, int32_t *ttlp)
{
	struct room room = { buffer, buflen };
	enum nss_status status = NSS_STATUS_SUCCESS;
	struct answer *answer;
	int r;

	if ((af != AF_INET || length < 4) && (af != AF_INET6 || length < 16)) {
		*errnop = EAFNOSUPPORT;
		*herrnop = NETDB_INTERNAL;
		return NSS_STATUS_UNAVAIL;
	}
	answer = malloc(sizeof *answer);
	if (!answer)
		return no_memory(errnop, herrnop);
	r = lookup_address(answer, address, af);
	if (r)
		status = failed(r, errnop, herrnop);
	else if (!put_name(&room, answer, address, af, result))
		status = too_small(errnop, herrnop);
	else if (ttlp)
		*ttlp = (int32_t)answer->ttl;
	free(answer);
	return status;
}

EXPORT enum nss_status _nss_xts_gethostbyaddr_r(const void *address, socklen_t length, int af, struct hostent *result,
						char *buffer, size_t buflen, int *errnop, int *herrnop)
{
	return _nss_xts_gethostbyaddr2_r(address, length, af, result, buffer, buflen, errnop, herrnop, NULL);
}
