/* The parsed form of a rule file. Shared by rules.c (asking), rules_parse.c and rules_endpoint.c (reading), and
 * rules_note.c. */
#ifndef XTS_RULE_H
#define XTS_RULE_H

#include "rules/rules.h"

enum transport {
	TRANSPORT_OS,
	TRANSPORT_XTS,    /* offloaded, on loopback too */
	TRANSPORT_BYPASS, /* offloaded by a keyword of another library: loopback only if the rule names it */
};

#define PORT_MAX 65535u

/* Where an address of a socket has to lie. */
struct rule_endpoint {
	uint8_t family; /* 4, 6, or 0: any address */
	uint8_t prefix; /* bits */
	uint8_t address[16];
	uint16_t port_first, port_last;
	bool any_port; /* `*`: also a port that is not known yet */
};

struct rule {
	struct rule *next; /* next rule of the group */
	unsigned line, group_line;
	enum transport transport;
	enum xts_role role;
	bool has_second;
	struct rule_endpoint first, second;
	const char *endpoint; /* path of the attach socket, or NULL */
};

struct rule_default {
	unsigned line; /* 0: not given */
	unsigned group_line;
	bool offload;
};

struct xts_rule_group {
	struct xts_rule_group *next;
	const struct xts_rules *rules;
	char *program, *id;
	char *user, *cgroup; /* NULL: any */
	unsigned line;       /* line of its application-id; 0: the rules before any */
	struct rule *first, *last;
	struct rule_default fallback;
};

struct rule_name { /* name of an endpoint */
	struct rule_name *next;
	char *name, *path;
};

struct rule_note {
	struct rule_note *next;
	unsigned line;
	const char *text;
};

struct xts_rules {
	struct xts_rule_group *first, *last;
	struct xts_rule_group nobody; /* without rules: for a program that no group fits */
	struct rule_default fallback; /* the file's default */
	struct rule_name *names;
	struct rule_note *notes, *last_note;
};

/* A tcp_server rule is asked with the local address, whatever its second endpoint says; tcp_client with both. */
static inline bool role_first_is_local(enum xts_role role)
{
	return role == XTS_ROLE_TCP_SERVER || role == XTS_ROLE_UDP_RECEIVER;
}

static inline bool role_has_second(enum xts_role role)
{
	return role == XTS_ROLE_TCP_CLIENT || role == XTS_ROLE_UDP_CONNECT;
}

static inline bool role_is_tcp(enum xts_role role)
{
	return role == XTS_ROLE_TCP_SERVER || role == XTS_ROLE_TCP_CLIENT;
}

struct scan;

/* Reads one from the text. 0, or -EINVAL with the scan's error filled. */
int rule_endpoint_read(struct scan *scan, struct rule_endpoint *e);
/* Is every address of the rule endpoint inner also in outer? */
bool rule_endpoint_within(const struct rule_endpoint *inner, const struct rule_endpoint *outer);
/* Does the rule name loopback addresses only? */
bool rule_endpoint_is_loopback(const struct rule_endpoint *e);

/* 0 or -ENOMEM. */
int rules_add_note(struct xts_rules *rules, unsigned line, const char *text);

#endif
