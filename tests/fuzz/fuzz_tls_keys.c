/*
 * libFuzzer target: TLS_KEYS, from a stack that sends to one that receives, with what the input does to
 * the records on their way.
 *
 * The input chooses version and cipher, and then: payload and control records of any size, how the bytes come (held up,
 * changed, lost, repeated, others between them), records of any type and content under the right key, what room the
 * reader has, and when keys change.
 *
 * What holds: what is delivered is what was sent, in order, with its record types, unless the sender's keys were
 * used for something else; a fault has a name and a reason and stays; nothing is read beyond a KeyUpdate before the
 * next keys come; memory is bounded and none is left; no block is given back with a key in it. If nobody has
 * meddled, all is delivered.
 */
#include <errno.h>
#include <openssl/crypto.h>
#include <sys/socket.h>
#include <unistd.h>

#include "between.h"
#include "secrets.h"
#include "ulp/config.h"
#include "ulp/ulp_stack.h"
#include "ulp/tls_keys/tls_keys.h"
#include "steps.h"

#define STEPS_MAX 300
#define CHUNK 16384u
#define CONTROLS_MAX 32u
#define GENERATIONS_MAX 20u
#define MEMORY_MAX (256l << 10) /* of both stacks: a record read, one that was not taken, OpenSSL's contexts */

struct control {
	uint32_t place, bytes; /* behind so many bytes of payload */
	uint8_t type;
};

struct scene {
	struct xts_ulp_config *config;
	struct ulp_stack *from, *to;
	int from_fd, from_peer, to_fd, to_peer;
	uint64_t faults[2][XTS_FAULT_COUNT];
	struct between wire;
	uint16_t version, cipher;
	bool messages, forged, cut, failed, ended, expired, update_due;
	uint32_t sent, received, writing;
	struct control controls[CONTROLS_MAX];
	uint32_t first, count, part; /* part: of the first, that has been read */
	uint32_t send_generation, receive_generation;
};

static uint64_t now_ns(void *owner)
{
	(void)owner;
	return 1000000000;
}

static void wake_after(void *owner, uint32_t timeout_ms)
{
	(void)owner;
	(void)timeout_ms;
}

static uint8_t byte_at(uint32_t place)
{
	return (uint8_t)(place * 11 + (place >> 8) * 5);
}

static uint8_t control_byte(const struct control *c, uint32_t at)
{
	return c->type == TLS_HANDSHAKE ? (uint8_t)(c->bytes == 5 && at < 4 ? "\x18\0\0\1"[at] : 0) :
					  (uint8_t)(c->bytes + at);
}

static bool is_update(const struct control *c)
{
	return c->type == TLS_HANDSHAKE && c->bytes == 5;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

static uint32_t crypto_info(const struct scene *s, uint32_t generation, union tls_crypto_info_any *out)
{
	const struct tls_cipher *c = tls_cipher_find(s->cipher);
	uint32_t bytes = tls_cipher_info_bytes(c);

	memset(out, 0, sizeof *out);
	out->info = (struct tls_crypto_info){ s->version, s->cipher };
	for (uint32_t i = sizeof out->info; i < bytes - 8; i++)
		out->bytes[i] = (uint8_t)(i * 89 + generation * 31 + 7);
	watch_secret(out->bytes + sizeof out->info + c->iv_bytes, c->key_bytes);
	return bytes;
}

static void push_keys(struct scene *s, bool send)
{
	uint32_t generation = send ? s->send_generation : s->receive_generation, bytes;
	uint8_t attributes[4 + sizeof(union tls_crypto_info_any)] = { 0, XTS_TLS_KEYS_CRYPTO_INFO };
	union tls_crypto_info_any info;

	bytes = crypto_info(s, generation, &info);
	attributes[3] = (uint8_t)bytes;
	memcpy(attributes + 4, info.bytes, bytes);
	ENSURE(!WATCHED(ulp_stack_push(send ? s->from : s->to, send ? ULP_SEND : ULP_RECEIVE, XTS_ULP_TLS_KEYS,
				       attributes, 4 + bytes)));
}

/* --- what holds --------------------------------------------------------------------------------------------------- */

static void check_fault(struct scene *s, ssize_t r)
{
	uint8_t answer[512];
	uint64_t count = 0;
	ssize_t n = ulp_stack_error(s->to, false, answer, sizeof answer);

	for (unsigned i = 0; i < XTS_FAULT_COUNT; i++)
		count += s->faults[1][i];
	ENSURE(count == 1 && n > 4 && (answer[0] << 8 | answer[1]) == -r);
	ENSURE(s->forged || s->cut || s->wire.touched || s->faults[1][XTS_FAULT_FLOOD]);
	s->failed = true;
}

static void check_control(struct scene *s, const uint8_t *data, uint32_t bytes, const struct ulp_mark *mark)
{
	const struct control *c = &s->controls[s->first];

	ENSURE(mark->control_type == XTS_ULP_TLS_KEYS && mark->control_bytes == 1);
	if (s->forged)
		return;
	ENSURE(s->count && s->received == c->place && mark->control[0] == c->type && mark->record_bytes == c->bytes);
	for (uint32_t i = 0; i < bytes; i++)
		ENSURE(data[i] == control_byte(c, s->part + i));
	s->part += bytes;
	ENSURE(mark->more == (s->part < c->bytes));
	if (mark->more)
		return;
	s->expired = s->version == TLS_1_3_VERSION && is_update(c);
	s->first = (s->first + 1) % CONTROLS_MAX;
	s->count--;
	s->part = 0;
}

static void check_payload(struct scene *s, const uint8_t *data, uint32_t bytes)
{
	if (s->forged)
		return;
	ENSURE(!s->expired && !s->part);
	for (uint32_t i = 0; i < bytes; i++)
		ENSURE(data[i] == byte_at(s->received + i));
	s->received += bytes;
	ENSURE(s->received <= s->sent && (!s->count || s->received <= s->controls[s->first].place));
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static bool op_read(struct scene *s, uint32_t room)
{
	uint8_t *out = malloc(room);
	struct ulp_mark mark;
	ssize_t n;

	ENSURE(out);
	ulp_stack_event(s->to, true, true);
	ulp_stack_turn(s->to);
	n = WATCHED(ulp_stack_read(s->to, out, room, &mark));
	ENSURE(!s->failed || n < 0);
	if (n >= 0 && mark.pdu)
		check_control(s, out, (uint32_t)n, &mark);
	else if (n >= 0)
		check_payload(s, out, (uint32_t)n);
	else if (n == -EAGAIN)
		ENSURE(!ulp_stack_readable(s->to) && !ulp_stack_pending(s->to));
	else if (n == -ENODATA)
		s->ended = true;
	else
		check_fault(s, n);
	ENSURE(watch.held <= MEMORY_MAX);
	free(out);
	return n >= 0;
}

/* What leaves the sender, onto the wire. */
static void collect(struct scene *s)
{
	static uint8_t bytes[CHUNK];
	ssize_t n;

	while (between_room(&s->wire) >= CHUNK && (n = recv(s->from_peer, bytes, CHUNK, 0)) > 0)
		between_put(&s->wire, bytes, (uint32_t)n);
	ulp_stack_event(s->from, false, true);
}

static void op_send(struct scene *s, uint32_t bytes)
{
	static uint8_t data[256 * 160];
	struct ulp_mark mark = { 0 };
	struct iovec iov = { .iov_base = data };
	ssize_t n;

	if (!s->writing)
		s->writing = bytes;
	for (uint32_t i = 0; i < s->writing; i++)
		data[i] = byte_at(s->sent + i);
	iov.iov_len = s->writing;
	n = WATCHED(ulp_stack_write(s->from, &iov, 1, &mark));
	ENSURE(n >= 0 && n <= s->writing);
	s->writing -= (uint32_t)n;
	s->sent += (uint32_t)n;
	ENSURE(watch.held <= MEMORY_MAX);
	collect(s);
}

static void op_control(struct scene *s, uint8_t type, uint32_t bytes)
{
	static uint8_t data[256];
	struct control *c = &s->controls[(s->first + s->count) % CONTROLS_MAX];
	struct ulp_mark mark = { .pdu = true, .control_type = XTS_ULP_TLS_KEYS, .control_bytes = 1, .control = { type } };
	struct iovec iov = { .iov_base = data, .iov_len = bytes };

	if (s->count == CONTROLS_MAX || s->writing || s->update_due || !bytes)
		return;
	*c = (struct control){ .place = s->sent, .bytes = bytes, .type = type };
	for (uint32_t i = 0; i < bytes; i++)
		data[i] = control_byte(c, i);
	mark.record_bytes = bytes;
	if (WATCHED(ulp_stack_write(s->from, &iov, 1, &mark)) == (ssize_t)bytes) {
		s->count++;
		s->update_due = s->version == TLS_1_3_VERSION && is_update(c);
	}
	collect(s);
}

/* The next keys, on the side where they are due. */
static void op_keys(struct scene *s)
{
	if (s->update_due && s->send_generation < GENERATIONS_MAX) {
		s->send_generation++;
		push_keys(s, true);
		s->update_due = false;
	}
	if (s->expired && !s->failed && !s->forged) {
		s->receive_generation++;
		push_keys(s, false);
		s->expired = false;
	}
}

static void op_pass(struct scene *s, uint32_t bytes)
{
	ssize_t n;

	bytes = bytes < s->wire.bytes ? bytes : s->wire.bytes;
	n = bytes ? send(s->to_peer, s->wire.data, bytes, MSG_NOSIGNAL) : 0;
	if (n > 0)
		between_passed(&s->wire, (uint32_t)n);
}

/* At the beginning of the stream, where it is the number of a record that is known. */
static void op_forge(struct scene *s, struct input *in)
{
	uint8_t type = take(in), data[256], record[TLS_RECORD_MAX];
	uint32_t bytes = take(in), many = 1 + take(in) % 100;
	union tls_crypto_info_any info;
	struct tls_aead aead = { 0 };
	struct iovec piece = { .iov_base = data };

	if (s->sent || s->count || s->forged || s->send_generation)
		return;
	for (uint32_t i = 0; i < bytes; i++)
		data[i] = take(in);
	piece.iov_len = bytes;
	crypto_info(s, 0, &info);
	ENSURE(!tls_aead_set(&aead, &info, true));
	while (many-- && between_room(&s->wire) >= sizeof record) {
		ssize_t n = tls_aead_seal(&aead, type, &piece, 1, 0, bytes, record);

		ENSURE(n > 0);
		between_put(&s->wire, record, (uint32_t)n);
	}
	tls_aead_clear(&aead);
	s->forged = true;
}

static void op_end(struct scene *s)
{
	s->cut = true;
	shutdown(s->to_peer, SHUT_WR);
	ulp_stack_event(s->to, true, false);
	ulp_stack_read_to_end(s->to);
}

static void step(struct scene *s, struct input *in)
{
	static const uint8_t types[] = { TLS_ALERT, TLS_HANDSHAKE, TLS_HANDSHAKE, TLS_CHANGE_CIPHER_SPEC };
	uint8_t what = take(in);

	switch (what % 12) {
	case 0:
	case 1:
		if (!s->update_due)
			op_send(s, 1 + take_count(in));
		break;
	case 2:
		op_control(s, types[what >> 6], take(in) % 128);
		break;
	case 3:
		op_control(s, TLS_HANDSHAKE, 5);
		break;
	case 4:
		op_keys(s);
		break;
	case 5:
	case 6:
		op_pass(s, 1 + take_count(in));
		break;
	case 7:
	case 8:
		op_read(s, 1 + take_count(in));
		break;
	case 9:
		between_meddle(&s->wire, in);
		break;
	case 10:
		op_forge(s, in);
		break;
	default:
		if (take(in) & 15) {
			WATCHED(ulp_stack_flush(s->from));
			collect(s);
		} else {
			op_end(s);
		}
	}
}

/* --- life --------------------------------------------------------------------------------------------------------- */

static struct ulp_stack *make(struct scene *s, int which, int *fd, int *peer)
{
	int pair[2], small = 1;
	struct ulp_stack *stack;
	struct ulp_owner owner = { .message_socket = s->messages,
				   .reports_end = true,
				   .config = s->config,
				   .faults = s->faults[which],
				   .now_ns = now_ns,
				   .wake_after = wake_after };

	ENSURE(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
	ENSURE(!setsockopt(pair[which], SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
	*fd = owner.fd = pair[0];
	*peer = pair[1];
	ENSURE(!WATCHED(ulp_stack_new(&stack, &owner)));
	ENSURE(!WATCHED(ulp_stack_start(stack, *fd, true)));
	return stack;
}

static void end_well(struct scene *s)
{
	for (int i = 0; i < 4000 && (s->writing || s->received < s->sent || s->count || s->update_due); i++) {
		op_keys(s);
		if (s->writing)
			op_send(s, 0);
		WATCHED(ulp_stack_flush(s->from));
		collect(s);
		op_pass(s, UINT32_MAX);
		while (op_read(s, CHUNK))
			;
	}
	if (s->faults[1][XTS_FAULT_FLOOD])
		return; /* more records in a row without data than anybody may send */
	ENSURE(!s->failed && !s->writing && s->received == s->sent && !s->count);
}

static void run(const uint8_t *data, size_t bytes)
{
	static const uint16_t ciphers[] = { TLS_CIPHER_AES_GCM_128, TLS_CIPHER_AES_GCM_256, TLS_CIPHER_AES_CCM_128,
					    TLS_CIPHER_CHACHA20_POLY1305 };
	static struct scene s;
	struct input in = { data, bytes };
	uint8_t how = take(&in);

	memset(&s, 0, sizeof s);
	watch_begin();
	s.version = how & 1 ? TLS_1_2_VERSION : TLS_1_3_VERSION;
	s.cipher = ciphers[how >> 1 & 3];
	s.messages = how & 8;
	s.config = WATCHED(xts_ulp_config_new(NULL));
	ENSURE(s.config);
	s.from = make(&s, 0, &s.from_fd, &s.from_peer);
	s.to = make(&s, 1, &s.to_fd, &s.to_peer);
	push_keys(&s, true);
	push_keys(&s, false);
	for (int i = 0; i < STEPS_MAX && in.bytes; i++) {
		step_begins(&in, data);
		step(&s, &in);
	}
	steps_ran(data, bytes);
	if (!s.forged && !s.cut && !s.wire.touched)
		end_well(&s);
	WATCHED((ulp_stack_free(s.from), ulp_stack_free(s.to), xts_ulp_config_release(s.config), 0));
	close(s.from_fd);
	close(s.from_peer);
	close(s.to_fd);
	close(s.to_peer);
	OPENSSL_thread_stop(); /* the room of error messages */
}

int LLVMFuzzerInitialize(int *count, char ***arguments);

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
	(void)count;
	(void)arguments;
	watch_install();
	return 0;
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
