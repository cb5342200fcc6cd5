/* The ledger is made, and channels are written down; ledger.h has the theory of operation. */
#include "channel/ledger.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "channel/channel.h"
#include "decorators/parts.h"
#include "ulp/lasting.h"

struct ledger *ledger;

static void *memory(size_t bytes)
{
	void *made = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return made == MAP_FAILED ? NULL : made;
}

int xts_ledger_make(uint32_t descriptors, uint32_t channels)
{
	static struct ledger made;

	made.lines = descriptors;
	made.pages = channels;
	made.head = memory(sizeof *made.head);
	made.line = memory(descriptors * sizeof *made.line);
	made.page = memory(channels * sizeof *made.page);
	made.relayed = memory(LEDGER_RELAYED * sizeof *made.relayed);
	made.queue = memory((size_t)channels * LEDGER_QUEUE_BYTES);
	made.ended = memory((size_t)channels * LEDGER_ENDED * sizeof *made.ended);
	made.session = memory((size_t)channels * LEDGER_SESSION_BYTES);
	if (!made.head || !made.line || !made.page || !made.relayed || !made.queue || !made.ended || !made.session)
		return -ENOMEM;
	(void)lasting_make(); /* without it, TLS connections are reset */
	ledger = &made;
	return 0;
}

/* --- channels behind relays --------------------------------------------------------------------------------------- */

static struct ledger_relayed *find_relayed(uint32_t queue_id, uint32_t number)
{
	for (uint32_t i = 0; i < ledger->head->relayed && i < LEDGER_RELAYED; i++) {
		struct ledger_relayed *r = &ledger->relayed[i];

		if (r->taken && r->queue_id == queue_id && r->number == number)
			return r;
	}
	return NULL;
}

/* Of two workers one may be late to count: it counts as soon as it has taken it. */
static void count_relayed(uint32_t used)
{
	uint32_t before = __atomic_load_n(&ledger->head->relayed, __ATOMIC_RELAXED);

	while (before < used && !__atomic_compare_exchange_n(&ledger->head->relayed, &before, used, false,
							     __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

struct ledger_page *ledger_take_relayed(uint32_t queue_id, uint32_t number)
{
	struct ledger_relayed *r = ledger ? find_relayed(queue_id, number) : NULL;

	if (r)
		return &r->page;
	for (uint32_t i = 0; ledger && i < LEDGER_RELAYED; i++) {
		r = &ledger->relayed[i];
		if (__atomic_exchange_n(&r->taken, 1, __ATOMIC_ACQ_REL))
			continue;
		count_relayed(i + 1);
		r->page.live = false;
		r->queue_id = queue_id;
		r->number = number;
		return &r->page;
	}
	return NULL;
}

void ledger_leave_relayed(uint32_t queue_id, uint32_t number)
{
	struct ledger_relayed *r = ledger ? find_relayed(queue_id, number) : NULL;

	if (!r)
		return;
	r->page.live = false;
	r->queue_id = LEDGER_NO_QUEUE; /* the next trunk on this queue counts from the beginning again */
	__atomic_store_n(&r->taken, 0, __ATOMIC_RELEASE);
}

/* --- channels ----------------------------------------------------------------------------------------------------- */

static struct ledger_page *page_of_queue(uint32_t queue_id)
{
	return queue_id < ledger->pages ? &ledger->page[queue_id] : NULL;
}

/* NULL: it has none. */
static struct ledger_page *page_of(const struct channel *ch)
{
	return ch->relayed.number ? ch->relayed.page : page_of_queue(ch->queue_id);
}

void ledger_channel(const struct channel *ch)
{
	struct ledger_page *page = ledger ? page_of(ch) : NULL;

	if (!page)
		return;
	page->sequence |= 1;
	ledger_in_order();
	page->live = ch->epoch_live && ch->link.features & (XTS_FEATURE_RESUME | XTS_FEATURE_RESUME_RELAYED);
	page->epoch = ch->link.epoch;
	page->frames = memory_summed((uint32_t)ch->link.stats.sent_frames);
	page->came = memory_summed(ledger_number(ch));
	memcpy(page->tenant, ch->tenant->name, sizeof page->tenant);
	page->identity = ch->identity;
	page->owner = ch->owner;
	xts_headed_state(ch->queue, page->heads);
	page->packet_bytes = xts_packets_in_parts(&ch->link);
	ledger_in_order();
	page->sequence++;
}

void ledger_write_frames(const struct channel *ch)
{
	struct ledger_page *page = page_of(ch);

	if (!page)
		return;
	ledger_in_order();
	page->frames = memory_summed((uint32_t)ch->link.stats.sent_frames);
}

uint32_t ledger_number(const struct channel *ch)
{
	uint32_t count = (uint32_t)ch->link.stats.received_frames;

	return count + (uint8_t)(ch->link.received - count);
}

void ledger_write_came(const struct channel *ch)
{
	struct ledger_page *page = page_of(ch);

	if (page)
		*(volatile uint64_t *)&page->came = memory_summed(ledger_number(ch));
	ledger_in_order();
}

static const struct ledger_page *page_of_relayed(uint32_t queue_id, uint32_t number)
{
	const struct ledger_relayed *r = find_relayed(queue_id, number);

	return r ? &r->page : NULL;
}

uint32_t ledger_came(uint32_t queue_id, uint32_t number)
{
	const struct ledger_page *page;

	if (!ledger)
		return 0;
	page = number ? page_of_relayed(queue_id, number) : page_of_queue(queue_id);
	return page ? (uint32_t)*(const volatile uint64_t *)&page->came : 0;
}

uint32_t ledger_packet_bytes(uint32_t queue_id)
{
	const struct ledger_page *page = ledger ? page_of_queue(queue_id) : NULL;
	uint32_t bytes;

	if (!page)
		return 0;
	bytes = *(const volatile uint32_t *)&page->packet_bytes;
	return bytes >= XTS_PARTS_PACKET_MIN && xts_parts_needed(bytes) ? bytes : 0;
}

/* --- epochs that have ended --------------------------------------------------------------------------------------- */

static uint64_t sum_of(const struct ledger_ended *e)
{
	return memory_long_sum(e, offsetof(struct ledger_ended, sum));
}

void ledger_write_ended(uint32_t queue_id, uint64_t epoch, uint64_t now_ns, const char *tenant)
{
	struct ledger_ended *e, said = { .epoch = epoch, .ended_ns = now_ns };

	if (!ledger || queue_id >= ledger->pages)
		return;
	e = &ledger->ended[(size_t)queue_id * LEDGER_ENDED];
	for (uint32_t i = 1; i < LEDGER_ENDED; i++)
		if (ledger->ended[(size_t)queue_id * LEDGER_ENDED + i].ended_ns < e->ended_ns)
			e = &ledger->ended[(size_t)queue_id * LEDGER_ENDED + i];
	(void)snprintf(said.tenant, sizeof said.tenant, "%s", tenant);
	said.sum = sum_of(&said);
	*e = said;
}

bool ledger_has_ended(uint32_t queue_id, uint64_t epoch, uint64_t *ended_ns, char tenant[XTS_TENANT_NAME_BYTES])
{
	for (uint32_t i = 0; ledger && queue_id < ledger->pages && i < LEDGER_ENDED; i++) {
		struct ledger_ended e = ledger->ended[(size_t)queue_id * LEDGER_ENDED + i];

		if (e.epoch != epoch || e.sum != sum_of(&e) || !memchr(e.tenant, 0, sizeof e.tenant))
			continue;
		*ended_ns = e.ended_ns;
		memcpy(tenant, e.tenant, sizeof e.tenant);
		return true;
	}
	return false;
}

void *ledger_queue(uint32_t queue_id, uint32_t bytes)
{
	if (!ledger || queue_id >= ledger->pages || !bytes || bytes > LEDGER_QUEUE_BYTES)
		return NULL;
	return ledger->queue + (size_t)queue_id * LEDGER_QUEUE_BYTES;
}

void *ledger_session(uint32_t queue_id, uint32_t bytes)
{
	if (!ledger || queue_id >= ledger->pages || !bytes || bytes > LEDGER_SESSION_BYTES)
		return NULL;
	return ledger->session + (size_t)queue_id * LEDGER_SESSION_BYTES;
}
