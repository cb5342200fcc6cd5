/* The checks of tables of states in builds with XTS_DEBUG; see state_table.h. */
#include "common/state_table.h"

#ifdef XTS_DEBUG

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct xts_states_visited *xts_states_visited_open(const char *path, struct xts_states_visited *otherwise)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	void *at;

	if (fd < 0)
		return otherwise;
	at = ftruncate(fd, sizeof *otherwise) ? MAP_FAILED :
						mmap(NULL, sizeof *otherwise, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return at == MAP_FAILED ? otherwise : at;
}

static void note(uint32_t *mask, uint32_t bits)
{
	if (bits & ~__atomic_load_n(mask, __ATOMIC_RELAXED))
		__atomic_fetch_or(mask, bits, __ATOMIC_RELAXED);
}

static void broken(const struct xts_state_table *table, uint32_t id, uint32_t state, const char *what, uint32_t flags)
{
	fprintf(stderr, "%s %08x, state %s, %s:", table->what, id, table->states[state].name, what);
	for (uint32_t i = 0; i < table->flag_count; i++) {
		if (flags & 1u << i)
			fprintf(stderr, " %s", table->flags[i].name);
	}
	fputs("\n", stderr);
	abort();
}

void xts_state_entered(const struct xts_state_table *table, struct xts_states_visited *visited, uint32_t id,
		       uint32_t before, uint32_t after)
{
	bool known = before == after;

	for (uint32_t i = 0; i < table->change_count; i++)
		known |= table->changes[i].before == before && table->changes[i].after == after;
	if (!known)
		broken(table, id, before, table->states[after].name, 0);
	if (before != after)
		note(&visited->changes[before], 1u << after);
}

void xts_state_rests(const struct xts_state_table *table, struct xts_states_visited *visited, uint32_t id,
		     uint32_t state, uint32_t flags)
{
	const struct xts_state_rule *rule = &table->states[state];
	uint32_t one = flags & rule->one;

	if (flags & ~rule->may)
		broken(table, id, state, "may not have", flags & ~rule->may);
	if (rule->must & ~flags)
		broken(table, id, state, "must have", rule->must & ~flags);
	if (rule->one && (!one || one & (one - 1)))
		broken(table, id, state, "must have exactly one of some, but has", one);
	if (state + 1 == table->state_count)
		return;
	for (uint32_t i = 0; i < table->rule_count; i++) {
		const struct xts_flag_rule *r = &table->rules[i];
		uint32_t wrong = (r->needs & ~flags) | (r->excludes & flags);

		if (flags & 1u << r->flag && wrong)
			broken(table, id, state, table->flags[r->flag].name, wrong);
	}
	note(&visited->flags[state], flags);
	note(&visited->states, 1u << state);
}

#endif
