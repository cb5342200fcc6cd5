/* The pairing heap of timer.h: every timer is due no later than its children; siblings are in no order. */
#include "worker/timer.h"

#include <stddef.h>

/* Melds two heaps into one; both arguments are roots without siblings. */
static struct timer *meld(struct timer *a, struct timer *b)
{
	struct timer *later;

	if (!a || !b)
		return a ? a : b;
	later = b;
	if (b->deadline_ns < a->deadline_ns) {
		later = a;
		a = b;
	}
	later->prev = a;
	later->next = a->child;
	if (a->child)
		a->child->prev = later;
	a->child = later;
	return a;
}

static struct timer *alone(struct timer *t)
{
	t->next = t->prev = NULL;
	return t;
}

/* Melds the children of a removed timer into one heap: first in pairs, which keeps later removals cheap. */
static struct timer *meld_siblings(struct timer *first)
{
	struct timer *pairs = NULL, *heap = NULL;

	while (first) {
		struct timer *a = first, *b = first->next, *pair;

		first = b ? b->next : NULL;
		pair = meld(alone(a), b ? alone(b) : NULL);
		pair->next = pairs;
		pairs = pair;
	}
	while (pairs) {
		struct timer *pair = pairs;

		pairs = pair->next;
		heap = meld(heap, alone(pair));
	}
	return heap;
}

static void unlink_sibling(struct timer *t)
{
	if (t->prev->child == t)
		t->prev->child = t->next;
	else
		t->prev->next = t->next;
	if (t->next)
		t->next->prev = t->prev;
}

static void remove_from_heap(struct timers *timers, struct timer *t)
{
	if (t == timers->root) {
		timers->root = meld_siblings(t->child);
	} else {
		unlink_sibling(t);
		timers->root = meld(timers->root, meld_siblings(t->child));
	}
	t->child = NULL;
	(void)alone(t);
}

static void remove_from_due(struct timers *timers, struct timer *t)
{
	if (t->prev)
		t->prev->next = t->next;
	else
		timers->due = t->next;
	if (t->next)
		t->next->prev = t->prev;
	t->due = false;
	(void)alone(t);
}

void timer_set(struct timers *timers, struct timer *t, uint64_t deadline_ns)
{
	timer_cancel(t);
	t->in = timers;
	t->deadline_ns = deadline_ns;
	timers->root = meld(timers->root, t);
}

void timer_cancel(struct timer *t)
{
	struct timers *timers = t->in;

	if (!timers)
		return;
	if (t->due)
		remove_from_due(timers, t);
	else
		remove_from_heap(timers, t);
	t->in = NULL;
}

uint64_t timers_next_ns(const struct timers *timers)
{
	return timers->root ? timers->root->deadline_ns : UINT64_MAX;
}

unsigned timers_run(struct timers *timers, uint64_t now_ns, unsigned max)
{
	struct timer *t, *last = NULL;
	unsigned ran = 0;

	while (max-- && (t = timers->root) && t->deadline_ns <= now_ns) {
		remove_from_heap(timers, t);
		t->due = true;
		t->prev = last;
		if (last)
			last->next = t;
		else
			timers->due = t;
		last = t;
	}
	while ((t = timers->due)) {
		timer_cancel(t);
		t->expired(t);
		ran++;
	}
	return ran;
}
