/*
 * Taking over a connection that several processes have: TAKE is repeated with growing pauses until the holder has
 * parked the connection (give_up.c). inherit.h has the theory of operation.
 */
#include <sys/epoll.h>

#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/reason.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "credit.h"
#include "processes/inherit.h"
#include "processes/relatives.h"
#include "processes/take_over.h"
#include "ulps/pushed.h"
#include "waiting/progress_thread.h"
#include "waiting/wait.h"

#define ANSWER_NS (2 * NS_PER_S) /* a holder that has not answered by then is stopped, or hangs */
#define UNKNOWN_NS NS_PER_S      /* the parent's SHARE may be on its way */
#define PAUSE_MIN_NS (100 * NS_PER_US)
/* a process that does not ask again soon loses its place to the next one (PROTOCOL.md) */
#define PAUSE_BUSY_NS (2 * NS_PER_MS)
#define PAUSE_NEEDED_NS (20 * NS_PER_MS) /* the holder is receiving, possibly for long */

bool turn_is_elsewhere(const struct xts_sock *s)
{
	return s->own.moved != NOT_MOVED || (s->own.inherited != NOT_INHERITED && s->own.common);
}

/* The process that held it last has died. Had it read everything, and has everything that it had sent arrived? */
static bool nothing_is_missing(const struct xts_sock *s, const struct call *call)
{
	return !call->died || (s->own.common && call->delivered_bytes == atomic_load(&s->own.common->read_bytes) &&
			       call->accepted_bytes == atomic_load(&s->own.common->sent_bytes));
}

static void lost_with_its_process(struct xts_sock *s)
{
	s->stack->not_inherited++;
	socket_fail(s, ECONNRESET);
	socket_not_here(s, XTS_REASON_LOST);
}

static void read_common(struct xts_sock *s)
{
	const volatile struct common *c = s->own.common; /* read once: a relative may write to it meanwhile */
	struct ulps ulps = c->ulps;

	s->shutdown |= c->shutdown & SEND_SHUTDOWN;
	if (ulps.depth[ULPS_RECEIVE] <= ULP_DEPTH && ulps.depth[ULPS_SEND] <= ULP_DEPTH)
		s->cold->ulps = ulps;
	s->cold->ulps.sending = s->cold->ulps.handshaking = false;
	s->cold->sharing.pdu_read = c->pdu_read;
}

void turn_is_taken(struct xts_sock *s, bool died)
{
	s->cold->sharing.pdu_read = 0;
	if (s->own.common && !died)
		read_common(s);
}

static void taken(struct xts_sock *s, const struct call *call)
{
	inherit_is_here(s);
	s->own.why_gone = 0;
	if (s->state != TCP_STATE_ESTABLISHED)
		return; /* the socket has failed meanwhile */
	if (!nothing_is_missing(s, call)) {
		lost_with_its_process(s);
		return;
	}
	if (s->own.common) {
		atomic_store(&s->own.common->read_bytes, s->read_bytes);
		atomic_store(&s->own.common->sent_bytes, s->sent_bytes - s->cold->sharing.sent_before);
		progress_need(s->stack); /* the progress thread answers YIELD while the application is elsewhere */
	}
	if (s->cold->sharing.asked_for)
		turn_is_asked_for(s);
	status_state(s);
	status_ulps(s);
	socket_changed(s, socket_events(s) | EPOLLIN | EPOLLOUT);
}

/* Sends TAKE once. */
static int ask(struct xts_sock *s, uint32_t purpose)
{
	struct call call = { .type = XTS_CMD_TAKE, .key = s->cold->sharing.key, .purpose = purpose };
	uint32_t window = s->grant.window < WINDOW_BYTES_MIN ? WINDOW_BYTES_MIN : s->grant.window, id = s->id;
	int r = s->stack->channel ? 0 : channel_attach(s->stack);

	if (!socket_is(s, id) || r)
		return r ? r : -EBADF;
	if (!(s->stack->channel->link.features & XTS_FEATURE_TAKE))
		return -EOPNOTSUPP;
	xts_credit_grant_init(&s->grant, window);
	call.post_credits = window;
	s->read_bytes = 0;
	s->consumed = 0;
	s->credits = s->peer_window = 0;
	s->cold->sharing.sent_before = s->sent_bytes;
	s->shutdown &= SEND_SHUTDOWN;
	s->done = false;
	s->error = 0;
	s->state = TCP_STATE_ESTABLISHED;
	s->phase = PHASE_CONNECTED;
	r = call_proxy(s, &call);
	if (!socket_is(s, id))
		return -EBADF;
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

/* What an answer means: 0: ask again; otherwise the result of the call. */
static int consider(int r, uint32_t purpose, uint64_t needed_until_ns, uint64_t begun_ns, uint64_t *answered_ns)
{
	uint64_t now = now_ns();

	if (r == -EAGAIN) {
		*answered_ns = now;
		if (now >= needed_until_ns)
			return r;
		return purpose != PURPOSE_RECEIVE && now - begun_ns > ANSWER_NS ? -ETIMEDOUT : 0;
	}
	if (r == -EBUSY)
		return purpose <= PURPOSE_POLL ? -EAGAIN : now - *answered_ns > ANSWER_NS ? -ETIMEDOUT : 0;
	return r == -ENOENT && now - begun_ns < UNKNOWN_NS ? 0 : r;
}

static uint64_t longer(uint64_t pause_ns, uint64_t limit_ns)
{
	return pause_ns * 2 < limit_ns ? pause_ns * 2 : limit_ns;
}

static int take(struct xts_sock *s, uint32_t purpose, uint64_t needed_until_ns, uint64_t begun_ns)
{
	uint64_t answered_ns = begun_ns, pause_ns = PAUSE_MIN_NS;
	uint32_t id = s->id;
	uint16_t nobody = 0;

	for (;;) {
		/* Other threads wait for the outcome of this one. */
		int answer = ask(s, purpose > s->cold->sharing.taking_for ? purpose : s->cold->sharing.taking_for), r;

		if (!answer || !socket_is(s, id))
			return answer;
		r = consider(answer, purpose, needed_until_ns, begun_ns, &answered_ns);
		if (r)
			return r;
		/* A signal ends the wait: the call is made again, or fails with EINTR, as a call does that waits for
		 * data. */
		r = wait_interruptibly(s->stack, &nobody, now_ns() + pause_ns, false);
		if (!socket_is(s, id))
			return -EBADF;
		if (r == -EINTR)
			return -ERESTART;
		if (!s->open && !s->own.ending)
			return -EBADF;
		pause_ns = longer(pause_ns, answer == -EAGAIN ? PAUSE_NEEDED_NS : PAUSE_BUSY_NS);
	}
}

int turn_take(struct xts_sock *s, uint32_t purpose, uint64_t needed_until_ns)
{
	struct stack *st = s->stack;
	uint64_t begun_ns = now_ns();
	uint32_t id = s->id;
	int r;

	s->cold->sharing.used_ns = begun_ns;
	while (socket_is(s, id) && (s->own.moved != NOT_MOVED || s->own.taking)) {
		if (purpose > s->cold->sharing.taking_for)
			s->cold->sharing.taking_for = (uint8_t)purpose;
		r = wait_for(st, &s->callers, begun_ns + ANSWER_NS, false);
		if (r)
			return r;
	}
	if (!socket_is(s, id))
		return -EBADF;
	if (s->own.inherited == NOT_INHERITED || !s->cold->sharing.key)
		return 0;
	s->own.taking = true;
	s->cold->sharing.taking_for = (uint8_t)purpose;
	r = take(s, purpose, needed_until_ns, begun_ns);
	if (!socket_is(s, id))
		return -EBADF;
	s->own.taking = false;
	if (r && r != -EAGAIN && r != -ETIMEDOUT && r != -ERESTART && r != -EBADF)
		failed(s);
	if (r == -ETIMEDOUT) {
		s->own.why_gone = XTS_REASON_ELSEWHERE;
		status_state(s);
	}
	wake(st, &s->callers);
	if (s->own.gone_unreported && purpose > PURPOSE_POLL)
		socket_report_gone(s);
	if (!s->open && !s->own.ending) {
		socket_end(s); /* the application has closed it meanwhile */
		return -EBADF;
	}
	return s->own.why_gone == XTS_REASON_LOST ? 0 : r; /* the call finds the socket's error */
}

/* --- once for each call ------------------------------------------------------------------------------------------- */

/* The connection that the calling thread's current call has asked for without success; 0: none. */
static __thread uint32_t not_had;

void turn_begin(struct xts_sock *s, uint32_t purpose)
{
	uint32_t id = s->id;

	not_had = 0;
	if (purpose != PURPOSE_NOBODY && turn_take(s, purpose, purpose == PURPOSE_USE ? FOREVER : 0) == -ETIMEDOUT)
		not_had = id;
}

int turn_use(struct xts_sock *s)
{
	if (!turn_is_elsewhere(s))
		return 0;
	return not_had == s->id ? -ETIMEDOUT : turn_take(s, PURPOSE_USE, FOREVER);
}
