/* The page through which other programs see this process's sockets: see process_page.h. It is made with the first TCP
 * socket, so that programs without one do not pay for it; a forked child makes its own. */
#include "process_page.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/control_page.h"
#include "common/file_limit.h"
#include "wire/endpoint.h"
#include "settings/environment.h"
#include "preload.h"

static struct xts_report_page *_Atomic page;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int page_fd = -1;
/* Copied at the start, since a program may overwrite its arguments (setproctitle) and change its environment. */
static char program[sizeof page->program], rules[sizeof page->rules], endpoint[sizeof page->endpoint];

static void lock_report(void)
{
	xts_go_in();
	pthread_mutex_lock(&lock);
}

static void unlock_report(void)
{
	pthread_mutex_unlock(&lock);
	xts_come_out();
}

/* Chosen as in messages/native/attaching/attach.c. */
static void endpoint_of_environment(void)
{
	const char *queue = xts_environment(XTS_ENV_QUEUE), *path = xts_environment(XTS_ENV_ENDPOINT);

	if (queue && !strncmp(queue, "shm:", 4))
		path = queue + 4;
	snprintf(endpoint, sizeof endpoint, "%s", path ? path : XTS_ENV_DEFAULT_ENDPOINT);
}

void report_endpoint(const char *path)
{
	struct xts_report_page *p = atomic_load_explicit(&page, memory_order_acquire);

	snprintf(endpoint, sizeof endpoint, "%s", path);
	if (p)
		memcpy(p->endpoint, endpoint, sizeof p->endpoint);
}

bool report_made(void)
{
	return atomic_load_explicit(&page, memory_order_relaxed);
}

void report_begin(const char *name, const char *path)
{
	snprintf(program, sizeof program, "%s", name);
	snprintf(rules, sizeof rules, "%s", path ? path : "");
	endpoint_of_environment();
}

const char *report_program(void)
{
	return program;
}

void report_attach_error(const char *text)
{
	struct xts_report_page *p = atomic_load_explicit(&page, memory_order_acquire);

	if (p)
		snprintf(p->attach_error, sizeof p->attach_error, "%s", text);
}

static void fill_in(struct xts_report_page *p)
{
	p->version = XTS_REPORT_VERSION;
	p->entries = XTS_REPORT_ENTRIES;
	p->pid = (uint32_t)getpid();
	p->strict = preload.strict;
	snprintf(p->program, sizeof p->program, "%s", program);
	snprintf(p->rules, sizeof p->rules, "%s", rules);
	memcpy(p->endpoint, endpoint, sizeof p->endpoint);
	for (int fd = 0; fd < (int)XTS_REPORT_ENTRIES; fd++) {
		struct descriptor d = descriptor_get(fd);

		if (d.kind != DESCRIPTOR_KERNEL)
			p->entry[fd] = (struct xts_report_entry){
				.kind = d.kind, .flags = d.flags, .reason = d.reason, .number = (int32_t)d.number
			};
	}
	p->magic = XTS_REPORT_MAGIC;
}

static void make(void)
{
	struct xts_report_page *made;
	int fd = real()->memfd_create(XTS_REPORT_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return; /* no descriptor is left, and the program needs them more */
	made = MAP_FAILED;
	if (xts_limited_truncate(fd, sizeof *made) == 0)
		made = mmap(NULL, sizeof *made, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (made == MAP_FAILED) {
		real()->close(fd);
		return;
	}
	real()->fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL);
	page_fd = descriptor_own(fd);
	fill_in(made);
	atomic_store(&page, made);
	report_counters();
}

void report_start(void)
{
	int before = errno;

	xts_control_start();
	if (atomic_load_explicit(&page, memory_order_relaxed))
		return;
	lock_report();
	if (!page)
		make();
	unlock_report();
	errno = before;
}

void report_descriptor(int fd, struct descriptor d)
{
	struct xts_report_page *p = atomic_load_explicit(&page, memory_order_acquire);
	struct xts_report_entry *e;

	if (!p || (unsigned)fd >= XTS_REPORT_ENTRIES)
		return;
	e = &p->entry[fd];
	if (d.kind == DESCRIPTOR_KERNEL)
		*e = (struct xts_report_entry){ 0 };
	e->flags = d.flags;
	e->reason = d.reason;
	e->number = d.kind == DESCRIPTOR_OFFLOADED ? (int32_t)d.number : 0;
	e->kind = d.kind;
}

/* The entry of a descriptor, if the page has one for it. */
static struct xts_report_entry *entry_of(int fd)
{
	struct xts_report_page *p = atomic_load_explicit(&page, memory_order_acquire);

	return p && (unsigned)fd < XTS_REPORT_ENTRIES ? &p->entry[fd] : NULL;
}

void report_decision(int fd, unsigned rule_line, const struct sockaddr *local, const struct sockaddr *peer)
{
	struct xts_report_entry *e = entry_of(fd);

	if (!e)
		return;
	e->rule_line = rule_line;
	if (local)
		e->local = xts_endpoint_of(local);
	if (peer)
		e->peer = xts_endpoint_of(peer);
}

void report_where(int fd, char *out, size_t room)
{
	struct xts_report_entry *e = entry_of(fd);
	const struct xts_endpoint *shown = !e                  ? NULL :
					   e->peer.ip_version  ? &e->peer :
					   e->local.ip_version ? &e->local :
								 NULL;
	char text[INET6_ADDRSTRLEN];

	out[0] = 0;
	if (shown && inet_ntop(shown->ip_version == 4 ? AF_INET : AF_INET6, shown->address, text, sizeof text))
		snprintf(out, room, shown->ip_version == 4 ? " %s %s:%u" : " %s [%s]:%u",
			 shown == &e->peer ? "to" : "at", text, shown->port);
}

static void copy_decision(struct xts_report_entry *to, const struct xts_report_entry *from)
{
	to->rule_line = from->rule_line;
	to->local = from->local;
	to->peer = from->peer;
}

void report_duplicate(int fd, int copy)
{
	struct xts_report_entry *from = entry_of(fd), *to = entry_of(copy);

	if (from && to)
		copy_decision(to, from);
}

void report_accepted(int fd, int listener, const struct sockaddr *local, const struct sockaddr *peer)
{
	struct xts_report_entry *from = entry_of(listener), *to = entry_of(fd);

	if (!from || !to)
		return;
	copy_decision(to, from);
	if (local)
		to->local = xts_endpoint_of(local);
	to->peer = xts_endpoint_of(peer);
}

bool report_wants(int fd)
{
	return entry_of(fd);
}

void report_counters(void)
{
	struct xts_report_page *p = atomic_load_explicit(&page, memory_order_acquire);
	uint64_t sockets[XTS_REASON_COUNT] = { 0 };

	if (!p)
		return;
	p->offloaded = sockets[0] = atomic_load_explicit(&preload.offloaded, memory_order_relaxed);
	p->unseen = atomic_load_explicit(&preload.unseen, memory_order_relaxed);
	for (unsigned i = 1; i < XTS_REASON_COUNT; i++)
		p->stayed[i] = sockets[i] = atomic_load_explicit(&preload.stayed[i], memory_order_relaxed);
	xts_publish_counts(sockets, XTS_REASON_COUNT);
}

static void forget_counters(void)
{
	preload.offloaded = preload.failed_calls = preload.unseen = preload.not_streams = 0;
	for (unsigned i = 0; i < XTS_REASON_COUNT; i++)
		preload.stayed[i] = 0;
}

/* The page belongs to the parent. The child makes a new one, with counters at 0 and the entries of the sockets that
 * they share. */
static void in_child(void)
{
	struct xts_report_page *p = page;

	if (p) {
		atomic_store(&page, NULL);
		descriptor_disown(page_fd);
		real()->close(page_fd);
		forget_counters();
		make();
		for (int fd = 0; page && fd < (int)XTS_REPORT_ENTRIES; fd++) {
			if (page->entry[fd].kind && page->entry[fd].kind == p->entry[fd].kind)
				copy_decision(&page->entry[fd], &p->entry[fd]);
		}
		munmap(p, sizeof *p);
	}
	unlock_report();
}

/* Its descriptor stays open and ours. A page is made with the next socket. */
static void orphaned(void)
{
	pthread_mutex_init(&lock, NULL);
	atomic_store(&page, NULL);
	page_fd = -1;
	forget_counters();
}

__attribute__((constructor)) static void keep_over_fork(void)
{
	static const struct xts_fork_part at_fork = {
		.before = lock_report, .in_parent = unlock_report, .in_child = in_child, .orphaned = orphaned
	};

	xts_at_fork(&at_fork);
}
