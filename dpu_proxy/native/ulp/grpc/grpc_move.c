/* Streams and messages of a gRPC connection as members of a record (grpc_move.h): what has come of a message goes with
 * its stream, and memory is counted when all of it is here. */
#include "grpc_move.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "grpc.h"

/* --- streams ------------------------------------------------------------------------------------------------------ */

static bool gathers(const struct grpc_stream *s)
{
	return s->prefix_got == GRPC_PREFIX_BYTES;
}

static bool streams_next(const void *member, uintptr_t *at, void *element)
{
	const struct grpc_streams *t = member;
	const struct grpc_stream *s;

	while (*at < t->used && !t->stream[*at].id)
		(*at)++;
	if (*at == t->used)
		return false;
	s = &t->stream[(*at)++];
	*(struct grpc_moved_stream *)element = (struct grpc_moved_stream){
		.id = s->id,
		.local_ended = s->local_ended,
		.remote_ended = s->remote_ended,
		.send_window = s->send_window,
		.to_return = s->to_return,
		.prefix_got = s->prefix_got,
		.length = gathers(s) ? s->length : 0,
		.message = { s->buffer, gathers(s) ? s->got : 0 },
	};
	memcpy(((struct grpc_moved_stream *)element)->prefix, s->prefix, sizeof s->prefix);
	return true;
}

static void streams_begin(void *member)
{
	memset(member, 0, sizeof(struct grpc_streams));
}

/* A power of two, as long as the table has no chains. */
static int make_room(struct grpc_streams *t)
{
	uint32_t room = t->room ? 2 * t->room : 8;
	struct grpc_stream *stream;

	if (t->used < t->room)
		return 0;
	stream = realloc(t->stream, room * sizeof *stream);
	if (!stream)
		return -ENOMEM;
	t->stream = stream;
	t->room = room;
	return 0;
}

static int streams_append(void *member, const void *element)
{
	const struct grpc_moved_stream *from = element;
	struct grpc_streams *t = member;
	struct grpc_stream made = { .id = from->id,
				    .local_ended = from->local_ended,
				    .remote_ended = from->remote_ended,
				    .send_window = from->send_window,
				    .to_return = from->to_return,
				    .prefix_got = from->prefix_got,
				    .length = from->length,
				    .got = from->message.bytes,
				    .buffer_room = from->message.bytes };
	int r = made.id && made.got <= made.length && (gathers(&made) || !made.length) ? make_room(t) : -EBADMSG;

	if (r)
		return r;
	memcpy(made.prefix, from->prefix, sizeof made.prefix);
	made.buffer = made.got ? malloc(made.got) : NULL;
	if (made.got && !made.buffer)
		return -ENOMEM;
	if (made.got)
		memcpy(made.buffer, from->message.data, made.got);
	t->stream[t->used++] = made;
	t->open++;
	return 0;
}

static void streams_drop(void *member)
{
	struct grpc_streams *t = member;

	for (uint32_t i = 0; i < t->used; i++)
		free(t->stream[i].buffer);
	free(t->stream);
	free(t->chain);
	streams_begin(t);
}

const struct xts_record_list grpc_streams_list = { streams_next, streams_begin, streams_append, streams_drop };

/* --- a message that was gathered ---------------------------------------------------------------------------------- */

static uint32_t buffer_bytes(const void *member)
{
	return ((const struct grpc_buffer *)member)->bytes;
}

static void buffer_copy(const void *member, uint8_t *out)
{
	const struct grpc_buffer *b = member;

	memcpy(out, b->data, b->bytes);
}

static int buffer_fill(void *member, const uint8_t *data, uint32_t bytes)
{
	struct grpc_buffer *b = member;

	*b = (struct grpc_buffer){ 0 };
	if (!bytes)
		return 0;
	b->data = malloc(bytes);
	if (!b->data)
		return -ENOMEM;
	memcpy(b->data, data, bytes);
	b->room = b->bytes = bytes;
	return 0;
}

static void buffer_drop(void *member)
{
	struct grpc_buffer *b = member;

	free(b->data);
	*b = (struct grpc_buffer){ 0 };
}

const struct xts_record_stream grpc_buffer_stream = { buffer_bytes, buffer_copy, buffer_fill, buffer_drop };

/* --- what bounds cannot say --------------------------------------------------------------------------------------- */

int grpc_receive_check(const void *made)
{
	const struct grpc_receive *r = made;
	uint32_t of_host = r->message_bytes - r->given;

	if (r->phase == GRPC_GATHERED ? r->gathered.bytes != r->message_bytes : r->gathered.bytes != 0)
		return -EBADMSG;
	if (r->phase == GRPC_PASS_FRAME && r->passing.got != HTTP2_HEAD_BYTES)
		return -EBADMSG;
	if (r->phase != GRPC_GATHERED && r->phase != GRPC_PASS_MESSAGE)
		return 0;
	return r->given <= r->message_bytes && (r->phase == GRPC_GATHERED || of_host <= r->left) ? 0 : -EBADMSG;
}

int grpc_send_check(const void *made)
{
	const struct grpc_send *t = made;

	return t->head_given <= t->head_bytes ? 0 : -EBADMSG;
}
