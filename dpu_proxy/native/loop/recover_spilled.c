/* Spill buffers of a process that has died; see recover_spilled.h. */
#include "loop/recover_spilled.h"

#include <stdlib.h>

#include "connection/spill.h"
#include "loop/recover_tls.h"
#include "processes/parked.h"
#include "ulp/lasting.h"

static struct found {
	uint8_t *data; /* NULL: nothing */
	uint32_t number, bytes;
} *found; /* by descriptor */
static uint32_t found_count;

void recover_spilled_begin(void)
{
	uint64_t left = LASTING_BYTES; /* of all connections: lines may name a block twice */
	uint32_t count = ledger_lines_used();

	found = calloc(count, sizeof *found);
	found_count = found ? count : 0;
	for (uint32_t fd = 0; fd < count; fd++) {
		struct ledger_line line = ledger->line[fd];

		if (!line.state || !line.spilled || !ledger_is_whole(&line))
			continue;
		ledger_spills((int)fd, NULL); /* the memory is another one from now on */
		if (fd >= found_count || !recover_is_socket_of((int)fd, &line))
			continue;
		found[fd].data = spill_found((uint64_t)line.spilled * LASTING_UNIT, left, &found[fd].number,
					     &found[fd].bytes);
		left -= found[fd].bytes;
	}
}

void recover_spilled_of(int fd, const struct ledger_line *line, uint64_t written, struct xts_tenant *t, uint64_t key)
{
	struct found *f = (uint32_t)fd < found_count ? &found[fd] : NULL;
	uint32_t taken;

	if (!f || !f->data)
		return;
	taken = (uint32_t)written - line->spilled_from - f->number;
	if (taken < f->bytes) {
		/* they get numbers of this process, which begin where the host's do; TLS may have others now */
		ledger_change_begins(&ledger->line[fd]);
		ledger->line[fd].spilled_from = (uint32_t)ledger->line[fd].written_from;
		ledger_change_ends(&ledger->line[fd]);
		parked_spilled(t, key, f->data + taken, f->bytes - taken);
	}
	free(f->data);
	f->data = NULL;
}
