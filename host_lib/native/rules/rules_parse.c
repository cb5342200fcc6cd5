/*
 * Reading a rule file. It has one statement per line:
 *
 *     application-id PROGRAM-PATTERN ID [user NAME] [cgroup PATTERN]
 *     use TRANSPORT[@NAME] ROLE ADDRESS:PORTS[:ADDRESS:PORTS]
 *     default os|xts
 *     endpoint NAME PATH
 *     log [destination stderr|syslog|file PATH] [min-level NUMBER]
 *
 * After a fault, reading goes on at the next line, so that all faults are found. Then nothing of the file is kept. A
 * line that is wrong only because of a fault above it is not reported: the name of an endpoint whose path is wrong
 * counts as known, and a `default` below an application-id that cannot be read is not counted as a second one of
 * another group.
 */
#include "rules/rule.h"
#include "rules/rules_scan.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "common/file_text.h"

#define COUNT(array) ((unsigned)(sizeof(array) / sizeof *(array)))
#define FILE_BYTES_MAX (1u << 20)

struct parser {
	struct scan scan;
	struct xts_rules *rules;
	struct xts_rule_group *group; /* the group of the rules that follow; NULL: none named so far */
	unsigned group_line;
	bool group_is_wrong; /* its application-id line could not be read */
};

/* --- statements --------------------------------------------------------------------------------------------------- */

struct conditions {
	struct word user, cgroup; /* empty: not given */
};

static int read_conditions(struct parser *p, struct conditions *out)
{
	static const char *const words[] = { "user", "cgroup" };
	static const char *const what[] = { "the name or number of a user", "a pattern for the path of a cgroup" };
	struct word *const kept[] = { &out->user, &out->cgroup };

	while (!scan_at_line_end(&p->scan)) {
		struct word keyword = scan_peek(&p->scan);
		unsigned index = 0;
		int r = scan_keyword(&p->scan, words, COUNT(words), "user, cgroup or the end of the line", &index);

		if (r)
			return r;
		if (kept[index]->text)
			return scan_fail_at(&p->scan, keyword.text, keyword.bytes, "each condition once", NULL);
		if (scan_at_line_end(&p->scan))
			return scan_fail(&p->scan, what[index]);
		*kept[index] = scan_peek_raw(&p->scan);
		p->scan.at += kept[index]->bytes;
	}
	return 0;
}

static bool is_condition(struct word word, const char *text)
{
	return text ? word.text && word_is(word, text) : !word.text;
}

static int keep_condition(char **out, struct word word)
{
	*out = word.text ? strndup(word.text, word.bytes) : NULL;
	return *out || !word.text ? 0 : -ENOMEM;
}

static int read_application(struct parser *p)
{
	struct xts_rule_group *group;
	struct word program = scan_peek_raw(&p->scan), id;
	struct conditions conditions = { 0 };
	int r;

	p->group_is_wrong = true;
	if (scan_at_line_end(&p->scan))
		return scan_fail(&p->scan, "a program's name or pattern");
	p->scan.at += program.bytes;
	id = scan_peek_raw(&p->scan);
	if (scan_at_line_end(&p->scan))
		return scan_fail(&p->scan, "an id, or * for any");
	p->scan.at += id.bytes;
	r = read_conditions(p, &conditions);
	if (r)
		return r;
	p->group_is_wrong = false;
	p->group_line = p->scan.line;
	for (group = p->rules->first; group; group = group->next) {
		if (word_is(program, group->program) && word_is(id, group->id) &&
		    is_condition(conditions.user, group->user) && is_condition(conditions.cgroup, group->cgroup)) {
			p->group = group;
			return 0;
		}
	}
	group = calloc(1, sizeof *group);
	if (!group)
		return -ENOMEM;
	*(p->rules->last ? &p->rules->last->next : &p->rules->first) = group;
	p->rules->last = p->group = group;
	group->rules = p->rules;
	group->line = p->scan.line;
	group->program = strndup(program.text, program.bytes);
	group->id = strndup(id.text, id.bytes);
	r = keep_condition(&group->user, conditions.user);
	if (!r)
		r = keep_condition(&group->cgroup, conditions.cgroup);
	return group->program && group->id ? r : -ENOMEM;
}

static const struct rule_name *find_name(const struct xts_rules *rules, struct word word)
{
	for (const struct rule_name *name = rules->names; name; name = name->next)
		if (word_is(word, name->name))
			return name;
	return NULL;
}

static int read_transport(struct parser *p, struct rule *rule)
{
	static const char *const words[] = { "os", "xts", "xlio", "vma", "sdp", "sa", "*" };
	static const char expected[] = "a transport (xts, xts@NAME, xlio, vma, os, *)";
	struct word word = scan_peek(&p->scan), name = { 0 };
	const char *at = memchr(word.text, '@', word.bytes);
	const struct rule_name *known;
	struct scan whole = p->scan;
	unsigned index = 0;

	if (at) {
		name = (struct word){ at + 1, word.bytes - (size_t)(at + 1 - word.text) };
		word.bytes = (size_t)(at - word.text);
		if (!word_is(word, "xts"))
			return scan_fail_at(&whole, word.text, word.bytes + 1 + name.bytes, "xts before @NAME", NULL);
		p->scan.at = name.text + name.bytes;
		known = find_name(p->rules, name);
		rule->transport = TRANSPORT_XTS;
		if (!known)
			return scan_fail_at(&p->scan, name.text, name.bytes,
					    "a name that an `endpoint NAME PATH` line above has given", NULL);
		rule->endpoint = known->path;
		return 0;
	}
	if (scan_keyword(&p->scan, words, COUNT(words), expected, &index))
		return -EINVAL;
	rule->transport = index == 0 ? TRANSPORT_OS : index == 1 ? TRANSPORT_XTS : TRANSPORT_BYPASS;
	return 0;
}

static int read_use(struct parser *p)
{
	static const char *const roles[] = { "tcp_server", "tcp_client", "udp_sender", "udp_receiver", "udp_connect" };
	struct rule rule = { .line = p->scan.line, .group_line = p->group_line }, *kept;
	unsigned role = 0;
	int r;

	r = read_transport(p, &rule);
	if (!r)
		r = scan_keyword(&p->scan, roles, COUNT(roles),
				 "a role (tcp_server, tcp_client, udp_sender, udp_receiver, udp_connect)", &role);
	if (!r)
		r = rule_endpoint_read(&p->scan, &rule.first);
	if (!r && scan_take(&p->scan, ':')) {
		rule.has_second = true;
		r = rule_endpoint_read(&p->scan, &rule.second);
	}
	if (!r && !scan_at_line_end(&p->scan))
		r = scan_fail(&p->scan, rule.has_second ? "the end of the line" :
							  "the end of the line, or ':' and a second endpoint");
	if (r)
		return r;
	if (!p->group) { /* rules before any application-id apply to every program */
		struct scan all = { .at = "* *", .line = 0, .error = p->scan.error }, here = p->scan;

		all.end = all.at + 3;
		p->scan = all;
		r = read_application(p);
		p->scan = here;
		if (r)
			return r;
	}
	rule.role = (enum xts_role)role;
	kept = malloc(sizeof *kept);
	if (!kept)
		return -ENOMEM;
	*kept = rule;
	*(p->group->last ? &p->group->last->next : &p->group->first) = kept;
	p->group->last = kept;
	return 0;
}

static int read_default(struct parser *p)
{
	static const char *const words[] = { "os", "xts" };
	struct rule_default *fallback = p->group_line ? &p->group->fallback : &p->rules->fallback;
	struct word word = scan_peek(&p->scan);
	char expected[80];
	unsigned index = 0;

	if (fallback->line && !p->group_is_wrong) {
		snprintf(expected, sizeof expected, "one `default` here, and line %u has it", fallback->line);
		return scan_fail_at(&p->scan, word.text, word.bytes, expected, NULL);
	}
	if (scan_keyword(&p->scan, words, COUNT(words), "os or xts", &index))
		return -EINVAL;
	*fallback = (struct rule_default){ p->scan.line, p->group_line, index == 1 };
	return 0;
}

static int read_name(struct parser *p)
{
	struct word name = scan_peek(&p->scan), path;
	struct rule_name *kept;

	if (!name.bytes || memchr(name.text, '@', name.bytes) || memchr(name.text, ':', name.bytes))
		return scan_fail(&p->scan, "a name without '@' and ':'");
	if (find_name(p->rules, name))
		return scan_fail(&p->scan, "a name that no line above has given");
	kept = calloc(1, sizeof *kept);
	if (!kept)
		return -ENOMEM;
	kept->next = p->rules->names;
	p->rules->names = kept;
	kept->name = strndup(name.text, name.bytes);
	if (!kept->name)
		return -ENOMEM;
	p->scan.at += name.bytes;
	path = scan_peek_raw(&p->scan);
	if (scan_at_line_end(&p->scan) || path.text[0] != '/')
		return scan_fail(&p->scan, "the absolute path of an attach socket");
	if (path.bytes >= sizeof((struct sockaddr_un *)0)->sun_path)
		return scan_fail_at(&p->scan, path.text, path.bytes, "a path of at most 107 bytes", NULL);
	p->scan.at += path.bytes;
	kept->path = strndup(path.text, path.bytes);
	return kept->path ? 0 : -ENOMEM;
}

/* The log statement of libvma: accepted, so that its files can be read, but without effect. */
static int read_log(struct parser *p)
{
	static const char *const parts[] = { "destination", "min-level" };
	static const char *const places[] = { "stderr", "ystderr", "syslog", "file", "yfile" };
	unsigned part, place, level;
	int r = 0;

	while (!r && !scan_at_line_end(&p->scan)) {
		part = place = 0;
		r = scan_keyword(&p->scan, parts, COUNT(parts), "destination or min-level", &part);
		if (r)
			break;
		if (part == 1) {
			r = scan_number(&p->scan, 0, 999, "a level", &level);
			continue;
		}
		r = scan_keyword(&p->scan, places, COUNT(places), "stderr, syslog or file", &place);
		if (r || place < 3)
			continue;
		if (scan_at_line_end(&p->scan))
			r = scan_fail(&p->scan, "a file's name");
		else
			p->scan.at += scan_peek_raw(&p->scan).bytes;
	}
	return r ? r : rules_add_note(p->rules, p->scan.line, "log statements are accepted and have no effect");
}

static int read_statement(struct parser *p)
{
	static const char *const words[] = { "application-id", "use", "default", "endpoint", "log" };
	static int (*const readers[])(struct parser *) = { read_application, read_use, read_default, read_name,
							   read_log };
	unsigned index = 0;
	int r;

	r = scan_keyword(&p->scan, words, COUNT(words), "a statement (application-id, use, default, endpoint, log)",
			 &index);
	if (!r)
		r = readers[index](p);
	if (!r && !scan_at_line_end(&p->scan))
		r = scan_fail(&p->scan, "the end of the line");
	return r;
}

static int read_lines(struct parser *p, struct xts_rules_errors *errors)
{
	struct xts_rules_error not_kept;
	int r;

	do {
		p->scan.error = errors->count < XTS_RULES_ERRORS ? &errors->error[errors->count] : &not_kept;
		r = scan_at_line_end(&p->scan) ? 0 : read_statement(p);
		if (r && r != -EINVAL)
			return r;
		errors->count += r != 0;
	} while (scan_next_line(&p->scan));
	return errors->count ? -EINVAL : 0;
}

int xts_rules_parse(struct xts_rules **out, const char *text, size_t bytes, struct xts_rules_errors *errors)
{
	struct parser p = { .scan = { .at = text, .end = text + bytes, .line_start = text, .line = 1 } };
	int r;

	memset(errors, 0, sizeof *errors);
	p.rules = calloc(1, sizeof *p.rules);
	if (!p.rules)
		return -ENOMEM;
	p.rules->nobody.rules = p.rules;
	r = read_lines(&p, errors);
	if (r) {
		xts_rules_free(p.rules);
		return r;
	}
	*out = p.rules;
	return 0;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static int refuse_file(struct xts_rules_errors *errors, const char *expected)
{
	errors->count = 1;
	errors->error[0] = (struct xts_rules_error){ .line = 1, .column = 1 };
	snprintf(errors->error[0].text, sizeof errors->error[0].text, "expected %s", expected);
	return -EINVAL;
}

int xts_rules_read(struct xts_rules **out, const char *path, struct xts_rules_errors *errors)
{
	struct xts_file_text file;
	int r = xts_file_text_read(&file, path, FILE_BYTES_MAX);

	memset(errors, 0, sizeof *errors);
	if (r == -EFBIG)
		return refuse_file(errors, "a regular file of at most 1 MiB");
	if (r == -EAGAIN)
		return refuse_file(errors, "a file that nobody writes while it is read");
	if (!r)
		r = xts_rules_parse(out, file.text, file.bytes, errors);
	free(file.text);
	return r;
}
