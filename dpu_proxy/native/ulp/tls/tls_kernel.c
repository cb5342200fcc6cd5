/*
 * Who does the crypto: OpenSSL here ("user"), the kernel's TLS on the socket ("kernel"), or the network card under it
 * ("device").
 *
 * OpenSSL gives the kernel the keys at the end of the handshake (SSL_OP_ENABLE_KTLS), each direction separately.
 * OpenSSL 3.0 does so for sending, and for receiving only with TLS 1.2. Whether a card then took a connection's keys
 * can be seen only with privilege, or in counters of all connections together (/proc/net/tls_stat). So "device" means
 * what is known for certain without a query per connection: the kernel has the key, and some interface of this machine
 * has TLS offload switched on for that direction (tls_device.c, read once, before the workers start). If a card is full
 * and refuses a connection, the kernel does its crypto, and the proxy does not notice.
 *
 * With TLS 1.3 a peer may ask for new keys at any time (KeyUpdate). OpenSSL hands the kernel only the first keys;
 * tls_rekey.c hands it the next ones, if the kernel takes them (Linux does since 6.14). Where it does not, OpenSSL does
 * TLS 1.3, unless the kernel was asked for by name; then a peer that asks for new keys loses its connection, with that
 * reason.
 *
 * What was asked for and is not available falls back to OpenSSL, with a counted reason.
 */
#include <errno.h>
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "keys/key_client.h"
#include "tls.h"
#include "ulp/config_inside.h"
#include "ulp/tls_keys/key_memory.h"
#include "ulp/tls_keys/tls_keys.h"

#ifndef SOL_TLS
#define SOL_TLS 282 /* from linux/socket.h, which is not available to programs */
#endif

struct tls_counters tls_counters;

static const char *const reasons[] = {
	[TLS_NO_KERNEL] = "the kernel has no TLS",
	[TLS_CONFIGURED] = "the proxy's configuration says user",
	[TLS_STACK] = "TLS is not next to TCP",
	[TLS_REFUSED] = "the kernel or OpenSSL does not do this version, cipher or direction",
	[TLS_NO_DEVICE] = "the network card does not do it",
	[TLS_KEYS_CHANGE] = "keys of TLS 1.3 may have to change, and those in the kernel stay as they are",
};

const char *tls_fall_back(enum tls_fallback why)
{
	tls_count(&tls_counters.fallback[why]);
	return reasons[why];
}

const char *tls_fallback_named(const uint8_t *text, uint32_t bytes)
{
	for (size_t i = 0; i < TLS_FALLBACKS; i++) {
		if (bytes && strlen(reasons[i]) == bytes && memcmp(reasons[i], text, bytes) == 0)
			return reasons[i];
	}
	return NULL;
}

const char *tls_fallback_is(const char *reason)
{
	for (size_t i = 0; i < TLS_FALLBACKS; i++) {
		if (reasons[i] == reason)
			return reason;
	}
	return NULL;
}

static void fall_back(struct tls *t, enum tls_fallback why)
{
	t->crypto_reason = tls_fall_back(why);
}

/* --- probing ------------------------------------------------------------------------------------------------------ */

/* Listens on loopback, with a backlog for one unaccepted connection per cipher. Returns the socket, or -errno. */
static int listen_somewhere(struct sockaddr_in *address)
{
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), error;
	socklen_t bytes = sizeof *address;

	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	if (listener >= 0 && bind(listener, (struct sockaddr *)address, bytes) == 0 && listen(listener, 8) == 0 &&
	    getsockname(listener, (struct sockaddr *)address, &bytes) == 0)
		return listener;
	error = errno;
	if (listener >= 0)
		close(listener);
	return -error;
}

/* Connects to it. Returns this end, a socket with the kernel's TLS, or -errno. */
static int connect_with_tls(const struct sockaddr_in *address)
{
	int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), error;

	if (client >= 0 && connect(client, (const struct sockaddr *)address, sizeof *address) == 0 &&
	    setsockopt(client, IPPROTO_TCP, TCP_ULP, "tls", 4) == 0)
		return client;
	error = errno;
	if (client >= 0)
		close(client);
	return -error;
}

/*
 * The first key of a cipher makes the kernel load the cipher's modules, which takes seconds on a slow machine and
 * blocks the thread meanwhile. That thread must not be a worker. So each cipher gets a key of zeros here, with which
 * nothing is sent. A cipher that the kernel does not have is found out when a connection wants it.
 */
static void load_cipher(const struct sockaddr_in *address, uint16_t type)
{
	union tls_crypto_info_any key = { .info = { .version = TLS_1_2_VERSION, .cipher_type = type } };
	int client = connect_with_tls(address);

	if (client < 0)
		return;
	(void)setsockopt(client, SOL_TLS, TLS_TX, key.bytes, tls_cipher_info_bytes(tls_cipher_find(type)));
	close(client);
}

static void load_ciphers(const struct sockaddr_in *address)
{
	static const uint16_t types[] = { TLS_CIPHER_AES_GCM_128, TLS_CIPHER_AES_GCM_256, TLS_CIPHER_AES_CCM_128,
					  TLS_CIPHER_CHACHA20_POLY1305 };

	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		load_cipher(address, types[i]);
}

/* Does a socket that has a key of TLS 1.3 take another one? */
static bool takes_other_keys(int fd)
{
	union tls_crypto_info_any key = { .info = { .version = TLS_1_3_VERSION, .cipher_type = TLS_CIPHER_AES_GCM_128 } };
	uint32_t bytes = tls_cipher_info_bytes(tls_cipher_find(TLS_CIPHER_AES_GCM_128));

	for (int i = 0; i < 2; i++) {
		if (setsockopt(fd, SOL_TLS, TLS_TX, key.bytes, bytes) < 0)
			return false;
	}
	return true;
}

/* Probes a kernel with TLS further, once per process. Only the main thread calls it. */
static bool learn_more(int client, const struct sockaddr_in *address)
{
	static bool known, changes_keys;

	if (!known) {
		load_ciphers(address);
		changes_keys = takes_other_keys(client);
	}
	known = true;
	return changes_keys;
}

static int probe(bool *changes_keys)
{
	struct sockaddr_in address;
	int listener = listen_somewhere(&address), client;

	if (listener < 0)
		return listener;
	client = connect_with_tls(&address);
	if (client >= 0) {
		*changes_keys = learn_more(client, &address);
		close(client);
	}
	close(listener);
	return client < 0 ? client : 0;
}

int xts_tls_probe_kernel(struct xts_ulp_config *config, char *why, uint32_t why_room)
{
	struct xts_tls_config *tls = config->tls;

	tls->device = tls_device();
	tls->kernel_error = probe(&tls->kernel_changes_keys);
	if (tls->kernel_error)
		snprintf(why, why_room, "%s (TCP_ULP \"tls\": %s)", reasons[TLS_NO_KERNEL], strerror(-tls->kernel_error));
	return tls->kernel_error;
}

/* --- a connection ------------------------------------------------------------------------------------------------- */

uint8_t tls_crypto_wanted(uint8_t asked, uint8_t configured)
{
	if (configured == XTS_TLS_CRYPTO_USER || asked == XTS_TLS_CRYPTO_USER)
		return XTS_TLS_CRYPTO_USER;
	return asked == XTS_TLS_CRYPTO_BEST ? configured : asked;
}

bool xts_tls_kernel_may(uint8_t wanted, uint16_t version, bool changes_keys)
{
	if (wanted == XTS_TLS_CRYPTO_BEST)
		return version < TLS1_3_VERSION || changes_keys;
	return wanted != XTS_TLS_CRYPTO_USER;
}

/* Keys for sending can be changed (tls_rekey.c), keys for receiving cannot. */
static bool kernel_may(const struct tls *t, bool send)
{
	return xts_tls_kernel_may(t->crypto, (uint16_t)SSL_version(t->ssl),
				  send && t->context->config->kernel_changes_keys);
}

void tls_kernel_prepare(struct tls *t)
{
	const struct xts_tls_config *config = t->context->config;

	t->crypto = tls_crypto_wanted(t->parameters->crypto, config->settings.crypto);
	t->send_by = t->receive_by = XTS_TLS_CRYPTO_USER;
	if (t->crypto == XTS_TLS_CRYPTO_USER) {
		if (t->parameters->crypto != XTS_TLS_CRYPTO_USER)
			fall_back(t, TLS_CONFIGURED);
	} else if (config->kernel_error || ulp_socket(t->layer) < 0) {
		fall_back(t, config->kernel_error ? TLS_NO_KERNEL : TLS_STACK);
	} else {
		t->asks_kernel = true;
	}
}

/* --- keys for the kernel ------------------------------------------------------------------------------------------ */

static uint8_t who_has_it(const struct xts_tls_config *config, bool send)
{
	return (send ? config->device.send : config->device.receive) ? XTS_TLS_CRYPTO_DEVICE : XTS_TLS_CRYPTO_KERNEL;
}

#ifdef BIO_CTRL_SET_KTLS
#define SET_KEYS BIO_CTRL_SET_KTLS
#else
#define SET_KEYS 72 /* internal to OpenSSL, in bio.h only as a comment; this BIO has to pass it on */
#endif

long tls_kernel_control(struct tls *t, int command, long number, void *argument)
{
	bool send = number != 0;
	uint8_t *by = send ? &t->send_by : &t->receive_by;
	long r;

	if (command != SET_KEYS)
		return BIO_ctrl(t->socket, command, number, argument);
	if (!kernel_may(t, send))
		return 0;
	if (setsockopt((int)BIO_get_fd(t->socket, NULL), IPPROTO_TCP, TCP_ULP, "tls", 4) < 0 && errno != EEXIST)
		return 0; /* EEXIST: it was set for the other direction */
	r = BIO_ctrl(t->socket, command, number, argument);
	if (r > 0)
		*by = who_has_it(t->context->config, send);
	return r;
}

int tls_kernel_give(const struct xts_tls_config *config, int fd, bool send, const void *info, uint32_t bytes, uint8_t *by)
{
	if (setsockopt(fd, SOL_TLS, send ? TLS_TX : TLS_RX, info, bytes))
		return -errno;
	*by = who_has_it(config, send);
	return 0;
}

void tls_kernel_settle(struct tls *t)
{
	uint8_t least = t->send_by < t->receive_by ? t->send_by : t->receive_by;

	tls_rekey_settled(t);
	if (t->receive_by == XTS_TLS_CRYPTO_USER)
		SSL_set_read_ahead(t->ssl, 1); /* else each record takes two reads: its header, and the rest */
	if (t->socket) {
		if (!kernel_may(t, true))
			fall_back(t, TLS_KEYS_CHANGE);
		else if (least == XTS_TLS_CRYPTO_USER)
			fall_back(t, TLS_REFUSED);
		else if (least < XTS_TLS_CRYPTO_DEVICE && t->crypto != XTS_TLS_CRYPTO_KERNEL)
			fall_back(t, TLS_NO_DEVICE);
	}
	tls_count(&tls_counters.sent_by[t->send_by]);
	tls_count(&tls_counters.received_by[t->receive_by]);
}

/* --- counters ----------------------------------------------------------------------------------------------------- */

void xts_tls_counts(struct xts_tls_counts *out)
{
	struct key_counts keys = key_counts();
	struct key_memory_counts memory = key_memory_counts();

	*out = (struct xts_tls_counts){
		.client_handshakes = tls_counters.client_handshakes,
		.server_handshakes = tls_counters.server_handshakes,
		.resumed = tls_counters.resumed,
		.sent_by_user = tls_counters.sent_by[XTS_TLS_CRYPTO_USER],
		.sent_by_kernel = tls_counters.sent_by[XTS_TLS_CRYPTO_KERNEL],
		.sent_by_device = tls_counters.sent_by[XTS_TLS_CRYPTO_DEVICE],
		.received_by_user = tls_counters.received_by[XTS_TLS_CRYPTO_USER],
		.received_by_kernel = tls_counters.received_by[XTS_TLS_CRYPTO_KERNEL],
		.received_by_device = tls_counters.received_by[XTS_TLS_CRYPTO_DEVICE],
		.fallback_no_kernel = tls_counters.fallback[TLS_NO_KERNEL],
		.fallback_configured = tls_counters.fallback[TLS_CONFIGURED],
		.fallback_stack = tls_counters.fallback[TLS_STACK],
		.fallback_refused = tls_counters.fallback[TLS_REFUSED],
		.fallback_no_device = tls_counters.fallback[TLS_NO_DEVICE],
		.fallback_keys_change = tls_counters.fallback[TLS_KEYS_CHANGE],
		.key_updates = tls_counters.key_updates,
		.carried_ours = tls_counters.carried[TLS_OURS],
		.kept_configured = tls_counters.carried[TLS_KEPT_CONFIGURED],
		.kept_cipher = tls_counters.carried[TLS_KEPT_CIPHER],
		.kept_kernel = tls_counters.carried[TLS_KEPT_KERNEL],
		.kept_memory = tls_counters.carried[TLS_KEPT_MEMORY],
		.kept_unknown = tls_counters.carried[TLS_KEPT_UNKNOWN],
		.tickets_late = tls_counters.tickets_late,
		.keys_late = keys.late,
		.keys_late_now = keys.late_now,
		.keys_unanswered = keys.unanswered,
		.key_memory_kind = memory.kind,
		.key_memory_limit = memory.limit,
		.key_memory_used = memory.used,
		.key_memory_most = memory.most,
		.key_memory_refused = memory.refused,
	};
}
