/*
 * What a host had sent, and TCP had not taken, when the process that had it died.
 *
 * Theory of operation. Two places have such bytes. The spill buffer has those whose frames were given back; its first
 * byte is the one behind what TCP has. The queue has frames that were not given back, which are received again
 * (turns/replay.h); their last byte is the last one that the host has sent. How many bytes are between, the host says
 * when it claims the connection. The frame that was being taken may be in both, so they may have bytes in common; if
 * they have none and do not meet either, bytes are missing.
 */
#include <stdlib.h>

#include "channel/ledger.h"
#include "processes/parked.h"

/* With the lock held. */
static bool keep(struct parked *p, const uint8_t *data, uint32_t bytes)
{
	const struct iovec all = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };

	p->spilled = calloc(1, sizeof *p->spilled);
	if (!p->spilled || spill_append(p->spilled, &all, 1, (uint32_t)p->tcp.out.sent_bytes))
		return false;
	ledger_spills(p->tcp.fd, spill_first(p->spilled, 0));
	return true;
}

void parked_spilled(struct xts_tenant *t, uint64_t key, const uint8_t *data, uint32_t bytes)
{
	struct parked *p;

	registry_lock();
	p = parked_of(registry_find(t, key, KEYED_PARKED));
	if (p && !p->spilled && tenant_take(t, XTS_USE_KEPT_BYTES, bytes) && !keep(p, data, bytes)) {
		tenant_give(t, XTS_USE_KEPT_BYTES, bytes);
		parked_drop_spilled(p);
	}
	registry_unlock();
}

void parked_drop_spilled(struct parked *p)
{
	if (p->spilled)
		spill_free(p->spilled);
	free(p->spilled);
	p->spilled = NULL;
}

bool parked_join_spilled(struct parked *p, uint64_t bytes)
{
	struct spill none = { 0 }, *spilled = p->spilled ? p->spilled : &none, *received = &p->tcp.out.spill;
	uint64_t there = (uint64_t)spilled->bytes + received->bytes;

	if (bytes > there || (bytes > received->bytes && spilled->bytes > bytes))
		return false;
	if (bytes <= received->bytes)
		spill_free(spilled);
	spill_drop(received, (uint32_t)(spilled->bytes + received->bytes - bytes));
	tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, there - bytes);
	if (spill_append_all(spilled, received, (uint32_t)p->tcp.out.sent_bytes + spilled->bytes)) {
		tenant_give(p->keyed.tenant, XTS_USE_KEPT_BYTES, none.bytes);
		spill_free(&none);
		return false;
	}
	*received = *spilled;
	*spilled = (struct spill){ 0 };
	parked_drop_spilled(p);
	return true;
}
