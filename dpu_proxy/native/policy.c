#include "policy.h"

/* The address as policy sees it: mapped ones as IPv4, and unspecified ones marked. */
struct subject {
	uint8_t ip_version; /* 4, 6, or 0: none given */
	bool unspecified;
	bool both_versions; /* unspecified in a form that includes IPv4 and IPv6 */
	uint8_t address[16];
};

static struct subject subject_of(const struct xts_endpoint *endpoint)
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
	return s;
}

static bool prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;
	uint8_t mask = (uint8_t)(0xff00u >> rest);

	if (memcmp(a, b, whole) != 0)
		return false;
	return rest == 0 || ((a[whole] ^ b[whole]) & mask) == 0;
}

static bool address_matches(const struct xts_policy_rule *rule, const struct subject *s)
{
	unsigned bits_max = rule->ip_version == 4 ? 32 : 128;

	if (rule->ip_version == 0)
		return true;
	if (rule->prefix_bits > bits_max) /* not from our supervisor: matches nothing */
		return false;
	if (s->unspecified && !rule->allow)
		return s->both_versions || s->ip_version == rule->ip_version;
	if (s->unspecified)
		return s->ip_version == rule->ip_version && rule->prefix_bits == 0;
	return s->ip_version == rule->ip_version && prefix_equal(rule->address, s->address, rule->prefix_bits);
}

uint32_t xts_policy_match(const struct xts_policy_rule *rules, uint32_t count, uint8_t action, uint32_t queue_id,
			  const struct xts_endpoint *endpoint)
{
	struct subject s = subject_of(endpoint);

	for (uint32_t i = 0; i < count; i++) {
		const struct xts_policy_rule *rule = &rules[i];

		if ((rule->action & action) != 0 && queue_id >= rule->queue_first && queue_id <= rule->queue_last &&
		    endpoint->port >= rule->port_first && endpoint->port <= rule->port_last && address_matches(rule, &s))
			return i;
	}
	return XTS_POLICY_NO_RULE;
}

bool xts_policy_allows(const struct xts_policy_rule *rules, uint32_t count, bool default_allow, uint8_t action,
		       uint32_t queue_id, const struct xts_endpoint *endpoint)
{
	uint32_t rule = xts_policy_match(rules, count, action, queue_id, endpoint);

	return rule == XTS_POLICY_NO_RULE ? default_allow : rules[rule].allow;
}
