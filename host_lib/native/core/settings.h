/* Settings of a stack: xts_configure(), else the environment and the file of settings as they were when the library was
 * loaded, else defaults. */
#ifndef XTS_SETTINGS_H
#define XTS_SETTINGS_H

#include <stdint.h>

#include "environment_names.h"

#define WINDOW_BYTES_MIN XTS_ENV_MIN_WINDOW_BYTES
#define SPIN_NEVER UINT32_MAX

struct xts_faults;

#define ENDPOINT_BYTES 108       /* of a path to a Unix socket, terminated */
#define STACKS_MAX 1024u         /* of a process */
#define STACKS_THREAD UINT32_MAX /* of struct settings: one for each thread */

struct settings {
	char endpoint[ENDPOINT_BYTES];
	char queue[128];
	char pcap[256];
	char faults[256];
	uint32_t spin_us, window_bytes, window_bytes_max, frame_window, dead_ms;
	uint32_t stacks; /* threads are spread over so many, or STACKS_THREAD; 0: not configured */
};

int settings_complete(struct settings *settings);  /* environment and defaults where nothing was configured */
int stacks_parse(const char *text, uint32_t *out); /* process, thread or a number; 0 or -EINVAL */
int faults_parse(const char *text, struct xts_faults *transmit, struct xts_faults *receive);

#endif
