/* Which group of the rules fits this process: looks up its user and its cgroup, if the rules name any. */
#include "rules/rule.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/file_text.h"

#define USER_BYTES 64
#define CGROUP_BYTES 4096
#define PASSWD_BYTES_MAX (4u << 20)

/* Does this line of /etc/passwd belong to the user? */
static bool is_of(const char *line, size_t bytes, uint32_t uid)
{
	const char *password = memchr(line, ':', bytes), *number;
	char text[16];

	if (!password)
		return false;
	number = memchr(password + 1, ':', bytes - (size_t)(password + 1 - line));
	snprintf(text, sizeof text, ":%u:", uid);
	return number && bytes - (size_t)(number - line) >= strlen(text) && !memcmp(number, text, strlen(text));
}

/* Reads only the file: the name services would load libraries, with sockets of their own, while a program starts. */
static const char *find_user(uint32_t uid, char out[USER_BYTES])
{
	struct xts_file_text file;
	const char *found = NULL;

	if (xts_file_text_read(&file, "/etc/passwd", PASSWD_BYTES_MAX))
		return NULL;
	for (const char *line = file.text, *end = file.text + file.bytes; line < end && !found;) {
		const char *newline = memchr(line, '\n', (size_t)(end - line));
		size_t bytes = (size_t)((newline ? newline : end) - line);
		const char *colon = memchr(line, ':', bytes);

		if (colon && colon - line < USER_BYTES && is_of(line, bytes, uid)) {
			snprintf(out, USER_BYTES, "%.*s", (int)(colon - line), line);
			found = out;
		}
		line += bytes + 1;
	}
	free(file.text);
	return found;
}

/* The cgroup of version 2, "0::PATH"; NULL: the kernel has none. */
static const char *find_cgroup(char out[CGROUP_BYTES])
{
	int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	char *line = out;
	ssize_t n;

	if (fd < 0)
		return NULL;
	n = read(fd, out, CGROUP_BYTES - 1);
	close(fd);
	if (n <= 0)
		return NULL;
	out[n] = 0;
	while (line && strncmp(line, "0::", 3) != 0) {
		line = strchr(line, '\n');
		line = line ? line + 1 : NULL;
	}
	if (!line)
		return NULL;
	line[strcspn(line, "\n")] = 0;
	return line + 3;
}

const struct xts_rule_group *xts_rules_group_here(const struct xts_rules *rules, const char *name, const char *id)
{
	struct xts_rule_program program = { .name = name, .id = id, .uid = geteuid() };
	char user[USER_BYTES], cgroup[CGROUP_BYTES];

	for (const struct xts_rule_group *group = rules->first; group; group = group->next) {
		if (group->user && !program.user)
			program.user = find_user(program.uid, user);
		if (group->cgroup && !program.cgroup)
			program.cgroup = find_cgroup(cgroup);
	}
	return xts_rules_group(rules, &program);
}
