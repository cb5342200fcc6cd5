/* Epochs of which an agent may speak, and what it says (OVER). ended_epochs.h has the theory of operation. */
#include "processes/ended_epochs.h"

#include <stdlib.h>
#include <string.h>

#include "channel/ledger.h"
#include "processes/move.h"
#include "processes/share.h"

/* So many processes of one queue, or behind one relay, may end within a minute, and more take the places of these. */
#define EPOCHS 64u
/* For so long an agent looks which connections nobody has (relatives_files.py), and some more. */
#define TENANTS 256u /* so many a process that goes on may have to know */
#define SPOKEN_OF_NS UINT64_C(70000000000)

struct ended_epochs {
	struct {
		uint64_t epoch; /* 0: none */
		uint64_t ended_ns;
		struct xts_tenant *tenant; /* a reference */
	} last[EPOCHS];
	uint32_t next;
};

/* --- of a process that has died ----------------------------------------------------------------------------------- */

/* Under the registry's lock: tenants whose connections go on here, each with a reference. Nobody else's are left. */
static struct xts_tenant *recovered[TENANTS];
static uint32_t recovered_count;
static uint64_t recovered_ns;

static struct xts_tenant *recovered_find(const char *name)
{
	for (uint32_t i = 0; i < recovered_count; i++)
		if (!strcmp(recovered[i]->name, name))
			return recovered[i];
	return NULL;
}

void epochs_recovered(struct xts_tenant *t, uint64_t now_ns)
{
	registry_lock();
	if (!recovered_find(t->name) && recovered_count < TENANTS)
		recovered[recovered_count++] = tenant_hold(t);
	recovered_ns = now_ns;
	registry_unlock();
}

/* When their epochs are no more spoken of. */
static void recovered_forget(uint64_t now_ns)
{
	registry_lock();
	while (recovered_count && now_ns - recovered_ns >= 2 * SPOKEN_OF_NS) /* nobody has one in hand then */
		xts_tenant_release(recovered[--recovered_count]);
	registry_unlock();
}

/* --- here --------------------------------------------------------------------------------------------------------- */

void epochs_begins(struct channel *ch)
{
	ch->spoken_of = ch->link.features & XTS_FEATURE_OVER ? ch->link.epoch : 0;
}

static bool is_remembered(const struct ended_epochs *e, uint64_t epoch)
{
	for (uint32_t i = 0; i < EPOCHS; i++)
		if (e->last[i].epoch == epoch)
			return true;
	return false;
}

void epochs_ends(struct channel *ch)
{
	struct channel *of = ch->relayed.trunk ? ch->relayed.trunk : ch;
	uint64_t epoch = ch->spoken_of;
	uint32_t i;

	ch->spoken_of = 0;
	recovered_forget(ch->worker->now_ns);
	if (epoch && !of->ended_epochs)
		of->ended_epochs = calloc(1, sizeof *of->ended_epochs);
	if (!epoch || !of->ended_epochs || is_remembered(of->ended_epochs, epoch))
		return;
	i = of->ended_epochs->next++ % EPOCHS;
	if (of->ended_epochs->last[i].tenant)
		xts_tenant_release(of->ended_epochs->last[i].tenant);
	of->ended_epochs->last[i].epoch = epoch;
	of->ended_epochs->last[i].ended_ns = ch->worker->now_ns;
	of->ended_epochs->last[i].tenant = tenant_hold(ch->tenant);
	ledger_write_ended(of->queue_id, epoch, ch->worker->now_ns, ch->tenant->name);
}

void epochs_moved_ends(struct channel *ch)
{
	if (ch->moved_epoch)
		ch->spoken_of = ch->moved_epoch;
	epochs_ends(ch);
}

void epochs_free(struct channel *ch)
{
	for (uint32_t i = 0; ch->ended_epochs && i < EPOCHS; i++)
		if (ch->ended_epochs->last[i].tenant)
			xts_tenant_release(ch->ended_epochs->last[i].tenant);
	free(ch->ended_epochs);
	ch->ended_epochs = NULL;
}

static struct xts_tenant *ended(const struct channel *ch, uint64_t epoch)
{
	const struct ended_epochs *e = ch->ended_epochs;

	for (uint32_t i = 0; e && i < EPOCHS; i++)
		if (e->last[i].epoch == epoch && ch->worker->now_ns - e->last[i].ended_ns < SPOKEN_OF_NS)
			return e->last[i].tenant;
	return NULL;
}

static struct xts_tenant *ended_before(const struct channel *ch, uint64_t epoch)
{
	char name[XTS_TENANT_NAME_BYTES];
	struct xts_tenant *t;
	uint64_t ended_ns;

	if (!ledger_has_ended(ch->queue_id, epoch, &ended_ns, name) || ch->worker->now_ns - ended_ns >= SPOKEN_OF_NS)
		return NULL;
	if (!strcmp(ch->tenant->name, name))
		return ch->tenant; /* perhaps nothing of it has come so far: the keys are remembered (keys_over.c) */
	registry_lock();
	t = recovered_find(name);
	registry_unlock();
	return t;
}

/* It is in force, or its host has not noticed so far that another process of the proxy serves it. */
static bool has(const struct channel *ch, uint64_t epoch)
{
	return ch->spoken_of == epoch || ch->moved_epoch == epoch;
}

/* The tenant of the process that has, or had, this epoch on the queue; NULL: there is none. */
static struct xts_tenant *tenant_of(struct channel *ch, uint64_t epoch)
{
	struct channel *behind = NULL;
	struct xts_tenant *expected;

	if (has(ch, epoch))
		return ch->tenant;
	while (ch->relayed.mux && (behind = relay_next(ch, behind)))
		if (has(behind, epoch))
			return behind->tenant;
	expected = move_expected_tenant(ch, epoch);
	if (!expected)
		expected = ended(ch, epoch);
	return expected ? expected : ended_before(ch, epoch);
}

void over_said(struct channel *ch, const struct xts_rx_frame *frame)
{
	const uint8_t *first = frame->segment[0].iov_base;
	uint8_t copy[XTS_OVER_BYTES_MAX];
	uint64_t keys[XTS_OVER_BYTES_MAX / 8];
	struct xts_tenant *tenant;
	struct xts_over m;

	if (xts_over_decode(&m, first, frame->segment[0].iov_len) || m.length % 8 ||
	    m.length > frame->segment[0].iov_len - XTS_OVER_BYTES) {
		ch->link.stats.malformed++;
		return;
	}
	tenant = m.epoch ? tenant_of(ch, m.epoch) : NULL;
	if (!tenant) {
		ch->link.stats.dropped_stale++;
		return;
	}
	memcpy(copy, first + XTS_OVER_BYTES, m.length);
	for (uint32_t i = 0; i < m.length / 8; i++)
		keys[i] = xts_get64(copy + 8u * i);
	keys_over(ch->worker, tenant, keys, m.length / 8);
	explicit_bzero(copy, sizeof copy);
	explicit_bzero(keys, sizeof keys);
}
