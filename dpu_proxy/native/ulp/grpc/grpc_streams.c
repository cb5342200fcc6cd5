/* The table of the open streams of a gRPC connection (grpc.h). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "grpc.h"
#include "grpc_move.h"

#define ROOM_FIRST 8u

static uint32_t *chain_of(const struct grpc_streams *t, uint32_t id)
{
	return &t->chain[(id >> 1) * 0x9e3779b1u >> 16 & (t->room - 1)]; /* room is a power of two, at most 2^16 */
}

struct grpc_stream *grpc_stream_find(const struct grpc *g, uint32_t id)
{
	const struct grpc_streams *t = &g->streams;

	if (!t->room)
		return NULL;
	for (uint32_t i = *chain_of(t, id); i; i = t->stream[i - 1].next)
		if (t->stream[i - 1].id == id)
			return &t->stream[i - 1];
	return NULL;
}

static uint32_t table_bytes(uint32_t room)
{
	return room * (uint32_t)(sizeof(struct grpc_stream) + sizeof(uint32_t));
}

static int table_alloc(struct grpc_streams *t, uint32_t room)
{
	struct grpc_stream *stream = realloc(t->stream, room * sizeof *stream);
	uint32_t *chain;

	if (!stream)
		return -ENOMEM;
	t->stream = stream;
	chain = calloc(room, sizeof *chain);
	if (!chain)
		return -ENOMEM;
	free(t->chain);
	t->chain = chain;
	t->room = room;
	return 0;
}

static int grow(struct grpc *g)
{
	struct grpc_streams *t = &g->streams;
	uint32_t room = t->room ? 2 * t->room : ROOM_FIRST, more = table_bytes(room) - table_bytes(t->room);
	int r = ulp_memory_take(g->layer, more);

	if (r)
		return r;
	r = table_alloc(t, room);
	if (r) {
		ulp_memory_return(g->layer, more);
		return r;
	}
	for (uint32_t i = 0; i < t->used; i++) { /* all are open: none was free */
		uint32_t *first = chain_of(t, t->stream[i].id);

		t->stream[i].next = *first;
		*first = i + 1;
	}
	return 0;
}

int grpc_stream_open(struct grpc *g, uint32_t id, struct grpc_stream **out)
{
	struct grpc_streams *t = &g->streams;
	int r = !t->free && t->used == t->room ? grow(g) : 0;
	uint32_t i, *first;

	if (r)
		return r;
	i = t->free ? t->free : ++t->used;
	if (i == t->free)
		t->free = t->stream[i - 1].next;
	first = chain_of(t, id);
	t->stream[i - 1] = (struct grpc_stream){ .id = id, .next = *first, .send_window = g->peer_initial_window };
	*first = i;
	t->open++;
	*out = &t->stream[i - 1];
	return 0;
}

void grpc_stream_forget(struct grpc *g, struct grpc_stream *s)
{
	struct grpc_streams *t = &g->streams;
	uint32_t index = (uint32_t)(s - t->stream) + 1, *link = chain_of(t, s->id);

	while (*link != index)
		link = &t->stream[*link - 1].next;
	*link = s->next;
	free(s->buffer);
	g->buffered -= s->buffer_room;
	ulp_memory_return(g->layer, s->buffer_room);
	*s = (struct grpc_stream){ .next = t->free };
	t->free = index;
	t->open--;
}

bool grpc_stream_was(const struct grpc *g, uint32_t id)
{
	bool local = (id % 2 == 1) == g->client;

	return id && id <= (local ? g->last_local : g->last_remote);
}

/* Chains of those that have come, which have no gaps between them. Of two with one number the first is never found: to
 * look for such would take as long as all chains are together. */
static int chains_make(struct grpc *g)
{
	struct grpc_streams *t = &g->streams;

	t->chain = calloc(t->room ? t->room : 1, sizeof *t->chain);
	for (uint32_t i = 0; t->chain && i < t->used; i++) {
		uint32_t *first = chain_of(t, t->stream[i].id);

		t->stream[i].next = *first;
		*first = i + 1;
	}
	return t->chain ? 0 : -ENOMEM;
}

int grpc_streams_arrived(struct grpc *g)
{
	struct grpc_streams *t = &g->streams;
	uint32_t buffered = g->receive.gathered.room;
	int r = ulp_memory_take(g->layer, table_bytes(t->room));

	if (r) {
		grpc_streams_list.drop(t); /* close() gives back what was taken, and nothing else */
		return r;
	}
	for (uint32_t i = 0; i < t->used; i++)
		buffered += t->stream[i].buffer_room; /* a record has less than 4 GiB */
	r = ulp_memory_take(g->layer, buffered);
	if (!r)
		g->buffered = buffered;
	if (!r)
		r = chains_make(g);
	return r ? r : ulp_out_count(&g->send.control, g->layer);
}

void grpc_streams_free(struct grpc *g)
{
	for (uint32_t i = 0; i < g->streams.used; i++)
		free(g->streams.stream[i].buffer);
	ulp_memory_return(g->layer, table_bytes(g->streams.room));
	free(g->streams.stream);
	free(g->streams.chain);
}
