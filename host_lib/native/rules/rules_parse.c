/*
 * Reading a rule file. One statement a line:
 *
 *     application-id PROGRAM-PATTERN ID
 *     use TRANSPORT[@NAME] ROLE ADDRESS:PORTS[:ADDRESS:PORTS]
 *     default os|xts
 *     endpoint NAME PATH
 *     log [destination stderr|syslog|file PATH] [min-level NUMBER]
 *
 * The first fault ends it, and nothing of the file is kept.
 */
#include "rules/rule.h"
#include "rules/rules_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define COUNT(array) ((unsigned)(sizeof(array) / sizeof *(array)))
#define FILE_BYTES_MAX (1u << 20)

struct parser {
	struct scan scan;
	struct xts_rules *rules;
	struct xts_rule_group *group; /* the rules that follow are its; NULL: none named yet */
	unsigned group_line;
};

/* --- statements --------------------------------------------------------------------------------------------------- */

static int read_application(struct parser *p)
{
	struct xts_rule_group *group;
	struct word program = scan_peek_raw(&p->scan), id;

	if (scan_at_line_end(&p->scan))
		return scan_fail(&p->scan, "a program's name or pattern");
	p->scan.at += program.bytes;
	id = scan_peek_raw(&p->scan);
	if (scan_at_line_end(&p->scan))
		return scan_fail(&p->scan, "an id, or * for any");
	p->scan.at += id.bytes;
	p->group_line = p->scan.line;
	for (group = p->rules->first; group; group = group->next) {
		if (word_is(program, group->program) && word_is(id, group->id)) {
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
	return group->program && group->id ? 0 : -ENOMEM;
}

static const char *find_name(const struct xts_rules *rules, struct word word)
{
	for (const struct rule_name *name = rules->names; name; name = name->next)
		if (word_is(word, name->name))
			return name->path;
	return NULL;
}

static int read_transport(struct parser *p, struct rule *rule)
{
	static const char *const words[] = { "os", "xts", "xlio", "vma", "sdp", "sa", "*" };
	static const char expected[] = "a transport (xts, xts@NAME, xlio, vma, os, *)";
	struct word word = scan_peek(&p->scan), name = { 0 };
	const char *at = memchr(word.text, '@', word.bytes);
	struct scan whole = p->scan;
	unsigned index = 0;

	if (at) {
		name = (struct word){ at + 1, word.bytes - (size_t)(at + 1 - word.text) };
		word.bytes = (size_t)(at - word.text);
		if (!word_is(word, "xts"))
			return scan_fail_at(&whole, word.text, word.bytes + 1 + name.bytes, "xts before @NAME", NULL);
		p->scan.at = name.text + name.bytes;
		rule->endpoint = find_name(p->rules, name);
		rule->transport = TRANSPORT_XTS;
		if (!rule->endpoint)
			return scan_fail_at(&p->scan, name.text, name.bytes,
					    "a name that an `endpoint NAME PATH` line above has given", NULL);
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
	if (!p->group) { /* rules before any application-id are for every program */
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

	if (fallback->line) {
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
	int r = 0;

	if (!name.bytes || memchr(name.text, '@', name.bytes) || memchr(name.text, ':', name.bytes))
		return scan_fail(&p->scan, "a name without '@' and ':'");
	if (find_name(p->rules, name))
		return scan_fail(&p->scan, "a name that no line above has given");
	p->scan.at += name.bytes;
	path = scan_peek_raw(&p->scan);
	if (scan_at_line_end(&p->scan) || path.text[0] != '/')
		return scan_fail(&p->scan, "the absolute path of an attach socket");
	if (path.bytes >= sizeof((struct sockaddr_un *)0)->sun_path)
		return scan_fail_at(&p->scan, path.text, path.bytes, "a path of at most 107 bytes", NULL);
	p->scan.at += path.bytes;
	kept = calloc(1, sizeof *kept);
	if (!kept)
		return -ENOMEM;
	kept->next = p->rules->names;
	p->rules->names = kept;
	kept->name = strndup(name.text, name.bytes);
	kept->path = strndup(path.text, path.bytes);
	if (!kept->name || !kept->path)
		r = -ENOMEM;
	return r;
}

/* Where libvma was to log: read, so that its files are taken, and without effect. */
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

int xts_rules_parse(struct xts_rules **out, const char *text, size_t bytes, struct xts_rules_error *error)
{
	struct parser p = { .scan = { .at = text, .end = text + bytes, .line_start = text, .line = 1, .error = error } };
	int r = 0;

	memset(error, 0, sizeof *error);
	p.rules = calloc(1, sizeof *p.rules);
	if (!p.rules)
		return -ENOMEM;
	p.rules->nobody.rules = p.rules;
	do
		r = scan_at_line_end(&p.scan) ? 0 : read_statement(&p);
	while (!r && scan_next_line(&p.scan));
	if (r) {
		xts_rules_free(p.rules);
		return r;
	}
	*out = p.rules;
	return 0;
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static int read_whole(int fd, char **text, size_t *bytes, struct xts_rules_error *error)
{
	struct stat status;
	ssize_t n;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode) || status.st_size > FILE_BYTES_MAX) {
		*error = (struct xts_rules_error){ .line = 1, .column = 1 };
		strcpy(error->text, "expected a regular file of at most 1 MiB");
		return -EINVAL;
	}
	*text = malloc((size_t)status.st_size + 1);
	if (!*text)
		return -ENOMEM;
	for (*bytes = 0; *bytes < (size_t)status.st_size; *bytes += (size_t)n) {
		n = read(fd, *text + *bytes, (size_t)status.st_size - *bytes);
		if (n < 0)
			return -errno;
		if (!n)
			break;
	}
	return 0;
}

int xts_rules_read(struct xts_rules **out, const char *path, struct xts_rules_error *error)
{
	char *text = NULL;
	size_t bytes = 0;
	int fd, r;

	memset(error, 0, sizeof *error);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for its writer */
	if (fd < 0)
		return -errno;
	r = read_whole(fd, &text, &bytes, error);
	close(fd);
	if (!r)
		r = xts_rules_parse(out, text, bytes, error);
	free(text);
	return r;
}
