/*
 * The format in which sockets pass from one process to another: one record for each, followed by the bytes that were
 * received and not read, then the list of their PDUs. All are written one after the other into a memfd, which the new
 * program keeps over exec().
 *
 * The writer started the reader under the same user, and both have the same build of this library. Version, sizes and
 * ranges are checked nevertheless: a memfd of another kind is refused.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/received_data.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/socket_kind.h"
#include "core/socket_states.h"
#include "core/stack.h"
#include "processes/inherit.h"
#include "processes/passed_copies.h"
#include "processes/relatives.h"
#include "processes/socket_record.h"
#include "processes/take_over.h"
#include "ulps/pdu.h"
#include "ulps/pushed.h"
#include "xts_private.h"

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

/* 1, 0 at the end of the file, -EPROTO if it ends within a record. */
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

const struct socket_kind *record_kind(const struct socket_record *b)
{
	return kind_in_state(b->datagrams, b->state);
}

void record_fill(struct socket_record *b, const struct xts_sock *s)
{
	const struct common *c = s->own.common;

	*b = (struct socket_record){
		.magic = RECORD_MAGIC,
		.version = RECORD_VERSION,
		.number = s->id,
		.descriptor = -1,
		.relatives = -1,
		.deed_fd = -1,
		.key = s->cold->sharing.key,
		.receive_timeout_ns = s->receive_timeout_ns,
		.send_timeout_ns = s->send_timeout_ns,
		.sent_bytes = s->sent_bytes,
		.received_bytes = s->received_bytes,
		.error = s->error,
		.linger_s = s->linger_s,
		.backlog = s->cold->backlog,
		.window = s->grant.window,
		.window_max = s->window_max,
		.receive_lowat = s->receive_lowat,
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
		.ulps = s->cold->ulps,
	};
	if (c) {
		b->common_read_bytes = atomic_load(&c->read_bytes);
		b->common_sent_bytes = atomic_load(&c->sent_bytes);
		b->passed = atomic_load(&c->passed) != 0;
	}
	if (s->cold->sharing.has_deed)
		b->deed_id = s->cold->sharing.deed_id;
	kind_of(s)->record_fill(b, s);
	memcpy(b->endpoint, s->stack->endpoint, sizeof b->endpoint);
}

void record_for_label(struct socket_record *b, const struct xts_sock *s)
{
	record_fill(b, s);
	memcpy(b->endpoint, s->stack->settings.endpoint, sizeof b->endpoint);
	b->endpoint[sizeof b->endpoint - 1] = 0;
	b->done = 0;
}

int record_write(int memfd, struct xts_sock *s, int descriptor)
{
	struct common *c = s->own.common;
	struct socket_record b;
	uint8_t *asked;
	int r;

	record_fill(&b, s);
	b.descriptor = descriptor;
	b.unread = kind_of(s)->unread_stays ? 0 : s->unread;
	if (c) {
		struct relatives_place place = relatives_pass(c);

		b.relatives = place.fd;
		b.relatives_slot = place.slot;
		b.relatives_entry = place.index;
	}
	b.deed_fd = passed_keep(s, true);
	b.deed_is_shared = s->cold->sharing.has_deed && s->cold->sharing.deed_is_shared;
	for (const struct pdu *p = s->cold->pdu_first; p; p = p->next)
		b.pdus++;
	asked = asked_pack(s, &b.asked);
	if (b.asked && !asked)
		return -ENOMEM;
	r = write_all(memfd, &b, sizeof b);
	if (!r && b.unread)
		r = write_unread(memfd, s);
	for (const struct pdu *p = s->cold->pdu_first; p && !r; p = p->next) {
		struct pdu copy = *p;

		copy.next = NULL;
		r = write_all(memfd, &copy, sizeof copy);
	}
	if (!r)
		r = write_all(memfd, asked, b.asked);
	if (asked)
		explicit_bzero(asked, b.asked);
	free(asked);
	return r;
}

int record_write_again(int memfd, struct xts_sock *s, int descriptor)
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

void record_write_refused(int memfd, int error, int descriptor)
{
	/* EPROTO: a memfd that cannot be read */
	struct socket_record b = { .magic = RECORD_MAGIC,
				   .version = RECORD_VERSION,
				   .descriptor = descriptor,
				   .refused = error == EPROTO ? EIO : error };

	(void)write_all(memfd, &b, sizeof b);
}

bool record_bools(const bool *const *flags, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		uint8_t byte;

		memcpy(&byte, flags[i], sizeof byte);
		if (byte > 1)
			return false;
	}
	return true;
}

/* None of them is in the middle of a push or a handshake. */
static bool flags_are_sound(const struct ulps *u)
{
	const bool *const flags[] = { &u->peeking,      &u->handshaking,  &u->sending,     &u->begun,        &u->tls,
				      &u->keys_expired, &u->with_connect, &u->zerocopy_ro, &u->expect_no_pad };

	return record_bools(flags, sizeof flags / sizeof *flags) && !u->sending;
}

static bool is_address(const struct xts_endpoint *e)
{
	return e->ip_version == 0 || e->ip_version == 4 || e->ip_version == 6;
}

bool record_is_sound(const struct socket_record *b)
{
	if (b->magic != RECORD_MAGIC || b->version != RECORD_VERSION || b->endpoint[ENDPOINT_BYTES - 1])
		return false;
	if (b->refused)
		return b->refused > 0 && b->refused < 4096; /* it is an errno */
	if (b->again)
		return true;
	if ((b->family != 4 && b->family != 6) || b->phase > PHASE_DISCONNECTING || b->shutdown > SHUTDOWN_MASK)
		return false;
	if (b->ulps.depth[ULPS_RECEIVE] > ULP_DEPTH || b->ulps.depth[ULPS_SEND] > ULP_DEPTH || !flags_are_sound(&b->ulps))
		return false;
	if (!is_address(&b->local) || !is_address(&b->peer) || b->backlog > XTS_CREDITS_MAX ||
	    b->window > XTS_CREDITS_MAX || b->window_max > XTS_CREDITS_MAX)
		return false;
	if (b->asked > ASKED_BYTES_MAX)
		return false;
	return record_kind(b)->record_is_sound(b);
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

/* Their lengths have to add up to the bytes, only the last may be incomplete, and all have to be within the window. */
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

static int read_asked(int memfd, struct xts_sock *s, uint32_t bytes)
{
	uint8_t *packed = bytes ? malloc(bytes) : NULL;
	int r = 1;

	if (!bytes)
		return 0;
	if (!packed)
		return -ENOMEM;
	r = read_all(memfd, packed, bytes);
	r = r == 1 ? asked_unpack(s, packed, bytes) : r ? r : -EPROTO;
	explicit_bzero(packed, bytes);
	free(packed);
	return r;
}

static struct xts_sock *find_adopted(struct stack *st, uint32_t number)
{
	struct xts_sock *s = NULL;

	while ((s = table_next(st, s)))
		if (s->open && s->cold->sharing.number_before == number)
			return s;
	return NULL;
}

void record_apply(const struct socket_record *b, struct xts_sock *s)
{
	s->seqpacket = b->seqpacket;
	s->bound = b->bound;
	s->bound_address = b->bound_address;
	s->v6only = b->v6only;
	s->cold->ulps = b->ulps;
	s->cold->sharing.key = b->key;
	socket_enter(s, b->state, b->phase);
	s->error = b->error;
	s->done = b->done;
	s->shutdown = b->shutdown;
	s->cold->backlog = b->backlog;
	kind_of(s)->record_apply(b, s);
	s->window_max = b->window_max;
	s->sent_bytes = b->sent_bytes;
	s->received_bytes = b->received_bytes;
	s->local = b->local;
	s->peer = b->peer;
	s->open = true;
	s->cold->sharing.number_before = b->number;
	s->nonblocking = b->nonblocking;
	s->close_on_exec = b->close_on_exec;
	s->linger = b->linger;
	s->linger_s = b->linger_s;
	s->receive_lowat = b->receive_lowat;
	s->receive_timeout_ns = b->receive_timeout_ns;
	s->send_timeout_ns = b->send_timeout_ns;
}

int record_read(struct stack *st, int memfd, struct xts_sock **out, int *descriptor)
{
	struct xts_sock *s = *out;
	struct socket_record b;
	int r = read_all(memfd, &b, sizeof b);

	if (r != 1)
		return r;
	if (!record_is_sound(&b))
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
	r = record_kind(&b)->make(s);
	if (!r)
		r = read_unread(memfd, s, b.unread);
	if (!r)
		r = read_pdus(memfd, s, &b);
	if (!r)
		r = read_asked(memfd, s, b.asked);
	if (r)
		return r;
	record_apply(&b, s);
	if (b.relatives >= 0)
		s->own.common = relatives_adopt(&(struct relatives_place){
			.fd = b.relatives, .slot = b.relatives_slot, .index = b.relatives_entry });
	if (s->own.common) {
		common_count(s);
	} else if (b.relatives >= 0) {
		return -EPROTO;
	}
	passed_adopt(s, &b);
	inherit_adopt(s);
	return 1;
}
