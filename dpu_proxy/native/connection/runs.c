/* The ring of runs of struct outgoing: which bytes of the spill buffer belong together; see outgoing.h. */
#include "connection/outgoing.h"

#include <errno.h>
#include <stdlib.h>

const struct run *runs_at(const struct runs *runs, uint32_t i)
{
	return &runs->run[(runs->first + i) & (runs->room - 1)];
}

static int grow(struct runs **of)
{
	const struct runs *before = *of;
	uint32_t room = before ? before->room * 2 : 8;
	struct runs *runs = calloc(1, sizeof *runs + room * sizeof runs->run[0]);

	if (!runs)
		return -ENOMEM;
	for (uint32_t i = 0; before && i < before->count; i++)
		runs->run[i] = *runs_at(before, i);
	runs->count = before ? before->count : 0;
	runs->pdus = before ? before->pdus : 0;
	runs->room = room;
	free(*of);
	*of = runs;
	return 0;
}

int runs_make_room(struct runs **runs, uint32_t more)
{
	while ((*runs ? (*runs)->room - (*runs)->count : 0) < more) {
		if (grow(runs))
			return -ENOMEM;
	}
	return 0;
}

void runs_append(struct runs *runs, const struct run *r)
{
	runs->run[(runs->first + runs->count++) & (runs->room - 1)] = *r;
	runs->pdus += r->mark.pdu;
}
