/*
 * Sockets as they pass from one process to another: a record each and, behind it, what had been received and not read
 * (its bytes, then the list of PDUs they are of), one after the other in a memfd that the new program keeps over exec().
 *
 * The reader was started by the writer under the same user, and both have the same build of this
 * library (version, sizes and ranges are checked all the same: a wrong memfd is refused, not believed).
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/buffer.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/process.h"
#include "core/socket.h"
#include "core/stack.h"
#include "processes/inherit.h"
#include "processes/relatives.h"
#include "processes/take_turns.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "waiting/wait.h"
#include "xts_private.h"

#define RECORD_MAGIC 0x58545342u /* "XTSB" */
#define RECORD_VERSION 5u

struct socket_record {
	uint32_t magic, version;
	uint32_t number;    /* in the program that wrote it */
	int32_t descriptor; /* of the program; -1: none */
	int32_t refused; /* not 0: it could not be given up, for this errno; nothing else is set but the descriptor */
	/* not -1: other processes have it too: the descriptor of their file, this process's slot, the entry */
	int32_t relatives;
	uint32_t relatives_slot, relatives_entry;
	uint64_t key; /* 0: the connection has ended, only what is unread is left of it */
	uint64_t receive_timeout_ns, send_timeout_ns;
	uint64_t sent_bytes, received_bytes;
	int32_t error, linger_s;
	uint32_t backlog, window, window_max, receive_lowat;
	uint32_t unread; /* bytes that follow */
	uint32_t pdus;   /* structures that follow */
	uint8_t family, state, phase, shutdown;
	bool done, nonblocking, close_on_exec, linger, seqpacket;
	bool bound, bound_address, v6only;
	bool again; /* another descriptor of a socket whose record came before: nothing else is set */
	struct xts_endpoint local, peer;
	struct ulps ulps;
	char endpoint[ENDPOINT_BYTES]; /* empty: the process's */
};

int record_make(const char *name, unsigned flags)
{
	int fd = memfd_create(name, flags);

	return fd < 0 ? -errno : fd;
}

static int write_all(int fd, const void *data, size_t bytes)
{
	const uint8_t *at = data;

	while (bytes) {
		ssize_t n = write(fd, at, bytes);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n > 0) {
			at += n;
			bytes -= (size_t)n;
		}
	}
	return 0;
}

/* 1, 0 at the end of the file, -EPROTO where it is cut short. */
static int read_all(int fd, void *data, size_t bytes)
{
	uint8_t *at = data;
	size_t left = bytes;

	while (left) {
		ssize_t n = read(fd, at, left);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return left == bytes ? 0 : -EPROTO;
		if (n > 0) {
			at += n;
			left -= (size_t)n;
		}
	}
	return 1;
}

static int write_unread(int memfd, struct xts_sock *s)
{
	struct iovec unread = { .iov_base = malloc(s->unread), .iov_len = s->unread };
	int r;

	if (!unread.iov_base)
		return -ENOMEM;
	buffer_copy(s, 0, &unread, 0, s->unread);
	r = write_all(memfd, unread.iov_base, s->unread);
	free(unread.iov_base);
	return r;
}

int record_write(int memfd, struct xts_sock *s, int descriptor)
{
	struct common *c = s->own.common;
	struct socket_record b = {
		.magic = RECORD_MAGIC,
		.version = RECORD_VERSION,
		.number = s->id,
		.descriptor = descriptor,
		.relatives = c ? relatives_pass(true) : -1,
		.relatives_slot = c ? relatives_slot() : 0,
		.relatives_entry = c ? relatives_index(c) : 0,
		.key = s->own.key,
		.receive_timeout_ns = s->receive_timeout_ns,
		.send_timeout_ns = s->send_timeout_ns,
		.sent_bytes = s->sent_bytes,
		.received_bytes = s->received_bytes,
		.error = s->error,
		.linger_s = s->linger_s,
		.backlog = s->backlog,
		.window = s->grant.window,
		.window_max = s->window_max,
		.receive_lowat = s->receive_lowat,
		.unread = s->unread,
		.family = s->family,
		.state = s->state,
		.phase = s->phase,
		.shutdown = s->shutdown,
		.done = s->done,
		.nonblocking = s->nonblocking,
		.close_on_exec = s->close_on_exec,
		.linger = s->linger,
		.seqpacket = s->seqpacket,
		.bound = s->bound,
		.bound_address = s->bound_address,
		.v6only = s->v6only,
		.local = s->local,
		.peer = s->peer,
		.ulps = s->ulps,
	};
	int r;

	memcpy(b.endpoint, s->stack->endpoint, sizeof b.endpoint);
	for (const struct pdu *p = s->pdu_first; p; p = p->next)
		b.pdus++;
	r = write_all(memfd, &b, sizeof b);
	if (!r && s->unread)
		r = write_unread(memfd, s);
	for (const struct pdu *p = s->pdu_first; p && !r; p = p->next) {
		struct pdu copy = *p;

		copy.next = NULL;
		r = write_all(memfd, &copy, sizeof copy);
	}
	return r;
}

static int record_write_again(int memfd, struct xts_sock *s, int descriptor)
{
	struct socket_record b = {
		.magic = RECORD_MAGIC,
		.version = RECORD_VERSION,
		.descriptor = descriptor,
		.again = true,
		.number = s->id,
	};

	memcpy(b.endpoint, s->stack->endpoint, sizeof b.endpoint);
	return write_all(memfd, &b, sizeof b);
}

/* That the new program has it not, and why. */
static void record_write_refused(int memfd, int error, int descriptor)
{
	/* EPROTO: of the memfd */
	struct socket_record b = { .magic = RECORD_MAGIC,
				   .version = RECORD_VERSION,
				   .descriptor = descriptor,
				   .refused = error == EPROTO ? EIO : error };

	(void)write_all(memfd, &b, sizeof b);
}

static bool is_sound(const struct socket_record *b)
{
	if (b->magic != RECORD_MAGIC || b->version != RECORD_VERSION || b->endpoint[ENDPOINT_BYTES - 1])
		return false;
	if (b->refused)
		return b->refused > 0 && b->refused < 4096; /* an errno */
	if (b->again)
		return true;
	if ((b->family != 4 && b->family != 6) || b->phase > PHASE_DISCONNECTING || b->shutdown > SHUTDOWN_MASK)
		return false;
	if (b->ulps.depth[ULPS_RECEIVE] > ULP_DEPTH || b->ulps.depth[ULPS_SEND] > ULP_DEPTH || b->ulps.sending)
		return false;
	if (b->state == TCP_STATE_LISTEN)
		return b->key && !b->unread && b->relatives == -1;
	if (b->state != TCP_STATE_ESTABLISHED && b->state != TCP_STATE_CLOSE)
		return false;
	return b->window <= XTS_CREDITS_MAX && b->unread <= XTS_CREDITS_MAX &&
	       (b->state == TCP_STATE_CLOSE || b->unread <= b->window);
}

static int read_unread(int memfd, struct xts_sock *s, uint32_t bytes)
{
	uint8_t *heap;
	int r;

	if (!bytes)
		return 0;
	heap = malloc(bytes);
	if (!heap)
		return -ENOMEM;
	r = read_all(memfd, heap, bytes);
	if (r == 1)
		r = buffer_take_over(s, heap, bytes);
	else if (!r)
		r = -EPROTO;
	if (r)
		free(heap);
	return r;
}

/* They cover the bytes, only the last of them may be incomplete, and they are within the window. */
static int read_pdus(int memfd, struct xts_sock *s, const struct socket_record *b)
{
	uint64_t bytes = 0, messages = 0;

	for (uint32_t i = 0; i < b->pdus; i++) {
		struct pdu p;
		int r = read_all(memfd, &p, sizeof p);

		bytes += p.bytes;
		messages += p.messages;
		if (r == 1 && (p.control_bytes > CONTROL_BYTES || (!p.whole && !p.stream && i + 1 < b->pdus)))
			r = -EPROTO;
		if (r == 1)
			r = pdu_restore(s, &p);
		if (r)
			return r < 0 ? r : -EPROTO;
	}
	if (b->state == TCP_STATE_ESTABLISHED && b->unread + messages * XTS_PDU_CREDITS > b->window)
		return -EPROTO;
	return b->pdus && bytes != b->unread ? -EPROTO : 0;
}

static struct xts_sock *find_adopted(struct stack *st, uint32_t number)
{
	struct xts_sock *s = NULL;

	while ((s = table_next(st, s)))
		if (s->open && s->own.number_before == number)
			return s;
	return NULL;
}

int record_read(struct stack *st, int memfd, struct xts_sock **out, int *descriptor)
{
	struct xts_sock *s = *out;
	struct socket_record b;
	int r = read_all(memfd, &b, sizeof b);

	if (r != 1)
		return r;
	if (!is_sound(&b))
		return -EPROTO;
	*descriptor = b.descriptor;
	if (b.refused)
		return -b.refused;
	if (b.again) {
		*out = find_adopted(st, b.number);
		return *out ? RECORD_AGAIN : -EBADF;
	}
	if (!s)
		s = *out = socket_make(st, b.family);
	if (!s)
		return -EMFILE;
	r = read_unread(memfd, s, b.unread);
	if (!r)
		r = read_pdus(memfd, s, &b);
	if (r)
		return r;
	s->seqpacket = b.seqpacket;
	s->bound = b.bound;
	s->bound_address = b.bound_address;
	s->v6only = b.v6only;
	s->ulps = b.ulps;
	s->own.key = b.key;
	s->state = b.state;
	s->phase = b.phase;
	s->error = b.error;
	s->done = b.done;
	s->shutdown = b.shutdown;
	s->backlog = b.backlog;
	s->grant.window = b.window;
	s->window_max = b.window_max;
	s->sent_bytes = b.sent_bytes;
	s->received_bytes = b.received_bytes;
	s->local = b.local;
	s->peer = b.peer;
	s->open = true;
	s->own.number_before = b.number;
	s->own.common = b.relatives >= 0 ? relatives_adopt(b.relatives, b.relatives_slot, b.relatives_entry) : NULL;
	if (s->own.common)
		common_count(s);
	else if (b.relatives >= 0)
		return -EPROTO;
	inherit_adopt(s);
	s->nonblocking = b.nonblocking;
	s->close_on_exec = b.close_on_exec;
	s->linger = b.linger;
	s->linger_s = b.linger_s;
	s->receive_lowat = b.receive_lowat;
	s->receive_timeout_ns = b.receive_timeout_ns;
	s->send_timeout_ns = b.send_timeout_ns;
	return 1;
}

/* --- exec --------------------------------------------------------------------------------------------------------- */

/* A listener that was not to be shared, or a bound socket, gets its key now. */
static int name_for_exec(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_SHARE, .keep_ms = LISTENER_KEEP_MS };
	int r;

	if (s->own.inherited != NOT_INHERITED)
		return 0;
	if (s->state == TCP_STATE_LISTEN ? !sharing_possible(s->stack) : !sharing_bound_possible(s->stack))
		return -EOPNOTSUPP;
	if (!s->own.key)
		s->own.key = key_make();
	call.key = s->own.key;
	r = call_proxy(s, &call);
	return r;
}

static bool is_bound_only(const struct xts_sock *s)
{
	return s->bound && s->proxy_id && !s->lost && s->state == TCP_STATE_CLOSE && s->phase == PHASE_UNCONNECTED;
}

/* Other processes have it too: the new program asks for it as they do. */
static int give_up_common(struct xts_sock *s)
{
	uint64_t deadline = now_ns() + NS_PER_S;
	uint32_t id = s->id;

	if (s->own.inherited == NOT_INHERITED && s->own.moved == NOT_MOVED && !turn_give_up(s))
		return -EBUSY;
	while (socket_is_open(s, id) && s->own.moved != NOT_MOVED && s->stack->channel && now_ns() < deadline) {
		channel_flush(s->stack, true);
		if (wait_for(s->stack, &s->callers, now_ns() + NS_PER_MS, false) == -ENOBUFS)
			break;
	}
	return !socket_is_open(s, id) ? -EBADF : s->own.inherited == NOT_INHERITED ? -EBUSY : 0;
}

static int give_up_for_exec(struct xts_sock *s)
{
	if (s->own.common)
		return give_up_common(s);
	if (s->own.moved != NOT_MOVED)
		return -ENOTCONN;
	if (share_by_key(s) || is_bound_only(s))
		return name_for_exec(s);
	if (s->own.inherited != NOT_INHERITED)
		return s->own.taking ? -EBUSY : 0; /* as it is: its parent's, or keyed */
	if (s->lost || s->phase == PHASE_UNCONNECTED || s->state == TCP_STATE_SYN_SENT)
		return -EOPNOTSUPP;
	if (s->state == TCP_STATE_ESTABLISHED)
		return sharing_possible(s->stack) ? connection_park(s, now_ns() + NS_PER_S) : -EOPNOTSUPP;
	return 0; /* what is left of an ended one */
}

static int write_for_exec(struct stack *st, int memfd, const struct xts_exec_socket *b)
{
	struct xts_sock *s = table_open(st, b->number);
	int r = s ? give_up_for_exec(s) : -EBADF;

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

/* The new program does not have them; other processes may. */
static void leave_others(struct stack *st, const struct xts_exec_socket *sockets, unsigned count)
{
	struct xts_sock *s = NULL;

	while ((s = table_next(st, s))) {
		unsigned i = 0;

		while (i < count && sockets[i].number != (int)s->id)
			i++;
		if (i < count || !s->own.common || !relatives_others_have(s->own.common, NULL))
			continue;
		(void)give_up_common(s);
		if (s->own.common)
			relatives_leave(s->own.common);
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
		relatives_pass(false);
		while ((s = table_next(st, s))) {
			if (s->own.common && s->open)
				relatives_rejoin(s->own.common);
			if (s->own.moved == PARKING && s->own.key && !s->proxy_id)
				connection_take_back(s);
		}
		stack_leave(st);
	}
}

/* The stack that the next record's socket comes into: the calling thread's for the endpoint it was at, if that takes it. */
static struct stack *stack_of_next(int memfd)
{
	struct stack *st, *own;
	struct socket_record b;

	process_start();
	own = process_own_stack();
	if (pread(memfd, &b, sizeof b, lseek(memfd, 0, SEEK_CUR)) != (ssize_t)sizeof b || !is_sound(&b) || b.refused)
		return own;
	st = b.endpoint[0] ? process_stack_at(b.endpoint) : own;
	if (st)
		return st;
	st = process_new_stack(b.endpoint);
	return st ? st : own;
}

int xts_inherit_next(int memfd, struct xts_exec_socket *out)
{
	struct stack *st = stack_enter(stack_of_next(memfd));
	struct xts_sock *s = NULL;
	int r;

	out->descriptor = -1;
	out->number = -1;
	out->again = out->listens = false;
	r = record_read(st, memfd, &s, &out->descriptor);
	if (r == -EPROTO)
		lseek(memfd, 0, SEEK_END); /* where the next one begins cannot be known */
	if (s && r == RECORD_AGAIN) {
		out->number = (int)s->id;
		out->again = true;
		out->listens = s->state == TCP_STATE_LISTEN;
		r = 1;
	} else if (s && r == 1) {
		uint32_t id = s->id;

		out->number = (int)id;
		out->listens = s->state == TCP_STATE_LISTEN;
		/* A connection waits for nobody long. The rest is taken over when it is used. */
		if (s->own.common)
			(void)turn_take(s, PURPOSE_NOBODY, 0);
		else if (!share_by_key(s))
			inherit_take(s);
		if (s->id != id)
			r = -EBADF;
		else if (s->lost)
			r = s->error ? -s->error : -ECONNRESET;
	}
	if (s && r < 0 && s->in_use)
		socket_free(s);
	if (r == 0)
		close(memfd);
	stack_leave(st);
	return finish(r);
}
