/* The page through which `xts` reads this process's settings and sends it a few requests: see control_page.h. */
#include "core/caller.h"
#include "core/control_page.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/process.h"
#include "core/settings.h"
#include "settings/environment.h"
#include "common/file_limit.h"
#include "common/notice.h"
#include "common/own_descriptors.h"
#include "core/signals.h"

_Static_assert(sizeof(struct xts_control_page) <= 4 * 4096, "four pages of memory");

static struct xts_control_page *_Atomic page;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int page_fd = -1;
static uint32_t inherited_log;  /* the log level that the parent was asked for */
static bool inherited_question; /* the parent was asked to read its rules again, and has not done so */

/* The value that xts_configure() gave to a variable; NULL: none. */
static const char *value_of_call(enum xts_variable variable, const struct settings *s, char out[24])
{
	uint32_t number = 0;

	switch (variable) {
	case XTS_ENV_ENDPOINT:
		return s->endpoint[0] ? s->endpoint : NULL;
	case XTS_ENV_PCAP:
		return s->pcap[0] ? s->pcap : NULL;
	case XTS_ENV_STACKS:
		if (s->stacks == STACKS_THREAD)
			return "thread";
		number = s->stacks;
		break;
	case XTS_ENV_SPIN_US:
		if (s->spin_us == SPIN_NEVER)
			return "0";
		number = s->spin_us;
		break;
	case XTS_ENV_WINDOW_BYTES:
		number = s->window_bytes;
		break;
	case XTS_ENV_WINDOW_BYTES_MAX:
		number = s->window_bytes_max;
		break;
	case XTS_ENV_FRAME_WINDOW:
		number = s->frame_window;
		break;
	case XTS_ENV_DEAD_MS:
		number = s->dead_ms;
		break;
	default:
		break;
	}
	snprintf(out, 24, "%u", number);
	return number ? out : NULL;
}

/* Values are shown one per line: removes characters that would end a line. */
static void make_plain(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text < ' ')
			*text = '?';
}

static void write_settings(struct xts_control_page *p)
{
	struct settings configured;
	char number[24], from[4200], value[512];
	size_t used = 0;

	process_settings(&configured);
	__atomic_fetch_add(&p->settings_writes, 1, __ATOMIC_SEQ_CST);
	for (unsigned i = 0; i < XTS_ENV_COUNT && used < sizeof p->settings; i++) {
		enum xts_origin origin = xts_environment_origin(i, from, sizeof from);
		const char *called = value_of_call(i, &configured, number);

		snprintf(value, sizeof value, "%s", called ? called : xts_environment_value(i));
		make_plain(value);
		make_plain(from);
		used += (size_t)snprintf(p->settings + used, sizeof p->settings - used, "%s\t%s\t%u\t%s\n",
					 xts_variables[i].name, value, called ? XTS_ORIGIN_CALL : origin,
					 called ? "xts_configure()" : from);
	}
	__atomic_fetch_add(&p->settings_writes, 1, __ATOMIC_SEQ_CST);
}

static void make(void)
{
	int fd = xts_own(memfd_create(XTS_CONTROL_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING));
	struct xts_control_page *p = MAP_FAILED;

	if (fd < 0)
		return; /* no descriptor is left, and the program needs them more */
	if (xts_limited_truncate(fd, sizeof *p) == 0)
		p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		xts_own_close(fd);
		return;
	}
	fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	page_fd = fd;
	p->version = XTS_CONTROL_VERSION;
	p->pid = (uint32_t)getpid();
	xts_log_follow(NULL);
	p->log_level = xts_log_level_now();
	p->log_asked = inherited_log;
	p->rules_asked = inherited_question;
	snprintf(p->program, sizeof p->program, "%s", program_invocation_short_name);
	write_settings(p);
	p->magic = XTS_CONTROL_MAGIC;
	atomic_store_explicit(&page, p, memory_order_release);
	xts_log_follow(&p->log_asked);
}

void xts_control_start(void)
{
	int before = errno;

	xts_look_who_calls();
	if (atomic_load_explicit(&page, memory_order_acquire))
		return;
	xts_go_in();
	pthread_mutex_lock(&lock);
	if (!page)
		make();
	pthread_mutex_unlock(&lock);
	xts_come_out();
	errno = before;
}

void control_settings_changed(void)
{
	struct xts_control_page *p = atomic_load_explicit(&page, memory_order_acquire);

	if (!p)
		return;
	xts_go_in();
	pthread_mutex_lock(&lock);
	write_settings(p);
	pthread_mutex_unlock(&lock);
	xts_come_out();
}

uint32_t xts_control_rules_asked(void)
{
	struct xts_control_page *p;
	uint32_t asked;

	xts_look_who_calls();
	p = atomic_load_explicit(&page, memory_order_acquire);
	asked = p ? __atomic_load_n(&p->rules_asked, __ATOMIC_RELAXED) : 0;
	return p && asked != __atomic_load_n(&p->rules_done, __ATOMIC_RELAXED) ? asked : 0;
}

void xts_control_rules_done(uint32_t number, int error, const char *text)
{
	struct xts_control_page *p;

	xts_look_who_calls();
	p = atomic_load_explicit(&page, memory_order_acquire);
	if (!p)
		return;
	p->rules_error = error;
	snprintf(p->rules_text, sizeof p->rules_text, "%s", text);
	__atomic_store_n(&p->rules_done, number, __ATOMIC_RELEASE);
}

void control_after_fork(void)
{
	struct xts_control_page *p = atomic_load(&page);

	pthread_mutex_init(&lock, NULL);
	if (!p)
		return;
	inherited_log = __atomic_load_n(&p->log_asked, __ATOMIC_RELAXED);
	inherited_question = xts_control_rules_asked();
	xts_log_follow(&inherited_log);
	atomic_store(&page, NULL);
	xts_own_close(page_fd);
	page_fd = -1;
	munmap(p, sizeof *p);
}

/* Its descriptor and its memory stay: nothing refers to them. */
void control_orphaned(void)
{
	pthread_mutex_init(&lock, NULL);
	xts_log_follow(&inherited_log);
	atomic_store(&page, NULL);
	page_fd = -1;
}
