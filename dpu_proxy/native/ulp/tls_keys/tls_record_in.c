/*
 * Received records of one direction.
 *
 * Bytes are read below in large pieces, into a buffer of the thread. What a read leaves, because its reader has no
 * more room or because it is a part of a record, is copied into memory of its size, and opened there. So an idle
 * connection has no buffer. A layer above another one of this kind finds the thread's buffer taken, and reads record by
 * record into memory of its own.
 *
 * A long record is decrypted straight into the reader's memory if that has room for all of it, and nobody else sees it
 * (over shared memory the host does, and is to see nothing whose tag was not verified). A short one, one of CCM (which
 * computes its tag from the plain text), and what is not application data, is decrypted in place. Only what has a good
 * tag is delivered; what was decrypted with a bad one is wiped.
 *
 * Where everything is written down for the process that goes on when this one has died (struct tls_in_kept), the buffer
 * is of memory that it finds, and nothing is decrypted in place: a record that is half decrypted could not be opened
 * again. What is not delivered at once is copied back.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "tls_record.h"
#include "ulp/lasting.h"
#include "ulp/tls/tls.h"

#define STRAIGHT_MIN 1024u /* a shorter payload is copied for less than what a check of its type behind it costs */

/* --- buffers ------------------------------------------------------------------------------------------------------ */

static _Thread_local uint8_t ordinary[TLS_IN_BYTES], *buffer;
static _Thread_local bool buffer_taken;
static _Thread_local uint8_t plain[TLS_RECORD_MAX];

void tls_in_note(struct tls_record_in *in)
{
	struct tls_in_kept *k = in->kept_down;

	if (!k)
		return;
	tls_in_tears(in);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	k->sequence = in->aead.sequence;
	k->delivered = in->delivered;
	k->read = in->read;
	k->at = in->data ? lasting_offset(in->data + in->first) : 0;
	k->bytes = in->bytes;
	k->room = (in->borrowed ? TLS_IN_BYTES : in->kept.room) - in->first;
	k->payload_bytes = in->payload_bytes;
	k->taken = in->taken;
	k->opened = in->opened;
	k->type = in->type;
	k->ended = in->ended;
	k->sum = tls_in_sum(k);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*(volatile uint8_t *)&k->torn = in->changes;
}

void tls_in_keep(struct tls_record_in *in, struct tls_in_kept *k, uint64_t read)
{
	in->kept_down = k;
	in->read = read;
	tls_in_note(in);
}

/* What is here is copied to another place. Where it was is given up when the new place has been written down. */
static void lie_in(struct tls_record_in *in, uint8_t *place, bool borrowed, const struct ulp_out *kept)
{
	struct ulp_out before = in->kept;

	if (in->bytes)
		memcpy(place, in->data + in->first, in->bytes);
	in->kept = *kept;
	in->data = place;
	in->first = 0;
	in->borrowed = borrowed;
	buffer_taken |= borrowed;
	tls_in_note(in);
	ulp_out_free(&before);
}

/* Makes room for at least this many bytes behind those that are here: returns how much, or 0 with *r. */
static uint32_t make_room(struct ulp_layer *l, struct tls_record_in *in, uint32_t bytes, int *r)
{
	struct ulp_out larger = { 0 };

	if (!in->borrowed && !buffer_taken) {
		lie_in(in, lasting_of_thread(&buffer, ordinary, TLS_IN_BYTES), true, &larger);
		return TLS_IN_BYTES - in->bytes;
	}
	if (in->borrowed) {
		if (in->first) {
			tls_in_tears(in);
			memmove(buffer, buffer + in->first, in->bytes);
			in->first = 0;
			tls_in_note(in);
		}
		return TLS_IN_BYTES - in->bytes;
	}
	*r = ulp_out_reserve(&larger, l, in->bytes + bytes);
	if (*r)
		return 0;
	lie_in(in, larger.data, false, &larger);
	return bytes;
}

static void forget(struct tls_record_in *in)
{
	if (in->borrowed)
		buffer_taken = false;
	else
		ulp_out_free(&in->kept);
	in->borrowed = false;
	in->data = NULL;
	in->first = in->bytes = 0;
	tls_in_note(in);
}

void tls_in_free(struct tls_record_in *in)
{
	forget(in);
	tls_aead_clear(&in->aead);
}

void tls_in_begin(struct tls_record_in *in, struct ulp_out *ahead)
{
	in->kept = *ahead;
	in->data = ahead->data;
	in->first = ahead->first;
	in->bytes = ahead->bytes;
	*ahead = (struct ulp_out){ 0 };
}

int tls_in_rest(struct ulp_layer *l, struct tls_record_in *in)
{
	int r;

	if (!in->bytes) {
		forget(in);
		return 0;
	}
	if (!in->borrowed)
		return 0;
	r = ulp_out_reserve(&in->kept, l, in->bytes);
	if (r) {
		forget(in);
		in->opened = false;
		return ulp_memory_fail(l, r, "TLS records");
	}
	memcpy(in->kept.data, in->data + in->first, in->bytes);
	in->data = in->kept.data;
	in->first = 0;
	in->borrowed = false;
	tls_in_note(in);
	buffer_taken = false;
	return 0;
}

/* --- a whole record ----------------------------------------------------------------------------------------------- */

static uint32_t body_bytes(const uint8_t *header)
{
	return (uint32_t)header[3] << 8 | header[4];
}

static bool is_whole(const uint8_t *data, uint32_t bytes)
{
	return bytes >= TLS_HEADER_BYTES && bytes >= TLS_HEADER_BYTES + body_bytes(data);
}

bool tls_in_pending(const struct tls_record_in *in)
{
	return in->opened || (in->data && is_whole(in->data + in->first, in->bytes));
}

static enum xts_fault fault_of(const struct tls_record_in *in, enum xts_fault fault)
{
	return in->one_fault ? XTS_FAULT_RECORD : fault;
}

/* Checks the header of the record at in->first. The limits are the kernel's: what a payload of 16 KB and its type
 * need. */
static int check_header(struct ulp_layer *l, struct tls_record_in *in)
{
	const uint8_t *h = in->data + in->first;
	uint32_t overhead = tls_aead_overhead(&in->aead), body = body_bytes(h);

	in->alert = TLS_UNEXPECTED_MESSAGE;
	if (h[1] != TLS_1_2_VERSION_MAJOR || h[2] != TLS_1_2_VERSION_MINOR)
		return ulp_fail(l, XTS_FAULT_RECORD, "a TLS record of version %u.%u, not 3.3", h[1], h[2]);
	if (h[0] < TLS_CHANGE_CIPHER_SPEC || h[0] > TLS_HEARTBEAT || (in->aead.tls13 && h[0] != TLS_APPLICATION_DATA))
		return ulp_fail(l, XTS_FAULT_RECORD, "a TLS record of type %u, which cannot be encrypted", h[0]);
	in->alert = TLS_RECORD_OVERFLOW;
	if (body > TLS_PAYLOAD_MAX + overhead)
		return ulp_fail(l, fault_of(in, XTS_FAULT_TOO_LONG), "a TLS record of %u bytes; the longest has %u",
				body, TLS_PAYLOAD_MAX + overhead);
	in->alert = TLS_DECODE_ERROR;
	if (body < overhead)
		return ulp_fail(l, fault_of(in, XTS_FAULT_LENGTH),
				"a TLS record of %u bytes, which has no room for its tag", body);
	in->alert = 0;
	return 0;
}

/* Reads bytes behind those that are here, of which the next record needs so many. 0 or -errno. */
static int more(struct ulp_layer *l, struct tls_record_in *in, uint32_t need)
{
	int r = 0;
	uint32_t room = make_room(l, in, need - in->bytes, &r);
	ssize_t n;

	if (!room)
		return ulp_memory_fail(l, r, "a TLS record");
	if (in->exact)
		room = need - in->bytes;
	n = ulp_read_stream_below(l, in->data + in->first + in->bytes, room);
	if (n == -ENODATA && in->bytes)
		return ulp_fail(l, XTS_FAULT_TRUNCATED, "the stream ended within a TLS record, after %u bytes of it",
				in->bytes);
	if (n < 0)
		return (int)n;
	in->bytes += (uint32_t)n;
	in->read += (uint64_t)n;
	return 0;
}

int tls_in_whole(struct ulp_layer *l, struct tls_record_in *in, const uint8_t **record, uint32_t *bytes)
{
	for (;;) {
		uint32_t need = TLS_HEADER_BYTES;
		int r;

		if (in->bytes >= need) {
			r = check_header(l, in);
			if (r)
				return r;
			need += body_bytes(in->data + in->first);
		}
		if (in->bytes >= need && need > TLS_HEADER_BYTES) {
			*record = in->data + in->first;
			*bytes = need;
			return 0;
		}
		r = more(l, in, need);
		if (r)
			return r;
	}
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

const uint8_t *tls_in_payload(const struct tls_record_in *in)
{
	return tls_aead_payload(&in->aead, in->data + in->first);
}

/* The record at in->first has been delivered. */
static void done(struct tls_record_in *in)
{
	uint32_t bytes = TLS_HEADER_BYTES + body_bytes(in->data + in->first);

	tls_aead_next(&in->aead);
	in->first += bytes;
	in->bytes -= bytes;
	in->opened = false;
	tls_in_note(in);
}

/* The record at in->first has been opened, and so many bytes of its payload delivered, the last ones. */
static ssize_t delivered(struct tls_record_in *in, size_t bytes)
{
	in->delivered += bytes;
	done(in);
	return (ssize_t)bytes;
}

void tls_in_drop(struct tls_record_in *in)
{
	done(in);
}

size_t tls_in_take(struct tls_record_in *in, void *out, size_t room)
{
	uint32_t left = in->payload_bytes - in->taken, n = left < room ? left : (uint32_t)room;

	memcpy(out, tls_in_payload(in) + in->taken, n);
	in->taken += n;
	if (n == left)
		return (size_t)delivered(in, n);
	in->delivered += n;
	tls_in_note(in);
	return n;
}

/* why: as tls_aead_open(). */
static int refuse(struct ulp_layer *l, struct tls_record_in *in, ssize_t why)
{
	if (why == -ENOMSG) { /* RFC 8446 5.4 */
		in->alert = TLS_UNEXPECTED_MESSAGE;
		return ulp_fail(l, XTS_FAULT_RECORD, "TLS record %llu has no type, only padding",
				(unsigned long long)in->aead.sequence);
	}
	in->alert = TLS_BAD_RECORD_MAC;
	return ulp_fail(l, XTS_FAULT_RECORD, "TLS record %llu cannot be authenticated",
			(unsigned long long)in->aead.sequence);
}

ssize_t tls_in_next(struct ulp_layer *l, struct tls_record_in *in, void *out, size_t room)
{
	uint32_t bytes, inner, body;
	uint8_t *record, *payload, *to;
	const uint8_t *whole;
	bool straight;
	ssize_t n = tls_in_whole(l, in, &whole, &bytes);

	if (n)
		return n;
	if (!ulp_step(l, TLS_RECORD_STEPS))
		return -EAGAIN;
	body = bytes - TLS_HEADER_BYTES;
	inner = body - tls_aead_overhead(&in->aead) + in->aead.tls13;
	record = in->data + in->first;
	payload = tls_aead_payload(&in->aead, record);
	straight = room >= inner && inner >= STRAIGHT_MIN && !in->aead.cipher->ccm && !ulp_is_shown(l);
	to = straight ? out : in->kept_down ? plain : payload;
	n = tls_aead_open(&in->aead, record, body, to, &in->type);
	if (n < 0 && to != payload)
		OPENSSL_cleanse(to, inner);
	if (n < 0)
		return refuse(l, in, n);
	in->payload_bytes = (uint32_t)n;
	in->taken = 0;
	if ((uint32_t)n > in->payload_max) {
		in->alert = TLS_RECORD_OVERFLOW;
		return ulp_fail(l, fault_of(in, XTS_FAULT_TOO_LONG),
				"a TLS record of %u bytes of payload; the longest has %u", in->payload_bytes,
				in->payload_max);
	}
	if (to != payload && n && (size_t)n <= room && in->type == TLS_APPLICATION_DATA) {
		if (!straight)
			memcpy(out, plain, (size_t)n);
		return delivered(in, (size_t)n);
	}
	if (to != payload) {
		tls_in_tears(in);
		memcpy(payload, to, (size_t)n);
		OPENSSL_cleanse(to, inner);
	}
	in->opened = true;
	tls_in_note(in);
	return 0;
}
