/* The ledger is made, and channels are written down; ledger.h has the theory of operation. */
#include "channel/ledger.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "channel/channel.h"
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
	made.queue = memory((size_t)channels * LEDGER_QUEUE_BYTES);
	if (!made.head || !made.line || !made.page || !made.queue)
		return -ENOMEM;
	(void)lasting_make(); /* without it, TLS connections are reset */
	ledger = &made;
	return 0;
}

void ledger_channel(const struct channel *ch)
{
	struct ledger_page *page;

	if (!ledger || ch->queue_id >= ledger->pages || ch->relayed.number)
		return;
	page = &ledger->page[ch->queue_id];
	page->sequence |= 1;
	ledger_in_order();
	page->live = ch->epoch_live && ch->link.features & XTS_FEATURE_RESUME;
	page->epoch = ch->link.epoch;
	page->frames = (uint32_t)ch->link.stats.sent_frames;
	memcpy(page->tenant, ch->tenant->name, sizeof page->tenant);
	page->identity = ch->identity;
	page->owner = ch->owner;
	ledger_in_order();
	page->sequence++;
}

void ledger_write_frames(const struct channel *ch)
{
	if (ch->queue_id >= ledger->pages || ch->relayed.number)
		return;
	ledger_in_order();
	ledger->page[ch->queue_id].frames = (uint32_t)ch->link.stats.sent_frames;
}

void *ledger_queue(uint32_t queue_id, uint32_t bytes)
{
	if (!ledger || queue_id >= ledger->pages || !bytes || bytes > LEDGER_QUEUE_BYTES)
		return NULL;
	return ledger->queue + (size_t)queue_id * LEDGER_QUEUE_BYTES;
}
