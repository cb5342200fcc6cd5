/*
 * libFuzzer target: terminated TLS against a hostile peer, as client and as server, during the handshake and after it.
 *
 * The peer is OpenSSL. The input says when it works, and what becomes of its bytes on their way: they come in pieces,
 * are changed, lost, repeated, interrupted by others; and with the peer's own keys (TLS 1.3) records of any type and
 * content are made that no peer would send. Random numbers are no chance here, so an input does the same each time.
 *
 * What holds: nothing that the peer has not sent is ever delivered, and nothing else than what the host has sent ever
 * leaves; a fault has a name and a reason, is told once and stays; after -EAGAIN nothing invites to read again; a
 * connection has bounded memory, leaves none behind, and gives no block back with a secret in it. If nobody has
 * meddled, the handshake is done in the end, all data are there, and both sides say goodbye.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "between.h"
#include "common/time_units.h"
#include "tls_peer.h"
#include "ulp/config.h"
#include "ulp/ulp_stack.h"
#include "steps.h"

#define CHUNK 8192u
#define STEPS_MAX 250
#define ROUNDS_MAX 400
#define ROUNDS_AT_END 8 /* at least: nothing may change after the end */
#define CONNECTIONS_MAX 3
/* Of a connection, its SSL_CTX, configuration and sessions included: 512 KiB of answers that the peer does not read,
 * OpenSSL's longest handshake message (a chain of 100 KiB) as it comes, and parsed, and the buffers of records. */
#define MEMORY_MAX (1280l << 10)

struct scene {
	struct xts_ulp_config *config;
	struct ulp_owner owner;
	struct ulp_stack *stack;
	struct tls_peer peer;
	struct between wire; /* from the peer to us */
	uint64_t faults[XTS_FAULT_COUNT];
	uint64_t now_ns;
	int fd, peer_fd;
	bool client, messages, verifies, bad, small_records;
	uint8_t asks; /* parameters: ASK_* */
	uint16_t version;
	bool forged;    /* the peer has said what its OpenSSL knows nothing of */
	bool disturbed; /* it need not end well */
	bool failed, peer_failed, ended, finished;
	uint32_t peer_sent, received, sent, peer_received; /* bytes of data: what each is follows from its place */
	uint32_t writing;                                  /* of ours, offered and not taken */
};

/* Parameters that a host may ask for, in addition to those that every connection here has. */
enum {
	ASK_CIPHERS = 1, /* CIPHERS and CIPHERSUITES that the peer has, and others */
	ASK_NO_RESUMPTION = 2,
	ASK_MIN_VERSION = 4, /* TLS 1.3: not with every peer */
	ASK_MAX_VERSION = 8, /* TLS 1.2 */
	ASK_OTHER_ALPN = 16, /* none that the peer has */
	ASK_NAMES = 32,      /* a server of two identities, of which the client asks for one by its name */
	ASK_OCSP = 64,       /* the client wants a server's OCSP response */
	ASK_LAX = 128,       /* a client that verifies the chain alone; a server that takes no certificate, too */
};
/* With these a handshake need not come to a good end. */
#define ASK_ODD (ASK_MIN_VERSION | ASK_MAX_VERSION | ASK_OTHER_ALPN | ASK_LAX)

static uint64_t now_ns(void *owner)
{
	return ((struct scene *)owner)->now_ns;
}

static void wake_after(void *owner, uint32_t timeout_ms)
{
	(void)owner;
	(void)timeout_ms;
}

static uint8_t byte_at(uint32_t place)
{
	return (uint8_t)(place * 7 + (place >> 8) * 13);
}

/* --- what holds --------------------------------------------------------------------------------------------------- */

static uint64_t fault_count(const struct scene *s)
{
	uint64_t count = 0;

	for (unsigned i = 0; i < XTS_FAULT_COUNT; i++)
		count += i == XTS_FAULT_PUSH ? 0 : s->faults[i];
	return count;
}

static bool of_socket(ssize_t r)
{
	return r == -ECONNRESET || r == -EPIPE;
}

/* -errno of a call: nothing for now, the end, the socket's own, or a fault, which has a reason. A stream that is cut
 * off is a fault of reading only: writing goes on, and may meet another one. */
static void check_error(struct scene *s, ssize_t r)
{
	uint64_t cut = s->faults[XTS_FAULT_TRUNCATED], others = fault_count(s) - cut;
	uint8_t answer[512];
	ssize_t n = ulp_stack_error(s->stack, false, answer, sizeof answer);

	ENSURE(r < 0 && cut <= 1 && others <= 1);
	if (!others && (r == -EAGAIN || of_socket(r) || (r == -ENODATA && !cut))) {
		s->failed |= of_socket(r);
		return;
	}
	ENSURE(cut || others);
	s->failed |= others > 0;
	ENSURE(n > 4 && (answer[0] << 8 | answer[1]) == -r);
	for (ssize_t i = 4; i < n; i++)
		ENSURE(answer[i]);
}

static void check_memory(void)
{
	ENSURE(watch.held <= MEMORY_MAX);
}

/* What ULP_INFO tells of a connection: in parts the same as in one piece. */
static void check_info(struct scene *s)
{
	static uint8_t whole[8192], part[8192];

	for (uint16_t item = 0; item < 14; item++) {
		ssize_t n = WATCHED(ulp_stack_info(s->stack, true, 0, item, 0, whole, sizeof whole)), m;
		uint32_t half;

		if (n < 0) {
			ENSURE(n == -ENOENT || n == -ENOTCONN);
			continue;
		}
		ENSURE(n >= 4 && xts_get32(whole) == (uint32_t)n - 4); /* nothing here is larger than the room */
		half = ((uint32_t)n - 4) / 2;
		m = WATCHED(ulp_stack_info(s->stack, false, 0, item, half, part, 4 + half + 1));
		ENSURE(m >= 4 && xts_get32(part) == (uint32_t)n - 4 && m - 4 <= half + 1);
		ENSURE(!memcmp(part + 4, whole + 4 + half, (size_t)m - 4));
	}
}

/* --- our side ----------------------------------------------------------------------------------------------------- */

static void we_shake_hands(struct scene *s)
{
	int r = WATCHED(ulp_stack_handshake(s->stack));

	if (!r) {
		ENSURE(ulp_stack_ready(s->stack));
		ENSURE(!s->bad || !s->verifies);
	} else {
		check_error(s, r);
		if (r != -EAGAIN)
			ENSURE(ulp_stack_handshake(s->stack) == r);
	}
}

static bool we_read(struct scene *s, uint32_t room)
{
	uint8_t *out;
	struct ulp_mark mark;
	ssize_t n;

	if (!ulp_stack_ready(s->stack)) {
		we_shake_hands(s);
		return false;
	}
	out = malloc(room); /* of exactly that length, for AddressSanitizer */
	ENSURE(out);
	ulp_stack_turn(s->stack);
	n = WATCHED(ulp_stack_read(s->stack, out, room, &mark));
	if (n < 0) {
		check_error(s, n);
		if (n == -EAGAIN)
			ENSURE(!ulp_stack_readable(s->stack) && !ulp_stack_pending(s->stack));
		s->ended |= n == -ENODATA;
	} else {
		ENSURE(n && n <= room && !s->ended && mark.pdu == s->messages);
		for (ssize_t i = 0; i < n && !s->forged; i++)
			ENSURE(out[i] == byte_at(s->received + (uint32_t)i));
		s->received += (uint32_t)n;
		ENSURE(s->forged || s->received <= s->peer_sent);
	}
	free(out);
	check_memory();
	return n > 0;
}

static void we_write(struct scene *s, uint32_t bytes, bool begin)
{
	static uint8_t data[256 * 160];
	struct iovec iov[2] = { { .iov_base = data }, { .iov_base = data } };
	struct ulp_mark mark = { .pdu = s->messages };
	ssize_t n;

	if (begin && !s->writing)
		s->writing = bytes;
	if (!s->writing || s->finished)
		return;
	for (uint32_t i = 0; i < s->writing; i++)
		data[i] = byte_at(s->sent + i);
	iov[0].iov_len = s->writing / 3;
	iov[1] = (struct iovec){ .iov_base = data + s->writing / 3, .iov_len = s->writing - s->writing / 3 };
	mark.record_bytes = s->messages ? s->writing : 0;
	n = WATCHED(ulp_stack_write(s->stack, iov, 2, &mark));
	if (n < 0) {
		ENSURE(n != -EAGAIN);
		check_error(s, n);
		s->writing = 0;
	} else {
		ENSURE(n <= s->writing);
		s->writing -= (uint32_t)n;
		s->sent += (uint32_t)n;
	}
	check_memory();
}

static int we_flush(struct scene *s, bool finish)
{
	int r = finish ? WATCHED(ulp_stack_finish(s->stack)) : WATCHED(ulp_stack_flush(s->stack));

	ENSURE(r <= 0);
	if (r && r != -EAGAIN && !of_socket(r) && !s->failed) /* an alert is still written after a fault */
		check_error(s, r);
	s->finished |= finish;
	return r;
}

static void pass(struct scene *s, uint32_t bytes)
{
	ssize_t n;

	bytes = bytes < s->wire.bytes ? bytes : s->wire.bytes;
	n = bytes ? send(s->peer_fd, s->wire.data, bytes, MSG_NOSIGNAL) : 0;
	if (n <= 0)
		return;
	between_passed(&s->wire, (uint32_t)n);
	ulp_stack_event(s->stack, true, false);
}

/* --- the peer ----------------------------------------------------------------------------------------------------- */

static void peer_says(struct scene *s)
{
	static uint8_t bytes[CHUNK];
	int n;

	ERR_clear_error(); /* what is in there is the peer's, and not for us to free */
	while (between_room(&s->wire) >= CHUNK && (n = BIO_read(SSL_get_wbio(s->peer.ssl), bytes, CHUNK)) > 0)
		between_put(&s->wire, bytes, (uint32_t)n);
}

/* All that has come from us, if it is not lost; and what OpenSSL makes of it. */
static void peer_works(struct scene *s, uint32_t lost)
{
	static uint8_t bytes[CHUNK];
	ssize_t n;
	int r = 1;

	while ((n = recv(s->peer_fd, bytes, sizeof bytes, 0)) > 0) {
		if (lost) {
			lost = lost < n ? lost : (uint32_t)n;
			s->disturbed = true;
		}
		ENSURE(BIO_write(SSL_get_rbio(s->peer.ssl), bytes + lost, (int)(n - lost)) == n - lost);
		lost = 0;
	}
	ulp_stack_event(s->stack, false, true);
	if (!SSL_is_init_finished(s->peer.ssl))
		r = SSL_do_handshake(s->peer.ssl);
	while (r > 0 && (r = SSL_read(s->peer.ssl, bytes, sizeof bytes)) > 0) {
		for (int i = 0; i < r; i++)
			ENSURE(bytes[i] == byte_at(s->peer_received + (uint32_t)i));
		s->peer_received += (uint32_t)r;
		ENSURE(s->peer_received <= s->sent);
	}
	if (r <= 0 && SSL_get_error(s->peer.ssl, r) == SSL_ERROR_SSL)
		s->peer_failed = true;
	peer_says(s);
}

static void peer_writes(struct scene *s, uint32_t bytes)
{
	static uint8_t data[256 * 160];
	size_t written;

	if (!SSL_is_init_finished(s->peer.ssl) || !bytes || s->peer_failed || between_room(&s->wire) < 2 * bytes + CHUNK)
		return;
	for (uint32_t i = 0; i < bytes; i++)
		data[i] = byte_at(s->peer_sent + i);
	if (SSL_write_ex(s->peer.ssl, data, bytes, &written) == 1)
		s->peer_sent += bytes;
	peer_says(s);
}

static void peer_controls(struct scene *s, uint8_t what)
{
	SSL *ssl = s->peer.ssl;

	if (!SSL_is_init_finished(ssl) || s->peer_failed)
		return;
	switch (what % 5) {
	case 0:
		SSL_key_update(ssl, what & 8 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
		SSL_do_handshake(ssl);
		break;
	case 1: /* TLS 1.2; refused */
		s->disturbed = true;
		SSL_renegotiate(ssl);
		SSL_do_handshake(ssl);
		break;
	case 2:
		s->disturbed = true; /* what comes after it is not looked at */
		SSL_shutdown(ssl);
		break;
	case 3:
		SSL_new_session_ticket(ssl);
		SSL_do_handshake(ssl);
		break;
	default: /* a certificate after the handshake: our clients do not offer that */
		s->disturbed = true;
		SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL);
		SSL_verify_client_post_handshake(ssl);
		SSL_do_handshake(ssl);
	}
	peer_says(s);
}

static void peer_forges(struct scene *s, struct input *in)
{
	static const uint8_t types[] = { TLS_HANDSHAKE, TLS_ALERT, TLS_APPLICATION_DATA, TLS_CHANGE_CIPHER_SPEC };
	uint8_t what = take(in), data[256], record[TLS_RECORD_MAX], type = what & 4 ? take(in) : types[what & 3];
	uint32_t bytes = take(in);

	if (!s->peer.has_secret || between_room(&s->wire) < sizeof record)
		return;
	for (uint32_t i = 0; i < bytes; i++)
		data[i] = what & 8 ? (uint8_t)bytes : take(in);
	between_put(&s->wire, record, tls_peer_forge(&s->peer, type, data, bytes, record));
	s->forged = true;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static uint32_t attribute(uint8_t *out, uint16_t type, const void *value, uint16_t bytes)
{
	out[0] = (uint8_t)(type >> 8);
	out[1] = (uint8_t)type;
	out[2] = (uint8_t)(bytes >> 8);
	out[3] = (uint8_t)bytes;
	if (bytes)
		memcpy(out + 4, value, bytes);
	return 4u + bytes;
}

/* False: it was refused. */
static bool push(struct scene *s)
{
	static const char ciphers[] = "ECDHE+AESGCM:ECDHE+CHACHA20";
	static const char suites[] = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
	uint8_t parameters[256], verify = s->verifies ? 2 : 0;
	uint32_t bytes;
	int r;

	if (s->asks & ASK_LAX)
		verify = 1;
	bytes = attribute(parameters, XTS_TLS_VERIFY, &verify, 1);
	if (s->client)
		bytes += attribute(parameters + bytes, XTS_TLS_SERVER_NAME, "localhost", 9);
	else
		bytes += attribute(parameters + bytes, XTS_TLS_IDENTITY, "own", 3);
	if (!s->client && s->asks & ASK_NAMES)
		bytes += attribute(parameters + bytes, XTS_TLS_IDENTITY, "other", 5);
	if (s->client && verify && s->asks & ASK_NAMES)
		bytes += attribute(parameters + bytes, XTS_TLS_VERIFY_HOST, NULL, 0);
	if (s->asks & ASK_CIPHERS) {
		bytes += attribute(parameters + bytes, XTS_TLS_CIPHERS, ciphers, sizeof ciphers - 1);
		bytes += attribute(parameters + bytes, XTS_TLS_CIPHERSUITES, suites, sizeof suites - 1);
	}
	if (s->asks & ASK_NO_RESUMPTION)
		bytes += attribute(parameters + bytes, XTS_TLS_NO_RESUMPTION, NULL, 0);
	if (s->asks & ASK_MIN_VERSION)
		bytes += attribute(parameters + bytes, XTS_TLS_MIN_VERSION, "\3\4", 2);
	if (s->asks & ASK_MAX_VERSION)
		bytes += attribute(parameters + bytes, XTS_TLS_MAX_VERSION, "\3\3", 2);
	if (!s->client && verify)
		bytes += attribute(parameters + bytes, XTS_TLS_TRUST, "default", 7);
	bytes += attribute(parameters + bytes, XTS_TLS_ALPN, s->asks & ASK_OTHER_ALPN ? "no" : "h2", 2);
	r = WATCHED(ulp_stack_push(s->stack, ULP_BOTH, XTS_ULP_TLS, parameters, bytes));
	ENSURE(!r || (s->asks & ASK_ODD && r == -EINVAL));
	return !r;
}

static void connect_both(struct scene *s)
{
	int pair[2], small = 1, r;

	ENSURE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	ENSURE(!setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
	s->fd = pair[0];
	s->peer_fd = pair[1];
	s->owner = (struct ulp_owner){ .fd = s->fd,
				       .message_socket = s->messages,
				       .reports_end = true,
				       .config = s->config,
				       .faults = s->faults,
				       .now_ns = now_ns,
				       .wake_after = wake_after,
				       .owner = s };
	ENSURE(!WATCHED(ulp_stack_new(&s->stack, &s->owner)));
	s->disturbed |= s->asks & ASK_ODD;
	if (!push(s)) {
		s->asks &= (uint8_t)~ASK_ODD;
		ENSURE(push(s));
	}
	r = WATCHED(ulp_stack_start(s->stack, s->fd, s->client));
	if (r)
		check_error(s, r);
	tls_peer_open(&s->peer, s->client, s->bad, s->version, s->small_records);
	if (!s->client && s->asks & ASK_NAMES)
		ENSURE(SSL_set_tlsext_host_name(s->peer.ssl, s->messages ? "localhost" : "nobody"));
	if (!s->client && s->asks & ASK_OCSP)
		SSL_set_tlsext_status_type(s->peer.ssl, TLSEXT_STATUSTYPE_ocsp);
}

/* The connection goes to another owner, who is the same: its directions go through their records. */
static void we_move(struct scene *s)
{
	WATCHED((ulp_stack_move(s->stack, &s->owner), 0));
}

static void disconnect(struct scene *s)
{
	WATCHED((ulp_stack_free(s->stack), 0));
	tls_peer_close(&s->peer);
	close(s->fd);
	close(s->peer_fd);
	s->wire.bytes = s->wire.passed_bytes = 0;
	s->wire.touched = s->forged = s->disturbed = s->failed = s->peer_failed = s->ended = s->finished = false;
	s->peer_sent = s->received = s->sent = s->peer_received = s->writing = 0;
	memset(s->faults, 0, sizeof s->faults);
}

/* by_openssl: the records, too; else they are ours once the handshake is done. */
static void configure(struct scene *s, bool by_openssl)
{
	struct xts_tls_settings settings;
	char why[256];

	s->config = WATCHED(xts_ulp_config_new(&(struct xts_ulp_limits){ 10000, 10000, 1 << 20, 1 << 12 }));
	ENSURE(s->config);
	xts_tls_defaults(&settings);
	settings.records = by_openssl ? XTS_TLS_RECORDS_OPENSSL : XTS_TLS_RECORDS_AUTO;
	settings.rekey_records = 40;
	ENSURE(!WATCHED(xts_tls_configure(s->config, &settings, why, sizeof why)));
	ENSURE(!WATCHED(xts_tls_add_trust(s->config, "default", world.authority_pem.text,
					  (uint32_t)world.authority_pem.bytes, NULL, 0, NULL, 0, why, sizeof why)));
	ENSURE(!WATCHED(xts_tls_add_identity(s->config, "other", world.bad_pem.text, (uint32_t)world.bad_pem.bytes,
					     world.key_pem.text, (uint32_t)world.key_pem.bytes, "an answer", 9, NULL, 0,
					     why, sizeof why)));
	ENSURE(!WATCHED(xts_tls_add_identity(s->config, "own", world.good_pem.text, (uint32_t)world.good_pem.bytes,
					     world.key_pem.text, (uint32_t)world.key_pem.bytes, "answered", 8, NULL, 0,
					     why, sizeof why)));
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static void round_of_all(struct scene *s)
{
	peer_works(s, 0);
	pass(s, UINT32_MAX);
	ulp_stack_event(s->stack, true, true);
	while (we_read(s, CHUNK))
		;
	we_write(s, 0, false);
	we_flush(s, s->finished);
}

static bool said_goodbye(const struct scene *s)
{
	return s->ended && SSL_get_shutdown(s->peer.ssl) == (SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
}

/* More messages in a row without data than any peer may send. */
static bool has_flooded(const struct scene *s)
{
	return s->faults[XTS_FAULT_FLOOD];
}

/* Nobody has meddled: it ends well. */
static void end_well(struct scene *s)
{
	for (int i = 0; i < ROUNDS_MAX && (s->received < s->peer_sent || s->peer_received < s->sent || s->writing ||
					   !SSL_is_init_finished(s->peer.ssl) || !ulp_stack_ready(s->stack));
	     i++)
		round_of_all(s);
	if (has_flooded(s))
		return;
	ENSURE(ulp_stack_ready(s->stack) && SSL_is_init_finished(s->peer.ssl) && !fault_count(s) && !s->peer_failed);
	ENSURE(s->received == s->peer_sent && s->peer_received == s->sent && !s->writing);
	/* What is on its way comes first: tickets, and key updates, of which a turn of ours reads four. They may turn
	 * out to be a flood only now. */
	for (int i = 0; i < ROUNDS_AT_END || (i < ROUNDS_MAX && !said_goodbye(s) && !has_flooded(s)); i++) {
		round_of_all(s);
		SSL_shutdown(s->peer.ssl);
		peer_says(s);
		we_flush(s, true);
	}
	ENSURE(said_goodbye(s) || has_flooded(s));
}

static void connection_ends(struct scene *s)
{
	bool refused = s->bad && s->verifies;

	if (!refused && !s->disturbed && !s->forged && !s->wire.touched && !s->finished)
		end_well(s);
	check_info(s);
	disconnect(s);
}

static void peer_leaves(struct scene *s, bool reset)
{
	struct linger now = { .l_onoff = 1 };

	s->disturbed = true;
	if (reset)
		setsockopt(s->peer_fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	shutdown(s->peer_fd, reset ? SHUT_RDWR : SHUT_WR);
	ulp_stack_event(s->stack, true, reset);
	ulp_stack_read_to_end(s->stack);
}

static void step(struct scene *s, struct input *in, int *connections)
{
	uint32_t n;

	switch (take(in) % 16) {
	case 0:
	case 1:
		for (n = 1 + take(in) % 8; n; n--)
			round_of_all(s);
		break;
	case 2:
		peer_works(s, 0);
		break;
	case 3:
		peer_works(s, take_count(in));
		break;
	case 4:
		pass(s, 1 + take_count(in));
		break;
	case 5:
		we_read(s, 1 + take_count(in));
		break;
	case 6:
		we_write(s, 1 + take_count(in), true);
		break;
	case 7:
		n = take(in) & 3;
		s->disturbed |= !n && !s->finished; /* a write that was refused has no sequel, then */
		we_flush(s, !n);
		break;
	case 8:
		peer_writes(s, take_count(in));
		break;
	case 9:
		peer_controls(s, take(in));
		break;
	case 10:
	case 11:
		between_meddle(&s->wire, in);
		break;
	case 12:
		peer_forges(s, in);
		break;
	case 13:
		peer_leaves(s, take(in) & 1);
		break;
	case 14:
		s->now_ns += (uint64_t)take(in) * 100 * NS_PER_MS;
		s->disturbed = true;
		we_move(s);
		we_read(s, CHUNK);
		break;
	default:
		if (*connections == CONNECTIONS_MAX)
			break;
		++*connections;
		connection_ends(s);
		connect_both(s);
	}
}

static void begin(struct scene *s, struct input *in)
{
	uint8_t how = take(in);

	s->asks = take(in);
	s->client = how & 1;
	s->version = how & 2 ? TLS1_2_VERSION : TLS1_3_VERSION;
	s->messages = how & 4;
	s->verifies = how & 8;
	s->bad = (how & 48) == 48;
	s->small_records = how & 64;
	s->now_ns = 1000000000;
	configure(s, how & 128);
	connect_both(s);
}

int LLVMFuzzerInitialize(int *count, char ***arguments);

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
	(void)count;
	(void)arguments;
	tls_world_make();
	watch_install();
	return 0;
}

static void run(const uint8_t *data, size_t bytes)
{
	static struct scene s;
	struct input in = { data, bytes };
	int connections = 1;

	memset(&s, 0, sizeof s);
	random_begin();
	watch_begin();
	begin(&s, &in);
	for (int i = 0; i < STEPS_MAX && in.bytes; i++) {
		step_begins(&in, data);
		step(&s, &in, &connections);
	}
	steps_ran(data, bytes);
	connection_ends(&s);
	WATCHED((xts_ulp_config_release(s.config), 0));
	OPENSSL_thread_stop(); /* the room of error messages */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	run(data, bytes);
	if (watch.held) /* OpenSSL has fetched what it keeps as long as the process; but once only */
		run(data, bytes);
	ENSURE(!watch.held);
	return 0;
}
