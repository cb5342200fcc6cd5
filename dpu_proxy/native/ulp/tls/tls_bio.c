/*
 * The BIO between OpenSSL and the layer below.
 *
 * What OpenSSL reads comes from the layer below, in big pieces (SSL_CTX_set_read_ahead). What it writes, one record at
 * a time, is gathered in a buffer of the thread and leaves with one write when the layer's function ends
 * (tls_bio_flush); only what is refused then takes memory of the connection. So to OpenSSL the socket is never full,
 * except when a peer makes it answer and does not read the answers: beyond TLS_OUT_MAX, OpenSSL has to wait.
 *
 * When a connection has left OpenSSL (tls_leave.c), its records are made straight into that buffer, and OpenSSL does
 * not use this BIO any more (tls_tickets.c).
 *
 * Where the kernel does the crypto, records go through OpenSSL's own socket BIO from the moment the kernel has the
 * keys: that BIO knows how record types are passed to the kernel.
 */
#include <errno.h>
#include <openssl/err.h>
#include <string.h>

#include "tls_ours.h"
#include "ulp/lasting.h"

/* Empty whenever no function of a layer runs. One per thread is enough, since there is no TLS inside TLS. */
static _Thread_local struct {
	uint32_t bytes;
	uint8_t *data;
} gathered;

static uint8_t *gathered_data(void)
{
	static _Thread_local uint8_t ordinary[TLS_GATHER_BYTES];

	return lasting_of_thread(&gathered.data, ordinary, TLS_GATHER_BYTES);
}

static void wait_to_read(struct tls *t, BIO *bio)
{
	t->refused = true;
	BIO_set_retry_read(bio);
}

static void wait_to_write(struct tls *t, BIO *bio)
{
	t->refused = true;
	BIO_set_retry_write(bio);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* The peer's FIN. */
static int at_end(struct tls *t, BIO *bio)
{
	if (t->done) {
		t->cut = true;
		wait_to_read(t, bio);
		return -1;
	}
	BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
	return 0;
}

static int from_socket(struct tls *t, BIO *bio, char *out, int room)
{
	int n, end;

	t->dry = false;
	if (!t->away && !ulp_step(t->layer, TLS_RECORD_STEPS)) { /* this reads one record */
		wait_to_read(t, bio);
		return -1;
	}
	n = BIO_read(t->socket, out, room);
	t->dry = n <= 0 && BIO_should_retry(t->socket);
	if (n <= 0 && BIO_should_retry(t->socket)) {
		if (!t->away)
			ulp_socket_empty(t->layer);
		wait_to_read(t, bio);
	} else if (n == 0) {
		end = t->away ? -ENODATA : ulp_socket_end(t->layer);
		if (end == -ENODATA)
			return at_end(t, bio);
		t->below_error = end;
		return -1;
	} else if (n < 0 && errno != EBADMSG && errno != EMSGSIZE && errno != EINVAL) {
		/* these three mean a bad record, which OpenSSL recognizes by errno */
		t->below_error = -errno;
	}
	return n;
}

/* A record that no peer may send, so that OpenSSL sends the peer an alert (tls_flood.c). It has a type that does not
 * exist, because a record of a handshake would be the next part of a message of which OpenSSL waits for more. */
static ssize_t bad_record(void *out, size_t room)
{
	static const uint8_t record[] = { 0, 3, 3, 0, 1, 0 };
	size_t n = room < sizeof record ? room : sizeof record;

	memcpy(out, record, n);
	return (ssize_t)n;
}

static int on_read(BIO *bio, char *out, int room)
{
	struct tls *t = BIO_get_data(bio);
	ssize_t n;

	BIO_clear_retry_flags(bio);
	if (room <= 0)
		return 0;
	if (t->socket && BIO_get_ktls_recv(t->socket) && !t->flooded)
		return from_socket(t, bio, out, room);
	n = t->flooded ? bad_record(out, (size_t)room) : tls_slice_read(t, out, (size_t)room);
	if (n > 0)
		return (int)n;
	if (n == -EAGAIN) {
		wait_to_read(t, bio);
		return -1;
	}
	if (n == -ENODATA)
		return at_end(t, bio);
	t->below_error = (int)n;
	return -1;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void tells_place(struct tls *t)
{
	if (t->ours && t->out.bytes)
		tls_kept_sealed(t, t->out.data + t->out.first + t->out.bytes, 0);
}

/* Room for more bytes behind those that wait, which may be moved for that. */
static int reserve(struct tls *t, uint32_t bytes)
{
	int r;

	if (t->out.bytes)
		tls_kept_tears(t);
	r = ulp_out_reserve(&t->out, t->layer, bytes);
	tells_place(t);
	return r;
}

/* Keeps these bytes behind those that wait already. */
static int wait(struct tls *t, const void *data, uint32_t bytes)
{
	int r = reserve(t, bytes);

	if (r)
		return ulp_memory_fail(t->layer, r, "what TCP does not take");
	ulp_out_put(&t->out, data, bytes);
	tells_place(t);
	return 0;
}

static int to_socket(struct tls *t, BIO *bio, const char *data, int bytes)
{
	int n;

	if (t->away ? tls_handshake_flush(t) : tls_bio_flush(t)) { /* handshake records that still wait */
		wait_to_write(t, bio);
		return -1;
	}
	n = BIO_write(t->socket, data, bytes);
	if (n <= 0 && BIO_should_retry(t->socket)) {
		if (!t->away)
			ulp_socket_full(t->layer);
		wait_to_write(t, bio);
		/* with an error queued, this is an alert, and the fault is known already */
	} else if (n < 0 && !ERR_peek_error() && t->away) {
		tls_handshake_refused(t, errno);
		return bytes;
	} else if (n < 0 && !ERR_peek_error()) {
		t->below_error = ulp_socket_failed(t->layer, errno);
	}
	return n;
}

static int on_write(BIO *bio, const char *data, int bytes)
{
	struct tls *t = BIO_get_data(bio);

	BIO_clear_retry_flags(bio);
	if (bytes <= 0)
		return bytes;
	if (!t->done)
		tls_leave_wire(t, (const uint8_t *)data, (size_t)bytes);
	if (t->socket && BIO_get_ktls_send(t->socket))
		return to_socket(t, bio, data, bytes);
	if (t->away) {
		t->below_error = tls_handshake_put(t, data, (uint32_t)bytes);
		return t->below_error ? -1 : bytes;
	}
	if (t->out.bytes + (uint32_t)bytes > TLS_OUT_MAX) {
		wait_to_write(t, bio);
		return -1;
	}
	if (!t->out.bytes && gathered.bytes + (uint32_t)bytes <= TLS_GATHER_BYTES) {
		memcpy(gathered_data() + gathered.bytes, data, (size_t)bytes);
		gathered.bytes += (uint32_t)bytes;
		return bytes;
	}
	if (gathered.bytes) {
		t->below_error = wait(t, gathered.data, gathered.bytes);
		gathered.bytes = 0;
	}
	if (!t->below_error)
		t->below_error = wait(t, data, (uint32_t)bytes);
	return t->below_error ? -1 : bytes;
}

/* Room for so many bytes behind what waits; 0 or -errno of the fault. */
static int keep_room(struct tls *t, uint32_t bytes)
{
	int r = 0;

	if (gathered.bytes)
		r = wait(t, gathered.data, gathered.bytes);
	gathered.bytes = 0;
	if (!r)
		r = reserve(t, bytes);
	return r ? ulp_memory_fail(t->layer, r, "what TCP does not take") : 0;
}

uint8_t *tls_bio_room(struct tls *t, uint32_t bytes)
{
	if (!t->out.bytes && gathered.bytes + bytes <= TLS_GATHER_BYTES)
		return gathered_data() + gathered.bytes;
	t->below_error = keep_room(t, bytes);
	return t->below_error ? NULL : t->out.data + t->out.first + t->out.bytes;
}

void tls_bio_add(struct tls *t, const uint8_t *record, uint32_t bytes)
{
	if (gathered.data && record == gathered.data + gathered.bytes)
		gathered.bytes += bytes;
	else
		t->out.bytes += bytes;
}

int tls_bio_send(struct tls *t, const void *data, uint32_t bytes)
{
	struct iovec piece = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };
	ssize_t n = t->out.bytes ? 0 : ulp_write_below(t->layer, &piece, 1, NULL);

	if (n >= 0 && (size_t)n < bytes)
		t->below_error = wait(t, (const uint8_t *)data + n, bytes - (uint32_t)n);
	else if (n < 0)
		t->below_error = (int)n;
	return t->below_error ? t->below_error : t->out.bytes ? -EAGAIN : 0;
}

int tls_bio_flush(struct tls *t)
{
	uint32_t bytes = gathered.bytes;
	int r;

	if (!gathered.bytes) {
		r = t->out.bytes ? ulp_out_flush(&t->out, t->layer) : 0;
		if (r && r != -EAGAIN)
			t->below_error = r;
		return r;
	}
	gathered.bytes = 0;
	return tls_bio_send(t, gathered.data, bytes);
}

/* --- OpenSSL ------------------------------------------------------------------------------------------------------ */

static long on_control(BIO *bio, int command, long number, void *argument)
{
	struct tls *t = BIO_get_data(bio);

	if (!t) /* it is being freed: tls_give_ssl() */
		return 0;
	switch (command) {
	case BIO_CTRL_FLUSH: /* OpenSSL asks for it at the end of each flight, and before the kernel gets the keys */
		BIO_clear_retry_flags(bio);
		if (!t->socket || t->ours || (t->away ? tls_handshake_flush(t) : tls_bio_flush(t)) == 0)
			return 1;
		wait_to_write(t, bio);
		return -1;
	case BIO_CTRL_EOF:
		return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0;
	default:
		return t->socket ? tls_kernel_control(t, command, number, argument) : 0;
	}
}

static BIO_METHOD *method;

static void make_method(void)
{
	method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "xts");
	if (!method)
		return;
	BIO_meth_set_read(method, on_read);
	BIO_meth_set_write(method, on_write);
	BIO_meth_set_ctrl(method, on_control);
}

int tls_bio_attach(struct tls *t)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	BIO *bio;

	pthread_once(&once, make_method);
	bio = method ? BIO_new(method) : NULL;
	if (!bio)
		return -ENOMEM;
	BIO_set_data(bio, t);
	BIO_set_init(bio, 1);
	SSL_set_bio(t->ssl, bio, bio);
	return 0;
}
