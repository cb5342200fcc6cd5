/*
 * Does another process have a shared listener too? A process that leaves the listener, by close or exit, tells the
 * proxy. If no other process has it, the listener is closed at once, as the kernel would do. If some have it, the
 * listener is kept for those that have not joined it yet, so that no client is refused meanwhile. inherit.h has the
 * theory of operation.
 *
 * The listener's deed (deed.h) says which processes have it; it is made at the first fork, or when the listener is
 * passed on. If several leave at once, all of them may find that they are the last, and all are right. A process that
 * is killed sends nothing: if it was the last that had joined, the listener closes soon (KILLED_KEEP_MS), and a child
 * that has not joined makes it again.
 */
#include "core/call.h"
#include "core/clock.h"
#include "core/outbox.h"
#include "core/process.h"
#include "core/socket_kind.h"
#include "streams/stream.h"
#include "core/stack.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "processes/passed_copies.h"

void share_before_fork(struct stack *st)
{
	struct xts_sock *s = NULL;

	while (sharing_possible(st) && (s = table_next(st, s)))
		if (s->open && s->proxy_id && !s->opening && !s->closing && !s->lost && s->own.inherited == NOT_INHERITED)
			kind_of(s)->share_before_fork(s);
}

void stream_share_before_fork(struct xts_sock *s)
{
	if (!s->bound || s->own.shared || s->call || s->state != TCP_STATE_CLOSE || s->phase != PHASE_UNCONNECTED ||
	    !sharing_bound_possible(s->stack))
		return;
	s->cold->sharing.key = key_make();
	share_add(s);
	outbox_add(s, TODO_SHARE);
}

/* Will its child have it as a member, or as one that may join? It may have come by exec or fork, and not be used here. */
static bool is_of_several(const struct xts_sock *s)
{
	return s->own.shared || (s->open && share_by_key(s) && s->own.inherited != NOT_INHERITED);
}

void sharers_before_fork(struct stack *st)
{
	struct xts_sock *s = NULL;

	if (!process_inherits())
		return;
	while ((s = table_next(st, s)))
		if (is_of_several(s) && passed_make(s) == 0)
			passed_before_fork(s);
	if (st->shared)
		share_give_back_unaccepted(st);
}

void sharers_after_fork_parent(struct stack *st)
{
	struct xts_sock *s = NULL;

	while ((s = table_next(st, s)))
		if (is_of_several(s))
			passed_after_fork_parent(s);
}

/* True: no other process has it. */
static bool leave(struct xts_sock *s)
{
	return !passed_is_left_to_others(s, (struct passed_leaving){ .passed = true }, false);
}

/* The proxy closes the listener with the last of its members' channels to end. */
void sharers_leave(struct xts_sock *s)
{
	bool last;

	if (!s->cold->sharing.has_deed || s->own.common)
		return;
	last = leave(s);
	s->cold->sharing.stays = s->own.shared && !last;
	if (!s->own.shared || (last && share_is_on_its_way(s)))
		return;
	s->cold->sharing.leaves_last = last;
	s->cold->sharing.leaves = !last;
	if (last || kind_of(s)->keeping_is_told)
		outbox_add(s, TODO_SHARE); /* how long the proxy keeps it */
}

void sharers_at_exit(struct stack *st)
{
	for (struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next) {
		if (!s->cold->sharing.has_deed)
			continue;
		s->cold->sharing.leaves_last = leave(s) && !share_is_on_its_way(s);
		s->cold->sharing.leaves = !s->cold->sharing.leaves_last;
		s->cold->sharing.key_is_told |= s->cold->sharing.key_settles; /* others say it */
		outbox_add(s, TODO_SHARE);
	}
}

bool share_is_on_its_way(const struct xts_sock *s)
{
	return s->cold->sharing.passed_ns && share_by_key(s) &&
	       now_ns() - s->cold->sharing.passed_ns < LISTENER_KEEP_MS * NS_PER_MS;
}

/* Gives a key to a listener that was not meant to be shared, or to a bound socket. */
int share_by_key_with_others(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_SHARE, .keep_ms = LISTENER_KEEP_MS };
	int r;

	if (s->own.inherited != NOT_INHERITED)
		return 0;
	if (!kind_of(s)->may_be_shared(s->stack))
		return -EOPNOTSUPP;
	if (!s->cold->sharing.key)
		s->cold->sharing.key = key_make();
	call.key = key_to_say(s);
	kind_of(s)->share_sent(s);
	r = call_proxy(s, &call);
	if (r && r != -EBADF && !call.done)
		kind_of(s)->share_answered(s, true); /* it was not sent */
	if (r)
		return r;
	s->cold->sharing.key_is_told = true;
	if (!s->own.shared)
		/* the credits it has posted stay valid: connections that they pay for are offers from now on */
		share_add(s);
	kind_of(s)->is_shared(s);
	return 0;
}
