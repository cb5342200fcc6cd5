/*
 * What a process shows of its settings, and what `xts` asks of it: a memfd named "xts-control", found in /proc/PID/fd.
 * It is made with the first attachment or decision about a socket; a program without sockets has none. Who may open it
 * there may trace the process, and so could do more than this: the process believes numbers of it only, read once each.
 *
 * A child has a page of its own, from its first decision on, and goes on with what was asked of its parent.
 *
 * Numbers that another process writes or waits for are read and written by __atomic builtins.
 *
 * A level of the log holds at once. Rules are read again by the next decision about a socket, for a process has no
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
	uint32_t log_level; /* that of the settings: enum xts_log_level */
	char program[32];
	/* Written by `xts`. */
	uint32_t log_asked;   /* 1 more than the level; 0: that of the settings */
	uint32_t rules_asked; /* counts: how often they shall have been read again */
	/* Answers. */
	uint32_t rules_done;  /* the last number that has been done */
	int32_t rules_error;  /* with it: 0, or errno, and the rules are as before */
	char rules_text[256]; /* with an error: what was wrong */
	/* A line a setting: NAME, value, origin (enum xts_origin) and where, with tabs between; ends with a zero. */
	uint32_t settings_writes; /* odd while they are being written */
	char settings[XTS_CONTROL_SETTINGS_BYTES];
};

#pragma GCC visibility push(default)

void xts_control_start(void); /* makes the page, once; without a descriptor for it there is none */

/* The number under which the rules shall be read again; 0: they need not be. Cheap. */
uint32_t xts_control_rules_asked(void);
void xts_control_rules_done(uint32_t number, int error, const char *text);

#pragma GCC visibility pop

void control_settings_changed(void);
void control_after_fork(void); /* in a child: the page is the parent's */

#endif
