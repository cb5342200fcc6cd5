/*
 * Datagram sockets that several processes have. inherit.h has the theory of operation.
 *
 * All these processes share one socket of the proxy, with its address, peer, options and received datagrams. A process
 * that does not read must not be sent datagrams that another one waits for. So once a socket has its key, receive
 * credits are posted only while this process shows interest: it reads, or waits for the socket. SHARE voids the credits
 * that the proxy holds: its answer says that no datagram they paid for is still on its way. It is sent with the key,
 * and again when the process has not shown interest for IDLE_NS. The proxy sends a process a few datagrams at first. It
 * sends more when the process posts credits again, which happens when it has read them all and wants more.
 *
 * Datagrams that have been sent to a process, and that none of its threads waits for when the answer to SHARE comes, go
 * back (return_datagrams.c). So do unread datagrams when a process closes the socket, passes it on, or exits normally.
 */
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "datagrams/datagrams.h"
#include "core/outbox.h"
#include "core/socket.h"
#include "core/stack.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "core/wait.h"

#define IDLE_NS (20 * NS_PER_MS)
#define CREDITS_NS NS_PER_S

bool sharing_datagrams_possible(struct stack *st)
{
	return sharing_possible(st) && (st->channel->link.features & XTS_FEATURE_SHARE_DATAGRAM);
}

/* --- naming ------------------------------------------------------------------------------------------------------- */

/* No credits are posted until the answer to SHARE has come. */
void datagram_withhold(struct xts_sock *s)
{
	s->datagrams->withheld = true;
	s->datagrams->sought = false;
	outbox_add(s, TODO_SHARE);
}

void datagram_share_before_fork(struct xts_sock *s)
{
	if (!sharing_datagrams_possible(s->stack))
		return;
	if (s->own.shared) { /* the next datagram may be for the child */
		if (s->datagrams->withheld)
			datagram_return_unread(s);
		else
			datagram_withhold(s);
		return;
	}
	if (!s->cold->sharing.key)
		s->cold->sharing.key = key_make();
	share_add(s);
	datagram_withhold(s);
}

void datagram_naming(struct xts_sock *s)
{
	s->datagrams->withheld = true;
	s->datagrams->naming++;
}

static bool is_sought(const struct xts_sock *s)
{
	return !s->datagrams->leaves && (s->datagrams->sought || share_is_awaited(s) || share_waits_elsewhere(s));
}

static void post(struct xts_sock *s)
{
	s->datagrams->withheld = s->datagrams->sought = false;
	outbox_add(s, TODO_ADVERT);
}

void datagram_is_named(struct xts_sock *s, bool refused)
{
	struct datagrams *q = s->datagrams;

	if (!q->naming)
		return;
	q->naming--;
	if (!refused) {
		s->grant.unadvertised += s->grant.outstanding;
		s->grant.outstanding = 0;
	}
	if (q->naming || s->todo & TODO_SHARE || s->closing)
		return;
	if (refused || is_sought(s))
		post(s);
	else
		datagram_return_unread(s);
}

/* --- interest ----------------------------------------------------------------------------------------------------- */

void datagram_interest(struct xts_sock *s, bool accepts)
{
	struct datagrams *q = s->datagrams;

	(void)accepts;
	if (!s->own.shared || s->closing || s->lost || q->leaves)
		return;
	s->cold->sharing.accepting_ns = now_ns();
	if (!q->withheld && !q->first && s->grant.unadvertised)
		outbox_add(s, TODO_ADVERT); /* the proxy sends few, until this process posts credits */
	if (!q->withheld)
		return;
	if (q->naming || s->todo & TODO_SHARE) {
		q->sought = true;
	} else {
		post(s);
		channel_shows_interest(s->stack);
	}
}

static bool may_be_idle(const struct xts_sock *s)
{
	return s->cold->sharing.others_may_have && !s->datagrams->withheld && !s->closing && !share_is_awaited(s) &&
	       !share_waits_elsewhere(s);
}

void datagram_share_tick(struct xts_sock *s, uint64_t now)
{
	if (may_be_idle(s) && now - s->cold->sharing.accepting_ns >= IDLE_NS)
		datagram_withhold(s);
}

bool datagram_is_away(const struct xts_sock *s, uint64_t now, uint64_t *deadline_ns)
{
	uint64_t at = may_be_idle(s) ? s->cold->sharing.accepting_ns + IDLE_NS : FOREVER;

	(void)now;
	if (at < *deadline_ns)
		*deadline_ns = at;
	return datagram_is_returning(s);
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

/* The credits to send with follow the answer: without them, a call that does not wait would find no room. */
static int wait_for_credits(struct xts_sock *s)
{
	uint64_t deadline = now_ns() + CREDITS_NS;
	int r = 0;

	while (!r && !s->credits && !s->lost)
		r = socket_wait(s, &s->writers, deadline, true);
	return r == -EBADF ? r : s->lost ? -ENETDOWN : 0;
}

static void begin_account(struct xts_sock *s)
{
	datagram_grant(s);
	s->grant.unadvertised = s->grant.outstanding;
	s->grant.outstanding = 0;
	s->credits = s->peer_window = 0;
	s->datagrams->withheld = true;
}

/* No process has its key any more: makes the socket again. */
static int renew(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_SHARE, .keep_ms = share_keep_ms(s), .makes = true };
	int r = asked_play(s);

	if (r)
		return r;
	datagram_naming(s);
	key_look_up(s);
	call.key = s->cold->sharing.key;
	r = call_proxy(s, &call);
	if (!r) {
		s->cold->sharing.key_is_told = true;
		share_add(s);
	}
	return r;
}

int datagram_join(struct xts_sock *s)
{
	uint16_t nobody = 0;
	int r = -EADDRINUSE;

	s->cold->sharing.others_may_have = s->stack->joint = true;
	if (!sharing_datagrams_possible(s->stack))
		return -EOPNOTSUPP;
	for (int i = 0; (r == -EADDRINUSE || r == -EEXIST) && i < JOIN_ATTEMPTS; i++) {
		struct call call = { .type = XTS_CMD_SHARE, .keep_ms = share_keep_ms(s), .makes = true };

		if (i) {
			r = again_undo(s);
			if (r)
				return r == -EBADF ? r : -ENETDOWN;
			r = socket_wait(s, &nobody, now_ns() + JOIN_PAUSE_NS, false);
			if (r == -EBADF)
				return r;
		}
		begin_account(s);
		key_look_up(s);
		call.key = s->cold->sharing.key;
		r = call_proxy(s, &call);
		if (!r) {
			s->cold->sharing.key_is_told = true;
			if (call.local.ip_version)
				s->local = call.local;
			share_add(s);
			return wait_for_credits(s);
		}
		if (r == -ENOENT && key_may_be_heard(s, i))
			r = -EEXIST;
		else if (r == -ENOENT && !s->cold->sharing.received)
			r = renew(s); /* EADDRINUSE: another process is making it */
	}
	return r;
}
