/* Pushed protocols of a process that has died; see recover_pushed.h. */
#include "loop/recover_pushed.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "loop/recover_tls.h"
#include "pushed/pushed_kept.h"
#include "pushed/pushed_move.h"
#include "ulp/lasting.h"

static struct {
	struct pushed_kept *what; /* NULL: nothing that is whole */
} *found;                         /* by descriptor */
static uint32_t found_count;

/* A copy of what is at this place, if nothing has changed since it was written. */
static struct pushed_kept *copy_of(const struct ledger_line *line, uint64_t left)
{
	uint64_t at = (uint64_t)line->pushed * LASTING_UNIT;
	const uint8_t *from = lasting_at(at, sizeof(struct pushed_kept));
	struct pushed_kept head, *k;

	if (!from)
		return NULL;
	memcpy(&head, from, sizeof head);
	if (head.torn || head.cookie != line->cookie || head.record_bytes > PUSHED_KEPT_MAX ||
	    head.record_bytes > left || head.sum != memory_sum(&head, offsetof(struct pushed_kept, sum)) ||
	    !lasting_at(at, sizeof head + head.record_bytes))
		return NULL;
	k = malloc(sizeof head + head.record_bytes);
	if (!k)
		return NULL;
	*k = head;
	memcpy(k->record, from + offsetof(struct pushed_kept, record), head.record_bytes);
	if (k->record_sum == memory_sum(k->record, k->record_bytes))
		return k;
	free(k);
	return NULL;
}

void recover_pushed_begin(void)
{
	uint64_t left = LASTING_BYTES; /* of all connections: lines may name a block twice */
	uint32_t count = ledger_lines_used();

	found = calloc(count, sizeof *found);
	found_count = found ? count : 0;
	for (uint32_t fd = 0; fd < found_count; fd++) {
		struct ledger_line line = ledger->line[fd];

		if (!line.state || !line.pushed || line.tls || !ledger_is_whole(&line) ||
		    !recover_is_socket_of((int)fd, &line))
			continue;
		found[fd].what = copy_of(&line, left);
		left -= found[fd].what ? found[fd].what->record_bytes : 0;
	}
}

static struct pushed_kept *found_of(int fd)
{
	return (uint32_t)fd < found_count ? found[fd].what : NULL;
}

int recover_pushed_count(int fd, const struct ledger_line *line, const struct tcp_counts *now, struct tcp_side *said)
{
	const struct pushed_kept *k = found_of(fd);

	if (!k || k->cookie != line->cookie || k->read != now->read || k->written != now->written)
		return -EBADMSG;
	said->received_bytes = k->received;
	said->accepted_bytes = said->out.sent_bytes = k->accepted;
	return 0;
}

int recover_pushed_make(struct worker_state *w, struct xts_tenant *t, int fd, struct tcp_side *side, uint64_t *taken)
{
	struct pushed_kept *k = found_of(fd);
	uint32_t place = 0;
	int error;

	if (!k)
		return -EBADMSG;
	found[fd].what = NULL;
	error = pushed_arrive(&side->pushed, w, t, k->record, k->record_bytes);
	if (!error) {
		*taken = k->accepted << 32 | (*taken & LEDGER_TAKEN_FIN) | (k->number & LEDGER_NUMBER_MASK);
		/* For the next process, should this one die before the host has claimed the connection. */
		if (pushed_keep_found(side->pushed, k, k->record, &place))
			place = 0;
		ledger_keeps(fd, place);
	}
	free(k);
	return error;
}
