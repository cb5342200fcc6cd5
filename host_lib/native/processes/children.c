/*
 * The parent's side of keeping connections over fork(): for each child that may want some (a child) a link, and one
 * thread that answers on all links and ends when there are none. inherit.h has the theory of operation.
 *
 * A child's word counts for little: it can only ask for, or let go, what it was born with, each once.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/buffer.h"
#include "core/call.h"
#include "core/clock.h"
#include "core/process.h"
#include "core/reason.h"
#include "core/socket.h"
#include "core/stack.h"
#include "own_descriptors.h"
#include "processes/inherit.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/progress_thread.h"
#include "waiting/wait.h"

#define EVENTS 16
#define EXIT_NS NS_PER_S

struct child {
	struct stack *stack;
	struct child *next;
	int fd; /* our end of the link */
	uint32_t count;
	uint32_t ids[]; /* what it may still want */
};

/* --- giving ------------------------------------------------------------------------------------------------------- */

int connection_park(struct xts_sock *s, uint64_t deadline_ns)
{
	struct stack *st = s->stack;
	struct call call = {
		.type = XTS_CMD_PARK, .key = key_make(), .keep_ms = CONNECTION_KEEP_MS, .deadline_ns = deadline_ns
	};
	uint32_t id = s->id;
	int r;

	if (s->pushing || s->ulps.handshaking || s->ulps.sending)
		return -EBUSY; /* whose they would be the proxy could not tell */
	s->own.moved = MOVING;
	st->moving++;
	socket_changed(s, EPOLLIN | EPOLLOUT | EPOLLHUP); /* who waits for it finds it gone */
	r = call_proxy(s, &call);
	st->moving--;
	if (s->id != id)
		return -ECONNRESET;
	if (r) {
		s->own.moved = NOT_MOVED;
		if (!s->open && !s->own.children_may_want && !s->closing)
			socket_end(s); /* the application has closed it meanwhile */
		return r;
	}
	s->proxy_id = 0;
	s->own.key = call.key;
	return 0;
}

/* It is the child's now. */
static void moved_away(struct xts_sock *s)
{
	inherit_release(s);
	s->own.moved = MOVED;
	s->lost = true;
	s->state = TCP_STATE_CLOSE;
	s->phase = PHASE_UNCONNECTED;
	s->error = 0;
	s->own.key = 0;
	s->credits = 0;
	socket_asked(s, false);
	buffer_drop(s);
	socket_not_here(s, XTS_REASON_ELSEWHERE);
	socket_changed(s, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP);
	if (!s->open)
		socket_free(s);
}

static int send_message(const struct child *h, struct link_message m, int fd)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr alignment;
	} control = { .bytes = { 0 } };
	struct iovec piece = { .iov_base = &m, .iov_len = sizeof m };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
	struct cmsghdr *c;

	if (fd >= 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = sizeof control.bytes;
		c = CMSG_FIRSTHDR(&message);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(c), &fd, sizeof fd);
	}
	return sendmsg(h->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

static int send_answer(const struct child *h, uint32_t number, int error, int memfd)
{
	return send_message(h, (struct link_message){ .number = number, .error = -error }, memfd);
}

/* Makes its state ready to go: under a key, or, where it has ended, without one. 0 or -errno. */
static int prepare(struct xts_sock *s, uint64_t deadline_ns)
{
	uint32_t id = s->id;
	int r = 0;

	if (s->own.taking)
		inherit_take(s); /* another thread is at it */
	if (s->id != id || s->own.moved != NOT_MOVED || s->closing)
		return -ENOTCONN;
	if (s->own.inherited != NOT_INHERITED)
		r = inherit_obtain(s);
	else if (s->state == TCP_STATE_ESTABLISHED)
		r = connection_park(s, deadline_ns);
	if (s->id != id)
		return -ENOTCONN;
	return r && s->state == TCP_STATE_ESTABLISHED ? r : 0;
}

static void give(const struct child *h, struct xts_sock *s, uint64_t deadline_ns)
{
	uint32_t id = s->id;
	bool parked;
	int memfd = -1, r = prepare(s, deadline_ns);

	if (r) {
		send_answer(h, id, r, -1);
		return;
	}
	parked = s->own.moved == MOVING;
	memfd = record_make("xts-socket", MFD_CLOEXEC);
	r = memfd < 0 ? memfd : record_write(memfd, s, -1);
	if (!r)
		r = send_answer(h, id, 0, memfd);
	if (memfd >= 0)
		close(memfd);
	if (!r && s->own.key)
		moved_away(s);
	else if (r && parked)
		inherit_take_back(s);
}

/* --- children ----------------------------------------------------------------------------------------------------- */

static bool forget_id(struct child *h, uint32_t id)
{
	for (uint32_t i = 0; i < h->count; i++) {
		if (h->ids[i] != id)
			continue;
		h->ids[i] = h->ids[--h->count];
		return true;
	}
	return false;
}

/* One who may have wanted it does not, or has it. */
static void child_done(struct stack *st, uint32_t id)
{
	struct xts_sock *s = table_find(st, id);

	if (!s || !s->own.children_may_want)
		return;
	s->own.children_may_want--;
	if (!s->own.children_may_want && s->own.kept_for_children && s->own.moved == NOT_MOVED)
		socket_end(s);
}

static void answer(struct child *h, uint32_t id, uint64_t deadline_ns)
{
	struct stack *st = h->stack;
	struct xts_sock *s = table_find(st, id);

	if (!forget_id(h, id))
		return;
	st->children.answering++;
	if (s)
		give(h, s, deadline_ns);
	else
		send_answer(h, id, -ECONNRESET, -1);
	st->children.answering--;
	child_done(st, id);
}

static void child_gone(struct child *h)
{
	struct stack *st = h->stack;
	struct child **at = &st->children.first;

	while (*at != h)
		at = &(*at)->next;
	*at = h->next;
	while (h->count)
		child_done(h->stack, h->ids[--h->count]);
	xts_own_close(h->fd);
	free(h);
}

bool children_keep(struct xts_sock *s)
{
	return s->own.moved == MOVING ||
	       (s->own.children_may_want && !s->lost && s->own.moved == NOT_MOVED && s->phase != PHASE_UNCONNECTED);
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static void serve_link(struct stack *st, int fd)
{
	struct child *h = st->children.first;
	struct link_message m;
	ssize_t got;

	while (h && h->fd != fd)
		h = h->next;
	if (!h)
		return;
	while ((got = recv(fd, &m, sizeof m, MSG_DONTWAIT)) == (ssize_t)sizeof m) {
		if (!m.error)
			answer(h, m.number, 0);
		else if (forget_id(h, m.number))
			child_done(st, m.number);
	}
	if (got >= 0 || (errno != EAGAIN && errno != EINTR))
		child_gone(h);
}

static void *serve(void *arg)
{
	struct stack *st = arg;
	struct epoll_event events[EVENTS];
	uint16_t nobody = 0;
	int count;

	stack_enter(st);
	while (st->children.first) {
		stack_leave(st);
		count = epoll_wait(st->children.set, events, EVENTS, -1);
		stack_enter(st);
		while (st->children.leaving)
			wait_for(st, &nobody, now_ns() + NS_PER_MS, false);
		for (int i = 0; i < count; i++)
			serve_link(st, events[i].data.fd);
	}
	xts_own_close(st->children.set);
	st->children.set = -1;
	stack_leave(st);
	return NULL;
}

static bool start(struct stack *st)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	pthread_t thread;
	bool started;

	st->children.set = xts_own(epoll_create1(EPOLL_CLOEXEC));
	if (st->children.set < 0 || pthread_attr_init(&attributes))
		return false;
	pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attributes, 256 * 1024);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	started = pthread_create(&thread, &attributes, serve, st) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return started;
}

/* --- fork, exit --------------------------------------------------------------------------------------------------- */

void children_before_fork(struct stack *st)
{
	struct xts_sock *s = NULL;
	uint32_t count = 0;
	int ends[2];

	st->children.coming = NULL;
	while (process_inherits() && (s = table_next(st, s)))
		count += inherit_possible(s);
	if (!count)
		return;
	st->children.coming = calloc(1, sizeof *st->children.coming + count * sizeof st->children.coming->ids[0]);
	if (!st->children.coming)
		return;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
		free(st->children.coming);
		st->children.coming = NULL;
		return;
	}
	st->children.coming->stack = st;
	st->children.coming->fd = xts_own(ends[0]);
	st->children.child_end = xts_own(ends[1]);
	while ((s = table_next(st, s)))
		if (inherit_possible(s))
			st->children.coming->ids[st->children.coming->count++] = s->id;
}

/* When the fork has failed, the child's end closes here, and the thread finds the child gone. */
void children_after_fork_parent(struct stack *st)
{
	struct epoll_event event = { .events = EPOLLIN };
	struct child *h = st->children.coming;

	if (process_inherits()) {
		for (struct xts_sock *s = st->shared; s; s = s->own.shared_next)
			s->own.others_may_have = st->joint = true;
		if (st->shared)
			progress_need(st); /* what has been promised to this process alone may have to go to another */
	}
	if (!h)
		return;
	st->children.coming = NULL;
	xts_own_close(st->children.child_end);
	st->children.child_end = -1;
	for (uint32_t i = 0; i < h->count; i++) {
		struct xts_sock *s = table_find(st, h->ids[i]);

		if (s)
			s->own.children_may_want++;
		else
			forget_id(h, h->ids[i--]);
	}
	h->next = st->children.first;
	st->children.first = h;
	event.data.fd = h->fd;
	if ((st->children.set < 0 && !start(st)) || epoll_ctl(st->children.set, EPOLL_CTL_ADD, h->fd, &event) < 0)
		child_gone(h); /* the child is told by the end of its link */
}

int children_after_fork_child(struct stack *st)
{
	int mine = st->children.child_end;

	if (st->children.coming)
		xts_own_close(st->children.coming->fd);
	free(st->children.coming);
	st->children.coming = NULL;
	st->children.child_end = -1;
	while (st->children.first) {
		struct child *h = st->children.first;

		st->children.first = h->next;
		xts_own_close(h->fd);
		free(h);
	}
	if (st->children.set >= 0)
		xts_own_close(st->children.set);
	st->children.set = -1;
	st->children.leaving = false;
	st->children.answering = 0;
	return mine;
}

/* The parent's still, who may be using it. */
static bool not_taken(struct stack *st, uint32_t id)
{
	const struct xts_sock *s = table_find(st, id);

	return s && s->own.inherited == INHERITED_ASK && s->own.moved == NOT_MOVED;
}

static void leave_elsewhere(struct child *h, uint32_t id, bool reachable)
{
	struct link_message m = { .number = id, .error = reachable ? 0 : EBUSY };

	forget_id(h, id);
	if (reachable)
		m.elsewhere = table_find(h->stack, id)->own.number_at_parent;
	send_message(h, m, -1);
}

/*
 * Everything that a living child may want is left in its link, the newest child's first. What is still of our own
 * parent's stays there: the first child that wants some of it may have our link to that parent (pass_uplink).
 */
void children_at_exit(struct stack *st, bool pass_uplink)
{
	uint64_t deadline = now_ns() + EXIT_NS;
	const struct child *follower = NULL;
	uint16_t nobody = 0;

	st->children.leaving = true;
	inherit_read(st);
	for (struct child *h = st->children.first; h; h = h->next) {
		while (h->count && now_ns() < deadline) {
			uint32_t id = h->ids[h->count - 1];

			if (!not_taken(st, id)) {
				answer(h, id, deadline);
				continue;
			}
			if (pass_uplink && !follower)
				follower = h;
			leave_elsewhere(h, id, follower == h);
		}
	}
	if (follower)
		send_message(follower, (struct link_message){ 0 }, inherit_pass_uplink(st, false));
	while (st->children.answering && now_ns() < deadline)
		wait_for(st, &nobody, now_ns() + NS_PER_MS, false);
	st->children.leaving = false;
}
