/* A stack: its life, and what its owner does with it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "ulp_stack_inside.h"

/* --- life --------------------------------------------------------------------------------------------------------- */

int ulp_stack_new(struct ulp_stack **out, const struct ulp_owner *owner)
{
	struct ulp_stack *s = calloc(1, sizeof *s);

	if (!s)
		return -ENOMEM;
	s->owner = *owner;
	if (owner->config)
		xts_ulp_config_hold(owner->config);
	else
		s->owner.config = xts_ulp_config_new(NULL);
	if (!s->owner.config) {
		free(s);
		return -ENOMEM;
	}
	s->readable = s->writable = true;
	ulp_stack_turn(s);
	*out = s;
	return 0;
}

uint32_t ulp_stack_bytes(void)
{
	return sizeof(struct ulp_stack);
}

void ulp_stack_free(struct ulp_stack *s)
{
	if (!s)
		return;
	for (unsigned i = s->send.count; i-- > 0;) {
		if (!s->send.layer[i]->receive)
			ulp_layer_free(s->send.layer[i]);
	}
	for (unsigned i = s->receive.count; i-- > 0;)
		ulp_layer_free(s->receive.layer[i]);
	ulp_out_free(&s->given);
	ulp_pushes_free(s, true);
	xts_ulp_config_release(s->owner.config);
	free(s);
}

int ulp_stack_copy(struct ulp_stack **out, const struct ulp_stack *from, const struct ulp_owner *owner)
{
	struct ulp_stack *s;
	int r = ulp_stack_new(&s, owner);

	if (r)
		return r;
	for (const struct ulp_push *push = from->pushes; push; push = push->next) {
		r = ulp_stack_push(s, push->direction, push->ulp_id, push->attributes, push->bytes);
		if (r) {
			ulp_stack_free(s);
			return r;
		}
	}
	*out = s;
	return 0;
}

static void move_layers(const struct ulp_chain *c)
{
	for (unsigned i = 0; i < c->count; i++) {
		if (c->layer[i]->protocol->move)
			c->layer[i]->protocol->move(c->layer[i]);
	}
}

static void moved(struct ulp_stack *s)
{
	move_layers(&s->receive);
	move_layers(&s->send);
}

void ulp_stack_move(struct ulp_stack *s, const struct ulp_owner *owner)
{
	struct xts_ulp_config *config = s->owner.config;
	int fd = s->owner.fd;

	s->owner = *owner;
	s->owner.config = config;
	if (owner->fd < 0)
		s->owner.fd = fd;
	s->readable = s->writable = true;
	s->idle = false;
	s->wake_ns = 0; /* this was asked of the previous owner */
	moved(s);
	if (s->started && !ulp_stack_ready(s))
		ulp_stack_wake_after(s, 0);
}

void ulp_stack_leave(struct ulp_stack *s)
{
	s->owner.memory = NULL;
	s->owner.bell = NULL;
	moved(s);
}

int ulp_stack_expect(struct ulp_stack *s, uint32_t bytes)
{
	ulp_stack_touch(s);
	ulp_out_free(&s->given);
	return bytes ? ulp_out_resize(&s->given, s, bytes) : 0;
}

int ulp_stack_give_back(struct ulp_stack *s, const void *data, uint32_t bytes)
{
	struct ulp_layer *l = ulp_chain_top(&s->receive);
	struct ulp_out *to;
	int r;

	if (!bytes)
		return 0;
	if (!l || bytes > s->given.room - s->given.bytes)
		return -EINVAL;
	ulp_stack_touch(s);
	ulp_out_put(&s->given, data, bytes);
	if (s->given.bytes < s->given.room)
		return 0;
	to = s->changed ? &l->again : &l->replay;
	if (to->bytes) { /* bytes given back earlier have not been read yet: the new ones go behind them */
		r = ulp_out_reserve(&s->given, l, to->bytes);
		if (r)
			return r;
		ulp_out_put(&s->given, to->data + to->first, to->bytes);
		ulp_out_free(to);
	}
	*to = s->given;
	s->given = (struct ulp_out){ 0 };
	s->idle = false;
	return 0;
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

bool ulp_stack_receives(const struct ulp_stack *s)
{
	return s->receive.count;
}

void ulp_stack_shows(struct ulp_stack *s, bool shown)
{
	s->shown = shown;
}

ssize_t ulp_stack_read(struct ulp_stack *s, void *out, size_t room, struct ulp_mark *mark)
{
	struct ulp_layer *l = ulp_chain_top(&s->receive);
	ssize_t n;

	if (s->failed || s->cut)
		return s->failed ? s->failed : s->cut;
	ulp_stack_touch(s);
	n = l ? ulp_layer_read(l, out, room, mark) : ulp_bottom_read(s, out, room, mark);
	if (n == -EAGAIN)
		s->idle = true;
	return n;
}

bool ulp_stack_pending(const struct ulp_stack *s)
{
	const struct ulp_layer *l = ulp_chain_top(&s->receive);

	if (s->failed || s->cut) /* a layer found it behind bytes that it has returned: the next read reports it */
		return true;
	return !s->idle && l && ulp_layer_pending(l);
}

bool ulp_stack_is_cut(const struct ulp_stack *s)
{
	return s->cut && !s->failed;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

bool ulp_stack_sends(const struct ulp_stack *s)
{
	return s->send.count;
}

ssize_t ulp_stack_write(struct ulp_stack *s, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct ulp_layer *l = ulp_chain_top(&s->send);

	if (s->failed)
		return s->failed;
	ulp_stack_touch(s);
	return l ? ulp_layer_write(l, iov, pieces, mark) : ulp_bottom_write(s, iov, pieces, mark);
}

int ulp_stack_flush(struct ulp_stack *s)
{
	ulp_stack_touch(s);
	return ulp_layer_flush(ulp_chain_top(&s->send));
}

int ulp_stack_finish(struct ulp_stack *s)
{
	ulp_stack_touch(s);
	return ulp_layer_finish(ulp_chain_top(&s->send));
}
