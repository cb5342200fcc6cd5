/*
 * Passing a socket to another program over a Unix socket (SCM_RIGHTS). inherit.h has the theory of operation.
 *
 * The socket's *carrier* is sent in its place: a kernel socket with a label (label.h) that holds the socket's record,
 * and so its key. Every process that gets the carrier can use the socket; no other process can read the label. A
 * program without this library sees a socket that is not connected (ENOTCONN), or was reset (ECONNRESET).
 *
 * If the program also has the listener in the kernel, for clients on this host, the carrier is that kernel socket. Its
 * label has no key, since connections inherit the label; the key is in the listener itself (listener_key.h). In
 * all other cases the carrier is made for the purpose: a Unix socket, which has the connection's deed inside (deed.h),
 * so that a connection in transit counts as one that a process has.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/call.h"
#include "core/caller.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/process.h"
#include "core/socket_kind.h"
#include "streams/stream.h"
#include "core/stack.h"
#include "processes/deed.h"
#include "processes/given.h"
#include "processes/inherit.h"
#include "processes/key_renewal.h"
#include "processes/listener_key.h"
#include "processes/next_proxy.h"
#include "processes/passed_copies.h"
#include "processes/record_label.h"
#include "processes/relatives.h"
#include "processes/socket_record.h"
#include "processes/take_over.h"
#include "processes/wipe.h"
#include "waiting/progress_thread.h"
#include "core/wait.h"
#include "xts_private.h"

/* --- to another program ------------------------------------------------------------------------------------------- */

/* A listener, bound socket or datagram socket: a process that knows its key may join it. */
int pass_by_key(struct xts_sock *s)
{
	struct stack *st = s->stack;
	int r = share_by_key_with_others(s);

	if (r)
		return r;
	(void)passed_make(s); /* without it, nobody knows who has it */
	s->cold->sharing.passed_ns = now_ns();
	s->cold->sharing.others_may_have = st->joint = true;
	share_give_back_unaccepted(st);
	progress_need(st); /* what the proxy promised to this process alone may have to go to another */
	return 0;
}

int stream_pass(struct xts_sock *s)
{
	int r;

	if (kind_of(s)->is_server(s))
		return pass_by_key(s);
	r = common_make(s);

	if (!r)
		r = passed_begin(s);
	if (!r && s->stack->channel)
		channel_flush(s->stack, true); /* the proxy has to know the key when the other process asks */
	progress_need(s->stack);
	return r;
}

/* It has ended, or never began: no process can use it. */
static bool is_nothing(const struct xts_sock *s)
{
	return s->lost || kind_of(s)->is_fresh(s);
}

static int make_carrier(struct xts_sock *s, int kernel_fd)
{
	int fd;

	if (kernel_fd >= 0)
		fd = (int)kernel_calls.syscall(SYS_fcntl, kernel_fd, F_DUPFD_CLOEXEC, 0);
	else if (s->cold->sharing.has_deed)
		return passed_carrier(s);
	else
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

/* Attaches the record; its key goes where only descriptors of this very socket lead, or is in its deed already. */
static int put_record(int carrier, struct socket_record *b, bool is_listener)
{
	int r = 0;

	if (is_listener)
		r = listener_key_write(carrier, b->key);
	b->key_is_apart = is_listener ? KEY_IN_LISTENER : b->passed ? KEY_IN_DEED : KEY_IS_HERE;
	if (b->key_is_apart)
		b->key = 0;
	return r ? r : record_label(carrier, b);
}

static int pass(struct xts_sock *s, int kernel_fd)
{
	struct socket_record b;
	int r, fd;

	if (is_nothing(s))
		return -ENOTCONN;
	if (kernel_fd >= 0 && !kind_of(s)->is_server(s))
		return -EOPNOTSUPP;
	r = kind_of(s)->pass(s);
	if (r)
		return r;
	fd = make_carrier(s, kernel_fd);
	if (fd < 0)
		return fd;
	record_for_label(&b, s);
	if (!share_by_key(s)) {
		b.state = TCP_STATE_ESTABLISHED;
		b.phase = PHASE_CONNECTED;
		b.shutdown &= SEND_SHUTDOWN;
	}
	r = put_record(fd, &b, kernel_fd >= 0);
	wipe(&b, sizeof b);
	if (!r)
		return fd;
	close(fd);
	return r;
}

int xts_pass(int number, int kernel_fd)
{
	struct stack *st = stack_enter_of(number);
	struct xts_sock *s;
	int r;

	move_settle(st);
	s = table_open(st, number);
	r = s ? pass(s, kernel_fd) : -EBADF;

	stack_leave(st);
	return finish(r);
}

static int give(struct xts_sock *s, int mirror)
{
	int r;

	if (is_nothing(s))
		return -ENOTCONN;
	if (!kind_of(s)->is_server(s))
		return -EOPNOTSUPP;
	r = pass_by_key(s);
	return r ? r : given_begin(s, mirror);
}

int xts_give(int number, int mirror)
{
	struct stack *st = stack_enter_of(number);
	struct xts_sock *s = table_open(st, number);
	int r = s ? give(s, mirror) : -EBADF;

	stack_leave(st);
	return finish(r);
}

/* --- from another program ----------------------------------------------------------------------------------------- */

/* Reopens a connection that this process has closed and still keeps for others. */
static bool has_again(struct xts_sock *s)
{
	if (s->open)
		return true;
	if (!s->own.ending || !s->own.common || s->own.moved != NOT_MOVED || s->own.taking || s->closing)
		return false;
	relatives_have_again(s->own.common);
	s->own.ending = false;
	s->open = true;
	return true;
}

/* A relative of this process has passed it after the fork between them: now this one gets its deed, too. */
static bool is_the_same_without_deed(struct xts_sock *s, int carrier, const struct socket_record *b)
{
	if (!b->passed || !b->key || !s->own.common || s->cold->sharing.has_deed || !passed_some_have_no_deed(s) ||
	    atomic_load(&s->own.common->key) != b->key)
		return false;
	passed_receive(s, carrier, b);
	return true;
}

/* A key may have been renewed, and this process need not know it. */
static bool is_the_same(struct xts_sock *s, const struct socket_record *b)
{
	if (b->passed || passed_is(s, &b->deed_id))
		return passed_is(s, &b->deed_id);
	if (!share_by_key(s))
		return false;
	key_look_up(s);
	return s->cold->sharing.key == b->key;
}

/* The number of the socket if this process has it already, else -1. *open: the program had not closed it. */
static int find(const struct socket_record *b, int carrier, bool *open)
{
	int number = -1;

	for (struct stack *st = process_stacks(); st && number < 0; st = process_next(st)) {
		struct xts_sock *s = NULL;

		stack_enter(st);
		while (number < 0 && (s = table_next(st, s))) {
			*open = s->open;
			if ((is_the_same(s, b) || is_the_same_without_deed(s, carrier, b)) && !s->lost && has_again(s))
				number = (int)s->id;
		}
		stack_leave(st);
	}
	return number;
}

static bool (*is_known)(const char *path);

void xts_on_endpoints(bool (*known)(const char *path))
{
	is_known = known;
}

static bool uses_endpoint(const char *endpoint)
{
	if (is_known && is_known(endpoint))
		return true;
	for (const struct stack *st = process_stacks(); st; st = process_next(st))
		if (strcmp(st->endpoint, endpoint) == 0)
			return true;
	return false;
}

/* The calling thread's stack for the record's endpoint. NULL: this process does not use that endpoint, and has not been
 * told to. It must not start to use it, since the sender of the descriptor could name an endpoint of its own. */
static struct stack *stack_for(const struct socket_record *b)
{
	struct settings own;

	xts_look_who_calls();
	process_settings(&own);
	if (!b->endpoint[0] || (settings_complete(&own) == 0 && strcmp(own.endpoint, b->endpoint) == 0))
		return process_own_stack();
	return uses_endpoint(b->endpoint) ? process_stack_at(b->endpoint) : NULL;
}

static int take_connection(struct xts_sock *s, const struct socket_record *b)
{
	s->own.common = relatives_add();
	if (!s->own.common)
		return -ENOMEM;
	common_count(s);
	s->own.common->shutdown = b->shutdown & SEND_SHUTDOWN;
	s->own.common->ulps = b->ulps;
	s->own.common->pdu_read = 0;
	atomic_store(&s->own.common->torn, false);
	atomic_store(&s->own.common->read_bytes, b->common_read_bytes);
	atomic_store(&s->own.common->sent_bytes, b->common_sent_bytes);
	atomic_store(&s->own.common->passed, 1);
	atomic_store(&s->own.common->received, 1);
	atomic_store(&s->own.common->key, b->key);
	return 0;
}

static int take(const struct socket_record *b, int carrier, bool at_once)
{
	struct stack *st = stack_for(b);
	struct xts_sock *s;
	int r = 0;

	if (!st)
		return -EACCES;
	stack_enter(st);
	s = socket_make(st, b->family);
	if (s)
		socket_hold(s);
	r = s ? record_kind(b)->make(s) : -EMFILE;
	if (s && !r) {
		record_apply(b, s);
		kind_of(s)->is_received(s);
		s->cold->sharing.number_before = 0;
		s->cold->sharing.received = true;
		s->error = 0;
		if (b->state == TCP_STATE_ESTABLISHED)
			r = take_connection(s, b);
		if (!r)
			passed_receive(s, carrier, b);
	}
	if (!r) {
		r = (int)s->id;
		inherit_adopt(s);
		if (at_once && share_by_key(s))
			inherit_take(s); /* after this the other program may close its copy */
	} else if (s) {
		s->open = false;
		socket_free(s);
	}
	if (s)
		socket_put(s);
	stack_leave(st);
	return r;
}

static bool is_connected(int fd)
{
	struct sockaddr_storage peer;
	socklen_t length = sizeof peer;

	return kernel_calls.syscall(SYS_getpeername, fd, &peer, &length) == 0 && peer.ss_family != AF_UNIX;
}

static uint64_t key_of_deed(int carrier, const struct deed_id *id)
{
	int fd = deed_unwrap(carrier, id);
	uint64_t key = fd < 0 ? 0 : deed_key(fd);

	if (fd >= 0)
		close(fd);
	return key;
}

/* 1; 0: there is none; -errno. A connection accepted from a labelled kernel listener has the label too, without the
 * key. */
static int read_record(int fd, struct socket_record *b)
{
	int r = is_connected(fd) ? 0 : record_of_label(fd, b);
	uint64_t key;

	if (r <= 0)
		return r;
	key = b->key_is_apart == KEY_IN_LISTENER ? listener_key_read(fd) : key_of_deed(fd, &b->deed_id);
	if (key || b->key_is_apart)
		b->key = key; /* it may have been renewed since the label was written */
	if (!key)
		wipe(&b->deed_id, sizeof b->deed_id); /* it says whose deed that is, and has none */
	return !b->key_is_apart || key;
}

static int take_passed(const struct socket_record *b, int fd, bool at_once, struct xts_exec_socket *out)
{
	bool open = false;
	int r;

	if (!b->key || !record_kind(b)->label_is_sound(b))
		return -EPROTO;
	out->listens = record_kind(b)->accepts;
	out->datagrams = record_kind(b)->type == SOCK_DGRAM;
	r = find(b, fd, &open);
	out->again = r >= 0 && open;
	if (r < 0)
		r = take(b, fd, at_once);
	if (r < 0)
		return r;
	out->number = r;
	return 1;
}

int xts_take_passed(int fd, bool at_once, struct xts_exec_socket *out)
{
	struct socket_record b;
	int r = read_record(fd, &b);

	*out = (struct xts_exec_socket){ .number = -1, .descriptor = fd };
	if (r > 0)
		r = take_passed(&b, fd, at_once, out);
	wipe(&b, sizeof b);
	return r < 0 ? finish(r) : r;
}
