/*
 * Records that our record layer has received: data is delivered, everything else is worked on here.
 *
 * After the handshake there are few messages: KeyUpdate, tickets (tls_tickets.c), and in TLS 1.2 HelloRequest and
 * ClientHello, by which a peer asks for a renegotiation, which is refused. KeyUpdate is answered, if the peer asks for
 * it, before the next data, once for however many there were. What brings no data is counted and paid for as where
 * OpenSSL reads (tls_flood.c).
 */
#include <errno.h>
#include <string.h>

#include "tls_ours.h"

#define MESSAGE_MAX (1u << 17)
#define ANSWERS_MAX (64u << 10) /* waiting to be sent, and no more warnings are added */

/* --- faults ------------------------------------------------------------------------------------------------------- */

int tls_receive_failed(struct tls *t, uint8_t alert)
{
	tls_session_forget(t);
	(void)tls_seal_alert(t, TLS_FATAL, alert);
	(void)tls_bio_flush(t); /* if that fails, nothing can be done */
	return t->failed;
}

#define REFUSE(t, fault, alert, ...) \
	((t)->failed = ulp_fail((t)->layer, (fault), __VA_ARGS__), tls_receive_failed((t), (alert)))

static int flooded(struct tls *t)
{
	return REFUSE(t, XTS_FAULT_FLOOD, TLS_UNEXPECTED_MESSAGE,
		      "the peer sent %u records and %u messages in a row, and no data", t->quiet_records,
		      t->quiet_messages);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

enum { HELLO_REQUEST = 0, CLIENT_HELLO = 1 };

/* The header of a message is here: may it come? */
static int begin(struct tls *t, struct tls_message *m)
{
	const struct tls_ours *o = t->ours;
	uint8_t type = m->head[0];
	bool known = o->tls13 ? type == SSL3_MT_KEY_UPDATE || (type == SSL3_MT_NEWSESSION_TICKET && t->client) :
				type == (t->client ? HELLO_REQUEST : CLIENT_HELLO);

	m->left = (uint32_t)m->head[1] << 16 | (uint32_t)m->head[2] << 8 | m->head[3];
	m->in_body = true;
	if (!known)
		return REFUSE(t, XTS_FAULT_HANDSHAKE, TLS_UNEXPECTED_MESSAGE, "unexpected message: %u", type);
	if (m->left > MESSAGE_MAX || (type == SSL3_MT_KEY_UPDATE && m->left != 1) || (type == HELLO_REQUEST && m->left))
		return REFUSE(t, XTS_FAULT_HANDSHAKE, TLS_DECODE_ERROR, "a message of type %u has %u bytes", type,
			      m->left);
	tls_ticket_begin(&m->ticket);
	if (++t->quiet_messages > TLS_QUIET_MAX)
		return flooded(t);
	(void)ulp_step(t->layer, TLS_MESSAGE_STEPS);
	return 0;
}

/* The peer's next records come with other keys. */
static int update(struct tls *t, uint8_t asked)
{
	struct tls_ours *o = t->ours;
	union tls_crypto_info_any info;
	int r = 0;

	o->update_due = o->update_due || asked == SSL_KEY_UPDATE_REQUESTED;
	if (!tls_secret_next(&o->receive_secret, o->digest) ||
	    !tls_secret_keys(&o->receive_secret, o->digest, o->in.aead.cipher, &info) ||
	    tls_aead_set(&o->in.aead, &info, false))
		r = REFUSE(t, XTS_FAULT_MEMORY, TLS_INTERNAL_ERROR, "there are no other keys");
	OPENSSL_cleanse(&info, sizeof info);
	return r;
}

/* A message is here, and was the last of its record or not. *other: the next record comes with other keys. */
static int end(struct tls *t, const struct tls_message *m, bool last, bool *other)
{
	if (m->head[0] == SSL3_MT_KEY_UPDATE && !last)
		return REFUSE(t, XTS_FAULT_HANDSHAKE, TLS_UNEXPECTED_MESSAGE, "KeyUpdate does not end its record");
	if (m->head[0] == SSL3_MT_NEWSESSION_TICKET && !tls_ticket_is_whole(&m->ticket))
		return REFUSE(t, XTS_FAULT_HANDSHAKE, TLS_DECODE_ERROR, "a ticket of a wrong length");
	*other = m->head[0] == SSL3_MT_KEY_UPDATE;
	if (m->head[0] == SSL3_MT_NEWSESSION_TICKET && !t->ssl && t->keeps_session)
		tls_count(&tls_counters.tickets_late);
	if (t->ours->tls13 || t->out.bytes > ANSWERS_MAX)
		return 0;
	return tls_seal_alert(t, TLS_WARNING, TLS_NO_RENEGOTIATION);
}

/* The messages of a record. 0 or the fault. */
static int messages(struct tls *t, const uint8_t *data, uint32_t bytes, bool *other)
{
	struct tls_message *m = &t->ours->message;
	int r = 0;

	while (!r && bytes) {
		uint32_t n;

		if (!m->in_body) {
			m->head[m->head_bytes++] = *data++;
			bytes--;
			if (m->head_bytes < sizeof m->head)
				continue;
			r = begin(t, m);
		}
		n = m->left < bytes ? m->left : bytes;
		if (r || (!n && m->left))
			continue;
		if (n)
			m->first = *data;
		if (m->head[0] == SSL3_MT_NEWSESSION_TICKET)
			tls_ticket_take(&m->ticket, data, n);
		data += n;
		bytes -= n;
		m->left -= n;
		if (m->left)
			continue;
		r = end(t, m, !bytes, other);
		m->head_bytes = 0;
		m->in_body = false;
	}
	return r;
}

/* --- what is not data --------------------------------------------------------------------------------------------- */

/* 0; -ENODATA: the peer sends no more; else the fault. */
static int alert(struct tls *t, const uint8_t *data, uint32_t bytes)
{
	uint8_t level, alert;

	if (!bytes && t->ours->tls13) /* RFC 8446 5.4 */
		return REFUSE(t, XTS_FAULT_RECORD, TLS_UNEXPECTED_MESSAGE, "a record with no alert");
	if (bytes != 2)
		return REFUSE(t, XTS_FAULT_HANDSHAKE, TLS_DECODE_ERROR, "an alert of %u bytes", bytes);
	level = data[0];
	alert = data[1];
	if (alert == TLS_CLOSE_NOTIFY) {
		t->ours->in.ended = true;
		return -ENODATA;
	}
	/* in TLS 1.3 the level means nothing (RFC 8446 6) */
	if (alert == TLS_USER_CANCELED || (level == TLS_WARNING && !t->ours->tls13))
		return 0;
	tls_session_forget(t);
	return tls_fault_alert(t, alert);
}

static int handshake(struct tls *t)
{
	struct tls_ours *o = t->ours;
	uint8_t asked = 0;
	bool other = false;
	int r;

	if (o->tls13 && !o->in.payload_bytes)
		return REFUSE(t, XTS_FAULT_RECORD, TLS_UNEXPECTED_MESSAGE, "a record with no part of a message");
	r = messages(t, tls_in_payload(&o->in), o->in.payload_bytes, &other);
	asked = o->message.first;
	if (!r && other && asked > SSL_KEY_UPDATE_REQUESTED)
		r = REFUSE(t, XTS_FAULT_HANDSHAKE, TLS_ILLEGAL_PARAMETER, "KeyUpdate asks for %u", asked);
	if (r)
		return r;
	if (t->ssl)
		tls_tickets_keep(t, true);
	tls_in_drop(&o->in);
	return other ? update(t, asked) : 0;
}

/* The record that is open brings no data. 0, and it is gone; else as alert(). */
static int quiet_record(struct tls *t)
{
	struct tls_ours *o = t->ours;
	uint8_t type = o->in.type;
	int r = 0;

	if (++t->quiet_records > TLS_QUIET_MAX)
		return flooded(t);
	if (type == TLS_HANDSHAKE) {
		o->in.changes = true;
		tls_in_tears(&o->in);
		r = handshake(t);
		o->in.changes = false;
		tls_in_note(&o->in);
		return r;
	}
	if (o->message.head_bytes && o->tls13)
		return REFUSE(t, XTS_FAULT_RECORD, TLS_UNEXPECTED_MESSAGE, "a record of type %u inside a message", type);
	if (type == TLS_ALERT)
		r = alert(t, tls_in_payload(&o->in), o->in.payload_bytes);
	else if (type != TLS_APPLICATION_DATA)
		r = REFUSE(t, XTS_FAULT_RECORD, TLS_UNEXPECTED_MESSAGE, "unexpected record: type %u", type);
	tls_in_drop(&o->in);
	return r;
}

/* --- data --------------------------------------------------------------------------------------------------------- */

/* Opens the next record: returns its bytes if they were delivered, 0 if not, or -errno. */
static ssize_t next(struct tls *t, void *out, size_t room)
{
	struct tls_ours *o = t->ours;
	ssize_t n = t->ssl ? tls_tickets_copy(t) : 0;

	if (!n)
		n = tls_in_next(t->layer, &o->in, out, room);
	if (n == -ENODATA)
		return ulp_fail(t->layer, XTS_FAULT_TRUNCATED, "the peer's stream ended without close_notify");
	if (n < 0 && o->in.alert) {
		t->failed = (int)n;
		return tls_receive_failed(t, o->in.alert);
	}
	if (n < 0)
		return n;
	if (t->ssl && o->in.type != TLS_HANDSHAKE)
		tls_tickets_keep(t, false);
	if (!n && (o->in.type != TLS_APPLICATION_DATA || !o->in.payload_bytes))
		return quiet_record(t);
	if (o->message.head_bytes && o->tls13)
		return REFUSE(t, XTS_FAULT_RECORD, TLS_UNEXPECTED_MESSAGE, "data inside a message");
	tls_flood_calm(t);
	return n;
}

/* A PDU is a record. */
static void set_mark(const struct tls_record_in *in, size_t bytes, struct ulp_mark *mark)
{
	*mark = (struct ulp_mark){
		.pdu = true,
		.more = in->opened,
		.control_bytes = 1,
		.control_type = XTS_ULP_TLS,
		/* bytes delivered without being opened in place are a whole record */
		.record_bytes = in->taken ? in->payload_bytes : (uint32_t)bytes,
		.control = { TLS_APPLICATION_DATA },
	};
}

ssize_t tls_receive(struct tls *t, void *out, size_t room, struct ulp_mark *mark)
{
	bool records = ulp_message_socket(t->layer);
	struct tls_record_in *in = &t->ours->in;
	ssize_t n = t->failed ? t->failed : t->ours->in.ended ? -ENODATA : 0;
	size_t done = 0;
	int r;

	while (n >= 0 && done < room && !(records && done)) {
		n = in->opened ? (ssize_t)tls_in_take(in, (uint8_t *)out + done, room - done) :
				 next(t, (uint8_t *)out + done, room - done);
		done += n > 0 ? (size_t)n : 0;
	}
	if (mark)
		*mark = (struct ulp_mark){ 0 };
	if (mark && records && done)
		set_mark(in, done, mark);
	r = tls_in_rest(t->layer, in);
	if (r && !t->failed)
		t->failed = r;
	if (!t->failed)
		(void)tls_bio_flush(t); /* answers to what was read */
	if (!in->delivered)             /* tickets, and perhaps nothing for long */
		tls_aead_rest(&in->aead);
	tls_tickets_time(t);
	tls_idle_time(t->layer, &t->ours->idle, &t->ours->out, &in->aead);
	t->ended = n == -ENODATA && done;
	return done ? (ssize_t)done : r ? r : n;
}

bool tls_receive_pending(const struct tls *t)
{
	if (t->failed || t->ended)
		return true;
	return !t->ours->in.ended && (tls_in_pending(&t->ours->in) || ulp_pending_below(t->layer));
}
