/* New keys for sockets that a process has left. key_renewal.h has the theory of operation. */
#include "processes/key_renewal.h"

#include "core/channel.h"
#include "core/clock.h"
#include "core/outbox.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "processes/deed.h"
#include "processes/given.h"
#include "processes/inherit.h"
#include "processes/listener_key.h"
#include "processes/passed_copies.h"
#include "processes/relatives.h"
#include "processes/wipe.h"
#include "xts_private.h"

#define LOOK_NS (100 * NS_PER_MS)
#define HEARD_NS (3 * LOOK_NS) /* two looks of a member (key_follow()), and the time until it gets to them */
/* The same after the end of a channel, since then most often no process has made the socket yet, and of a socket that
 * another program has passed on. */
#define HEARD_SOON_NS (25 * NS_PER_MS)

static bool is_possible(const struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;

	return c && c->link.features & XTS_FEATURE_RENEW_KEY && s->own.inherited == NOT_INHERITED &&
	       s->own.moved == NOT_MOVED && s->proxy_id && s->open && !s->closing && !s->lost && s->cold->sharing.key;
}

static int (*half_of)(int number);

void xts_on_halves(int (*find)(int number))
{
	half_of = find;
}

/* The kernel's half of a listener that was passed as such (listener_key.h); -1: there is none. */
static int passed_half(const struct xts_sock *s)
{
	int fd = half_of && !s->own.common && kind_of(s)->has_kernel_half ? half_of((int)s->id) : -1;

	return fd >= 0 && listener_key_read(fd) ? fd : -1;
}

void key_look_up(struct xts_sock *s)
{
	int half = passed_half(s);
	uint64_t key = half < 0 ? 0 : listener_key_read(half);

	if (!key && s->cold->sharing.has_deed)
		key = deed_key(s->cold->sharing.deed_fd);
	if (!key && s->own.common)
		key = atomic_load(&s->own.common->key);
	if (key)
		s->cold->sharing.key = key;
}

/* All places but the deed. */
static void tell_others(struct xts_sock *s)
{
	int half = passed_half(s);

	if (half >= 0)
		(void)listener_key_write(half, s->cold->sharing.key);
	if (s->own.common)
		atomic_store(&s->own.common->key, s->cold->sharing.key);
	given_tell(s);
}

void key_tell(struct xts_sock *s)
{
	tell_others(s);
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

static void say(struct xts_sock *s, bool settles)
{
	s->cold->sharing.key_is_told = false;
	s->cold->sharing.key_settles = settles;
	outbox_add(s, TODO_SHARE);
	kind_of(s)->withdraw(s); /* for the proxy, that is what this SHARE says of a listener */
}

bool key_renew(struct xts_sock *s)
{
	if (!is_possible(s) || (s->own.common && passed_some_have_no_deed(s)) || !somebody_has_left(s))
		return false;
	s->cold->sharing.key = key_make();
	key_tell(s);
	say(s, true);
	return true;
}

/* The deed has the key in force: each member says it, and once more with its next look (key_renewal.h). */
static void key_follow(struct xts_sock *s)
{
	uint64_t key = is_possible(s) ? deed_key(s->cold->sharing.deed_fd) : 0;
	bool is_new = key != s->cold->sharing.key;

	if (!key || (!is_new && !s->cold->sharing.key_settles))
		return;
	s->cold->sharing.key = key;
	if (is_new)
		tell_others(s);
	say(s, is_new);
}

bool key_may_be_heard(struct xts_sock *s, int attempt)
{
	const struct sharing *sharing = &s->cold->sharing;
	bool is_soon = sharing->received || s->away;

	if (!sharing->received && !(sharing->has_deed && deed_others_have(sharing->deed_fd)))
		return false;
	return (uint64_t)attempt * JOIN_PAUSE_NS < (is_soon ? HEARD_SOON_NS : HEARD_NS);
}

uint64_t key_to_say(const struct xts_sock *s)
{
	const struct channel *c = s->stack->channel;
	bool may_be_old = share_by_key(s) && !s->cold->sharing.key_is_lost && (s->cold->sharing.key_is_told || !s->open);

	return may_be_old && c && c->link.features & XTS_FEATURE_RENEW_KEY ? 0 : s->cold->sharing.key;
}

void key_tick(struct stack *st, uint64_t now, uint64_t *deadline_ns)
{
	bool any = false;

	for (struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next) {
		any |= s->cold->sharing.has_deed;
		if (now >= st->looks_at_keys_ns && s->cold->sharing.has_deed && !key_renew(s))
			key_follow(s);
	}
	if (now >= st->looks_at_keys_ns)
		st->looks_at_keys_ns = now + LOOK_NS;
	if (any && st->looks_at_keys_ns < *deadline_ns)
		*deadline_ns = st->looks_at_keys_ns;
}

void key_wipe(struct xts_sock *s)
{
	given_end(s);
	if (s->cold->sharing.key)
		wipe(&s->cold->sharing.key, sizeof s->cold->sharing.key);
}
