/*
 * TLS_KEYS: TLS records with keys that the host hands over, in the form in which it would hand them to its kernel
 * (SOL_TLS, linux/tls.h). The host's TLS library has done the handshake, and goes on to handle alerts and handshake
 * messages, which pass as PDUs with the record's type; payload is a byte stream. Each direction is a layer of its own,
 * with one key.
 *
 * Who does the crypto: if the layer is directly above TCP, the kernel of this machine on the connection's own socket,
 * with the network card if that can; else OpenSSL, here. The kernel can begin to decrypt only between two records, when
 * nothing has been read beyond that point. So OpenSSL reads the bytes that the host gave back, and the kernel takes
 * over after the last record in them.
 *
 * Keys change (TLS 1.3, KeyUpdate) as in Linux 6.14: to send with new keys, the host sends KeyUpdate and then pushes
 * the next keys. To receive, the layer reads nothing beyond the peer's KeyUpdate until the host has pushed the next
 * keys.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/crypto.h>

#include "key_memory.h"
#include "tls_keys.h"
#include "ulp/tls/tls.h"

/* --- parameters --------------------------------------------------------------------------------------------------- */

struct parameters {
	union tls_crypto_info_any info;
	uint32_t info_bytes;
	uint8_t crypto;
};

static int check_info(struct ulp_layer *l, const struct parameters *p)
{
	const struct tls_cipher *c;

	if (p->info_bytes < sizeof p->info.info)
		return ulp_refuse(l, EINVAL, "tls_keys: CRYPTO_INFO of %u bytes, which has no version and cipher",
				  p->info_bytes);
	if (p->info.info.version != TLS_1_2_VERSION && p->info.info.version != TLS_1_3_VERSION)
		return ulp_refuse(l, EINVAL, "tls_keys: version 0x%04x, which is neither TLS 1.2 nor 1.3",
				  p->info.info.version);
	c = p->info.info.cipher_type < TLS_CIPHER_OURS ? tls_cipher_find(p->info.info.cipher_type) : NULL;
	if (!c)
		return ulp_refuse(l, EINVAL, "tls_keys: cipher type %u is not known here", p->info.info.cipher_type);
	if (p->info_bytes != tls_cipher_info_bytes(c))
		return ulp_refuse(l, EINVAL, "tls_keys: CRYPTO_INFO of %u bytes, not the %u of cipher type %u",
				  p->info_bytes, tls_cipher_info_bytes(c), c->type);
	return 0;
}

/* The caller wipes p in any case. */
static int parse(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes, struct parameters *p)
{
	struct ulp_attribute a;
	uint32_t offset = 0;
	int r;

	memset(p, 0, sizeof *p);
	while ((r = ulp_attribute_next(l, attributes, bytes, &offset, &a)) > 0) {
		if (a.type == XTS_TLS_KEYS_CRYPTO_INFO) {
			p->info_bytes = a.bytes;
			memcpy(p->info.bytes, a.value, a.bytes < sizeof p->info ? a.bytes : sizeof p->info);
		} else if (a.type == XTS_TLS_KEYS_CRYPTO) {
			r = ulp_attribute_u8(l, &a, "CRYPTO", &p->crypto);
			if (!r && p->crypto > XTS_TLS_CRYPTO_DEVICE)
				r = ulp_refuse(l, EINVAL, "tls_keys: CRYPTO is 0 to 3, not %u", p->crypto);
			if (r)
				return r;
		} else {
			return ulp_attribute_unknown(l, &a);
		}
	}
	return r ? r : check_info(l, p);
}

/* Keys are for one connection. On a listener, all accepted connections would use the same key from the same record
 * number on. */
static bool established(const struct ulp_layer *l)
{
	while (l->below_receive || l->below_send)
		l = l->below_receive ? l->below_receive : l->below_send;
	return ulp_socket(l) >= 0;
}

static int make_state(struct ulp_layer *l, const struct parameters *p)
{
	struct tls_keys *k = key_memory_take(sizeof *k);

	if (!k || tls_aead_set(l->send ? &k->out_key : &k->in.aead, &p->info, l->send)) {
		key_memory_give(k);
		return ulp_refuse(l, ENOMEM, "tls_keys: the memory for keys is full (proxy.key_memory_mib)");
	}
	k->version = p->info.info.version;
	k->wanted = p->crypto;
	k->in.payload_max = TLS_PAYLOAD_MAX;
	keys_kernel_consider(l, k);
	k->info.info = p->info.info;
	if (k->try_kernel)
		k->info = p->info;
	l->state = k;
	return 0;
}

static int keys_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct parameters p;
	int r = parse(l, attributes, bytes, &p);

	if (!r && !established(l))
		r = ulp_refuse(l, ENOTCONN, "tls_keys: keys are pushed onto an established connection");
	if (!r)
		r = make_state(l, &p);
	OPENSSL_cleanse(&p, sizeof p);
	return r;
}

static void keys_close(struct ulp_layer *l)
{
	struct tls_keys *k = l->state;

	tls_in_free(&k->in);
	tls_aead_clear(&k->out_key);
	ulp_out_free(&k->out);
	key_memory_give(k);
	l->state = NULL;
}

/* --- who does it -------------------------------------------------------------------------------------------------- */

/* Between two records: hands the key to the kernel, if it takes it. The key is then in the kernel only. */
static void try_kernel(struct ulp_layer *l, struct tls_keys *k)
{
	struct tls_aead *key = l->send ? &k->out_key : &k->in.aead;

	if (l->receive && (k->in.bytes || l->replay.bytes || l->again.bytes))
		return;
	k->try_kernel = false;
	if (!keys_kernel_take(l, k)) {
		tls_aead_rest(key);
		OPENSSL_cleanse(key->key, sizeof key->key);
	}
	OPENSSL_cleanse(k->info.bytes + sizeof k->info.info, sizeof k->info - sizeof k->info.info);
}

static int keys_start(struct ulp_layer *l, bool client)
{
	struct tls_keys *k = l->state;

	(void)client;
	if (k->try_kernel && l->send)
		try_kernel(l, k);
	return 0;
}

/* As for the layer TLS (tls_flood.c), but the peer gets no alert, because the host sends alerts. */
int keys_quiet(struct ulp_layer *l)
{
	struct tls_keys *k = l->state;

	if (++k->quiet <= TLS_QUIET_MAX)
		return 0;
	return ulp_fail(l, XTS_FAULT_FLOOD, "the peer sent %u TLS records in a row, and no data", k->quiet);
}

static ssize_t keys_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct tls_keys *k = l->state;

	memset(mark, 0, sizeof *mark);
	if (k->expired && !k->in.opened)
		return -EAGAIN; /* change() has to come first */
	if (k->try_kernel)
		try_kernel(l, k);
	return k->crypto != XTS_TLS_CRYPTO_USER ? keys_kernel_read(l, out, room, mark) :
						  keys_user_read(l, out, room, mark);
}

static bool keys_pending(const struct ulp_layer *l)
{
	const struct tls_keys *k = l->state;

	if (k->in.opened)
		return true;
	if (k->expired)
		return false;
	return tls_in_pending(&k->in) || ulp_pending_below(l);
}

static ssize_t keys_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	struct tls_keys *k = l->state;
	uint8_t type = TLS_APPLICATION_DATA;

	if (mark->pdu && mark->control_type == XTS_ULP_TLS_KEYS) {
		if (mark->control_bytes != 1)
			return ulp_fail(l, XTS_FAULT_USE,
					"control data of TLS_KEYS is the record's type, one byte, not %u",
					mark->control_bytes);
		type = mark->control[0];
	}
	if (!ulp_iov_bytes(iov, pieces))
		return mark->pdu; /* as in the kernel, there are no empty records */
	return k->crypto != XTS_TLS_CRYPTO_USER ? keys_kernel_write(l, iov, pieces, type) :
						  keys_user_write(l, iov, pieces, type);
}

static int keys_flush(struct ulp_layer *l)
{
	struct tls_keys *k = l->state;

	tls_idle_time(l, &k->idle, &k->out_key, &k->in.aead);
	return ulp_out_flush(&k->out, l);
}

/* --- other keys --------------------------------------------------------------------------------------------------- */

static int change_to(struct ulp_layer *l, struct tls_keys *k, const struct parameters *p, bool receive)
{
	int r;

	if (k->version != TLS_1_3_VERSION)
		return ulp_refuse(l, EBUSY, "tls_keys: keys of TLS 1.2 do not change");
	if (p->info.info.version != k->version || p->info.info.cipher_type != k->info.info.cipher_type)
		return ulp_refuse(l, EINVAL, "tls_keys: new keys must be of the same version and cipher");
	if (receive && !k->expired)
		return ulp_refuse(l, EBUSY, "tls_keys: the peer has not sent KeyUpdate");
	if (k->crypto != XTS_TLS_CRYPTO_USER) {
		r = keys_kernel_change(l, &p->info, p->info_bytes, receive);
		if (r)
			return ulp_refuse(l, -r, "tls_keys: the kernel, which has the keys, does not change them: %s",
					  strerror(-r));
	} else if (tls_aead_set(receive ? &k->in.aead : &k->out_key, &p->info, !receive)) {
		return ulp_refuse(l, ENOMEM, "tls_keys: no memory");
	} else if (k->try_kernel) {
		k->info = p->info;
	}
	k->expired = false;
	return 0;
}

static int keys_change(struct ulp_layer *l, bool receive, const uint8_t *attributes, uint32_t bytes)
{
	struct parameters p;
	int r = parse(l, attributes, bytes, &p);

	if (!r)
		r = change_to(l, l->state, &p, receive);
	OPENSSL_cleanse(&p, sizeof p);
	return r;
}

/* --- information ------------------------------------------------------------------------------------------------ */

static ssize_t keys_info(const struct ulp_layer *l, bool receive, uint16_t item, uint32_t offset, void *out,
			 size_t room, uint32_t *total)
{
	const struct tls_keys *k = l->state;
	const char *reason = k->reason ? k->reason : "";

	(void)receive;
	switch (item) {
	case XTS_TLS_KEYS_INFO_CRYPTO:
		return ulp_info_part(&k->crypto, 1, offset, out, room, total);
	case XTS_TLS_KEYS_INFO_CRYPTO_REASON:
		return ulp_info_part(reason, strlen(reason), offset, out, room, total);
	case XTS_TLS_KEYS_INFO_CRYPTO_INFO:
		return ulp_info_part(&k->info.info, sizeof k->info.info, offset, out, room, total);
	default:
		return -ENOENT;
	}
}

static void keys_carrier(const struct ulp_layer *l, bool receive, char *out, size_t room)
{
	const struct tls_keys *k = l->state;

	(void)receive;
	snprintf(out, room, "%s", tls_carrier_name(k->crypto));
}

const struct ulp_protocol ulp_tls_keys = {
	.id = XTS_ULP_TLS_KEYS,
	.version = XTS_ULP_TLS_KEYS_VERSION,
	.name = "tls_keys",
	.receive = true,
	.send = true,
	.open = keys_open,
	.start = keys_start,
	.read = keys_read,
	.pending = keys_pending,
	.write = keys_write,
	.flush = keys_flush,
	.change = keys_change,
	.info = keys_info,
	.carrier = keys_carrier,
	.close = keys_close,
};
