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
	size_t skip = a->offset > a->total ? a->offset - a->total : 0, n = 0;

	if (skip < bytes) /* so there are bytes */
		n = bytes - skip < a->room - a->written ? bytes - skip : a->room - a->written;
	if (n)
		memcpy(a->out + a->written, (const uint8_t *)data + skip, n);
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

static void add_u16(struct answer *a, uint16_t value)
{
	add_u8(a, value >> 8);
	add_u8(a, value & 0xff);
}

static int add_item(struct answer *a, const struct tls *t, uint16_t item)
{
	const struct tls_about *about = t->about;

	switch (item) {
	case XTS_TLS_INFO_VERSION:
		add_u16(a, about->version);
		return 0;
	case XTS_TLS_INFO_CIPHER:
		add_text(a, about->cipher);
		return 0;
	case XTS_TLS_INFO_ALPN:
		add(a, about->text + about->name_bytes, about->alpn_bytes);
		return 0;
	case XTS_TLS_INFO_PEER_CERTIFICATE:
		add(a, about->chain ? about->chain->der : NULL, about->chain ? about->chain->own_bytes : 0);
		return 0;
	case XTS_TLS_INFO_PEER_CHAIN:
		add(a, about->chain ? about->chain->der : NULL, about->chain ? about->chain->bytes : 0);
		return 0;
	case XTS_TLS_INFO_RESUMED:
		add_u8(a, about->resumed);
		return 0;
	case XTS_TLS_INFO_CRYPTO_SEND:
		add_u8(a, t->send_by);
		return 0;
	case XTS_TLS_INFO_CRYPTO_RECEIVE:
		add_u8(a, t->receive_by);
		return 0;
	case XTS_TLS_INFO_SERVER_NAME:
		add(a, about->text, about->name_bytes);
		return 0;
	case XTS_TLS_INFO_CRYPTO_REASON:
		add_text(a, t->crypto_reason);
		return 0;
	case XTS_TLS_INFO_VERIFIED:
		add_u8(a, about->verified);
		return 0;
	case XTS_TLS_INFO_CIPHER_ID:
		add_u16(a, about->cipher_id);
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
