/*
 * libFuzzer target: the parser of rule files. The input is a file. What is refused must be so with a place in the file
 * and a printable message; what is taken must answer any question, and always the same.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "ensure.h"
#include "rules/rules.h"

static void check_error(const struct xts_rules_error *error, const uint8_t *data, size_t bytes)
{
	size_t line = 1, column = 1, at = 0;

	for (; at < bytes && line < error->line; at++)
		line += data[at] == '\n';
	ENSURE(line == error->line);
	for (; at < bytes && column < error->column && data[at] != '\n'; at++)
		column++;
	ENSURE(column == error->column);
	ENSURE(!strncmp(error->text, "expected ", 9));
	ENSURE(memchr(error->text, 0, sizeof error->text));
	for (const char *c = error->text; *c; c++)
		ENSURE(*c >= ' ' && *c <= '~');
}

static void ask(const struct xts_rule_group *group, const struct sockaddr *local, const struct sockaddr *peer)
{
	unsigned line;
	const char *why;

	for (unsigned role = 0; role <= XTS_ROLE_UDP_CONNECT; role++) {
		struct xts_verdict verdict = xts_rules_ask(group, (enum xts_role)role, local, peer);
		unsigned n = 0;

		ENSURE(verdict.why);
		ENSURE(!verdict.offload || xts_rules_may_offload(group, (enum xts_role)role));
		ENSURE(!verdict.endpoint || verdict.endpoint[0] == '/');
		while (xts_rules_try(group, n, (enum xts_role)role, local, peer, &line, &why) && why)
			n++;
		if (xts_rules_try(group, n, (enum xts_role)role, local, peer, &line, &why))
			ENSURE(line == verdict.line);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_addr.s_addr = 0x0100007f, .sin_port = 0x5000 };
	static const struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
						.sin6_addr.s6_addr = { 0x20, 1 },
						.sin6_port = 0xffff };
	static const struct sockaddr nothing = { .sa_family = AF_UNIX };
	const struct sockaddr *ends[] = { NULL, (const struct sockaddr *)&v4, (const struct sockaddr *)&v6, &nothing };
	static struct xts_rules_errors errors;
	struct xts_rules *rules = NULL;
	char *text = malloc(bytes ? bytes : 1); /* not terminated, for AddressSanitizer */
	unsigned line;
	const char *note;
	static const struct xts_rule_program programs[] = { { .name = "nginx", .user = "root" },
							    { .name = "a", .id = "b", .cgroup = "/a/b", .uid = 7 } };
	int r;

	if (!text)
		return 0;
	memcpy(text, data, bytes);
	r = xts_rules_parse(&rules, text, bytes, &errors);
	free(text); /* nothing of it may be kept */
	if (r) {
		ENSURE(r == -EINVAL);
		ENSURE(errors.count);
		for (unsigned i = 0; i < errors.count && i < XTS_RULES_ERRORS; i++) {
			check_error(&errors.error[i], data, bytes);
			ENSURE(!i || errors.error[i].line > errors.error[i - 1].line);
		}
		return 0;
	}
	ENSURE(!xts_rules_take_notes(rules));
	for (unsigned n = 0; xts_rules_note(rules, n, &line, &note); n++)
		ENSURE(note[0]);
	for (unsigned i = 0; i < 16; i++) {
		ask(xts_rules_group(rules, &programs[0]), ends[i % 4], ends[i / 4]);
		ask(xts_rules_group(rules, &programs[1]), ends[i % 4], ends[i / 4]);
	}
	xts_rules_free(rules);
	return 0;
}
