/* What ULP_INFO reports about a TLS connection. None of it is secret. */
#include <errno.h>
#include <string.h>

#include "tls.h"

/* The part of an answer that was asked for. */
struct answer {
	uint32_t offset, total;
	uint8_t *out;
	size_t room, written;
};

static void add(struct answer *a, const void *data, size_t bytes)
{
	const uint8_t *from = data;
	size_t skip = a->offset > a->total ? a->offset - a->total : 0, n = 0;

	if (skip < bytes)
		n = bytes - skip < a->room - a->written ? bytes - skip : a->room - a->written;
	if (n)
		memcpy(a->out + a->written, from + skip, n);
	a->written += n;
	a->total += (uint32_t)bytes;
}

static void add_u8(struct answer *a, unsigned value)
{
	uint8_t byte = (uint8_t)value;

	add(a, &byte, 1);
}

static void add_text(struct answer *a, const char *text)
{
	if (text)
		add(a, text, strlen(text));
}

static int add_certificate(struct answer *a, X509 *certificate)
{
	unsigned char *der = NULL;
	int bytes = i2d_X509(certificate, &der);

	if (bytes < 0)
		return -ENOMEM;
	add(a, der, (size_t)bytes);
	OPENSSL_free(der);
	return 0;
}

/* The peer's own certificate first, then the others in the order it sent them. */
static int add_chain(struct answer *a, const struct tls *t, bool whole)
{
	X509 *own = SSL_get0_peer_certificate(t->ssl);
	STACK_OF(X509) *chain = SSL_get_peer_cert_chain(t->ssl);
	int r = own ? add_certificate(a, own) : 0;

	for (int i = t->client ? 1 : 0; whole && !r && i < sk_X509_num(chain); i++)
		r = add_certificate(a, sk_X509_value(chain, i));
	return r;
}

static void add_version(struct answer *a, const struct tls *t)
{
	int version = SSL_version(t->ssl);

	add_u8(a, (unsigned)version >> 8);
	add_u8(a, (unsigned)version & 0xff);
}

static void add_cipher_id(struct answer *a, const struct tls *t)
{
	const SSL_CIPHER *cipher = SSL_get_current_cipher(t->ssl);
	uint16_t id = cipher ? SSL_CIPHER_get_protocol_id(cipher) : 0;

	add_u8(a, id >> 8);
	add_u8(a, id & 0xff);
}

static void add_alpn(struct answer *a, const struct tls *t)
{
	const unsigned char *name;
	unsigned bytes;

	SSL_get0_alpn_selected(t->ssl, &name, &bytes);
	if (bytes)
		add(a, name, bytes);
}

static int add_item(struct answer *a, const struct tls *t, uint16_t item)
{
	switch (item) {
	case XTS_TLS_INFO_VERSION:
		add_version(a, t);
		return 0;
	case XTS_TLS_INFO_CIPHER:
		add_text(a, SSL_get_cipher_name(t->ssl));
		return 0;
	case XTS_TLS_INFO_ALPN:
		add_alpn(a, t);
		return 0;
	case XTS_TLS_INFO_PEER_CERTIFICATE:
		return add_chain(a, t, false);
	case XTS_TLS_INFO_PEER_CHAIN:
		return add_chain(a, t, true);
	case XTS_TLS_INFO_RESUMED:
		add_u8(a, SSL_session_reused(t->ssl) != 0);
		return 0;
	case XTS_TLS_INFO_CRYPTO_SEND:
		add_u8(a, t->send_by);
		return 0;
	case XTS_TLS_INFO_CRYPTO_RECEIVE:
		add_u8(a, t->receive_by);
		return 0;
	case XTS_TLS_INFO_SERVER_NAME:
		add_text(a, SSL_get_servername(t->ssl, TLSEXT_NAMETYPE_host_name));
		return 0;
	case XTS_TLS_INFO_CRYPTO_REASON:
		add_text(a, t->crypto_reason);
		return 0;
	case XTS_TLS_INFO_VERIFIED:
		add_u8(a, t->verified);
		return 0;
	case XTS_TLS_INFO_CIPHER_ID:
		add_cipher_id(a, t);
		return 0;
	default:
		return -ENOENT;
	}
}

ssize_t tls_info(const struct ulp_layer *l, bool receive, uint16_t item, uint32_t offset, void *out, size_t room,
		 uint32_t *total)
{
	const struct tls *t = l->state;
	struct answer a = { .offset = offset, .out = out, .room = room };
	int r;

	(void)receive;
	if (!t->done)
		return -ENOTCONN;
	r = add_item(&a, t, item);
	*total = a.total;
	return r ? r : (ssize_t)a.written;
}
