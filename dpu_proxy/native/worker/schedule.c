/* The arithmetic of schedule.h. */
#include "worker/schedule.h"

#include <errno.h>
#include <stdlib.h>

void schedule_init(struct schedule *s)
{
	list_init(&s->accounts);
	list_init(&s->groups);
	s->survey_ns = 0;
	s->alone = true;
}

static struct account_group *find_group(struct schedule *s, const _Atomic uint32_t *weight)
{
	struct account_group *g;

	for (struct list *node = s->groups.next; node != &s->groups; node = node->next) {
		g = list_entry(node, struct account_group, member);
		if (g->weight == weight)
			return g;
	}
	g = calloc(1, sizeof *g);
	if (g) {
		g->weight = weight;
		list_append(&s->groups, &g->member);
	}
	return g;
}

int account_open(struct schedule *s, struct account *a, const _Atomic uint32_t *weight)
{
	*a = (struct account){ .group = find_group(s, weight), .quantum_ns = SCHEDULE_LEAST_NS };
	if (!a->group)
		return -ENOMEM;
	a->group->accounts++;
	list_append(&s->accounts, &a->member);
	s->survey_ns = 0;
	return 0;
}

static void leave_group(struct account_group *g)
{
	if (--g->accounts)
		return;
	list_remove(&g->member);
	free(g);
}

void account_close(struct account *a)
{
	list_remove(&a->member);
	leave_group(a->group);
}

void account_move(struct schedule *s, struct account *a, const _Atomic uint32_t *weight)
{
	struct account_group *to = find_group(s, weight), *from = a->group;

	if (!to)
		return;
	to->accounts++;
	a->group = to;
	leave_group(from);
	s->survey_ns = 0;
}

static uint32_t weight_of(const struct account_group *g)
{
	return atomic_load_explicit(g->weight, memory_order_relaxed);
}

/* The quantum of an account: `weight` and `accounts` are its group's weight and number of active accounts, `all` is the
 * weight of all active groups together. */
static uint32_t part_ns(uint32_t weight, uint64_t all, uint32_t accounts)
{
	uint64_t ns = all && accounts ? (uint64_t)SCHEDULE_ROUND_NS * weight / all / accounts : SCHEDULE_ROUND_NS;

	return ns < SCHEDULE_LEAST_NS ? SCHEDULE_LEAST_NS : (uint32_t)ns;
}

/* Computes which accounts are active, and all quanta. An inactive account gets the quantum that it would have if it
 * became active. */
static void survey(struct schedule *s, uint64_t now_ns)
{
	uint64_t all = 0;
	uint32_t active = 0;

	for (struct list *node = s->groups.next; node != &s->groups; node = node->next)
		list_entry(node, struct account_group, member)->active = 0;
	for (struct list *node = s->accounts.next; node != &s->accounts; node = node->next) {
		const struct account *a = list_entry(node, struct account, member);

		if (a->active_until_ns <= now_ns)
			continue;
		active++;
		if (!a->group->active++)
			all += weight_of(a->group);
	}
	s->alone = active < 2;
	for (struct list *node = s->accounts.next; node != &s->accounts; node = node->next) {
		struct account *a = list_entry(node, struct account, member);
		const struct account_group *g = a->group;
		bool is_active = a->active_until_ns > now_ns;

		if (active == is_active)
			a->quantum_ns = SCHEDULE_ALONE_NS;
		else if (is_active)
			a->quantum_ns = part_ns(weight_of(g), all, g->active);
		else
			a->quantum_ns = part_ns(weight_of(g), g->active ? all : all + weight_of(g), g->active + 1u);
	}
	s->survey_ns = now_ns + SCHEDULE_SURVEY_NS;
}

static void begin_turn(const struct schedule *s, struct account *a)
{
	/* This also happens after an unused turn: otherwise two accounts that once took long would keep each other from
	 * a turn for ever. */
	if (a->has_turn)
		a->expected_ns = a->round_ns > 7u * a->expected_ns / 8u ? a->round_ns : 7u * a->expected_ns / 8u;
	a->round_ns = 0;
	a->left_ns += a->quantum_ns;
	if (a->left_ns > a->quantum_ns || s->alone)
		a->left_ns = a->quantum_ns;
	a->has_turn = a->left_ns > 0;
}

void schedule_round(struct schedule *s, uint64_t now_ns)
{
	struct list *node = s->accounts.next, served;
	uint64_t long_ns = 0;

	if (now_ns >= s->survey_ns)
		survey(s, now_ns);
	list_init(&served);
	while (node != &s->accounts) {
		struct account *a = list_entry(node, struct account, member);

		node = node->next;
		begin_turn(s, a);
		if (!a->has_turn || a->expected_ns <= a->quantum_ns)
			continue;
		a->has_turn = !long_ns || long_ns + a->expected_ns <= SCHEDULE_ROUND_NS;
		if (!a->has_turn)
			continue;
		long_ns += a->expected_ns;
		list_remove(&a->member); /* next time the others come first */
		list_append(&served, &a->member);
	}
	while (!list_empty(&served))
		list_append(&s->accounts, list_pop(&served));
}

void account_charge(struct schedule *s, struct account *a, uint64_t now_ns, uint64_t took_ns)
{
	a->left_ns -= (int64_t)took_ns;
	a->round_ns += took_ns;
	a->used_ns += took_ns;
	if (a->active_until_ns <= now_ns)
		s->survey_ns = 0; /* it is newly active: from the next round on the others' turns are shorter */
	a->active_until_ns = now_ns + SCHEDULE_ACTIVE_NS;
}

uint32_t schedule_fits(uint32_t each_ns, uint64_t left_ns, uint32_t max)
{
	uint64_t count = each_ns ? left_ns / each_ns : max;

	return count < 1 ? 1 : count < max ? (uint32_t)count : max;
}

void schedule_learn(uint32_t *each_ns, uint32_t count, uint64_t took_ns)
{
	uint64_t each = took_ns / count;

	/* A higher cost counts at once, a lower one only gradually. */
	if (each < *each_ns)
		each = (7u * (uint64_t)*each_ns + each) / 8u;
	*each_ns = each < UINT32_MAX ? (uint32_t)each : UINT32_MAX;
}
