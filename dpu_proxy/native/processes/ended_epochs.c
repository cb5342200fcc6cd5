/* Epochs of which an agent may speak, and what it says (OVER). ended_epochs.h has the theory of operation. */
#include "processes/ended_epochs.h"

#include <stdlib.h>
#include <string.h>

#include "processes/move.h"
#include "processes/share.h"

/* So many processes of one queue, or behind one relay, may end within a minute, and more take the places of these. */
#define EPOCHS 64u
/* For so long an agent looks which connections nobody has (relatives_files.py), and some more. */
#define SPOKEN_OF_NS UINT64_C(70000000000)

struct ended_epochs {
	struct {
		uint64_t epoch; /* 0: none */
		uint64_t ended_ns;
		struct xts_tenant *tenant; /* a reference */
	} last[EPOCHS];
	uint32_t next;
};

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
	return expected ? expected : ended(ch, epoch);
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
