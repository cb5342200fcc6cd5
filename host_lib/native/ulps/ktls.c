/*
 * The kernel's TLS interface (linux/tls.h, net/tls in the kernel) on an offloaded socket: setsockopt(TCP_ULP, "tls"),
 * then (SOL_TLS, TLS_TX and TLS_RX) with version, cipher and keys, which go to the proxy as the protocol TLS_KEYS. So a
 * TLS library with support for kernel TLS offloads its records without any change. Results and errno are the kernel's:
 * like a kernel without the module, this library returns ENOENT if the proxy has no support for it. If the proxy
 * refuses (ENOPROTOOPT), the TLS library encrypts by itself, as on a kernel without support.
 *
 * Nothing here stores a key.
 */
#include <linux/tls.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "core/channel.h"
#include "core/socket.h"
#include "core/stack.h"
#include "ulps/ktls.h"
#include "ulps/pushed.h"

#define ULP_NAME_MAX 16 /* TCP_ULP_NAME_MAX */
#define ATTRIBUTE_HEAD 4u
#define HANDSHAKE 22  /* RFC 8446 5.1 */
#define KEY_UPDATE 24 /* 4 */

static const char name[ULP_NAME_MAX] = "tls";

/* --- TCP_ULP ------------------------------------------------------------------------------------------------------ */

static bool is_available(struct stack *st)
{
	return st->channel && st->channel->link.features & XTS_FEATURE_ULP;
}

/* tcp_set_ulp() */
int ktls_set_ulp(struct xts_sock *s, const void *value, socklen_t length)
{
	struct stack *st = s->stack;
	char asked[ULP_NAME_MAX] = "";

	if (!length)
		return -EINVAL;
	memcpy(asked, value, length < sizeof asked - 1 ? length : sizeof asked - 1);
	if (strcmp(asked, name) || !is_available(st) || s->seqpacket)
		return -ENOENT;
	if (s->cold->ulps.tls)
		return -EEXIST;
	channel_pump(st);
	if (s->state != TCP_STATE_ESTABLISHED)
		return -ENOTCONN;
	s->cold->ulps.tls = true;
	return 0;
}

int ktls_get_ulp(const struct xts_sock *s, void *value, socklen_t *length)
{
	if (*length > sizeof name)
		*length = sizeof name;
	if (!s->cold->ulps.tls)
		*length = 0;
	if (*length)
		memcpy(value, name, *length);
	return 0;
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Size of the structure for this cipher; 0: unknown cipher. */
static size_t info_bytes(uint16_t cipher_type)
{
	switch (cipher_type) {
	case TLS_CIPHER_AES_GCM_128:
		return sizeof(struct tls12_crypto_info_aes_gcm_128);
	case TLS_CIPHER_AES_GCM_256:
		return sizeof(struct tls12_crypto_info_aes_gcm_256);
	case TLS_CIPHER_AES_CCM_128:
		return sizeof(struct tls12_crypto_info_aes_ccm_128);
	case TLS_CIPHER_CHACHA20_POLY1305:
		return sizeof(struct tls12_crypto_info_chacha20_poly1305);
	default:
		return 0;
	}
}

static bool same(const struct tls_crypto_info *a, const struct tls_crypto_info *b)
{
	return a->version == b->version && a->cipher_type == b->cipher_type;
}

/* do_tls_setsockopt_conf(), including a change of keys, which Linux has since 6.14. */
static int check_keys(const struct xts_sock *s, unsigned direction, const struct tls_crypto_info *info, socklen_t length)
{
	const struct tls_crypto_info *had = &s->cold->ulps.keys[direction], *other = &s->cold->ulps.keys[!direction];

	if (had->version && had->version != TLS_1_3_VERSION)
		return -EBUSY;
	if (info->version != TLS_1_2_VERSION && info->version != TLS_1_3_VERSION)
		return -EINVAL;
	if ((had->version && !same(had, info)) || (other->version && !same(other, info)))
		return -EINVAL;
	return info_bytes(info->cipher_type) == length ? 0 : -EINVAL;
}

static int set_keys(struct xts_sock *s, unsigned direction, const void *value, socklen_t length)
{
	uint8_t attribute[ATTRIBUTE_HEAD + sizeof(struct tls12_crypto_info_aes_gcm_256)];
	struct tls_crypto_info info;
	int r;

	if (!value || length < sizeof info)
		return -EINVAL;
	memcpy(&info, value, sizeof info);
	r = check_keys(s, direction, &info, length);
	if (r)
		return r;
	_Static_assert(sizeof(struct tls12_crypto_info_chacha20_poly1305) <= sizeof(struct tls12_crypto_info_aes_gcm_256),
		       "the longest");
	xts_put16(attribute, XTS_TLS_KEYS_CRYPTO_INFO);
	xts_put16(attribute + 2, (uint16_t)length);
	memcpy(attribute + ATTRIBUTE_HEAD, value, length);
	r = socket_push(s, direction == ULPS_RECEIVE ? SIOC_PUSH_ULP_RX : SIOC_PUSH_ULP_TX, XTS_ULP_TLS_KEYS, attribute,
			ATTRIBUTE_HEAD + length);
	explicit_bzero(attribute, sizeof attribute);
	if (r == -EAGAIN)
		return -EBUSY; /* too much has not been sent yet, and has to leave without encryption */
	if (r)
		return r;
	s->cold->ulps.keys[direction] = info;
	if (direction == ULPS_RECEIVE)
		s->cold->ulps.keys_expired = false;
	return 0;
}

/* TLS_TX_ZEROCOPY_RO, TLS_RX_EXPECT_NO_PAD: promises of the application. Nothing here depends on them. */
static int set_promise(bool *promise, const void *value, socklen_t length)
{
	unsigned number;

	if (!value || length < sizeof number)
		return -EINVAL;
	memcpy(&number, value, sizeof number);
	if (number > 1)
		return -EINVAL;
	*promise = number;
	return 0;
}

static int get_promise(bool promise, void *value, socklen_t *length)
{
	unsigned number = promise;

	if (*length < sizeof number)
		return -EINVAL;
	memcpy(value, &number, sizeof number);
	*length = sizeof number;
	return 0;
}

/* do_tls_getsockopt_conf(): version and cipher. The kernel returns the whole structure, with the keys; here keys are
 * never returned. */
static int get_keys(const struct xts_sock *s, unsigned direction, void *value, const socklen_t *length)
{
	const struct tls_crypto_info *info = &s->cold->ulps.keys[direction];

	if (*length < sizeof *info)
		return -EINVAL;
	if (!info->version)
		return -EBUSY;
	if (*length != sizeof *info)
		return info_bytes(info->cipher_type) == *length ? -EOPNOTSUPP : -EINVAL;
	memcpy(value, info, sizeof *info);
	return 0;
}

int ktls_set(struct xts_sock *s, int option, const void *value, socklen_t length)
{
	if (!s->cold->ulps.tls)
		return -ENOPROTOOPT;
	switch (option) {
	case TLS_TX:
		return set_keys(s, ULPS_SEND, value, length);
	case TLS_RX:
		return set_keys(s, ULPS_RECEIVE, value, length);
	case TLS_TX_ZEROCOPY_RO:
		return set_promise(&s->cold->ulps.zerocopy_ro, value, length);
	case TLS_RX_EXPECT_NO_PAD:
		return set_promise(&s->cold->ulps.expect_no_pad, value, length);
	default:
		return -ENOPROTOOPT;
	}
}

int ktls_get(const struct xts_sock *s, int option, void *value, socklen_t *length)
{
	if (!s->cold->ulps.tls)
		return s->family == 4 ? -EOPNOTSUPP : -ENOPROTOOPT;
	switch (option) {
	case TLS_TX:
		return get_keys(s, ULPS_SEND, value, length);
	case TLS_RX:
		return get_keys(s, ULPS_RECEIVE, value, length);
	case TLS_TX_ZEROCOPY_RO:
		return get_promise(s->cold->ulps.zerocopy_ro, value, length);
	case TLS_RX_EXPECT_NO_PAD:
		return get_promise(s->cold->ulps.expect_no_pad, value, length);
	default:
		return -ENOPROTOOPT;
	}
}

/* tls_check_pending_rekey(): after a KeyUpdate of TLS 1.3, receiving fails (EKEYEXPIRED) until new keys are set. */
void ktls_control_read(struct xts_sock *s, uint8_t type, uint8_t first)
{
	if (type == HANDSHAKE && first == KEY_UPDATE && s->cold->ulps.keys[ULPS_RECEIVE].version == TLS_1_3_VERSION)
		s->cold->ulps.keys_expired = true;
}
