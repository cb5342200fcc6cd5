/* New keys for sockets that a process has left. key_renewal.h has the theory of operation. */
#include "processes/key_renewal.h"

#include "core/channel.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "processes/deed.h"
#include "processes/inherit.h"
#include "processes/relatives.h"
#include "processes/wipe.h"

static bool is_possible(const struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;

	return c && c->link.features & XTS_FEATURE_RENEW_KEY && s->own.inherited == NOT_INHERITED &&
	       s->own.moved == NOT_MOVED && s->proxy_id && s->open && !s->closing && !s->lost && s->cold->sharing.key;
}

void key_look_up(struct xts_sock *s)
{
	uint64_t key = 0;

	if (s->cold->sharing.has_deed)
		key = deed_key(s->cold->sharing.deed_fd);
	if (!key && s->own.common)
		key = atomic_load(&s->own.common->key);
	if (key)
		s->cold->sharing.key = key;
}

void key_tell(struct xts_sock *s)
{
	if (s->own.common)
		atomic_store(&s->own.common->key, s->cold->sharing.key);
	if (s->cold->sharing.has_deed)
		deed_put_key(s->cold->sharing.deed_fd, s->cold->sharing.key);
}

/* Each note counts once: who leaves after this leaves a new one. */
static bool somebody_has_left(struct xts_sock *s)
{
	bool left = s->own.common && atomic_exchange(&s->own.common->left, 0);

	if (s->cold->sharing.has_deed)
		left |= deed_was_left(s->cold->sharing.deed_fd);
	return left;
}

bool key_renew(struct xts_sock *s)
{
	if (!is_possible(s) || !somebody_has_left(s))
		return false;
	s->cold->sharing.key = key_make();
	key_tell(s);
	outbox_add(s, TODO_SHARE);
	return true;
}

void key_wipe(struct xts_sock *s)
{
	if (s->cold->sharing.key)
		wipe(&s->cold->sharing.key, sizeof s->cold->sharing.key);
}
