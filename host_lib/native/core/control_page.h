/*
 * The settings that a process shows, and the requests that `xts` writes for it: a memfd named "xts-control", found in
 * /proc/PID/fd. It is made with the first attachment or decision about a socket; a program without sockets has none. A
 * user who may open it there may also trace the process, and so could do more than this page allows. The process reads
 * only numbers from it, each of them once.
 *
 * A child has a page of its own, from its first decision on, and takes over the requests that its parent had been sent.
 *
 * Numbers that another process writes or waits for are accessed through __atomic builtins.
 *
 * A new log level takes effect at once. Rules are read again by the next decision about a socket: a process has no
 * thread of the library's that could do it earlier, and nothing depends on rules until then.
 */
#ifndef XTS_CONTROL_PAGE_H
#define XTS_CONTROL_PAGE_H

#include <stdint.h>

#define XTS_CONTROL_NAME "xts-control"
#define XTS_CONTROL_MAGIC 0x58545355u /* "XTSU" */
#define XTS_CONTROL_VERSION 1u
#define XTS_CONTROL_SETTINGS_BYTES 12288u

struct xts_control_page {
	uint32_t magic, version, pid;
	uint32_t log_level; /* the level of the settings: enum xts_log_level */
	char program[32];
	/* Written by `xts`. */
	uint32_t log_asked;   /* 1 + the level; 0: the level of the settings */
	uint32_t rules_asked; /* a counter: how many times the rules shall have been read again */
	/* Answers. */
	uint32_t rules_done;  /* the last such number that has been carried out */
	int32_t rules_error;  /* its result: 0, or an errno, and the rules are unchanged */
	char rules_text[256]; /* with an error: a description */
	/* One line for each setting: NAME, value, origin (enum xts_origin) and place, separated by tabs; ends with a
	 * zero. */
	uint32_t settings_writes; /* odd while they are being written */
	char settings[XTS_CONTROL_SETTINGS_BYTES];
};

#pragma GCC visibility push(default)

void xts_control_start(void); /* makes the page, once; does nothing if there is no descriptor for it */

/* The number of the request to read the rules again; 0: there is none. Cheap. */
uint32_t xts_control_rules_asked(void);
void xts_control_rules_done(uint32_t number, int error, const char *text);

#pragma GCC visibility pop

void control_settings_changed(void);
void control_after_fork(void); /* in a child: the page belongs to the parent */
void control_orphaned(void);   /* the same in a child that nobody has expected: caller.h */

#endif
