/*
 * Taking over a connection that several processes have: TAKE is repeated with growing pauses until the holder has
 * parked the connection (give_up.c). inherit.h has the theory of operation.
 *
 * A holder may be stopped, and by somebody who wants this process to wait. So how long a call waits for it depends on
 * the call:
 *
 *     the call                                         waits until           and then is
 *     recv, send on a blocking socket                  its own time-out,     EAGAIN
 *                                                      or ANSWER_NS          ETIMEDOUT
 *     recv, send with O_NONBLOCK or MSG_DONTWAIT       AT_ONCE_NS            EAGAIN
 *     getsockopt and others that never wait in the     AT_ONCE_NS, or        EAGAIN
 *     kernel                                           SOON_NS if blocking
 *     shutdown                                         the same              0: done with the next use
 *     poll, and the progress thread for a sleeping one not at all            not ready
 *
 * The kernel waits in all of these, for the lock of a socket that another process is using; that process runs. So does
 * AT_ONCE_NS wait for an answer of a holder that runs: without it, each call of a process that alternates with another
 * would fail once. After one call has waited in vain the holder is *silent*, and no such call waits for it any more
 * until it gives the connection up. What the failed call wanted the connection for is remembered, so that a poll asks
 * for it with the same urgency: readiness comes when the holder gives it up.
 *
 * A new process needs a queue of its own first. An agent that is being started again gives none, and ends nothing: so
 * an inherited connection is not given up for that before INHERITED_AWAY_NS.
 */
#include <sys/epoll.h>

#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/outbox.h"
#include "core/reason.h"
#include "core/received_data.h"
#include "core/socket.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "link/credit.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "processes/next_proxy.h"
#include "processes/relatives.h"
#include "processes/take_over.h"
#include "ulps/pushed.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"

#define ANSWER_NS (2 * NS_PER_S) /* a holder that has not answered by then is stopped, or hangs */
#define AT_ONCE_NS (10 * NS_PER_MS)
#define SOON_NS (100 * NS_PER_MS)
#define UNKNOWN_NS NS_PER_S /* the parent's SHARE may be on its way */
#define PAUSE_MIN_NS (100 * NS_PER_US)
/* a process that does not ask again soon is not waited for (PROTOCOL.md) */
#define PAUSE_BUSY_NS (2 * NS_PER_MS)
#define PAUSE_NEEDED_NS (20 * NS_PER_MS) /* the holder is receiving, possibly for long; or there is no queue */

/* If the process that held it last has died: had it read everything, and has everything that it had sent arrived? */
static bool nothing_is_missing(const struct xts_sock *s, const struct call *call)
{
	struct common *c = s->own.common;

	if (c && atomic_load(&c->torn))
		return false;
	return !call->died || (c && call->delivered_bytes == atomic_load(&c->read_bytes) &&
			       call->accepted_bytes == atomic_load(&c->sent_bytes));
}

/* It is reset at once: the peer learns of it, the others that have it find it torn or gone, and what is on its way here
 * is dropped. */
static void lost_with_its_process(struct xts_sock *s)
{
	if (s->own.common)
		atomic_store(&s->own.common->torn, true);
	buffer_drop(s);
	s->stack->not_inherited++;
	socket_fail(s, ECONNRESET);
	socket_not_here(s, XTS_REASON_LOST);
	s->closing = s->abort = true;
	outbox_add(s, TODO_CLOSE);
}

static void read_common(struct xts_sock *s)
{
	const volatile struct common *c = s->own.common; /* read once: a relative may write to it meanwhile */
	struct ulps ulps = c->ulps;

	if (ulps.depth[ULPS_RECEIVE] <= ULP_DEPTH && ulps.depth[ULPS_SEND] <= ULP_DEPTH)
		s->cold->ulps = ulps;
	s->cold->ulps.sending = s->cold->ulps.handshaking = false;
	s->cold->sharing.pdu_read = c->pdu_read;
}

void turn_is_taken(struct xts_sock *s, bool died)
{
	s->cold->sharing.pdu_read = 0;
	if (!s->own.common)
		return;
	s->cold->sharing.shuts_later = false;
	s->shutdown |= s->own.common->shutdown & SHUTDOWN_MASK;
	if (s->shutdown & SEND_SHUTDOWN)
		outbox_add(s, TODO_FIN); /* nobody may have sent it yet; a second one does nothing */
	if (!died)
		read_common(s);
}

static void taken(struct xts_sock *s, const struct call *call)
{
	inherit_is_here(s);
	s->own.why_gone = 0;
	s->cold->sharing.taken_ns = now_ns();
	s->cold->sharing.silent = false;
	s->cold->sharing.sought_for = 0;
	s->cold->sharing.unknown_ns = 0;
	if (s->state != TCP_STATE_ESTABLISHED)
		return; /* the socket has failed meanwhile */
	if (!nothing_is_missing(s, call)) {
		lost_with_its_process(s);
		return;
	}
	if (s->own.common) {
		common_tell_counts(s);
		common_tell_server(s->stack->channel);
		progress_need(s->stack); /* the progress thread answers YIELD while the application is elsewhere */
	}
	/* If this process is killed, the proxy need not wait for others: most often a parent has closed its copy. */
	if (s->own.common && !s->own.ending && !common_others_have(s, NULL))
		common_forget(s);
	else
		(void)key_renew(s);
	if (s->cold->sharing.asked_for)
		turn_is_asked_for(s);
	status_state(s);
	status_ulps(s);
	socket_changed(s, socket_events(s) | EPOLLIN | EPOLLOUT);
}

/* Sends TAKE once. */
static int ask(struct xts_sock *s, uint32_t purpose)
{
	struct call call = { .type = XTS_CMD_TAKE, .purpose = purpose };
	uint32_t window = s->grant.window < WINDOW_BYTES_MIN ? WINDOW_BYTES_MIN : s->grant.window;
	int r = s->stack->channel ? 0 : channel_attach(s->stack);

	if (r || !s->in_use)
		return r ? r : -EBADF;
	if (!(s->stack->channel->link.features & XTS_FEATURE_TAKE))
		return -EOPNOTSUPP;
	key_look_up(s);
	call.key = s->cold->sharing.key;
	xts_credit_grant_init(&s->grant, window);
	call.post_credits = window;
	s->consumed = 0;
	s->credits = s->peer_window = 0;
	move_base(s);
	s->shutdown &= SEND_SHUTDOWN;
	s->done = false;
	s->error = 0;
	socket_enter(s, TCP_STATE_ESTABLISHED, PHASE_CONNECTED);
	r = call_proxy(s, &call);
	if (!r)
		taken(s, &call);
	return r;
}

static void failed(struct xts_sock *s)
{
	inherit_is_here(s);
	s->lost = true;
	s->proxy_id = 0;
	s->opening = false;
	s->stack->not_inherited++;
	socket_fail(s, ECONNRESET);
	socket_not_here(s, XTS_REASON_LOST);
}

/* A call, as far as it waits for the holder. */
struct patience {
	uint32_t purpose;
	bool at_once; /* it must not wait, except for an answer that a process that runs gives */
	uint64_t begun_ns;
	uint64_t until_ns; /* when the call has to return */
	uint64_t answered_ns;
};

/* Has it been so for less than this time? The parent's SHARE may be on its way, or the key is not valid any more; an
 * agent may be starting, or there is none. */
static bool may_pass(struct xts_sock *s, uint64_t now, uint64_t limit_ns)
{
	if (!s->cold->sharing.unknown_ns)
		s->cold->sharing.unknown_ns = now;
	return now - s->cold->sharing.unknown_ns < limit_ns;
}

/* What an answer means: 0: ask again; otherwise the result of the call. */
static int consider(struct xts_sock *s, int r, struct patience *p)
{
	uint64_t now = now_ns();
	bool over = now >= p->until_ns || p->purpose <= PURPOSE_POLL;

	switch (r) {
	case -EAGAIN: /* its holder needs it */
		p->answered_ns = now;
		if (over || (p->at_once && p->purpose == PURPOSE_RECEIVE))
			return r;
		return p->purpose != PURPOSE_RECEIVE && now - p->begun_ns > ANSWER_NS ? -ETIMEDOUT : 0;
	case -EBUSY: /* its holder has not answered */
		return over ? -EAGAIN : now - p->answered_ns > ANSWER_NS ? -ETIMEDOUT : 0;
	case -ENOENT:
		return !may_pass(s, now, UNKNOWN_NS) ? r : over ? -EAGAIN : 0;
	case -ENETDOWN: /* there is no queue: its holder could not be asked */
		p->begun_ns = p->answered_ns = now;
		return s->stack->channel || !may_pass(s, now, INHERITED_AWAY_NS) ? r : over ? -EAGAIN : 0;
	default:
		return r;
	}
}

static uint64_t longer(uint64_t pause_ns, uint64_t limit_ns)
{
	return pause_ns * 2 < limit_ns ? pause_ns * 2 : limit_ns;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

static int take(struct xts_sock *s, struct patience *p)
{
	uint64_t pause_ns = PAUSE_MIN_NS;
	uint16_t nobody = 0;

	for (;;) {
		/* Other threads wait for the outcome of this one. */
		uint8_t for_others = s->cold->sharing.taking_for;
		int answer = ask(s, p->purpose > for_others ? p->purpose : for_others), r;

		if (!answer || !s->in_use)
			return answer;
		r = consider(s, answer, p);
		if (r)
			return r;
		/* A signal ends the wait: the call is made again, or fails with EINTR, as a call does that waits for
		 * data. */
		r = wait_interruptibly(s->stack, &nobody, earlier(now_ns() + pause_ns, p->until_ns), false);
		if (!socket_goes_on(s))
			return -EBADF;
		if (r == -EINTR)
			return -ERESTART;
		pause_ns = longer(pause_ns, answer == -EAGAIN || answer == -ENETDOWN ? PAUSE_NEEDED_NS : PAUSE_BUSY_NS);
	}
}

/* Waits until no other thread takes it, and it is not being given up. 0 or -errno. */
static int wait_until_settled(struct xts_sock *s, const struct patience *p)
{
	uint64_t last_ns = earlier(p->begun_ns + ANSWER_NS, p->until_ns);
	int r = 0;

	while (!r && s->in_use && (s->own.moved != NOT_MOVED || s->own.taking)) {
		if (p->purpose > s->cold->sharing.taking_for)
			s->cold->sharing.taking_for = (uint8_t)p->purpose;
		if (now_ns() >= p->until_ns)
			return -EAGAIN;
		r = wait_for(s->stack, &s->callers, last_ns, false);
	}
	if (!s->in_use)
		return -EBADF;
	return r == -ETIMEDOUT && last_ns == p->until_ns ? -EAGAIN : r;
}

static int take_with(struct xts_sock *s, struct patience *p)
{
	int r;

	s->cold->sharing.used_ns = p->begun_ns;
	r = wait_until_settled(s, p);
	if (r)
		return r;
	if (s->own.inherited == NOT_INHERITED || !s->cold->sharing.key)
		return 0;
	s->own.taking = true;
	s->cold->sharing.taking_for = (uint8_t)p->purpose;
	r = take(s, p);
	if (!s->in_use)
		return -EBADF;
	s->own.taking = false;
	if (r && r != -EAGAIN && r != -ETIMEDOUT && r != -ERESTART && r != -EBADF)
		failed(s);
	if (r == -ETIMEDOUT) {
		s->own.why_gone = XTS_REASON_ELSEWHERE;
		status_state(s);
	}
	wake(s->stack, &s->callers);
	if (s->own.gone_unreported && p->purpose > PURPOSE_POLL)
		socket_report_gone(s);
	if (!socket_goes_on(s)) {
		socket_end(s); /* the application has closed it meanwhile */
		return -EBADF;
	}
	return s->own.why_gone == XTS_REASON_LOST ? 0 : r; /* the call finds the socket's error */
}

/* limit_ns: how long to wait for a holder that runs, unless an earlier call has waited for it in vain. */
static int take_at_once(struct xts_sock *s, uint32_t purpose, uint64_t limit_ns)
{
	uint64_t now = now_ns();
	struct patience p = { .purpose = purpose,
			      .at_once = true,
			      .begun_ns = now,
			      .until_ns = now + (s->cold->sharing.silent ? 0 : limit_ns),
			      .answered_ns = now };
	int r = take_with(s, &p);

	if (!s->open)
		return -EBADF;
	if (r != -EAGAIN || purpose <= PURPOSE_POLL)
		return r;
	s->cold->sharing.silent |= now_ns() >= p.until_ns;
	if (purpose > s->cold->sharing.sought_for)
		s->cold->sharing.sought_for = (uint8_t)purpose;
	if (s->polled || s->watches || s->mirror)
		common_look_soon(s->stack); /* they ask for it as urgently as this call did */
	return r;
}

int turn_take(struct xts_sock *s, uint32_t purpose, uint64_t until_ns)
{
	struct patience p = { .purpose = purpose, .begun_ns = now_ns(), .until_ns = until_ns };
	int r;

	if (until_ns == AT_ONCE)
		return take_at_once(s, purpose, AT_ONCE_NS);
	p.answered_ns = p.begun_ns;
	r = take_with(s, &p);
	return s->open ? r : -EBADF;
}

int turn_take_to_close(struct xts_sock *s)
{
	uint64_t now = now_ns();
	struct patience p = { .purpose = PURPOSE_USE, .begun_ns = now, .until_ns = FOREVER, .answered_ns = now };
	int r;

	s->own.ending = true;
	r = take_with(s, &p);
	s->own.ending = false;
	return r;
}

static int ask_once(struct xts_sock *s, uint32_t purpose)
{
	uint64_t now = now_ns();
	struct patience p = { .purpose = purpose, .at_once = true, .begun_ns = now, .until_ns = now, .answered_ns = now };

	return take_with(s, &p);
}

void turn_seek(struct xts_sock *s)
{
	uint32_t wanted = s->cold->sharing.sought_for;

	(void)ask_once(s, wanted > PURPOSE_POLL ? wanted : PURPOSE_POLL);
}

int turn_take_kept(struct xts_sock *s)
{
	return ask_once(s, PURPOSE_USE);
}

/* --- once for each call ------------------------------------------------------------------------------------------- */

/* The connection that the calling thread's current call has asked for without success; 0: none. */
static __thread uint32_t not_had;

void turn_begin(struct xts_sock *s, uint32_t purpose)
{
	int r = 0;

	not_had = 0;
	if (purpose == PURPOSE_USE)
		r = take_at_once(s, purpose, s->nonblocking ? AT_ONCE_NS : SOON_NS);
	else if (purpose != PURPOSE_NOBODY)
		r = turn_take(s, purpose, AT_ONCE);
	if (r == -ETIMEDOUT || (r == -EAGAIN && purpose == PURPOSE_USE))
		not_had = s->id;
}

int turn_use(struct xts_sock *s)
{
	if (!turn_is_elsewhere(s))
		return 0;
	return not_had == s->id ? -EAGAIN : take_at_once(s, PURPOSE_USE, s->nonblocking ? AT_ONCE_NS : SOON_NS);
}
