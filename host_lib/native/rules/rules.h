/*
 * Transport rules: which sockets of which program are offloaded. The grammar is that of libvma.conf and libxlio.conf,
 * so that those files work unchanged, extended by IPv6, endpoint names and `default`: see RULES.md. There is one parser
 * for the interposer, xts_socket.install() and `xts rules`.
 *
 * A file is accepted as a whole or rejected as a whole.
 *
 * Which rule decides: the first group (application-id line) whose program pattern and id both fit decides alone, as in
 * XLIO; rules before any such line are a group for every program. In that group, the first rule of the socket's role
 * decides that matches in all its parts. If no rule matches, the group's `default` decides, else the file's (before any
 * group), else the built-in one. Groups after the first that fits are never asked.
 *
 * The built-in default, which also holds without a file: TCP is offloaded except on loopback (127.0.0.0/8, ::1, and a
 * peer of 0.0.0.0 or ::, which the kernel takes for itself); a listener on the wildcard address is offloaded. UDP stays
 * with the kernel: a program that has used this host's network for UDP must not lose it because TCP is offloaded. A
 * written `default xts` applies to both.
 *
 * Where the device is this machine (`xts dev`), its loopback is the host's, and loopback addresses are addresses like
 * any other: xts_rules_loopback(). Otherwise:
 *
 * An `xts` rule matches whatever addresses it covers. A rule that offloads by another keyword (xlio, vma, sdp, sa, *)
 * does not match a loopback address unless it names one: those libraries always leave loopback to the kernel.
 */
#ifndef XTS_RULES_H
#define XTS_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#pragma GCC visibility push(default)

struct xts_rules; /* immutable once read: any thread may ask */

enum xts_role {
	XTS_ROLE_TCP_SERVER,
	XTS_ROLE_TCP_CLIENT,
	XTS_ROLE_UDP_SENDER,
	XTS_ROLE_UDP_RECEIVER,
	XTS_ROLE_UDP_CONNECT
};

/* Where an error is, counted from 1, and what was expected instead. */
struct xts_rules_error {
	unsigned line, column;
	char text[256];
};

/* All errors of a file, in order: all are counted, the first ones are kept. A line has at most one. */
#define XTS_RULES_ERRORS 32u
struct xts_rules_errors {
	unsigned count;
	struct xts_rules_error error[XTS_RULES_ERRORS];
};

/* Reads rules. 0, or -errno: -EINVAL with *errors filled for faults in the text, else the errno of open(2) or
 * read(2). */
int xts_rules_read(struct xts_rules **out, const char *path, struct xts_rules_errors *errors);
int xts_rules_parse(struct xts_rules **out, const char *text, size_t bytes, struct xts_rules_errors *errors);
/* The rules that apply without a file: UDP, and TCP to and on loopback addresses stay with the kernel, the rest is
 * offloaded. */
const struct xts_rules *xts_rules_default(void);
void xts_rules_free(struct xts_rules *rules);

/* XTS_LOOPBACK: does this process treat loopback as it does other addresses, in all rules that it asks from now on? */
void xts_rules_loopback(bool as_others);

/* The program for which the rules are asked. */
struct xts_rule_program {
	const char *name;   /* short name, without the path */
	const char *id;     /* XTS_APPLICATION_ID, else XLIO_APPLICATION_ID, else VMA_APPLICATION_ID; NULL: none */
	const char *user;   /* the name of its effective user in /etc/passwd; NULL: not known */
	const char *cgroup; /* its path, as the process sees it; NULL: not known */
	uint32_t uid;
};

/* Picks the group once; the answer stays valid as long as the rules. */
struct xts_rule_group;
const struct xts_rule_group *xts_rules_group(const struct xts_rules *rules, const struct xts_rule_program *program);
/* The same for this process. Its user and cgroup are looked up only if the rules name any. */
const struct xts_rule_group *xts_rules_group_here(const struct xts_rules *rules, const char *name, const char *id);

/* The calling thread's own rules (xts_rules_thread()); NULL: it has none. */
const struct xts_rule_group *xts_rules_of_thread(void);

struct xts_verdict {
	bool offload;
	unsigned line;        /* line of the deciding rule or `default`; 0: neither, the built-in default decided */
	unsigned group_line;  /* line of the application-id above it; 0: before any */
	const char *endpoint; /* path of the attach socket, or NULL: the process's own (XTS_ENDPOINT) */
	const char *why;      /* one sentence; static, or valid as long as the rules */
};
/* local or peer may be NULL: unknown, matches only `*`. An IPv4-mapped IPv6 address is matched as the IPv4 address. */
struct xts_verdict xts_rules_ask(const struct xts_rule_group *group, enum xts_role role, const struct sockaddr *local,
				 const struct sockaddr *peer);
/* Could any socket of this role be offloaded? False: such a socket may be a kernel socket from the start. */
bool xts_rules_may_offload(const struct xts_rule_group *group, enum xts_role role);
/* Do they name the endpoint of this path? */
bool xts_rules_name_endpoint(const struct xts_rule_group *group, const char *path);

/* --- for `xts rules`: how a decision came about ------------------------------------------------------------------- */

/* The n-th group of the file, in order: *why is NULL if it fits the program, else the reason why not. False: no such
 * group. */
bool xts_rules_try_group(const struct xts_rules *rules, unsigned n, const struct xts_rule_program *program,
			 unsigned *line, const char **why);
/* The same for the n-th rule of the group, of any role. */
bool xts_rules_try(const struct xts_rule_group *group, unsigned n, enum xts_role role, const struct sockaddr *local,
		   const struct sockaddr *peer, unsigned *line, const char **why);
/* Looks for statements of the file that have no effect, or that match more than may be meant. To be called once, before
 * any other thread has the rules, since it takes time. 0 or -ENOMEM. */
int xts_rules_take_notes(struct xts_rules *rules);
/* The n-th note. False: no such note. */
bool xts_rules_note(const struct xts_rules *rules, unsigned n, unsigned *line, const char **text);

#pragma GCC visibility pop

#endif
