/* Name lookups for hosts: how they begin, their turns, and how they end. names.h has the theory of operation. */
#include "names/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "names/lookup.h"
#include "names/name_message.h"

static struct worker_state *worker_of(const struct lookup *l)
{
	return l->channel->worker;
}

/* --- the end of a lookup ------------------------------------------------------------------------------------------ */

void lookup_close_socket(struct lookup *l)
{
	timer_cancel(&l->timer);
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	list_remove(&l->noted);
	l->late = false;
}

void lookup_drop_answer(struct lookup *l)
{
	free(l->answer);
	l->answer = NULL;
	tenant_give(l->tenant, XTS_USE_SOCKET_BYTES, l->answer_bytes);
	l->answer_bytes = 0;
}

static void lookup_free(struct lookup *l)
{
	lookup_close_socket(l);
	lookup_drop_answer(l);
	list_remove(&l->member);
	list_remove(&l->answered);
	l->channel->names.count--;
	worker_of(l)->stats.lookups--;
	tenant_give_socket(l->tenant);
	tenant_give(l->tenant, XTS_USE_LOOKUPS, 1);
	xts_tenant_release(l->tenant);
	free(l);
}

bool names_end_one(struct channel *ch)
{
	if (list_empty(&ch->names.lookups))
		return false;
	lookup_free(list_entry(ch->names.lookups.next, struct lookup, member));
	return true;
}

void lookup_finish(struct lookup *l, int error)
{
	struct worker_state *w = worker_of(l);

	lookup_close_socket(l);
	if (error)
		lookup_drop_answer(l);
	l->error = error;
	if (error)
		w->stats.names_failed++;
	else
		w->stats.names_answered++;
	list_append(&l->channel->names.answered, &l->answered);
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

static void note(struct lookup *l)
{
	if (list_empty(&l->noted))
		list_append(&l->channel->names.noted, &l->noted);
}

void names_event(struct watch *w)
{
	struct lookup *l = list_entry(w, struct lookup, watch);

	if (l->fd >= 0)
		note(l);
}

static void expired(struct timer *timer)
{
	struct lookup *l = list_entry(timer, struct lookup, timer);

	l->late = true;
	note(l);
}

bool names_turn(struct channel *ch)
{
	bool any = false;

	while (!list_empty(&ch->names.noted)) {
		lookup_goes_on(list_entry(list_pop(&ch->names.noted), struct lookup, noted));
		any = true;
		if (worker_turn_is_over(ch->worker))
			break;
	}
	return any;
}

bool names_send(struct channel *ch)
{
	struct xts_tx_slot slot;
	bool any = false;

	while (!list_empty(&ch->names.answered) && channel_slot(ch, &slot)) {
		struct lookup *l = list_entry(ch->names.answered.next, struct lookup, answered);
		struct xts_name_ack m = { .token = l->token,
					  .families = ch->worker->config.names.families,
					  .length = l->answer_bytes };

		xts_head_encode(slot.data, XTS_REPLY_NAME_ACK, 0, (uint16_t)l->error, 0);
		xts_name_ack_encode(slot.data, &m);
		if (m.length)
			memcpy(slot.data + XTS_NAME_ACK_BYTES, l->answer, m.length);
		lookup_free(l);
		channel_submit(ch, &slot, XTS_NAME_ACK_BYTES + m.length);
		any = true;
		if (worker_turn_is_over(ch->worker))
			break;
	}
	return any;
}

/* --- a host asks -------------------------------------------------------------------------------------------------- */

bool names_allowed(const struct xts_names_config *config, uint32_t tenant, const uint8_t *query)
{
	for (uint32_t i = 0; i < config->rule_count; i++) {
		const struct xts_name_rule *rule = &config->rules[i];

		if (rule->tenant != XTS_TENANT_ANY && rule->tenant != tenant)
			continue;
		if (!rule->domain_bytes || name_is_within(query, rule->domain, rule->domain_bytes))
			return rule->allow;
	}
	return config->default_allow;
}

static bool charge(struct channel *ch)
{
	if (ch->names.count >= NAMES_MAX || !tenant_take(ch->tenant, XTS_USE_LOOKUPS, 1))
		return false;
	if (tenant_take_socket(ch->tenant))
		return true;
	tenant_give(ch->tenant, XTS_USE_LOOKUPS, 1);
	return false;
}

/* Begins a lookup. 0, or an errno if it could not begin. */
static int lookup_begin(struct channel *ch, uint32_t token, const uint8_t *query, uint32_t bytes, uint32_t question_bytes)
{
	struct lookup *l;

	if (!charge(ch)) {
		ch->worker->stats.refused_limit++;
		return command_refuse(ch, XTS_REFUSED_LOOKUPS);
	}
	l = calloc(1, sizeof *l + bytes);
	if (!l) {
		tenant_give_socket(ch->tenant);
		tenant_give(ch->tenant, XTS_USE_LOOKUPS, 1);
		return command_refuse(ch, XTS_REFUSED_DEVICE_MEMORY);
	}
	l->watch.kind = WATCH_NAME;
	list_init(&l->noted);
	list_init(&l->answered);
	list_append(&ch->names.lookups, &l->member);
	l->timer.expired = expired;
	l->channel = ch;
	l->tenant = tenant_hold(ch->tenant);
	l->fd = -1;
	l->token = token;
	l->host_id = name_id(query);
	l->question_bytes = question_bytes;
	l->query_bytes = bytes;
	memcpy(l->query, query, bytes);
	ch->names.count++;
	ch->worker->stats.lookups++;
	lookup_try_next(l);
	return 0;
}

static void log_denied(const struct channel *ch, const uint8_t *query)
{
	char text[NAME_TEXT_BYTES];

	name_text(query, text);
	channel_log(ch, "may not look up %s", text);
}

enum command_result command_query_name(struct channel *ch, const struct xts_head *head, const struct xts_query_name *m,
				       struct batch_entry *e)
{
	const struct xts_names_config *config = &ch->worker->config.names;
	uint8_t query[XTS_NAME_QUERY_BYTES_MAX];
	struct xts_name_ack ack = { .token = m->token, .families = config->families };
	uint32_t question_bytes;
	int error;

	(void)head;
	ch->worker->stats.names_asked++;
	memcpy(query, batch_payload(e, XTS_QUERY_NAME_BYTES), m->length);
	question_bytes = name_query_check(query, m->length);
	if (!question_bytes) {
		error = EINVAL;
	} else if (!config->resolver_count || !names_allowed(config, ch->tenant->id, query)) {
		ch->worker->stats.names_denied++;
		log_denied(ch, query);
		error = command_refuse(ch, XTS_REFUSED_NAME_POLICY);
	} else if (ch->worker->draining) {
		error = command_refuse(ch, XTS_REFUSED_STOPPING);
	} else {
		error = lookup_begin(ch, m->token, query, m->length, question_bytes);
	}
	if (!error)
		return COMMAND_DONE; /* NAME_ACK is state of the lookup */
	xts_name_ack_encode(command_reply(ch, XTS_REPLY_NAME_ACK, XTS_NAME_ACK_BYTES, 0, error), &ack);
	return COMMAND_REPLIES;
}
