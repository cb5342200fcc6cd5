/*
 * What a process under the interposer publishes about itself: a sealed memfd named "xts-preload", which `xts status`
 * finds in /proc/PID/fd without asking the process. It is read without locks while it is written: readers check every
 * field, and may see an entry that is half written.
 */
#ifndef XTS_PRELOAD_PROCESS_PAGE_H
#define XTS_PRELOAD_PROCESS_PAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "descriptor_table.h"
#include "wire/wire.h"

#define XTS_REPORT_NAME "xts-preload"
#define XTS_REPORT_MAGIC 0x58545352u /* "XTSR" */
#define XTS_REPORT_VERSION 4u
#define XTS_REPORT_ENTRIES 4096u /* higher descriptors are only counted */
#define XTS_REPORT_REASONS 32u

struct xts_report_entry { /* indexed by descriptor number */
	uint8_t kind;     /* enum descriptor_kind; 0: free */
	uint8_t flags;
	uint16_t reason;    /* enum xts_reason */
	uint32_t rule_line; /* line of the rule that decided; 0: none */
	int32_t number;     /* number of the XTS socket */
	uint32_t reserved;
	struct xts_endpoint local, peer; /* as known at the time of the decision; host byte order */
};

struct xts_report_page {
	uint32_t magic, version, entries, pid;
	char program[32];
	char rules[256]; /* path of the rules in force; empty: the default rules */
	uint32_t strict, reserved;
	uint64_t offloaded;                  /* number of sockets since the start */
	uint64_t unseen;                     /* system calls that bypassed the interposer and were refused */
	uint64_t stayed[XTS_REPORT_REASONS]; /* number of sockets since the start, by reason */
	char endpoint[112];                  /* path of the agent's or proxy's attach socket */
	/* why the process could not attach, the last time that this kept a socket with the kernel */
	char attach_error[256];
	struct xts_report_entry entry[XTS_REPORT_ENTRIES];
};

/* --- the process's own page: process_page.c ----------------------------------------------------------------------------- */

struct sockaddr;

/* The program's name and the path of its rules (NULL: the default), to be called once. */
void report_begin(const char *name, const char *path);
const char *report_program(void);
void report_attach_error(const char *text);
void report_start(void); /* makes the page, once */
void report_descriptor(int fd, struct descriptor d);
/* The decision about fd: the rule's line (0: none) and the addresses on which it is based (NULL: unknown). */
void report_decision(int fd, unsigned rule_line, const struct sockaddr *local, const struct sockaddr *peer);
/* copy is a duplicate of fd. */
void report_duplicate(int fd, int copy);
/* fd was accepted from listener, and gets the rule of that. NULL: the address is the listener's; unknown. */
void report_accepted(int fd, int listener, const struct sockaddr *local, const struct sockaddr *peer);
bool report_made(void);                 /* has the process had an IP socket? */
void report_endpoint(const char *path); /* the process is attached, or will attach, here */
/* The known addresses of fd, as "to ADDRESS:PORT" or "at ADDRESS:PORT"; else empty. */
void report_where(int fd, char *out, size_t room);
/* Is there an entry for fd? */
bool report_wants(int fd);
void report_counters(void);

#endif
