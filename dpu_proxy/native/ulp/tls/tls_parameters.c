/* The parameters of a push of TLS: read from its attributes into a struct, with defaults and checks (tls.h). */
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "tls.h"
#include "ulp/config_inside.h"

/* Adds a name with its length before it, as on the wire (RFC 7301). */
static int add_alpn(struct ulp_layer *l, const struct ulp_attribute *a, struct tls_parameters *out)
{
	if (a->bytes < 1 || a->bytes > 255)
		return ulp_refuse(l, EINVAL, "ALPN: a protocol's name has 1 to 255 bytes, not %u", a->bytes);
	if (out->alpn_bytes + 1u + a->bytes > sizeof out->alpn)
		return ulp_refuse(l, EINVAL, "ALPN: all names together may have %zu bytes", sizeof out->alpn);
	out->alpn[out->alpn_bytes] = (uint8_t)a->bytes;
	memcpy(out->alpn + out->alpn_bytes + 1, a->value, a->bytes);
	out->alpn_bytes = (uint16_t)(out->alpn_bytes + 1u + a->bytes);
	return 0;
}

static int add_identity(struct ulp_layer *l, const struct ulp_attribute *a, struct tls_parameters *out)
{
	int r;

	if (out->identity_count == TLS_IDENTITIES_MAX)
		return ulp_refuse(l, EINVAL, "IDENTITY: at most %d", TLS_IDENTITIES_MAX);
	r = ulp_attribute_string(l, a, "IDENTITY", out->identity[out->identity_count], TLS_NAME_BYTES);
	if (!r)
		out->identity_count++;
	return r;
}

static int at_most(const struct ulp_layer *l, const char *name, unsigned value, unsigned highest)
{
	return value <= highest ? 0 : ulp_refuse(l, EINVAL, "%s: %u is not from 0 to %u", name, value, highest);
}

static int read_number(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, unsigned highest,
		       uint8_t *out)
{
	int r = ulp_attribute_u8(l, a, name, out);

	return r ? r : at_most(l, name, *out, highest);
}

static int read_version(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint16_t *out)
{
	int r = ulp_attribute_u16(l, a, name, out);

	if (!r && *out != TLS1_2_VERSION && *out != TLS1_3_VERSION)
		r = ulp_refuse(l, EINVAL, "%s: 0x%04x is neither 0x0303 nor 0x0304", name, *out);
	return r;
}

/* As certificates and SNI have names: without the dot that makes a name absolute (RFC 6066 3), and an address without
 * its zone, which means something on one machine only. What is cut off is zero: the struct is hashed. */
static void trim_name(char *name)
{
	size_t bytes = strlen(name);
	char *zone = strchr(name, '%');
	uint8_t address[16];

	if (bytes > 1 && name[bytes - 1] == '.')
		name[bytes - 1] = 0;
	if (!zone)
		return;
	*zone = 0;
	if (inet_pton(AF_INET6, name, address) == 1)
		memset(zone, 0, bytes - (size_t)(zone - name));
	else
		*zone = '%';
}

static int read_name(struct ulp_layer *l, const struct ulp_attribute *a, struct tls_parameters *out)
{
	int r = ulp_attribute_string(l, a, "SERVER_NAME", out->server_name, sizeof out->server_name);

	if (!r)
		trim_name(out->server_name);
	return r;
}

static int read_one(struct ulp_layer *l, const struct ulp_attribute *a, struct tls_parameters *out)
{
	switch (a->type) {
	case XTS_TLS_ROLE:
		return read_number(l, a, "ROLE", TLS_SERVER, &out->role);
	case XTS_TLS_SERVER_NAME:
		return read_name(l, a, out);
	case XTS_TLS_ALPN:
		return add_alpn(l, a, out);
	case XTS_TLS_VERIFY:
		return read_number(l, a, "VERIFY", TLS_VERIFY_REQUIRED, &out->verify);
	case XTS_TLS_TRUST:
		return ulp_attribute_string(l, a, "TRUST", out->trust, sizeof out->trust);
	case XTS_TLS_IDENTITY:
		return add_identity(l, a, out);
	case XTS_TLS_MIN_VERSION:
		return read_version(l, a, "MIN_VERSION", &out->min_version);
	case XTS_TLS_MAX_VERSION:
		return read_version(l, a, "MAX_VERSION", &out->max_version);
	case XTS_TLS_CIPHERS:
		return ulp_attribute_string(l, a, "CIPHERS", out->ciphers, sizeof out->ciphers);
	case XTS_TLS_CIPHERSUITES:
		return ulp_attribute_string(l, a, "CIPHERSUITES", out->ciphersuites, sizeof out->ciphersuites);
	case XTS_TLS_CRYPTO:
		return read_number(l, a, "CRYPTO", XTS_TLS_CRYPTO_DEVICE, &out->crypto);
	case XTS_TLS_VERIFY_HOST:
		return ulp_attribute_flag(l, a, "VERIFY_HOST", &out->verify_host);
	case XTS_TLS_NO_RESUMPTION:
		return ulp_attribute_flag(l, a, "NO_RESUMPTION", &out->no_resumption);
	default:
		return ulp_attribute_unknown(l, a);
	}
}

/* Checks that do not depend on the role. */
static int check(struct ulp_layer *l, const struct tls_parameters *p)
{
	const struct xts_tls_settings *settings = &ulp_config(l)->tls->settings;

	if (p->max_version && p->max_version < settings->min_version)
		return ulp_refuse(l, EINVAL, "MAX_VERSION: the proxy's configuration demands TLS 1.3");
	if (p->max_version && p->max_version < p->min_version)
		return ulp_refuse(l, EINVAL, "MAX_VERSION is below MIN_VERSION");
	if (strchr(p->ciphers, '@')) /* @SECLEVEL: a host must not lower the level */
		return ulp_refuse(l, EACCES, "CIPHERS: commands (@) are not allowed");
	for (uint32_t i = 0; i < p->identity_count; i++) {
		if (!tls_config_identity(ulp_config(l)->tls, p->identity[i], ulp_tenant(l), ulp_queue_id(l)))
			return ulp_refuse(l, ENOENT, "IDENTITY: the proxy has none named %s for this queue",
					  p->identity[i]);
	}
	if (p->trust[0] && !tls_config_trust(ulp_config(l)->tls, p->trust, ulp_tenant(l), ulp_queue_id(l)))
		return ulp_refuse(l, ENOENT, "TRUST: the proxy has no roots named %s for this queue", p->trust);
	return 0;
}

int tls_parameters_read(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes, struct tls_parameters *out)
{
	struct ulp_attribute a;
	uint32_t offset = 0;
	int r;

	memset(out, 0, sizeof *out);
	out->verify = TLS_VERIFY_DEFAULT;
	while ((r = ulp_attribute_next(l, attributes, bytes, &offset, &a)) > 0) {
		r = read_one(l, &a, out);
		if (r)
			return r;
	}
	return r ? r : check(l, out);
}

/* --- when the role is known --------------------------------------------------------------------------------------- */

static int settle_client(struct ulp_layer *l, struct tls_parameters *p)
{
	if (p->verify == TLS_VERIFY_DEFAULT)
		p->verify = TLS_VERIFY_REQUIRED;
	if (p->verify == TLS_VERIFY_REQUIRED)
		p->verify_host = true;
	if (p->verify_host && !p->server_name[0])
		return ulp_refuse(l, EINVAL,
				  "SERVER_NAME is needed to verify the server's certificate (VERIFY is required)");
	if (p->verify == TLS_VERIFY_NOT && p->verify_host)
		return ulp_refuse(l, EINVAL, "VERIFY_HOST means nothing without VERIFY");
	if (!p->verify_host && ulp_config(l)->tls->settings.verify_required)
		return ulp_refuse(l, EACCES, "VERIFY: the proxy's configuration requires clients to verify the server");
	if (p->identity_count > 1)
		return ulp_refuse(l, EINVAL, "IDENTITY: a client has one at most");
	if (p->server_name[0] == '.') /* for OpenSSL this means any host below the name */
		return ulp_refuse(l, EINVAL, "SERVER_NAME: %s is not a host name", p->server_name);
	return 0;
}

static int settle_server(struct ulp_layer *l, struct tls_parameters *p)
{
	if (p->verify == TLS_VERIFY_DEFAULT)
		p->verify = TLS_VERIFY_NOT;
	if (!p->identity_count)
		return ulp_refuse(l, EINVAL, "IDENTITY is needed for a server");
	if (p->verify != TLS_VERIFY_NOT && !p->trust[0])
		return ulp_refuse(l, EINVAL, "TRUST is needed to verify certificates of clients");
	return 0;
}

int tls_parameters_settle(struct ulp_layer *l, struct tls_parameters *p, bool client)
{
	int r = client ? settle_client(l, p) : settle_server(l, p);

	if (r)
		return r;
	p->role = client ? TLS_CLIENT : TLS_SERVER;
	if (p->verify != TLS_VERIFY_NOT && !p->trust[0])
		memcpy(p->trust, "default", sizeof "default");
	if (p->verify != TLS_VERIFY_NOT &&
	    !tls_config_trust(ulp_config(l)->tls, p->trust, ulp_tenant(l), ulp_queue_id(l)))
		return ulp_refuse(l, ENOENT, "TRUST: the proxy has no roots named %s for this queue", p->trust);
	return 0;
}
