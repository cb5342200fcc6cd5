/* The table of the operator's filters, by name, with their counters; see filter_totals.h. */
#include "datagrams/filter_totals.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct filter_totals {
	struct filter_totals *next;
	_Atomic uint64_t sockets, dropped;
	char name[XTS_FILTER_NAME_BYTES];
};

static struct {
	pthread_mutex_t mutex;
	struct filter_totals *first;
} table = { .mutex = PTHREAD_MUTEX_INITIALIZER };

/* With the mutex. NULL: no memory. */
static struct filter_totals *find_or_make(const char *name)
{
	struct filter_totals *t;

	for (t = table.first; t; t = t->next)
		if (!strncmp(t->name, name, sizeof t->name))
			return t;
	t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	strncpy(t->name, name, sizeof t->name - 1);
	t->next = table.first;
	table.first = t;
	return t;
}

struct filter_totals *filter_totals_join(const char *name)
{
	struct filter_totals *t;

	pthread_mutex_lock(&table.mutex);
	t = find_or_make(name);
	pthread_mutex_unlock(&table.mutex);
	if (t)
		atomic_fetch_add(&t->sockets, 1);
	return t;
}

void filter_totals_leave(struct filter_totals *t)
{
	atomic_fetch_sub(&t->sockets, 1);
}

const char *filter_totals_name(const struct filter_totals *t)
{
	return t ? t->name : "";
}

void filter_totals_dropped(struct filter_totals *t, uint32_t datagrams)
{
	atomic_fetch_add(&t->dropped, datagrams);
}

uint32_t xts_filter_totals(struct xts_filter_totals *out, uint32_t max)
{
	uint32_t found = 0;

	pthread_mutex_lock(&table.mutex);
	for (struct filter_totals *t = table.first; t; t = t->next, found++) {
		if (found >= max)
			continue;
		out[found] = (struct xts_filter_totals){ .sockets = t->sockets, .dropped = t->dropped };
		memcpy(out[found].name, t->name, sizeof t->name);
	}
	pthread_mutex_unlock(&table.mutex);
	return found;
}
