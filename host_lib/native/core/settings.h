/* Settings of a stack: xts_configure(), else the environment and the file of settings as they were when the library was
 * loaded, else defaults. */
#ifndef XTS_SETTINGS_H
#define XTS_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "settings/environment_names.h"

#define WINDOW_BYTES_MIN XTS_ENV_MIN_WINDOW_BYTES
#define SPIN_NEVER UINT32_MAX

struct xts_faults;

#define ENDPOINT_BYTES 108       /* the longest path of a Unix socket, with its end */
#define STACKS_MAX 1024u         /* the most stacks of a process */
#define STACKS_THREAD UINT32_MAX /* for the member stacks: one stack for each thread */

struct settings {
	char endpoint[ENDPOINT_BYTES];
	char queue[128];
	char pcap[256];
	char faults[256];
	uint32_t spin_us, window_bytes, window_bytes_max, frame_window, dead_ms;
	bool polls_always;      /* XTS_POLLING=always: a wait does not sleep while there is a socket (spin.h) */
	uint32_t wakeup_gap_us; /* from a wake-up by the queue to the next one, at least; 0: any */
	uint32_t stacks; /* the number of stacks over which threads are spread, or STACKS_THREAD; 0: not configured */
};

int settings_complete(struct settings *settings);  /* fills in environment and defaults for what was not configured */
int stacks_parse(const char *text, uint32_t *out); /* text: process, thread or a number; 0 or -EINVAL */
int faults_parse(const char *text, struct xts_faults *transmit, struct xts_faults *receive);

#endif
