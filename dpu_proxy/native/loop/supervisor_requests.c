/* Requests of the supervisor to a running worker: adding and removing channels, another configuration, draining. The
 * worker's thread carries out each request between two rounds (run_in_worker.c). */
#include "loop/worker_inside.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdlib.h>

#include "channel/channel.h"
#include "connection/connection_walk.h"
#include "connection/socket_kind.h"
#include "processes/share.h"
#include "ulp/config.h"

int worker_copy_config(struct xts_worker_config *to, const struct xts_worker_config *from)
{
	struct xts_policy_rule *rules = calloc(from->rule_count + 1u, sizeof *rules);
	struct xts_name_rule *name_rules = calloc(from->names.rule_count + 1u, sizeof *name_rules);
	struct xts_interface *interfaces = calloc(from->interface_count + 1u, sizeof *interfaces);
	char *congestion_controls = strdup(from->congestion_controls ? from->congestion_controls : "");

	*to = *from;
	to->rules = rules;
	to->names.rules = name_rules;
	to->congestion_controls = congestion_controls;
	to->interfaces = interfaces;
	if (to->ulp)
		xts_ulp_config_hold(to->ulp);
	else
		to->ulp = xts_ulp_config_new(NULL);
	if (!rules || !name_rules || !congestion_controls || !interfaces || !to->ulp) {
		worker_free_config(to);
		*to = (struct xts_worker_config){ 0 };
		return -ENOMEM;
	}
	if (from->rule_count)
		memcpy(rules, from->rules, from->rule_count * sizeof *rules);
	if (from->names.rule_count)
		memcpy(name_rules, from->names.rules, from->names.rule_count * sizeof *name_rules);
	if (from->interface_count)
		memcpy(interfaces, from->interfaces, from->interface_count * sizeof *interfaces);
	return 0;
}

void worker_free_config(struct xts_worker_config *config)
{
	free((void *)(uintptr_t)config->rules);
	free((void *)(uintptr_t)config->names.rules);
	free((void *)(uintptr_t)config->congestion_controls);
	free((void *)(uintptr_t)config->interfaces);
	xts_ulp_config_release(config->ulp);
}

struct add_channel {
	struct xts_queue *queue;
	int life_fd;
	uint32_t queue_id;
	struct xts_tenant *tenant;
	const struct xts_owner *owner;
	int result;
};

static bool run_add_channel(struct worker_state *w, void *argument)
{
	struct add_channel *a = argument;
	struct channel *ch;

	a->result = channel_open(&ch, w, a->queue, a->life_fd, a->queue_id, a->tenant);
	if (!a->result && a->owner)
		ch->owner = *a->owner;
	return false;
}

int xts_worker_add_channel(struct xts_worker *worker, struct xts_queue *queue, int life_fd, uint32_t queue_id,
			   struct xts_tenant *tenant, const struct xts_owner *owner)
{
	struct add_channel a = {
		.queue = queue, .life_fd = life_fd, .queue_id = queue_id, .tenant = tenant, .owner = owner
	};

	worker_request(worker, run_add_channel, &a);
	return a.result;
}

static bool run_remove_channel(struct worker_state *w, void *argument)
{
	struct list *node = w->channels.next;

	while (node != &w->channels) {
		struct channel *ch = list_entry(node, struct channel, member);

		node = node->next;
		if (ch->queue_id != *(uint32_t *)argument || ch->dying)
			continue;
		xts_link_goodbye(&ch->link, 0);
		channel_end_epoch(ch, true);
		ch->dying = true; /* it is freed when the GOODBYE has left and all connections have ended */
	}
	return false;
}

int xts_worker_remove_channel(struct xts_worker *worker, uint32_t queue_id)
{
	worker_request(worker, run_remove_channel, &queue_id);
	return 0;
}

struct keys {
	const struct xts_tenant *tenant;
	const uint64_t *keys;
	uint32_t count;
};

static bool run_keys_over(struct worker_state *w, void *argument)
{
	const struct keys *k = argument;

	keys_over(w, k->tenant, k->keys, k->count);
	return false;
}

int xts_worker_keys_over(struct xts_worker *worker, struct xts_tenant *tenant, const uint64_t *keys, uint32_t count)
{
	struct keys k = { .tenant = tenant, .keys = keys, .count = count };

	worker_request(worker, run_keys_over, &k);
	return 0;
}

static bool run_configure(struct worker_state *w, void *argument)
{
	struct xts_worker_config *config = argument;

	config->clock_ns = w->config.clock_ns;
	worker_free_config(&w->config);
	w->config = *config;
	w->policy_number++;
	return false;
}

int xts_worker_configure(struct xts_worker *worker, const struct xts_worker_config *config)
{
	struct xts_worker_config copy;
	int error = worker_copy_config(&copy, config);

	if (!error)
		worker_request(worker, run_configure, &copy);
	return error;
}

bool worker_drain(struct worker_state *w, struct walk *at)
{
	struct connection *c;

	w->draining = true;
	if (!share_drain_kept(w))
		return true;
	walk_goes_on(at, w);
	while ((c = walk_connection(at, w))) {
		if (!kind_of(c)->refuse_some(c))
			return true;
		kind_of(c)->drain(c);
		at->index++;
		if (worker_turn_is_over(w))
			return true;
	}
	return false;
}

static bool run_drain(struct worker_state *w, void *argument)
{
	return worker_drain(w, argument);
}

int xts_worker_drain(struct xts_worker *worker)
{
	struct walk at = { 0 };

	worker_request(worker, run_drain, &at);
	return 0;
}

/* --- tokens ------------------------------------------------------------------------------------------------------- */

static bool run_trust(struct worker_state *w, void *argument)
{
	trust_free(&w->trust);
	w->trust = *(struct trust *)argument;
	return false;
}

int xts_worker_trust(struct xts_worker *worker, const uint8_t *key, uint32_t key_bytes,
		     const struct xts_identity_rule *rules, uint32_t rule_count)
{
	struct trust t = { .key_bytes = key_bytes, .rule_count = rule_count };

	if (key_bytes > sizeof t.key)
		return -EINVAL;
	for (uint32_t i = 0; i < rule_count; i++)
		if (rules[i].cgroup_bytes > sizeof rules[i].cgroup)
			return -EINVAL;
	t.rules = calloc(rule_count + 1u, sizeof *t.rules);
	if (!t.rules)
		return -ENOMEM;
	if (key_bytes)
		memcpy(t.key, key, key_bytes);
	for (uint32_t i = 0; i < rule_count; i++) {
		t.rules[i] = rules[i];
		tenant_hold(rules[i].tenant);
	}
	worker_request(worker, run_trust, &t);
	OPENSSL_cleanse(t.key, sizeof t.key);
	return 0;
}
