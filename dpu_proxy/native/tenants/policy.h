/*
 * Policy: which tenant, over which queue, may connect or listen where. A pure function over rules that the supervisor
 * has parsed and checked (xts_proxy/workers/policy_table.py); the first rule that matches decides.
 * xts_proxy/config/policy_explained.py decides the same in Python, for people, and the tests hold one against the other.
 *
 * The device's own addresses, loopback and link-local (127.0.0.0/8, 169.254.0.0/16, ::1, fe80::/10), are for the
 * device's own services. Connecting or listening there is allowed only by a rule that names them: one with `own`, or
 * with a network inside theirs. Rules for "all" or for wider networks do not. Connecting to the unspecified address
 * means connecting to loopback.
 *
 * Some kinds of address would slip through a plain comparison:
 *
 * - An IPv4-mapped IPv6 address (::ffff:a.b.c.d) reaches an IPv4 peer, so it is matched as IPv4.
 * - An IPv6 address that a translator or tunnel turns into an IPv4 one (NAT64, 6to4, Teredo, ISATAP, IPv4-compatible)
 *   is matched by a deny rule for either address, and it is the device's own if the IPv4 address is.
 * - The unspecified address (0.0.0.0, ::, ::ffff:0.0.0.0) stands for addresses that the kernel picks: all local ones
 *   when listening (:: includes the IPv4 ones), a local one when connecting. A deny rule of any network therefore
 *   matches it; an allow rule only when it covers all addresses of the family (prefix 0, or no network at all).
 *
 * Port 0 is treated like any other port; for a listener it means "one that the kernel picks".
 */
#ifndef XTS_POLICY_H
#define XTS_POLICY_H

#include "worker/worker.h"

#define XTS_POLICY_NO_RULE UINT32_MAX

/* Index of the rule that decides, or XTS_POLICY_NO_RULE. action is XTS_POLICY_CONNECT or XTS_POLICY_LISTEN; an
 * endpoint of ip_version 0 counts as the unspecified address of either family. */
uint32_t xts_policy_match(const struct xts_policy_rule *rules, uint32_t count, uint8_t action, uint32_t tenant,
			  uint32_t queue_id, const struct xts_endpoint *endpoint);

/* May the tenant, over this queue, connect to endpoint, or listen on it? */
bool xts_policy_allows(const struct xts_policy_rule *rules, uint32_t count, bool default_allow, uint8_t action,
		       uint32_t tenant, uint32_t queue_id, const struct xts_endpoint *endpoint);

/* May it do so at some port? A rule that denies only some ports is skipped here, because the caller checks again when
 * the port is known. */
bool xts_policy_allows_some_port(const struct xts_policy_rule *rules, uint32_t count, bool default_allow, uint8_t action,
				 uint32_t tenant, uint32_t queue_id, const struct xts_endpoint *endpoint);

#endif
