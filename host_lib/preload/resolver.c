/*
 * Names: getaddrinfo() and related calls, if the device's name servers shall be asked.
 *
 * Theory of operation
 *
 * The C library's resolver sends with calls that no interposer sees, and a host that has only a queue has no network to
 * send over. So libnss_xts.so.2 (host_lib/nss) takes the place of `dns` in the name service switch. The services before
 * it, such as `files` and others of the machine's nsswitch.conf, still come first. The change is made with the first
 * lookup of a process whose rules let it offload clients; apart from that the calls here are the C library's own. If
 * there is no proxy, or it looks up no names, the service is not available and the machine's own comes next, unless the
 * process is strict.
 *
 * AI_ADDRCONFIG asks for the families of which this machine has addresses. Here the device's addresses count: the C
 * library is called without the flag, and addresses of families that the device does not have are left out. Without the
 * flag they come last. The order within a family is the C library's.
 */
#include <dlfcn.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/notice.h"
#include "once_per_run.h"
#include "preload.h"
#include "process_page.h"
#include "wire/wire.h"
#include "xts_nss.h"

#define SERVICE "libnss_xts.so.2"
#define NOTICES 100u /* the first of these numbers in the page of notices */

static atomic_bool configured;

/* Loads the service, which is in the same directory as this library: from then on the C library finds it by its
 * name. */
static void *load_service(void)
{
	char path[PATH_MAX];
	Dl_info self;
	char *slash;

	if (!dladdr(&preload, &self) || !self.dli_fname)
		return NULL;
	snprintf(path, sizeof path, "%s", self.dli_fname);
	slash = strrchr(path, '/');
	snprintf(slash ? slash + 1 : path, sizeof path - (size_t)(slash ? slash + 1 - path : 0), SERVICE);
	return dlopen(path, RTLD_NOW | RTLD_LOCAL);
}

static void configure(void)
{
	int (*services)(void);
	void (*of_process)(enum xts_nss_mode mode);
	void *service;
	int r;

	if (!preload.rules || !xts_rules_may_offload(preload.rules, XTS_ROLE_TCP_CLIENT))
		return;
	service = load_service();
	if (!service) {
		preload_log("names: %s: %s", SERVICE, dlerror());
		return;
	}
	*(void **)&services = dlsym(service, "xts_nss_configure");
	*(void **)&of_process = dlsym(service, "xts_nss_of_process");
	r = services && of_process ? services() : -ENOSYS;
	if (r) {
		preload_log("names: the order of services cannot be changed: %s", strerror(-r));
		return;
	}
	of_process(preload.strict ? XTS_NSS_STRICT : XTS_NSS_ON);
	configured = true;
}

/* From here on the device's name servers are asked, if the rules allow it. */
static bool begin(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int before = errno;

	xts_look_who_calls();
	pthread_once(&once, configure);
	(void)xts_take_name_failure();
	errno = before;
	return configured;
}

/* --- what the proxy did not do ------------------------------------------------------------------------------------ */

/* A lookup has failed: writes a notice if the proxy could not or would not look it up. Returns that errno; 0: it was
 * another cause. */
static int notice_failure(void)
{
	int before = errno, error = xts_take_name_failure();
	const char *why = error ? xts_reason_of(error, false) : NULL;

	if (error && error != EOPNOTSUPP && once_per_run(NOTICES + (unsigned)error % (ONCE_BITS - NOTICES)))
		xts_notice("%s (process %d): a name could not be looked up: %s", report_program(), (int)getpid(),
			   why ? why : strerror(error));
	errno = before;
	return error;
}

/* --- families ----------------------------------------------------------------------------------------------------- */

static bool is_loopback(const struct sockaddr *address)
{
	if (address->sa_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* Does the device have addresses of its family? Loopback belongs to this machine. */
static bool leads_anywhere(const struct addrinfo *a, unsigned families)
{
	return families & (a->ai_family == AF_INET ? XTS_FAMILY_IPV4 : XTS_FAMILY_IPV6) || is_loopback(a->ai_addr);
}

/* Moves addresses that cannot be reached to the end, and returns where they begin. The canonical name stays at the
 * front. */
static struct addrinfo **part(struct addrinfo **list, unsigned families)
{
	struct addrinfo *nowhere = NULL, **nowhere_end = &nowhere, **at = list;
	char *name = *list ? (*list)->ai_canonname : NULL;

	if (*list)
		(*list)->ai_canonname = NULL;
	while (*at) {
		struct addrinfo *a = *at;

		if (leads_anywhere(a, families)) {
			at = &a->ai_next;
			continue;
		}
		*at = a->ai_next;
		a->ai_next = NULL;
		*nowhere_end = a;
		nowhere_end = &a->ai_next;
	}
	*at = nowhere;
	if (*list)
		(*list)->ai_canonname = name;
	return at;
}

/* The effect of AI_ADDRCONFIG, with the device's families. */
static int by_families(struct addrinfo **list, bool only_configured)
{
	unsigned families = XTS((int)xts_device_families()) & 3;
	struct addrinfo **rest;

	if (!families || families == (XTS_FAMILY_IPV4 | XTS_FAMILY_IPV6))
		return 0;
	rest = part(list, families);
	if (!only_configured || !*rest)
		return 0;
	freeaddrinfo(*rest);
	*rest = NULL;
	return *list ? 0 : EAI_NONAME;
}

/* --- the calls ---------------------------------------------------------------------------------------------------- */

/* Does the caller ask only for families of which this machine has addresses? */
static bool asks_configured(const struct addrinfo *hints)
{
	return !hints || hints->ai_flags & AI_ADDRCONFIG;
}

EXPORT int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
	struct addrinfo changed = { 0 };
	int r;

	if (!begin() || !node || (asks_configured(hints) && XTS(xts_names_served()) != 1))
		return real()->getaddrinfo(node, service, hints, result);
	if (hints)
		changed = *hints;
	changed.ai_flags = hints ? hints->ai_flags & ~AI_ADDRCONFIG : AI_V4MAPPED;
	r = real()->getaddrinfo(node, service, &changed, result);
	if (r && notice_failure() == EACCES && r == EAI_NONAME)
		r = EAI_FAIL; /* whether the name exists is unknown */
	return r ? r : by_families(result, asks_configured(hints));
}

EXPORT int getnameinfo(const struct sockaddr *address, socklen_t length, char *host, socklen_t host_bytes,
		       char *service, socklen_t service_bytes, int flags)
{
	(void)begin();
	return real()->getnameinfo(address, length, host, host_bytes, service, service_bytes, flags);
}

static struct hostent *noticed(struct hostent *found)
{
	if (!found && configured)
		(void)notice_failure();
	return found;
}

EXPORT struct hostent *gethostbyname(const char *name)
{
	(void)begin();
	return noticed(real()->gethostbyname(name));
}

EXPORT struct hostent *gethostbyname2(const char *name, int family)
{
	(void)begin();
	return noticed(real()->gethostbyname2(name, family));
}

EXPORT struct hostent *gethostbyaddr(const void *address, socklen_t length, int family)
{
	(void)begin();
	return noticed(real()->gethostbyaddr(address, length, family));
}

static int noticed_r(int result, struct hostent *const *found)
{
	if (!*found && configured && result != ERANGE)
		(void)notice_failure();
	return result;
}

EXPORT int gethostbyname_r(const char *name, struct hostent *host, char *buffer, size_t bytes, struct hostent **found,
			   int *error)
{
	(void)begin();
	return noticed_r(real()->gethostbyname_r(name, host, buffer, bytes, found, error), found);
}

EXPORT int gethostbyname2_r(const char *name, int family, struct hostent *host, char *buffer, size_t bytes,
			    struct hostent **found, int *error)
{
	(void)begin();
	return noticed_r(real()->gethostbyname2_r(name, family, host, buffer, bytes, found, error), found);
}

EXPORT int gethostbyaddr_r(const void *address, socklen_t length, int family, struct hostent *host, char *buffer,
			   size_t bytes, struct hostent **found, int *error)
{
	(void)begin();
	return noticed_r(real()->gethostbyaddr_r(address, length, family, host, buffer, bytes, found, error), found);
}

/* getaddrinfo_a() looks up in threads of its own, which the C library starts; they use our service. */
EXPORT int getaddrinfo_a(int mode, struct gaicb *list[], int count, struct sigevent *event)
{
	(void)begin();
	return real()->getaddrinfo_a(mode, list, count, event);
}
