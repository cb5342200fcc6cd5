/* Samples of CPU time, intervals and their percentiles, and the pattern of streams; see measure.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void read_cores(struct sample *out)
{
	FILE *f = fopen("/proc/stat", "re");
	char line[512];

	if (!f)
		die("open /proc/stat");
	while (fgets(line, sizeof(line), f)) {
		uint64_t idle_ticks, iowait_ticks, stolen_ticks;
		double tick_s = 1.0 / (double)sysconf(_SC_CLK_TCK);
		unsigned core;

		if (sscanf(line, "cpu%u %*u %*u %*u %" SCNu64 " %" SCNu64 " %*u %*u %" SCNu64, &core, &idle_ticks,
			   &iowait_ticks, &stolen_ticks) != 4 ||
		    core >= CORES)
			continue;
		out->idle_s[core] = (double)(idle_ticks + iowait_ticks) * tick_s;
		out->stolen_s[core] = (double)stolen_ticks * tick_s;
	}
	fclose(f);
}

static void read_net_rx(uint64_t net_rx[CORES])
{
	FILE *f = fopen("/proc/softirqs", "re");
	char line[4096];

	if (!f)
		die("open /proc/softirqs");
	while (fgets(line, sizeof(line), f))
		if (sscanf(line, " NET_RX: %" SCNu64 " %" SCNu64, &net_rx[0], &net_rx[1]) == 2)
			break;
	fclose(f);
}

static struct {
	const char *name;
	const char *pids; /* with commas between them */
	int name_bytes;
} watched[WATCHED_MAX];

void watch_program(const char *name_and_pids)
{
	const char *equals = strchr(name_and_pids, '=');

	for (unsigned i = 0; equals && i < WATCHED_MAX; i++)
		if (!watched[i].name) {
			watched[i].name = name_and_pids;
			watched[i].name_bytes = (int)(equals - name_and_pids);
			watched[i].pids = equals + 1;
			return;
		}
	errno = EINVAL;
	die(name_and_pids);
}

/* User and system time of all threads of a process. */
static double process_time_s(long pid)
{
	char path[64], line[1024], *after_name;
	uint64_t user_ticks, system_ticks;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	f = fopen(path, "re");
	if (!f || !fgets(line, sizeof(line), f))
		die(path);
	fclose(f);
	after_name = strrchr(line, ')');
	if (!after_name || sscanf(after_name, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
				  &user_ticks, &system_ticks) != 2)
		die(path);
	return (double)(user_ticks + system_ticks) / (double)sysconf(_SC_CLK_TCK);
}

static void read_watched(double watched_s[WATCHED_MAX])
{
	for (unsigned i = 0; i < WATCHED_MAX && watched[i].name; i++)
		for (const char *at = watched[i].pids; *at;) {
			char *end;

			watched_s[i] += process_time_s(strtol(at, &end, 10));
			at = *end == ',' ? end + 1 : "";
		}
}

void sample_take(struct sample *out)
{
	struct rusage usage;

	memset(out, 0, sizeof(*out));
	getrusage(RUSAGE_SELF, &usage);
	out->process_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	read_net_rx(out->net_rx);
	read_watched(out->watched_s);
	read_cores(out);
	out->ns = now_ns();
}

void sample_print(const struct sample *from, const struct sample *to)
{
	double seconds = (double)(to->ns - from->ns) / 1e9;
	double stolen_s[CORES], busy_s[CORES];

	for (unsigned i = 0; i < CORES; i++) {
		stolen_s[i] = to->stolen_s[i] - from->stolen_s[i];
		busy_s[i] = seconds - (to->idle_s[i] - from->idle_s[i]) - stolen_s[i];
	}

	printf("\"seconds\": %.6f, \"host_core_s\": %.6f, \"device_core_s\": %.6f, \"stolen_s\": %.6f, \"process_s\": %.6f, "
	       "\"host_net_rx\": %" PRIu64 ", \"device_net_rx\": %" PRIu64,
	       seconds, busy_s[0], busy_s[1], stolen_s[0] + stolen_s[1], to->process_s - from->process_s,
	       to->net_rx[0] - from->net_rx[0], to->net_rx[1] - from->net_rx[1]);
	for (unsigned i = 0; i < WATCHED_MAX && watched[i].name; i++)
		printf(", \"%.*s_s\": %.6f", watched[i].name_bytes, watched[i].name,
		       to->watched_s[i] - from->watched_s[i]);
}

void window_open(struct window *w, const struct options *o)
{
	w->measuring = false;
	w->begin_ns = now_ns() + (uint64_t)(o->warmup_s * 1e9);
	w->end_ns = w->begin_ns + (uint64_t)(o->seconds * 1e9);
}

int window_step(struct window *w, uint64_t now)
{
	if (!w->measuring && now >= w->begin_ns) {
		sample_take(&w->from);
		w->end_ns += w->from.ns - w->begin_ns;
		w->measuring = true;
		return 1;
	}
	if (w->measuring && now >= w->end_ns) {
		sample_take(&w->to);
		return 2;
	}
	return 0;
}

void intervals_add(struct intervals *v, uint64_t ns)
{
	if (v->count == v->room) {
		v->room = v->room ? 2 * v->room : 65536;
		v->ns = realloc(v->ns, v->room * sizeof(*v->ns));
		if (!v->ns)
			die("memory for intervals");
	}
	v->ns[v->count++] = ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns;
}

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

void intervals_print(struct intervals *v, const char *prefix)
{
	static const struct {
		const char *name;
		double share;
	} percentiles[] = {
		{ "p50_us", 0.5 }, { "p90_us", 0.9 }, { "p99_us", 0.99 }, { "p999_us", 0.999 }, { "max_us", 1.0 },
	};

	if (!v->count)
		return;
	qsort(v->ns, v->count, sizeof(*v->ns), compare);
	for (size_t i = 0; i < sizeof(percentiles) / sizeof(percentiles[0]); i++) {
		size_t at = (size_t)(percentiles[i].share * (double)(v->count - 1));

		printf(", \"%s%s\": %.3f", prefix, percentiles[i].name, (double)v->ns[at] / 1e3);
	}
}

/* Words that differ everywhere within the period, so that a shifted stream never fits. */
void pattern_fill(uint8_t pattern[PATTERN_BYTES])
{
	for (size_t i = 0; i < PATTERN_BYTES / 8; i++) {
		uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u;

		word ^= word >> 29;
		memcpy(pattern + 8 * i, &word, 8);
	}
}

bool pattern_spot_check(const uint8_t *pattern, uint64_t position, const uint8_t *data, size_t bytes)
{
	size_t check = bytes < 16 ? bytes : 16;
	uint64_t last = position + bytes - check;

	return pattern_check(pattern, last, data + bytes - check, check) == UINT64_MAX;
}

uint64_t pattern_check(const uint8_t *pattern, uint64_t position, const uint8_t *data, size_t bytes)
{
	while (bytes) {
		size_t at = position % PATTERN_BYTES, n = PATTERN_BYTES - at;

		if (n > bytes)
			n = bytes;
		if (memcmp(pattern + at, data, n)) {
			size_t i = 0;

			while (pattern[at + i] == data[i])
				i++;
			return position + i;
		}
		position += n;
		data += n;
		bytes -= n;
	}
	return UINT64_MAX;
}

void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

void die_wrong(const char *what, uint64_t position)
{
	fprintf(stderr, "%s: wrong data at stream position %" PRIu64 "\n", what, position);
	exit(1);
}
