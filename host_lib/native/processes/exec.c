/*
 * exec(): giving up the sockets that the new program keeps, and taking them over in it. inherit.h has the theory of
 * operation.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/caller.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/process.h"
#include "core/socket_kind.h"
#include "streams/stream.h"
#include "core/stack.h"
#include "processes/inherit.h"
#include "processes/next_proxy.h"
#include "processes/passed_copies.h"
#include "processes/relatives.h"
#include "processes/record_file.h"
#include "processes/take_over.h"
#include "core/wait.h"
#include "xts_private.h"

static bool is_bound_only(const struct xts_sock *s)
{
	return s->bound && s->proxy_id && !s->lost && s->state == TCP_STATE_CLOSE && s->phase == PHASE_UNCONNECTED;
}

/* Other processes have it too: the new program asks for it in the same way. */
static int give_up_common(struct xts_sock *s)
{
	uint64_t deadline = now_ns() + NS_PER_S;
	int r = 0;

	if (s->own.inherited == NOT_INHERITED && s->own.moved == NOT_MOVED && !turn_give_up(s))
		return -EBUSY;
	while (r != -EBADF && r != -ENOBUFS && s->own.moved != NOT_MOVED && s->stack->channel && now_ns() < deadline) {
		channel_flush(s->stack, true);
		r = socket_wait(s, &s->callers, now_ns() + NS_PER_MS, false);
	}
	return r == -EBADF ? r : s->own.inherited == NOT_INHERITED ? -EBUSY : 0;
}

int stream_give_up(struct xts_sock *s)
{
	if (share_by_key(s) || is_bound_only(s)) {
		int r = share_by_key_with_others(s);

		share_give_back_unaccepted(s->stack);
		return r;
	}
	if (s->own.inherited != NOT_INHERITED)
		return s->own.taking ? -EBUSY : 0; /* unchanged: its parent holds it, or the proxy has its key */
	if (s->lost || s->phase == PHASE_UNCONNECTED || s->state == TCP_STATE_SYN_SENT)
		return -EOPNOTSUPP;
	if (s->state == TCP_STATE_ESTABLISHED)
		return sharing_possible(s->stack) ? connection_park(s, now_ns() + NS_PER_S) : -EOPNOTSUPP;
	return 0; /* what is left of a connection that has ended */
}

static int give_up_for_exec(struct xts_sock *s)
{
	if (s->own.common)
		return give_up_common(s);
	if (s->own.moved != NOT_MOVED)
		return -ENOTCONN;
	if (s->away && !kind_of(s)->is_fresh(s)) {
		/* no process has it at the moment: the new program makes it */
		if (!s->cold->sharing.key)
			s->cold->sharing.key = key_make();
		return 0;
	}
	return kind_of(s)->give_up(s);
}

static int write_for_exec(struct stack *st, int memfd, const struct xts_exec_socket *b)
{
	struct xts_sock *s;
	int r;

	move_settle(st);
	s = table_open(st, b->number);
	r = s ? give_up_for_exec(s) : -EBADF;

	if (!r && (s = table_open(st, b->number)))
		r = record_write(memfd, s, b->descriptor);
	return r;
}

static bool is_again(const struct xts_exec_socket *sockets, unsigned i)
{
	for (unsigned earlier = 0; earlier < i; earlier++)
		if (sockets[earlier].number == sockets[i].number)
			return true;
	return false;
}

/* The new program does not keep these sockets; other processes may have them. */
static void leave_others(struct stack *st, const struct xts_exec_socket *sockets, unsigned count)
{
	struct xts_sock *s = NULL;

	while ((s = table_walk(st, s))) {
		unsigned i = 0;

		while (i < count && sockets[i].number != (int)s->id)
			i++;
		if (i < count || !s->own.common || !common_others_have(s, NULL))
			continue;
		(void)give_up_common(s);
		if (s->own.common)
			(void)relatives_leave(s->own.common); /* exec closes its deed */
	}
}

int xts_exec_prepare(const struct xts_exec_socket *sockets, unsigned count)
{
	int memfd = record_make("xts-sockets", 0), r = 0;

	if (memfd < 0)
		return finish(memfd);
	for (unsigned i = 0; i < count && r != -ENOMEM && r != -ENOSPC; i++) {
		struct stack *st = stack_enter_of(sockets[i].number);
		struct xts_sock *s = is_again(sockets, i) ? table_open(st, sockets[i].number) : NULL;

		r = s ? record_write_again(memfd, s, sockets[i].descriptor) : write_for_exec(st, memfd, &sockets[i]);
		if (r)
			st->not_inherited++;
		if (r && r != -ENOMEM && r != -ENOSPC)
			record_write_refused(memfd, -r, sockets[i].descriptor);
		stack_leave(st);
	}
	for (struct stack *st = process_stacks(); st; st = process_next(st)) {
		stack_enter(st);
		leave_others(st, sockets, count);
		stack_settle(st);
		stack_leave(st);
	}
	lseek(memfd, 0, SEEK_SET);
	return memfd;
}

void xts_resume(int memfd)
{
	close(memfd);
	for (struct stack *st = process_stacks(); st; st = process_next(st)) {
		struct xts_sock *s = NULL;

		stack_enter(st);
		relatives_resume();
		while ((s = table_walk(st, s))) {
			kind_of(s)->resume(s);
			passed_keep(s, false);
			if (s->own.common && s->open)
				relatives_rejoin(s->own.common);
			if (s->own.moved == PARKING && s->cold->sharing.key && !s->proxy_id)
				connection_take_back(s);
		}
		stack_leave(st);
	}
}

/* The stack for the socket: the calling thread's, if the socket was at that endpoint and the stack takes it. */
static struct stack *stack_for(const struct socket_record *b)
{
	struct stack *st, *own;

	xts_look_who_calls();
	own = process_own_stack();
	st = b->endpoint[0] ? process_stack_at(b->endpoint) : own;
	if (!st)
		st = process_new_stack(b->endpoint);
	return st ? st : own;
}

static void tell(struct xts_exec_socket *out, const struct xts_sock *s)
{
	out->number = (int)s->id;
	out->listens = kind_of(s)->accepts;
	out->datagrams = kind_of(s)->type == SOCK_DGRAM;
}

/* The proxy keeps a connection only for a short time. The others are taken over when they are used. */
static int take_at_once(struct xts_sock *s)
{
	if (s->own.common)
		(void)turn_take(s, PURPOSE_NOBODY, AT_ONCE);
	else if (!share_by_key(s))
		inherit_take(s);
	if (!s->in_use)
		return -EBADF;
	return !s->lost ? 1 : s->error ? -s->error : -ECONNRESET;
}

static int adopt(struct record_in *in, struct xts_exec_socket *out)
{
	struct stack *st = stack_enter(stack_for(&in->b));
	struct xts_sock *s;
	int r = record_adopt(st, in, &s);

	if (s)
		socket_hold(s);
	if (!r) {
		tell(out, s);
		r = take_at_once(s);
	}
	if (s && r < 0 && s->in_use)
		socket_free(s);
	if (s)
		socket_put(s);
	stack_leave(st);
	return r;
}

/* Another descriptor of a socket that was adopted before. */
static int adopt_again(uint32_t number, struct xts_exec_socket *out)
{
	for (struct stack *st = process_stacks(); st; st = process_next(st)) {
		struct xts_sock *s = NULL;

		stack_enter(st);
		while ((s = table_next(st, s)) && !(s->open && s->cold->sharing.number_before == number))
			;
		if (s)
			tell(out, s);
		stack_leave(st);
		if (s) {
			out->again = true;
			return 1;
		}
	}
	return -EBADF;
}

int xts_inherit_next(int memfd, struct xts_exec_socket *out)
{
	struct record_in in;
	int r = record_next(memfd, &in);

	*out = (struct xts_exec_socket){ .number = -1, .descriptor = in.descriptor };
	if (r == -EPROTO)
		lseek(memfd, 0, SEEK_END); /* the start of the next record cannot be found */
	if (r == 1) {
		r = in.again ? adopt_again(in.again, out) : adopt(&in, out);
		record_done(&in);
	}
	if (r == 0)
		close(memfd);
	return finish(r);
}
