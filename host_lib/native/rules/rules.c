/* Asking the rules. rules.h says which rule decides; nothing here allocates, or changes the parsed rules. */
#include "rules/rule.h"

#include <fnmatch.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/endpoint.h"

static const struct xts_rules rules_default = { .nobody = { .rules = &rules_default } };

const struct xts_rules *xts_rules_default(void)
{
	return &rules_default;
}

/* --- groups ------------------------------------------------------------------------------------------------------- */

/* Why a group is not for a program, or NULL. */
static const char *group_mismatch(const struct xts_rule_group *group, const struct xts_rule_program *program)
{
	const char *id = program->id;
	char uid[16];

	if (fnmatch(group->program, program->name, 0) != 0)
		return "the program's name does not fit the pattern";
	if (strcmp(group->id, "*") != 0 && (!id || (strcmp(id, "*") != 0 && strcmp(id, group->id) != 0)))
		return id ? "the program has another id" : "the program has no id (XTS_APPLICATION_ID)";
	snprintf(uid, sizeof uid, "%u", program->uid);
	if (group->user && strcmp(group->user, uid) != 0 && (!program->user || strcmp(group->user, program->user) != 0))
		return "another user";
	if (group->cgroup && (!program->cgroup || fnmatch(group->cgroup, program->cgroup, 0) != 0))
		return "another cgroup";
	return NULL;
}

const struct xts_rule_group *xts_rules_group(const struct xts_rules *rules, const struct xts_rule_program *program)
{
	for (const struct xts_rule_group *group = rules->first; group; group = group->next)
		if (!group_mismatch(group, program))
			return group;
	return &rules->nobody;
}

bool xts_rules_try_group(const struct xts_rules *rules, unsigned n, const struct xts_rule_program *program,
			 unsigned *line, const char **why)
{
	const struct xts_rule_group *group = rules->first;

	while (group && n--)
		group = group->next;
	if (!group)
		return false;
	*line = group->line;
	*why = group_mismatch(group, program);
	return true;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

/* Treats an IPv4-mapped IPv6 address as the IPv4 address. */
static struct xts_endpoint seen_from(const struct sockaddr *address)
{
	static const uint8_t mapped[12] = { [10] = 0xff, 0xff };
	struct xts_endpoint seen = xts_endpoint_of(address);

	if (seen.ip_version == 6 && !memcmp(seen.address, mapped, sizeof mapped)) {
		seen.ip_version = 4;
		memcpy(seen.address, seen.address + 12, 4);
		memset(seen.address + 4, 0, 12);
	}
	return seen;
}

/* Loopback is an address like any other. */
static atomic_bool loopback_as_others;

void xts_rules_loopback(bool as_others)
{
	atomic_store_explicit(&loopback_as_others, as_others, memory_order_relaxed);
}

static bool seen_is_loopback(const struct xts_endpoint *seen)
{
	return (seen->ip_version == 4 && seen->address[0] == 127) ||
	       (seen->ip_version == 6 && !memcmp(seen->address, &in6addr_loopback, 16));
}

/* Connecting to the wildcard address reaches this host itself. */
static bool seen_is_wildcard(const struct xts_endpoint *seen)
{
	static const uint8_t zeros[16];

	return seen->ip_version && !memcmp(seen->address, zeros, sizeof zeros);
}

static bool seen_stays_here(const struct xts_endpoint *seen, enum xts_role role)
{
	if (atomic_load_explicit(&loopback_as_others, memory_order_relaxed))
		return false;
	return seen_is_loopback(seen) || (!role_first_is_local(role) && seen_is_wildcard(seen));
}

static bool prefix_equal(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	unsigned whole = bits / 8, rest = bits % 8;

	if (memcmp(a, b, whole) != 0)
		return false;
	return !rest || !((a[whole] ^ b[whole]) >> (8 - rest));
}

bool rule_endpoint_is_loopback(const struct rule_endpoint *e)
{
	if (e->family == 4)
		return e->prefix >= 8 && e->address[0] == 127;
	return e->family == 6 && e->prefix == 128 && !memcmp(e->address, &in6addr_loopback, 16);
}

bool rule_endpoint_within(const struct rule_endpoint *inner, const struct rule_endpoint *outer)
{
	if (!outer->any_port &&
	    (inner->any_port || inner->port_first < outer->port_first || inner->port_last > outer->port_last))
		return false;
	return !outer->family || (inner->family == outer->family && inner->prefix >= outer->prefix &&
				  prefix_equal(inner->address, outer->address, outer->prefix));
}

static bool address_fits(const struct rule_endpoint *e, const struct xts_endpoint *seen)
{
	return !e->family || (e->family == seen->ip_version && prefix_equal(e->address, seen->address, e->prefix));
}

static bool port_fits(const struct rule_endpoint *e, const struct xts_endpoint *seen)
{
	return e->any_port || (seen->ip_version && seen->port >= e->port_first && seen->port <= e->port_last);
}

/* --- rules -------------------------------------------------------------------------------------------------------- */

struct question {
	enum xts_role role;
	struct xts_endpoint first, second;
};

static struct question question_from(enum xts_role role, const struct sockaddr *local, const struct sockaddr *peer)
{
	bool local_first = role_first_is_local(role);

	return (struct question){
		.role = role,
		.first = seen_from(local_first ? local : peer),
		.second = seen_from(local_first ? peer : local),
	};
}

/* Why a rule does not match, or NULL. */
static const char *rule_mismatch(const struct rule *rule, const struct question *q)
{
	bool local = role_first_is_local(q->role);

	if (rule->role != q->role)
		return "for another role";
	if (!address_fits(&rule->first, &q->first))
		return local ? "another local address" : "another peer address";
	if (rule->transport == TRANSPORT_BYPASS && !rule_endpoint_is_loopback(&rule->first) &&
	    seen_stays_here(&q->first, q->role))
		return "does not name loopback, which xlio and vma rules leave to the kernel";
	if (!port_fits(&rule->first, &q->first))
		return local ? "another local port" : "another peer port";
	if (!rule->has_second || !role_has_second(q->role))
		return NULL;
	if (!address_fits(&rule->second, &q->second))
		return q->second.ip_version ? "another local address" : "the local address is not known";
	if (!port_fits(&rule->second, &q->second))
		return q->second.ip_version ? "another local port" : "the local port is not known";
	return NULL;
}

bool xts_rules_try(const struct xts_rule_group *group, unsigned n, enum xts_role role, const struct sockaddr *local,
		   const struct sockaddr *peer, unsigned *line, const char **why)
{
	struct question q = question_from(role, local, peer);
	const struct rule *rule = group->first;

	while (rule && n--)
		rule = rule->next;
	if (!rule)
		return false;
	*line = rule->line;
	*why = rule_mismatch(rule, &q);
	return true;
}

static const struct rule_default *group_default(const struct xts_rule_group *group)
{
	return group->fallback.line ? &group->fallback : &group->rules->fallback;
}

static struct xts_verdict default_verdict(const struct xts_rule_group *group, const struct question *q)
{
	const struct rule_default *said = group_default(group);
	struct xts_verdict verdict = { .line = said->line, .group_line = said->group_line };

	if (!role_is_tcp(q->role) && !said->line)
		verdict.why = "no rule matches, and by default datagram sockets stay with the kernel";
	else if (said->line && !said->offload)
		verdict.why = "no rule matches, and `default os` leaves it to the kernel";
	else if (seen_stays_here(&q->first, q->role))
		verdict.why = "no rule matches, and by default loopback stays with the kernel";
	else if (!role_first_is_local(q->role) && seen_stays_here(&q->second, XTS_ROLE_TCP_SERVER))
		verdict.why = "no rule matches, and by default what is bound to loopback stays with the kernel";
	else
		verdict.offload = true;
	if (verdict.offload)
		verdict.why = said->line ? "no rule matches, and `default xts` offloads it" :
					   "no rule matches, and by default TCP is offloaded";
	return verdict;
}

struct xts_verdict xts_rules_ask(const struct xts_rule_group *group, enum xts_role role, const struct sockaddr *local,
				 const struct sockaddr *peer)
{
	struct question q = question_from(role, local, peer);
	const struct rule *rule = group->first;
	struct xts_verdict verdict = { 0 };

	while (rule && rule_mismatch(rule, &q))
		rule = rule->next;
	if (!rule)
		return default_verdict(group, &q);
	verdict.line = rule->line;
	verdict.group_line = rule->group_line;
	if (rule->transport == TRANSPORT_OS) {
		verdict.why = "the rule leaves it to the kernel";
	} else {
		verdict.offload = true;
		verdict.endpoint = rule->endpoint;
		verdict.why = "the rule offloads it";
	}
	return verdict;
}

bool xts_rules_name_endpoint(const struct xts_rule_group *group, const char *path)
{
	const struct rule_name *name = group->rules ? group->rules->names : NULL;

	while (name && strcmp(name->path, path) != 0)
		name = name->next;
	return name != NULL;
}

bool xts_rules_may_offload(const struct xts_rule_group *group, enum xts_role role)
{
	static const struct rule_endpoint everything = { .any_port = true };

	for (const struct rule *rule = group->first; rule; rule = rule->next) {
		if (rule->role != role)
			continue;
		if (rule->transport != TRANSPORT_OS)
			return true;
		if (rule_endpoint_within(&everything, &rule->first) &&
		    (!rule->has_second || !role_has_second(role) || rule_endpoint_within(&everything, &rule->second)))
			return false;
	}
	return group_default(group)->line ? group_default(group)->offload : role_is_tcp(role);
}

/* --- notes -------------------------------------------------------------------------------------------------------- */

bool xts_rules_note(const struct xts_rules *rules, unsigned n, unsigned *line, const char **text)
{
	const struct rule_note *note = rules->notes;

	while (note && n--)
		note = note->next;
	if (!note)
		return false;
	*line = note->line;
	*text = note->text;
	return true;
}

void xts_rules_free(struct xts_rules *rules)
{
	if (!rules || rules == &rules_default)
		return;
	for (struct xts_rule_group *group = rules->first, *next; group; group = next) {
		next = group->next;
		for (struct rule *rule = group->first, *after; rule; rule = after) {
			after = rule->next;
			free(rule);
		}
		free(group->program);
		free(group->id);
		free(group->user);
		free(group->cgroup);
		free(group);
	}
	for (struct rule_name *name = rules->names, *next; name; name = next) {
		next = name->next;
		free(name->name);
		free(name->path);
		free(name);
	}
	for (struct rule_note *note = rules->notes, *next; note; note = next) {
		next = note->next;
		free(note);
	}
	free(rules);
}
