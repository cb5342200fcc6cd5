/* Channels of the process that has died, and of which a line is (recover.c). Whatever is in the ledger, that process
 * may have written, and it may have been broken into. */
#include "loop/recover_channels.h"

#include <errno.h>
#include <string.h>

#include "channel/ledger.h"
#include "worker/worker.h"

/* --- of which a line is ------------------------------------------------------------------------------------------- */

bool recover_is_parked_by(const struct ledger_line *line, const char *tenant)
{
	return line->queue_id == LEDGER_NO_QUEUE && line->place == ledger_tenant(tenant);
}

/* Its host can go on, and nothing has written over what its frames are counted by. */
static bool can_go_on(const struct ledger_page *page)
{
	return page->sequence && !(page->sequence & 1) && page->live && page->epoch &&
	       ledger_is_count(page->frames, (uint32_t)page->frames) &&
	       ledger_is_count(page->came, (uint32_t)page->came);
}

static bool is_live(uint32_t queue_id)
{
	return queue_id < ledger->pages && can_go_on(&ledger->page[queue_id]);
}

static uint32_t relayed_used(void)
{
	uint32_t used = *(volatile uint32_t *)&ledger->head->relayed;

	return used < LEDGER_RELAYED ? used : LEDGER_RELAYED;
}

/* A channel that its relay can go on with. */
static bool is_relayed_live(const struct ledger_relayed *r)
{
	return r->taken && can_go_on(&r->page) && is_live(r->queue_id);
}

static bool is_of_tenant(const struct ledger_line *line, const struct ledger_page *page)
{
	char tenant[XTS_TENANT_NAME_BYTES];

	memcpy(tenant, page->tenant, sizeof tenant);
	return strnlen(tenant, sizeof tenant) < sizeof tenant && recover_is_parked_by(line, tenant);
}

bool recover_has_channel(const struct ledger_line *line)
{
	bool parked = line->queue_id == LEDGER_NO_QUEUE;

	if (!parked && !line->number)
		return is_live(line->queue_id);
	for (uint32_t i = 0; parked && i < ledger->pages; i++)
		if (is_live(i) && is_of_tenant(line, &ledger->page[i]))
			return true;
	for (uint32_t i = 0; i < relayed_used(); i++) {
		const struct ledger_relayed *r = &ledger->relayed[i];

		if (is_relayed_live(r) &&
		    (parked ? is_of_tenant(line, &r->page) : r->queue_id == line->queue_id && r->number == line->number))
			return true;
	}
	return false;
}

void recover_sweep_relayed(void)
{
	for (uint32_t i = 0; i < relayed_used(); i++)
		if (!is_relayed_live(&ledger->relayed[i]))
			ledger->relayed[i].taken = ledger->relayed[i].page.live = 0;
}

/* --- for the supervisor ------------------------------------------------------------------------------------------- */

static int read_page(const struct ledger_page *from, struct xts_dead_channel *out)
{
	struct ledger_page page = *from;

	_Static_assert(sizeof page.identity <= sizeof out->known, "what is known of a host");
	if (!can_go_on(&page) || !xts_headed_state_ok(page.heads))
		return -ENOENT;
	out->epoch = page.epoch;
	out->owner = page.owner;
	memcpy(out->tenant, page.tenant, sizeof out->tenant - 1);
	memcpy(out->known, &page.identity, sizeof page.identity);
	_Static_assert(sizeof page.heads == sizeof out->heads, "XTS_HEADED_STATE_BYTES");
	memcpy(out->heads, page.heads, sizeof page.heads);
	return 0;
}

static void say_nothing(struct xts_dead_channel *out)
{
	*out = (struct xts_dead_channel){ .known_bytes = sizeof(struct identity),
					  .owner = { XTS_UID_UNKNOWN, XTS_FIRST_PORT_UNKNOWN } };
}

int xts_ledger_channel(uint32_t queue_id, struct xts_dead_channel *out)
{
	say_nothing(out);
	return ledger && queue_id < ledger->pages ? read_page(&ledger->page[queue_id], out) : -ENOENT;
}

uint32_t xts_ledger_relayed(uint32_t queue_id, uint32_t from, struct xts_dead_channel *out)
{
	for (uint32_t i = from; ledger && i < relayed_used(); i++) {
		struct ledger_relayed *r = &ledger->relayed[i];
		uint32_t number = *(volatile uint32_t *)&r->number;

		say_nothing(out);
		if (!r->taken || r->queue_id != queue_id || !number || number >= XTS_RELAY_SELF ||
		    read_page(&r->page, out))
			continue;
		out->number = number;
		return i + 1;
	}
	return 0;
}

void *xts_ledger_line(uint32_t fd)
{
	return ledger && fd < ledger->lines ? &ledger->line[fd] : NULL;
}

void *xts_ledger_place_of_relayed(uint32_t index)
{
	return ledger && index < LEDGER_RELAYED ? &ledger->relayed[index] : NULL;
}

const void *xts_ledger_queue(uint32_t queue_id)
{
	return ledger_queue(queue_id, LEDGER_QUEUE_BYTES);
}

void *xts_ledger_session(uint32_t queue_id)
{
	return ledger_session(queue_id, LEDGER_SESSION_BYTES);
}

uint32_t xts_ledger_session_bytes(void)
{
	return LEDGER_SESSION_BYTES;
}

uint32_t xts_ledger_queue_bytes(void)
{
	return LEDGER_QUEUE_BYTES;
}
