/*
 * The child's side of keeping sockets over fork(): what each socket is after it, and taking one over at its first use.
 * inherit.h has the theory of operation.
 *
 * The link to the parent carries questions one way, and answers the other: one message each, with a memfd where
 * there is state. Answers may come unasked, from a parent that exits. One thread at a time reads them, for all.
 */
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/buffer.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/reason.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/status_page.h"
#include "credit.h"
#include "own_descriptors.h"
#include "processes/inherit.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/epoll.h"
#include "waiting/wait.h"
#include "xts_private.h"

#define ANSWER_NS (10 * NS_PER_S) /* parking waits for nothing but the proxy */

static void (*tell_gone)(int number, unsigned reason);

/* --- after the fork ----------------------------------------------------------------------------------------------- */

bool inherit_possible(const struct xts_sock *s)
{
	if (!s->open || s->own.moved != NOT_MOVED || s->closing)
		return false;
	return s->own.inherited != NOT_INHERITED ?
		       !share_by_key(s) :
		       s->state == TCP_STATE_ESTABLISHED ||
			       (s->state == TCP_STATE_CLOSE && s->phase == PHASE_CONNECTED && !s->lost);
}

void inherit_uplink(struct stack *st, int fd)
{
	if (st->parent.fd >= 0)
		xts_own_close(st->parent.fd);
	st->parent.fd = fd;
	st->parent.reading = false;
	st->parent.waiters = 0;
}

void inherit_adopt_uplink(struct stack *st, int fd)
{
	if (fd != st->parent.fd)
		inherit_uplink(st, fd);
	inherit_pass_uplink(st, false);
}

int inherit_pass_uplink(struct stack *st, bool pass)
{
	if (st->parent.fd >= 0)
		/* the interposer keeps fcntl() off its own descriptors */
		ioctl(st->parent.fd, pass ? FIONCLEX : FIOCLEX);
	return st->parent.fd;
}

static void set_inherited(struct xts_sock *s, uint8_t how)
{
	if ((s->own.inherited != NOT_INHERITED) != (how != NOT_INHERITED))
		s->stack->untaken += how == NOT_INHERITED ? UINT_MAX : 1;
	s->own.inherited = how;
}

/* Nothing of it is on any channel of this process. */
static void forget_channel(struct xts_sock *s)
{
	s->proxy_id = 0;
	s->opening = s->in_outbox = s->in_blocked = s->no_space = s->asked = s->own.taking = false;
	s->todo = 0;
	s->pending = NULL;
	s->pending_bytes = s->pending_capacity = 0;
	s->credits = s->peer_window = 0;
	s->readers = s->writers = s->callers = s->polled = 0;
	s->call = NULL;
	s->accept_first = s->accept_last = NULL;
	s->accept_count = 0;
	s->outbox_next = s->outbox_prev = s->blocked_next = s->own.shared_next = NULL;
	s->own.children_may_want = 0;
	s->own.shared = s->pushing = s->ulps.sending = false;
}

void xts_on_gone(void (*tell)(int number, unsigned reason))
{
	tell_gone = tell;
}

void socket_not_here(struct xts_sock *s, uint8_t reason)
{
	s->own.why_gone = reason;
	s->own.gone_unreported = true;
	status_state(s);
}

void socket_report_gone(struct xts_sock *s)
{
	s->own.gone_unreported = false;
	if (tell_gone)
		tell_gone((int)s->id, s->own.why_gone);
}

static void cannot_be_had(struct xts_sock *s)
{
	set_inherited(s, NOT_INHERITED);
	s->lost = true;
	s->state = TCP_STATE_CLOSE;
	s->phase = PHASE_UNCONNECTED;
	s->stack->not_inherited++;
	socket_not_here(s, XTS_REASON_LOST);
}

/* In the child: buffers, pending data and mirrors have gone already. */
void inherit_after_fork(struct xts_sock *s)
{
	bool fresh = s->state == TCP_STATE_CLOSE && s->phase == PHASE_UNCONNECTED && !s->proxy_id && !s->opening &&
		     !s->lost;
	bool possible = inherit_possible(s), by_key = share_by_key(s) && (s->own.shared || s->own.inherited);

	forget_channel(s);
	s->own.inherited = NOT_INHERITED;
	if ((fresh && !by_key) || s->lost)
		return;
	if (s->own.moved != NOT_MOVED) {
		s->own.moved = MOVED;
		s->lost = true;
		s->state = TCP_STATE_CLOSE;
		socket_not_here(s, XTS_REASON_ELSEWHERE);
		return;
	}
	if (by_key) {
		inherit_adopt(s, INHERITED_KEYED);
	} else if (possible && s->stack->parent.fd >= 0) {
		s->own.number_at_parent = s->id;
		set_inherited(s, INHERITED_ASK);
	} else {
		cannot_be_had(s);
	}
}

/* --- the link to the parent --------------------------------------------------------------------------------------- */

/* Receives one message and its descriptor: 1, -EAGAIN, or -EPIPE where the parent has gone. */
static int receive(const struct stack *st, struct link_message *m, int *memfd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr alignment;
	} control;
	struct iovec piece = { .iov_base = m, .iov_len = sizeof *m };
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
	};
	struct cmsghdr *c;
	ssize_t got = recvmsg(st->parent.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	/* Said once of a parent that has gone without reading our question; what it has left comes after that. */
	if (got < 0 && errno == ECONNRESET)
		got = recvmsg(st->parent.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	*memfd = -1;
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? -EAGAIN : -EPIPE;
	c = CMSG_FIRSTHDR(&message);
	if (got && c && c->cmsg_type == SCM_RIGHTS)
		memcpy(memfd, CMSG_DATA(c), sizeof *memfd);
	if (got == sizeof *m)
		return 1;
	if (*memfd >= 0)
		close(*memfd);
	return -EPIPE;
}

static struct xts_sock *find_asking(struct stack *st, uint32_t link_number)
{
	struct xts_sock *s = NULL;

	while ((s = table_next(st, s)))
		if (s->own.inherited == INHERITED_ASK && s->own.number_at_parent == link_number)
			return s;
	return NULL;
}

/* The parent has gone, and what it had not taken itself is to be asked for where it would have asked. */
static void replace_uplink(struct stack *st, int fd)
{
	if (fd < 0)
		return;
	xts_own_close(st->parent.fd);
	st->parent.fd = xts_own(fd);
	st->parent.links++;
}

/* Files an answer with the socket it is about. */
static void file_answer(struct stack *st, const struct link_message *m, int memfd)
{
	struct xts_sock *s = find_asking(st, m->number);
	int descriptor, r = -m->error;

	if (!m->number) {
		replace_uplink(st, memfd);
		return;
	}
	if (s && m->elsewhere) {
		s->own.number_at_parent = m->elsewhere;
	} else if (s) {
		if (!r)
			r = memfd >= 0 && lseek(memfd, 0, SEEK_SET) == 0 ?
				    record_read(st, memfd, &s, true, &descriptor) :
				    -EPROTO;
		if (r == 1)
			set_inherited(s, INHERITED_KEYED);
		else
			s->own.moved = MOVED; /* another's, or nobody's */
	}
	if (memfd >= 0)
		close(memfd);
}

/* Files what has come. -EPIPE: the parent has gone, and nothing more will come. */
static int read_uplink(struct stack *st)
{
	struct link_message m;
	int memfd, r;

	if (st->parent.fd < 0)
		return -EPIPE;
	while ((r = receive(st, &m, &memfd)) == 1)
		file_answer(st, &m, memfd);
	return r == -EAGAIN ? 0 : r;
}

static void ask(const struct xts_sock *s, int32_t what)
{
	struct link_message m = { .number = s->own.number_at_parent, .error = what };
	int fd = s->stack->parent.fd;

	/* A parent that does not read, or has gone, shows in the reading. */
	if (fd >= 0 && send(fd, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		return;
}

static void sleep_on_uplink(struct stack *st)
{
	struct pollfd fd = { .fd = st->parent.fd, .events = POLLIN };

	st->parent.reading = true;
	stack_rest(st);
	pthread_mutex_unlock(&st->lock);
	poll(&fd, 1, 100);
	pthread_mutex_lock(&st->lock);
	st->parent.reading = false;
	wake(st, &st->parent.waiters);
}

int inherit_obtain(struct xts_sock *s)
{
	struct stack *st = s->stack;
	uint64_t deadline = now_ns() + ANSWER_NS;
	uint32_t id = s->id;
	unsigned asked = st->parent.links - 1;
	int r;

	for (;;) {
		if (s->id != id)
			return -EBADF;
		if (s->own.moved != NOT_MOVED)
			return -ENOTCONN;
		if (s->own.inherited != INHERITED_ASK)
			return 0;
		if (now_ns() > deadline)
			return -ETIMEDOUT;
		if (st->parent.reading) {
			r = wait_for(st, &st->parent.waiters, deadline, false);
			if (r == -ENOBUFS)
				return r;
			continue;
		}
		r = read_uplink(st);
		if (s->own.inherited != INHERITED_ASK || s->own.moved != NOT_MOVED)
			continue;
		if (r)
			return -ECONNRESET;
		if (asked != st->parent.links)
			ask(s, 0);
		asked = st->parent.links;
		sleep_on_uplink(st);
	}
}

static void leave_to_join(struct xts_sock *s)
{
	struct xts_sock **at = &s->stack->to_join;

	while (*at && *at != s)
		at = &(*at)->own.shared_next;
	if (*at)
		*at = s->own.shared_next;
}

void inherit_release(struct xts_sock *s)
{
	leave_to_join(s);
	if (s->own.inherited == INHERITED_ASK)
		ask(s, 1);
	set_inherited(s, NOT_INHERITED);
}

/* --- taking over -------------------------------------------------------------------------------------------------- */

static int claim(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_CLAIM, .key = s->own.key, .unread = s->unread };
	uint32_t window = s->grant.window < WINDOW_BYTES_MIN ? WINDOW_BYTES_MIN : s->grant.window;

	xts_credit_grant_init(&s->grant, window);
	s->grant.outstanding = window - s->unread - pdu_credits(s);
	call.post_credits = s->grant.outstanding;
	s->read_bytes = 0;
	s->consumed = 0;
	s->credits = s->peer_window = 0;
	if (s->done) {
		/* It is told again, with what follows the bytes we have. */
		s->done = false;
		s->shutdown &= (uint8_t)~RCV_SHUTDOWN;
	}
	return call_proxy(s, &call);
}

static int take(struct xts_sock *s)
{
	struct stack *st = s->stack;
	bool by_key = share_by_key(s);
	uint32_t id = s->id;
	int r = by_key ? 0 : inherit_obtain(s);

	if (r || s->id != id)
		return r;
	if (!s->own.key)
		return 0; /* it had ended: what is unread is all there is */
	r = st->channel ? 0 : channel_attach(st);
	if (s->id != id)
		return -EBADF;
	if (!r && !sharing_possible(st))
		r = -EOPNOTSUPP;
	if (!r)
		r = by_key ? share_join(s) : claim(s);
	return r;
}

static void take_failed(struct xts_sock *s, int r)
{
	bool by_key = share_by_key(s);

	s->stack->not_inherited++;
	s->lost = true;
	s->proxy_id = 0;
	s->opening = false;
	if (r == -ENOTCONN)
		s->own.moved = MOVED;
	socket_fail(s, by_key ? ENETDOWN : r == -ENOTCONN ? 0 : ECONNRESET);
	if (r == -ENOTCONN) {
		s->phase = PHASE_UNCONNECTED;
		buffer_drop(s); /* who has the connection has what was unread, too */
	}
	socket_not_here(s, r == -ENOTCONN ? XTS_REASON_ELSEWHERE : XTS_REASON_LOST);
}

void inherit_adopt(struct xts_sock *s, uint8_t how)
{
	struct stack *st = s->stack;

	set_inherited(s, how);
	if (!share_by_key(s))
		return;
	s->own.others_may_have = true;
	if (s->state != TCP_STATE_LISTEN)
		return; /* nobody waits for it before it listens */
	s->own.shared_next = st->to_join;
	st->to_join = s;
}

void inherit_take(struct xts_sock *s)
{
	struct stack *st = s->stack;
	uint32_t id = s->id;
	int r;

	while (s->id == id && s->own.taking)
		if (wait_for(st, &s->callers, FOREVER, false) == -ENOBUFS)
			return;
	if (s->id != id || s->own.inherited == NOT_INHERITED)
		return;
	s->own.taking = true;
	leave_to_join(s);
	r = take(s);
	if (s->id != id)
		return;
	s->own.taking = false;
	wake(st, &s->callers);
	set_inherited(s, NOT_INHERITED);
	if (!share_by_key(s))
		s->own.key = 0;
	if (r && !s->closing)
		take_failed(s, r);
	status_state(s);
	socket_changed(s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
}

/* A parked connection that nobody else has taken comes back to the process that parked it. */
void inherit_take_back(struct xts_sock *s)
{
	uint32_t id = s->id;

	s->own.moved = NOT_MOVED;
	set_inherited(s, INHERITED_KEYED);
	inherit_take(s);
	if (s->id == id && !s->open && !s->closing)
		socket_end(s);
}

void inherit_take_watched(const struct epoll_ctx *ctx)
{
	struct stack *st = ctx->stack;
	struct xts_sock *s = st->to_join;

	while (s) {
		if (!epoll_watches(ctx, s)) {
			s = s->own.shared_next;
			continue;
		}
		inherit_take(s);
		s = st->to_join; /* the lock was given up */
	}
}

void inherit_read(struct stack *st)
{
	(void)read_uplink(st);
}

/* What the parent has left us and nobody has used is closed as the kernel would, with this process. */
void inherit_at_exit(struct stack *st)
{
	struct xts_sock *s = NULL;

	if (st->parent.fd < 0 || !st->untaken)
		return;
	read_uplink(st);
	while ((s = table_next(st, s)))
		if (s->own.inherited == INHERITED_KEYED && s->state == TCP_STATE_ESTABLISHED && s->own.key)
			inherit_take(s);
}
