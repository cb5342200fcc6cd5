/* Checking attach tokens; see token.h. */
#include "channel/token.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "channel/channel.h"
#include "decorators/headed.h"

#define CONTEXT "xts attach token 1"
#define CONTEXT_BYTES (sizeof CONTEXT - 1)
#define MAC_BYTES 16u
/* Twice the lifetime that agents give, because the clocks may differ by that much (xts_messages/attaching/attach_token.py). */
#define AHEAD_MS (2u * 300u * 1000u)

static uint64_t wall_clock_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* Writes what is authenticated: the context, the MAC addresses of both ends, and the token without its code. */
static size_t claims_write(uint8_t *out, const struct xts_link_config *link, const struct xts_token *token,
			   const uint8_t *payload)
{
	uint8_t *p = out;

	memcpy(p, CONTEXT, CONTEXT_BYTES);
	p += CONTEXT_BYTES;
	memcpy(p, link->peer_mac, 6);
	memcpy(p + 6, link->local_mac, 6);
	xts_put32(p + 12, token->queue);
	xts_put32(p + 16, token->uid);
	xts_put64(p + 20, token->epoch);
	xts_put64(p + 28, token->expires_ms);
	xts_put32(p + 36, token->length);
	memcpy(p + 40, payload, token->length);
	return CONTEXT_BYTES + 40 + token->length;
}

static bool authentic(const struct channel *ch, const struct xts_token *token, const uint8_t *payload)
{
	const struct trust *trust = &ch->worker->trust;
	uint8_t claims[CONTEXT_BYTES + 40 + XTS_TOKEN_PAYLOAD_BYTES_MAX], code[EVP_MAX_MD_SIZE], sent_code[MAC_BYTES];
	unsigned int bytes = 0;
	size_t length = claims_write(claims, &ch->link.config, token, payload);

	xts_put64(sent_code, token->mac_high);
	xts_put64(sent_code + 8, token->mac_low);
	return HMAC(EVP_sha256(), trust->key, (int)trust->key_bytes, claims, length, code, &bytes) &&
	       bytes >= MAC_BYTES && CRYPTO_memcmp(code, sent_code, MAC_BYTES) == 0;
}

/* The queue that a token has to name: for the process that opens a queue's link, for a relay that opens its own, or for
 * a process behind a relay. */
static uint32_t expected_queue(const struct channel *ch, const struct xts_hello *hello)
{
	uint32_t whose = ch->relayed.number                  ? ch->relayed.number :
			 hello->features & XTS_FEATURE_RELAY ? XTS_RELAY_SELF :
							       0;

	return ch->queue_id | whose << XTS_RELAY_SHIFT;
}

/* What the payload of a token says. */
struct claims {
	uint32_t cgroup_bytes; /* the path is at the beginning */
	uint64_t life, number; /* ORDER; life 0: it has none */
	uint32_t first_port;   /* FIRST_PORT; UINT32_MAX: it has none */
	uint64_t secret;       /* SECRET; 0: it has none */
};

static void claim_read(struct claims *out, uint8_t number, const uint8_t *value, uint32_t bytes)
{
	if (number == XTS_CLAIM_ORDER && bytes == 16) {
		out->life = xts_get64(value);
		out->number = xts_get64(value + 8);
	}
	if (number == XTS_CLAIM_FIRST_PORT && bytes == 2)
		out->first_port = xts_get16(value);
	if (number == XTS_CLAIM_SECRET && bytes == 8)
		out->secret = xts_get64(value);
}

/* Reads the payload. A path has no zero byte; where there is one, a slash is before it and further claims are behind
 * it. So a proxy that does not know them takes them for a cgroup below. false: it is malformed. */
static bool claims_read(struct claims *out, const uint8_t *payload, uint32_t length)
{
	const uint8_t *zero = length ? memchr(payload, 0, length) : NULL;
	uint32_t at;

	*out = (struct claims){ .cgroup_bytes = length, .first_port = UINT32_MAX };
	if (!zero)
		return true;
	at = (uint32_t)(zero - payload);
	if (!at || payload[at - 1] != '/')
		return false;
	out->cgroup_bytes = at - 1;
	for (at++; at < length;) {
		if (length - at < 2 || length - at - 2 < payload[at + 1])
			return false;
		claim_read(out, payload[at], payload + at + 2, payload[at + 1]);
		at += 2u + payload[at + 1];
	}
	return true;
}

static bool life_has_ended(const struct identity *known, uint64_t life)
{
	for (uint32_t i = 0; i < TOKEN_LIVES_ENDED && i < known->lives_ended_count; i++)
		if (known->lives_ended[i] == life)
			return true;
	return false;
}

/* Is the token newer than all that opened this queue before? */
static bool newer(const struct identity *known, const struct xts_token *token, const struct claims *claims)
{
	if (!claims->life)
		return token->expires_ms > known->expires_ms;
	if (claims->life == known->life)
		return claims->number > known->number;
	return !life_has_ended(known, claims->life);
}

static void remember(struct identity *known, const struct xts_token *token, const struct claims *claims)
{
	if (token->expires_ms > known->expires_ms)
		known->expires_ms = token->expires_ms;
	if (!claims->life)
		return;
	if (known->life && known->life != claims->life)
		known->lives_ended[known->lives_ended_count++ % TOKEN_LIVES_ENDED] = known->life;
	known->life = claims->life;
	known->number = claims->number;
}

static int check(const struct channel *ch, const struct xts_hello *hello, const struct xts_token *token,
		 const uint8_t *payload, struct claims *claims)
{
	uint64_t now_ms = wall_clock_ms();

	if (!token)
		return ENOKEY;
	if (!authentic(ch, token, payload) || token->queue != expected_queue(ch, hello) || token->epoch != hello->epoch ||
	    !claims_read(claims, payload, token->length) || claims->secret != xts_headed_last(ch->queue))
		return EKEYREJECTED;
	if (token->expires_ms <= now_ms || token->expires_ms - now_ms > AHEAD_MS)
		return EKEYEXPIRED;
	return newer(&ch->identity, token, claims) ? 0 : EKEYREVOKED;
}

static const char *meaning(int error)
{
	switch (error) {
	case ENOKEY:
		return "it came without a token: the agent of the host needs the key (token_key)";
	case EKEYEXPIRED:
		return "its token has expired: compare the clocks of host and device";
	case EKEYREVOKED:
		return "its token belongs to an attachment that has ended";
	default:
		return "its token belongs to another key, queue or epoch";
	}
}

/* An older agent says no more of ports than who is root. */
static struct xts_owner owner_of(const struct xts_token *token, const struct claims *claims)
{
	struct xts_owner owner = { token->uid, claims->first_port };

	if (owner.first_port == UINT32_MAX)
		owner.first_port = token->uid ? XTS_FIRST_PORT_UNKNOWN : 0;
	return owner;
}

int token_admit(void *channel, const struct xts_hello *hello, const struct xts_token *token, const uint8_t *payload)
{
	struct channel *ch = channel;
	struct claims claims;
	int error;

	if (ch->moved_epoch && hello->epoch == ch->moved_epoch && !token)
		return 0; /* it was admitted by another process of the proxy, and goes on here */
	error = check(ch, hello, token, payload, &claims);

	if (error && error != ch->identity.refused)
		channel_log(ch, "HELLO refused: %s", meaning(error));
	ch->identity.refused = error;
	if (error || !token)
		return error;
	remember(&ch->identity, token, &claims);
	ch->identity.uid = token->uid;
	ch->owner = owner_of(token, &claims);
	ch->identity.cgroup_bytes = claims.cgroup_bytes;
	memcpy(ch->identity.cgroup, payload, claims.cgroup_bytes);
	return 0;
}

/* Is the cgroup the one at this path, or below it? */
static bool within(const struct identity *who, const struct xts_identity_rule *rule)
{
	uint32_t bytes = rule->cgroup_bytes;

	return !bytes || (who->cgroup_bytes >= bytes && memcmp(who->cgroup, rule->cgroup, bytes) == 0 &&
			  (who->cgroup_bytes == bytes || who->cgroup[bytes] == '/'));
}

struct xts_tenant *token_tenant(const struct channel *ch)
{
	const struct trust *trust = &ch->worker->trust;

	for (uint32_t i = 0; i < trust->rule_count; i++) {
		const struct xts_identity_rule *rule = &trust->rules[i];

		if (ch->queue_id >= rule->queue_first && ch->queue_id <= rule->queue_last &&
		    (rule->any_uid || rule->uid == ch->identity.uid) && within(&ch->identity, rule))
			return rule->tenant;
	}
	return NULL;
}

/* --- the supervisor's side ---------------------------------------------------------------------------------------- */

void trust_free(struct trust *t)
{
	for (uint32_t i = 0; i < t->rule_count; i++)
		xts_tenant_release(t->rules[i].tenant);
	free(t->rules);
	OPENSSL_cleanse(t->key, sizeof t->key);
	t->rules = NULL;
	t->rule_count = t->key_bytes = 0;
}
