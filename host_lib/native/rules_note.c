/* Notes about a rule file that is right: what has no effect in it, or more than may be meant. */
#include "rule.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int rules_add_note(struct xts_rules *rules, unsigned line, const char *text)
{
	struct rule_note *note = calloc(1, sizeof *note);

	if (!note)
		return -ENOMEM;
	note->line = line;
	note->text = text;
	*(rules->last_note ? &rules->last_note->next : &rules->notes) = note;
	rules->last_note = note;
	return 0;
}

/* Does the earlier rule match whatever the later one does? */
static bool rule_hides(const struct rule *earlier, const struct rule *later)
{
	static const struct rule_endpoint everything = { .any_port = true };

	if (earlier->role != later->role || !rule_endpoint_within(&later->first, &earlier->first))
		return false;
	if (earlier->transport == TRANSPORT_BYPASS && later->transport != TRANSPORT_BYPASS &&
	    !rule_endpoint_is_loopback(&earlier->first))
		return false; /* it lets loopback pass */
	if (earlier->transport == TRANSPORT_BYPASS && rule_endpoint_is_loopback(&later->first) &&
	    !rule_endpoint_is_loopback(&earlier->first))
		return false;
	if (!earlier->has_second || !role_has_second(earlier->role))
		return true;
	return rule_endpoint_within(later->has_second ? &later->second : &everything, &earlier->second);
}

static int note_rule(struct xts_rules *rules, const struct xts_rule_group *group, const struct rule *rule)
{
	static const struct rule_endpoint loopback = { .family = 4, .prefix = 8, .address = { 127 }, .any_port = true };
	struct rule_endpoint ports_apart = rule->first;
	const struct rule *earlier = group->first;

	while (earlier != rule && !rule_hides(earlier, rule))
		earlier = earlier->next;
	if (earlier != rule)
		return rules_add_note(rules, rule->line, "never matches: a rule above takes all it could match");
	if (!role_is_tcp(rule->role) && rule->transport != TRANSPORT_OS)
		return rules_add_note(rules, rule->line, "has no effect: datagram sockets are not offloaded");
	if (rule->has_second && !role_has_second(rule->role))
		return rules_add_note(rules, rule->line, "the second endpoint is not looked at in this role");
	ports_apart.any_port = true;
	if (rule->transport == TRANSPORT_XTS && !rule_endpoint_is_loopback(&rule->first) &&
	    rule_endpoint_within(&loopback, &ports_apart))
		return rules_add_note(rules, rule->line, "takes loopback as well, away from this host; xlio in place of xts would not");
	return 0;
}

int xts_rules_take_notes(struct xts_rules *rules)
{
	bool hidden = false;
	int r = 0;

	for (const struct xts_rule_group *group = rules->first; group && !r; group = group->next) {
		if (hidden)
			r = rules_add_note(rules, group->line, "never applies: a group above is for every program");
		hidden = hidden || (!strcmp(group->program, "*") && !strcmp(group->id, "*"));
		for (const struct rule *rule = group->first; rule && !r; rule = rule->next)
			r = note_rule(rules, group, rule);
	}
	return r;
}
