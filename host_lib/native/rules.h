/*
 * Transport rules: which sockets of which program are offloaded. The grammar of libvma.conf and libxlio.conf, so that
 * those files work unchanged, with IPv6, endpoint names and `default` added: see RULES.md. One parser for the
 * interposer, xts_socket.install() and `xts rules`.
 *
 * A file is taken as a whole or not at all.
 */
#ifndef XTS_RULES_H
#define XTS_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#pragma GCC visibility push(default)

struct xts_rules; /* immutable once read: any thread may ask */

enum xts_role { XTS_ROLE_TCP_SERVER, XTS_ROLE_TCP_CLIENT, XTS_ROLE_UDP_SENDER, XTS_ROLE_UDP_RECEIVER, XTS_ROLE_UDP_CONNECT };

/* Where an error is, counted from 1, and what was expected instead. */
struct xts_rules_error {
	unsigned line, column;
	char text[256];
};

/* Reads rules. 0, or -errno: -EINVAL with *error filled for a fault in the text, else of open(2), read(2). */
int xts_rules_read(struct xts_rules **out, const char *path, struct xts_rules_error *error);
int xts_rules_parse(struct xts_rules **out, const char *text, size_t bytes, struct xts_rules_error *error);
/* The rules where there is no file: TCP to and on loopback addresses stays with the kernel, the rest is offloaded. */
const struct xts_rules *xts_rules_default(void);
void xts_rules_free(struct xts_rules *rules);

/* The program the rules are asked for: its short name, and its id (XTS_APPLICATION_ID, else XLIO_APPLICATION_ID, else
 * VMA_APPLICATION_ID; NULL: none). Picks the group once; the answer stays valid as long as the rules. */
struct xts_rule_group;
const struct xts_rule_group *xts_rules_group(const struct xts_rules *rules, const char *program, const char *id);

struct xts_verdict {
	bool offload;
	unsigned line;        /* of the deciding rule; 0: no rule matched, the default decided */
	unsigned group_line;  /* of its application-id line; 0: rules before any */
	const char *endpoint; /* path of the attach socket, or NULL: the process's own (XTS_ENDPOINT) */
	const char *why;      /* one sentence, static or of the rules' lifetime */
};
/* local or peer may be NULL: unknown, matches only `*`. An IPv4-mapped IPv6 address is matched as the IPv4 address. */
struct xts_verdict xts_rules_ask(const struct xts_rule_group *group, enum xts_role role, const struct sockaddr *local,
				 const struct sockaddr *peer);
/* Could any socket of this role be offloaded? false: it may be the kernel's from birth. */
bool xts_rules_may_offload(const struct xts_rule_group *group, enum xts_role role);

#pragma GCC visibility pop

#endif
