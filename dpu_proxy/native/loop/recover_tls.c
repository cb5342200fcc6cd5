/* TLS connections of a process that has died; see recover_tls.h. */
#include "loop/recover_spilled.h"
#include "loop/recover_tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pushed/pushed.h"
#include "pushed/pushed_move.h"
#include "ulp/lasting.h"
#include "ulp/tls/tls_kept.h"
#include "ulp/tls_keys/key_memory.h"

#define WINDOW_BYTES (128u << 10)
#define WINDOW_STEP (64u << 10) /* the largest page of any kernel */

static int old_fd = -1; /* of the memory for keys that the dead process had */
static struct {
	struct tls_came *what;
} *came; /* by descriptor */
static uint32_t came_count;

void recover_tls_begin(void)
{
	old_fd = *(volatile int32_t *)&ledger->head->keys_fd - 1;
}

bool recover_tls_needs(int fd)
{
	return fd == old_fd;
}

/* --- before there are workers ------------------------------------------------------------------------------------- */

/* A part of that memory. Not all of it is mapped at once: what is mapped counts as locked, and there may be no more
 * that may be locked than the new memory for keys. */
struct window {
	uint64_t bytes; /* of all of it */
	uint8_t *map;   /* NULL: none */
	uint64_t first, length;
};

static void window_close(struct window *w)
{
	if (w->map)
		(void)munmap(w->map, w->length);
	w->map = NULL;
}

/* What is at this offset; NULL: it is outside, or cannot be mapped. */
static uint8_t *window_at(struct window *w, uint64_t offset, size_t bytes)
{
	void *map;

	if (offset > w->bytes || bytes > w->bytes - offset)
		return NULL;
	if (w->map && offset >= w->first && offset + bytes <= w->first + w->length)
		return w->map + (offset - w->first);
	window_close(w);
	w->first = offset / WINDOW_STEP * WINDOW_STEP;
	w->length = w->bytes - w->first < WINDOW_BYTES ? w->bytes - w->first : WINDOW_BYTES;
	map = mmap(NULL, w->length, PROT_READ | PROT_WRITE, MAP_SHARED, old_fd, (off_t)w->first);
	w->map = map == MAP_FAILED ? NULL : map;
	return w->map ? w->map + (offset - w->first) : NULL;
}

/* In place of a line's `tls`: it is in no memory for keys. Numbers of the one before mean nothing in the next. */
#define NOWHERE UINT32_MAX

static void say_nowhere(int fd)
{
	struct ledger_line *line = &ledger->line[fd];

	ledger_change_begins(line);
	line->tls = NOWHERE;
	ledger_change_ends(line);
}

static void take_one(int fd, struct window *w)
{
	struct ledger_line line = ledger->line[fd];
	struct tcp_counts now;
	uint8_t *at;

	if (!line.state || !line.tls || !ledger_is_whole(&line))
		return;
	say_nowhere(fd);
	/* of a socket before: the place may be another connection's by now */
	if (!recover_is_socket_of(fd, &line) || tcp_counts(fd, &now) || (now.ended && !tcp_closed_by_both(fd)))
		return;
	at = window_at(w, key_memory_offset(line.tls), tls_came_bytes());
	if (at)
		came[fd].what = tls_came_take(at, now.read, now.written);
}

/* What key_memory_show() has shown. */
static void take_ticket_keys(struct window *w)
{
	uint32_t place = 0;
	uint8_t *at = window_at(w, 0, sizeof place);

	if (at)
		memcpy(&place, at, sizeof place);
	at = place ? window_at(w, key_memory_offset(place), tls_ticket_keys_bytes()) : NULL;
	if (at)
		tls_ticket_keys_came(at);
}

static void take_all(uint64_t bytes)
{
	struct window w = { .bytes = bytes };
	uint32_t count = ledger_lines_used();

	take_ticket_keys(&w);
	came = calloc(count, sizeof *came);
	came_count = came ? count : 0;
	for (uint32_t fd = 0; fd < came_count; fd++)
		take_one((int)fd, &w);
	window_close(&w);
}

void xts_ledger_keys(void)
{
	struct stat s;

	if (!ledger) {
		key_memory_close();
		return;
	}
	if (old_fd >= 0 && !syscall(SYS_fstat, old_fd, &s) && s.st_size > 0)
		take_all((uint64_t)s.st_size);
	if (old_fd >= 0)
		close(old_fd);
	old_fd = -1;
	recover_spilled_begin();
	lasting_empty();
	ledger->head->keys_fd = key_memory_descriptor() + 1;
}

/* --- then --------------------------------------------------------------------------------------------------------- */

static struct tls_came *came_of(int fd)
{
	return (uint32_t)fd < came_count ? came[fd].what : NULL;
}

int recover_tls_count(int fd, const struct ledger_line *line, struct tcp_counts *counts)
{
	struct tls_came *c = came_of(fd);
	struct ulp_kept k = { .read = line->read_from, .written = line->written_from };

	if (!c && old_fd < 0)
		return -EBADMSG;
	if (c)
		tls_came_counts(c, &k);
	counts->read = k.read;
	counts->written = k.written;
	return 0;
}

/* Writes a record, first its length. The caller wipes it. */
static int write_state(const struct tls_came *c, uint8_t **out, ssize_t *bytes)
{
	*bytes = tls_came_save(c, NULL, 0);
	*out = *bytes < 0 ? NULL : malloc((size_t)*bytes);
	if (!*out)
		return *bytes < 0 ? (int)*bytes : -ENOMEM;
	return tls_came_save(c, *out, (size_t)*bytes) == *bytes ? 0 : -EIO;
}

static int write_pushed(const struct pushed_state *s, uint8_t **out, ssize_t *bytes)
{
	struct xts_record_attached attached;

	*bytes = xts_record_encode(&pushed_state_record, pushed_state_record.version, s, NULL, 0, &attached);
	*out = *bytes < 0 ? NULL : malloc((size_t)*bytes);
	if (!*out)
		return *bytes < 0 ? (int)*bytes : -ENOMEM;
	(void)xts_record_encode(&pushed_state_record, pushed_state_record.version, s, *out, (size_t)*bytes, &attached);
	return 0;
}

static void wipe_and_free(uint8_t *data, ssize_t bytes)
{
	if (data)
		explicit_bzero(data, (size_t)bytes);
	free(data);
}

/* The host may know of both events, or not: it does no harm to tell it again. */
static struct pushed_state about(const struct ledger_line *line, const struct tcp_side *side)
{
	return (struct pushed_state){
		.protocol = XTS_ULP_TLS,
		.client = !line->accepted,
		.typed = true,
		.event_wanted = true,
		.tls_wanted = true,
		.since_pdu = side->received_bytes,
	};
}

/* For the next process, should this one die before the host has claimed the connection. */
static void write_down(int fd, const struct tcp_side *side)
{
	struct ledger_line *line = &ledger->line[fd];
	struct tcp_counts now;
	struct ulp_kept k;

	if (tcp_counts(fd, &now))
		return;
	k = (struct ulp_kept){ .read = now.read, .written = now.written };
	if (ulp_stack_keep(side->pushed->stack, &k))
		return;
	ledger_change_begins(line);
	line->read_from = k.read - side->received_bytes;
	line->written_from = k.written - side->accepted_bytes;
	line->tls = k.place;
	ledger_change_ends(line);
}

int recover_tls_make(struct worker_state *w, struct xts_tenant *t, int fd, const struct ledger_line *line,
		     struct tcp_side *side)
{
	struct tls_came *c = came_of(fd);
	struct pushed_state s = about(line, side);
	uint8_t *state = NULL, *record = NULL;
	ssize_t state_bytes = 0, record_bytes = 0;
	int error = c ? write_state(c, &state, &state_bytes) : -EBADMSG;

	if (!error) {
		s.state = (struct xts_record_bytes){ state, (uint32_t)state_bytes };
		error = write_pushed(&s, &record, &record_bytes);
	}
	if (c)
		came[fd].what = NULL;
	tls_came_free(c); /* before there is another one with these keys */
	if (!error)
		error = pushed_arrive(&side->pushed, w, t, record, (uint32_t)record_bytes);
	if (!error)
		write_down(fd, side);
	wipe_and_free(state, state_bytes);
	wipe_and_free(record, record_bytes);
	return error;
}
