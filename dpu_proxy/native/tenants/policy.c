/* The decision of policy.h: an address in all the forms that it may have, against a list of rules. */
#include "tenants/policy.h"

/* An address as policy sees it: a mapped one as IPv4, with marks for unspecified addresses and the device's own. */
struct subject {
	uint8_t ip_version; /* 4, 6, or 0: none given */
	bool unspecified;
	bool both_versions; /* unspecified, in a form that includes both IPv4 and IPv6 */
	bool own;           /* loopback or link-local of the device, or an address that leads there */
	/* an IPv6 address that a translator or tunnel turns into an IPv4 one */
	bool embeds;
	uint8_t address[16];
	uint8_t embedded[4];
};

static bool prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;
	uint8_t mask = (uint8_t)(0xff00u >> rest);

	if (memcmp(a, b, whole) != 0)
		return false;
	return rest == 0 || ((a[whole] ^ b[whole]) & mask) == 0;
}

/* --- embedded addresses ----------------------------------------------------------------------------------- */

/* The kinds of IPv6 addresses that contain an IPv4 address, and where. */
static const struct embedding {
	uint8_t prefix[12];
	uint8_t first, bits; /* the prefix: bits from byte `first` on */
	uint8_t at;
	bool inverted;
} embeddings[] = {
	{ { 0x00, 0x64, 0xff, 0x9b }, 0, 96, 12, false },             /* NAT64, RFC 6052 */
	{ { 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01 }, 0, 48, 12, false }, /* NAT64 with a local prefix, RFC 8215 */
	{ { 0x20, 0x02 }, 0, 16, 2, false },                          /* 6to4 */
	{ { 0x20, 0x01, 0x00, 0x00 }, 0, 32, 12, true },              /* Teredo */
	{ { 0x00, 0x00, 0x5e, 0xfe }, 8, 32, 12, false },             /* ISATAP */
	{ { 0x02, 0x00, 0x5e, 0xfe }, 8, 32, 12, false },
	{ { 0 }, 0, 96, 12, false }, /* IPv4-compatible (obsolete) */
};

/* Loopback, link-local, and "this network". */
static bool is_own_4(const uint8_t *a)
{
	return a[0] == 127 || a[0] == 0 || (a[0] == 169 && a[1] == 254);
}

static bool is_own_6(const uint8_t *a)
{
	static const uint8_t one[16] = { [15] = 1 };

	return memcmp(a, one, sizeof one) == 0 || (a[0] == 0xfe && (a[1] & 0xc0) == 0x80);
}

static void find_embedded(struct subject *s)
{
	for (size_t i = 0; i < sizeof embeddings / sizeof embeddings[0]; i++) {
		const struct embedding *e = &embeddings[i];

		if (!prefix_equal(s->address + e->first, e->prefix, e->bits))
			continue;
		s->embeds = true;
		for (unsigned n = 0; n < 4; n++)
			s->embedded[n] = (uint8_t)(s->address[e->at + n] ^ (e->inverted ? 0xff : 0));
		return;
	}
}

static struct subject subject_of(const struct xts_endpoint *endpoint, uint8_t action)
{
	static const uint8_t mapped[12] = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff };
	static const uint8_t zero[16];
	struct subject s = { .ip_version = endpoint->ip_version };

	if (s.ip_version == 6 && memcmp(endpoint->address, mapped, sizeof mapped) == 0) {
		s.ip_version = 4;
		memcpy(s.address, endpoint->address + sizeof mapped, 4);
	} else if (s.ip_version == 4) {
		memcpy(s.address, endpoint->address, 4);
	} else if (s.ip_version == 6) {
		memcpy(s.address, endpoint->address, 16);
	} else {
		s.ip_version = 0;
	}
	s.unspecified = memcmp(s.address, zero, sizeof zero) == 0;
	s.both_versions = s.unspecified && s.ip_version != 4;
	if (s.unspecified) {
		s.own = action == XTS_POLICY_CONNECT; /* the kernel then connects to loopback */
		return s;
	}
	if (s.ip_version == 6 && !is_own_6(s.address))
		find_embedded(&s);
	s.own = s.ip_version == 4 ? is_own_4(s.address) : is_own_6(s.address) || (s.embeds && is_own_4(s.embedded));
	return s;
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

/* Is the rule's network inside the device's own networks? Only then does an allow rule apply to them. */
static bool names_own(const struct xts_policy_rule *rule)
{
	static const uint8_t zero[16];

	if (rule->ip_version == 4)
		return is_own_4(rule->address) && rule->prefix_bits >= (rule->address[0] == 169 ? 16 : 8);
	return (rule->address[0] == 0xfe && is_own_6(rule->address) && rule->prefix_bits >= 10) ||
	       (rule->prefix_bits == 128 && (is_own_6(rule->address) || !memcmp(rule->address, zero, sizeof zero)));
}

static bool covers(const struct xts_policy_rule *rule, const struct subject *s)
{
	if (rule->ip_version == s->ip_version && prefix_equal(rule->address, s->address, rule->prefix_bits))
		return true;
	/* An embedded address is another name for the same destination: a deny rule must not miss it, and an allow rule
	 * does not mean it. */
	return rule->ip_version == 4 && s->embeds && (!rule->allow || s->own) &&
	       prefix_equal(rule->address, s->embedded, rule->prefix_bits);
}

static bool address_matches(const struct xts_policy_rule *rule, const struct subject *s)
{
	unsigned bits_max = rule->ip_version == 4 ? 32 : 128;

	if (rule->own)
		return s->own;
	if (rule->ip_version == 0)
		return !rule->allow || !s->own;
	if (rule->prefix_bits > bits_max) /* our supervisor makes no such rule: it matches nothing */
		return false;
	if (s->unspecified && !rule->allow)
		return s->both_versions || s->ip_version == rule->ip_version;
	if (s->own && rule->allow && !names_own(rule))
		return false;
	if (s->unspecified && !s->own)
		return s->ip_version == rule->ip_version && rule->prefix_bits == 0;
	return covers(rule, s);
}

/* Does the rule apply, ports aside? */
static bool is_about(const struct xts_policy_rule *rule, uint8_t action, uint32_t tenant, uint32_t queue_id,
		     const struct subject *s)
{
	return (rule->action & action) != 0 && (rule->tenant == XTS_TENANT_ANY || rule->tenant == tenant) &&
	       queue_id >= rule->queue_first && queue_id <= rule->queue_last && address_matches(rule, s);
}

static uint32_t match(const struct xts_policy_rule *rules, uint32_t count, uint8_t action, uint32_t tenant,
		      uint32_t queue_id, uint16_t port, const struct subject *s)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct xts_policy_rule *rule = &rules[i];

		if (port >= rule->port_first && port <= rule->port_last && is_about(rule, action, tenant, queue_id, s))
			return i;
	}
	return XTS_POLICY_NO_RULE;
}

uint32_t xts_policy_match(const struct xts_policy_rule *rules, uint32_t count, uint8_t action, uint32_t tenant,
			  uint32_t queue_id, const struct xts_endpoint *endpoint)
{
	struct subject s = subject_of(endpoint, action);

	return match(rules, count, action, tenant, queue_id, endpoint->port, &s);
}

bool xts_policy_allows(const struct xts_policy_rule *rules, uint32_t count, bool default_allow, uint8_t action,
		       uint32_t tenant, uint32_t queue_id, const struct xts_endpoint *endpoint)
{
	struct subject s = subject_of(endpoint, action);
	uint32_t rule = match(rules, count, action, tenant, queue_id, endpoint->port, &s);

	return rule == XTS_POLICY_NO_RULE ? default_allow && !s.own : rules[rule].allow;
}

bool xts_policy_allows_some_port(const struct xts_policy_rule *rules, uint32_t count, bool default_allow,
				 uint8_t action, uint32_t tenant, uint32_t queue_id, const struct xts_endpoint *endpoint)
{
	struct subject s = subject_of(endpoint, action);

	for (uint32_t i = 0; i < count; i++) {
		const struct xts_policy_rule *rule = &rules[i];

		if (!is_about(rule, action, tenant, queue_id, &s))
			continue;
		if (rule->allow)
			return true;
		if (!rule->port_first && rule->port_last == UINT16_MAX)
			return false;
	}
	return default_allow && !s.own;
}
