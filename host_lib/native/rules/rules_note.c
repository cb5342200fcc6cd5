/* Notes about a rule file without errors: statements that have no effect, or that match more than may be meant. */
#include "rules/rule.h"

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

/* Does the earlier rule match everything that the later one does? */
static bool rule_hides(const struct rule *earlier, const struct rule *later)
{
	static const struct rule_endpoint everything = { .any_port = true };

	if (earlier->role != later->role || !rule_endpoint_within(&later->first, &earlier->first))
		return false;
	if (earlier->transport == TRANSPORT_BYPASS && later->transport != TRANSPORT_BYPASS &&
	    !rule_endpoint_is_loopback(&earlier->first))
		return false; /* the earlier rule does not match loopback */
	if (earlier->transport == TRANSPORT_BYPASS && rule_endpoint_is_loopback(&later->first) &&
	    !rule_endpoint_is_loopback(&earlier->first))
		return false;
	if (!earlier->has_second || !role_has_second(earlier->role))
		return true;
	return rule_endpoint_within(later->has_second ? &later->second : &everything, &earlier->second);
}

/* Is this the rule that offloads loopback on its ports, although it does not name loopback? */
static bool rule_takes_loopback(const struct xts_rule_group *group, const struct rule *rule)
{
	struct rule_endpoint loopback = { .family = 4, .prefix = 8, .address = { 127 } };
	const struct rule *earlier = group->first;

	loopback.any_port = rule->first.any_port;
	loopback.port_first = rule->first.port_first;
	loopback.port_last = rule->first.port_last;
	if (rule->transport != TRANSPORT_XTS || rule_endpoint_is_loopback(&rule->first) ||
	    !rule_endpoint_within(&loopback, &rule->first))
		return false;
	while (earlier != rule &&
	       (earlier->role != rule->role || earlier->has_second || !rule_endpoint_within(&loopback, &earlier->first)))
		earlier = earlier->next;
	return earlier == rule;
}

static int note_rule(struct xts_rules *rules, const struct xts_rule_group *group, const struct rule *rule)
{
	const struct rule *earlier = group->first;

	while (earlier != rule && !rule_hides(earlier, rule))
		earlier = earlier->next;
	if (earlier != rule)
		return rules_add_note(rules, rule->line, "never matches: a rule above takes all it could match");
	if (rule->has_second && !role_has_second(rule->role))
		return rules_add_note(rules, rule->line, "the second endpoint is not looked at in this role");
	if (rule_takes_loopback(group, rule))
		return rules_add_note(rules, rule->line,
				      "offloads loopback as well; to keep that with the kernel, "
				      "write an `os` rule for 127.0.0.0/8 above, or xlio in place of xts");
	return 0;
}

int xts_rules_take_notes(struct xts_rules *rules)
{
	bool hidden = false;
	int r = 0;

	for (const struct xts_rule_group *group = rules->first; group && !r; group = group->next) {
		if (hidden)
			r = rules_add_note(rules, group->line, "never applies: a group above is for every program");
		hidden = hidden ||
			 (!strcmp(group->program, "*") && !strcmp(group->id, "*") && !group->user && !group->cgroup);
		for (const struct rule *rule = group->first; rule && !r; rule = rule->next)
			r = note_rule(rules, group, rule);
	}
	return r;
}
