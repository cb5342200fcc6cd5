/*
 * Which stack a thread's new sockets and polling contexts are made in. process.h has the rules.
 *
 * A thread without a stack is given one, according to the setting, by its first call that needs one. Only then is the
 * lock of the process taken.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "core/caller.h"
#include "core/error.h"
#include "core/process.h"
#include "core/socket.h"
#include "core/stack.h"
#include "settings/environment.h"
#include "core/wait.h"
#include "xts.h"
#include "xts_private.h"

static uint32_t ordinals; /* the last ordinal given out; under the process's lock */

/* The configured value; a wrong one in the environment is reported when the first stack attaches. */
static uint32_t stacks_setting(void)
{
	const char *text = xts_environment(XTS_ENV_STACKS);
	struct settings configured;
	uint32_t stacks = 1;

	process_settings(&configured);
	if (configured.stacks)
		return configured.stacks;
	return text && stacks_parse(text, &stacks) ? 1 : stacks;
}

/* Takes a free stack, or makes one. Under the process's lock; NULL: no memory, or there are too many. */
static struct stack *take_free(const char *endpoint, uint32_t slot)
{
	struct stack *st = process_stacks();

	while (st && atomic_load(&st->use) != STACK_FREE)
		st = process_next(st);
	if (!st)
		st = process_add_stack();
	if (!st)
		return NULL;
	st->slot = slot;
	snprintf(st->endpoint, sizeof st->endpoint, "%s", endpoint);
	atomic_store(&st->use, STACK_USED);
	return st;
}

static struct stack *find(const char *endpoint, uint32_t slot)
{
	for (struct stack *st = process_stacks(); st; st = process_next(st))
		if (atomic_load(&st->use) == STACK_USED && st->slot == slot && !strcmp(st->endpoint, endpoint))
			return st;
	return NULL;
}

/* The calling thread's stack for an endpoint (empty: the process's), according to the setting. */
struct stack *process_stack_at(const char *endpoint)
{
	uint32_t stacks = stacks_setting(), slot;
	struct thread *t = thread_record();
	struct stack *st;

	if (!t)
		return NULL;
	process_lock();
	if (!t->ordinal)
		t->ordinal = ++ordinals;
	slot = stacks == STACKS_THREAD ? t->ordinal - 1 : (t->ordinal - 1) % stacks;
	st = find(endpoint, slot);
	if (!st)
		st = take_free(endpoint, slot);
	process_unlock();
	return st;
}

struct stack *process_new_stack(const char *endpoint)
{
	struct stack *st;

	process_lock();
	st = take_free(endpoint, STACK_EXPLICIT);
	process_unlock();
	return st;
}

struct stack *process_own_stack(void)
{
	struct thread *t = this_thread;
	struct stack *st;

	if (t && t->chosen && t->chosen_use == atomic_load_explicit(&t->chosen->uses, memory_order_relaxed))
		return t->chosen;
	if (t && t->own)
		return t->own;
	st = process_stack_at("");
	if (!st)
		/* no memory for another stack: the thread shares one, and only loses its independence */
		return process_stacks();
	this_thread->own = st;
	return st;
}

/* --- the end of a thread ------------------------------------------------------------------------------------------ */

static void abandon(struct stack *st)
{
	stack_enter(st);
	st->abandoned = true;
	if (st->channel && st->sockets)
		/* the replies to the last CLOSEs may come when no thread of the program is in libxts */
		progress_need(st);
	stack_leave(st); /* stack_leave() ends the stack if it is empty */
}

void choice_thread_ends(struct thread *t)
{
	if (!t->ordinal || stacks_setting() != STACKS_THREAD)
		return;
	for (struct stack *st = process_stacks(); st; st = process_next(st))
		if (atomic_load(&st->use) == STACK_USED && st->slot == t->ordinal - 1)
			abandon(st);
}

void choice_after_fork(void)
{
	uint32_t slot = this_thread && this_thread->ordinal ? this_thread->ordinal - 1 : STACK_EXPLICIT;

	if (stacks_setting() != STACKS_THREAD)
		return;
	for (struct stack *st = process_stacks(); st; st = process_next(st)) {
		if (atomic_load(&st->use) != STACK_USED || st->slot == slot || st->slot == STACK_EXPLICIT)
			continue;
		st->abandoned = true; /* no other thread uses it */
		stack_end_if_empty(st);
	}
}

/* --- public ------------------------------------------------------------------------------------------------------- */

static struct stack *stack_at(int place)
{
	struct stack *st = process_stacks();

	while (st && (int)st->place != place)
		st = process_next(st);
	return st && atomic_load(&st->use) == STACK_USED ? st : NULL;
}

int xts_stack_create(const char *endpoint)
{
	struct stack *st;

	xts_look_who_calls();
	if (endpoint && strlen(endpoint) >= ENDPOINT_BYTES)
		return finish(-ENAMETOOLONG);
	st = process_new_stack(endpoint ? endpoint : "");
	return st ? (int)st->place : finish(-ENOMEM);
}

int xts_stack_at(const char *endpoint)
{
	struct stack *st;

	xts_look_who_calls();
	if (endpoint && strlen(endpoint) >= ENDPOINT_BYTES)
		return finish(-ENAMETOOLONG);
	st = process_stack_at(endpoint ? endpoint : "");
	return st ? (int)st->place : finish(-ENOMEM);
}

int xts_stack_use(int stack)
{
	struct stack *st = NULL, *before;
	struct thread *t;

	xts_look_who_calls();
	t = thread_record();
	if (!t)
		return finish(-ENOMEM);
	if (stack != XTS_STACK_OF_SETTING) {
		st = stack_at(stack);
		if (!st)
			return finish(-ENOENT);
	}
	before = t->chosen && t->chosen_use == atomic_load(&t->chosen->uses) ? t->chosen : NULL;
	t->chosen = st;
	t->chosen_use = st ? atomic_load(&st->uses) : 0;
	return before ? (int)before->place : XTS_STACK_OF_SETTING;
}

int xts_stack_release(int stack)
{
	struct stack *st;

	xts_look_who_calls();
	st = stack_at(stack);
	if (!st || st->slot != STACK_EXPLICIT)
		return finish(-ENOENT);
	abandon(st);
	return 0;
}

int xts_stack_of(int number)
{
	struct stack *st = stack_enter_of(number);
	int r = table_open(st, number) ? (int)st->place : -EBADF;

	stack_leave(st);
	return finish(r);
}
