/*
 * The service's place in the order of this process, and the threads for which it is available. No file is changed:
 * __nss_configure_lookup() of the C library sets the order of one process. It cannot report the present order, so the
 * machine's is read again, from nsswitch.conf.
 */
#include <errno.h>
#include <fcntl.h>
#include <nss.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mode.h"

#define EXPORT __attribute__((visibility("default")))
#define CONF "/etc/nsswitch.conf"
#define CONF_BYTES 8192
#define LINE_BYTES 512

/* --- modes -------------------------------------------------------------------------------------------------------- */

static _Atomic int of_process;
static __thread enum xts_nss_mode of_thread;

enum xts_nss_mode nss_mode(void)
{
	return of_thread != XTS_NSS_OFF ? of_thread : (enum xts_nss_mode)atomic_load(&of_process);
}

EXPORT void xts_nss_of_process(enum xts_nss_mode mode)
{
	atomic_store(&of_process, (int)mode);
}

EXPORT enum xts_nss_mode xts_nss_of_thread(enum xts_nss_mode mode)
{
	enum xts_nss_mode before = of_thread;

	of_thread = mode;
	return before;
}

/* --- the order of services ---------------------------------------------------------------------------------------- */

static bool is_replaced(const char *word)
{
	return !strcmp(word, "dns") || !strcmp(word, "resolve") || !strcmp(word, "xts");
}

static void append(char *line, const char *text)
{
	size_t at = strlen(line);

	snprintf(line + at, LINE_BYTES - at, "%s%s", at ? " " : "", text);
}

/* The services of the line, with ours in the place of the DNS, and the DNS after it. */
static void order_of(const char *services, char out[LINE_BYTES])
{
	static const char ours[] = "xts [!UNAVAIL=return] dns";
	char words[LINE_BYTES], *word, *rest = words;
	bool placed = false, skips = false;

	out[0] = 0;
	snprintf(words, sizeof words, "%s", services);
	while ((word = strsep(&rest, " \t\n"))) {
		if (!*word)
			continue;
		if (*word == '[' && skips) { /* the action after a service that is replaced */
			skips = !strchr(word, ']');
			continue;
		}
		skips = is_replaced(word);
		if (!skips)
			append(out, word);
		else if (!placed)
			append(out, ours);
		placed |= skips;
	}
	if (!placed)
		append(out, ours);
}

static void read_order(char out[LINE_BYTES])
{
	char text[CONF_BYTES], *line, *rest = text;
	int fd = open(CONF, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);

	if (fd >= 0)
		close(fd);
	text[n > 0 ? n : 0] = 0;
	snprintf(out, LINE_BYTES, "files");
	while ((line = strsep(&rest, "\n"))) {
		line += strspn(line, " \t");
		if (strncmp(line, "hosts:", 6))
			continue;
		line[strcspn(line, "#")] = 0;
		snprintf(out, LINE_BYTES, "%s", line + 6);
		return;
	}
}

static int result;

static void configure(void)
{
	char services[LINE_BYTES], order[LINE_BYTES];

	read_order(services);
	order_of(services, order);
	if (__nss_configure_lookup("hosts", order))
		result = errno ? -errno : -EINVAL;
}

EXPORT int xts_nss_configure(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, configure);
	return result;
}
