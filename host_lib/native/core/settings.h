/* Settings of a stack: xts_configure(), else the environment as it was when the library was loaded, else defaults. */
#ifndef XTS_SETTINGS_H
#define XTS_SETTINGS_H

#include <stdint.h>

#include "environment_names.h"

#define WINDOW_BYTES_MIN XTS_ENV_MIN_WINDOW_BYTES
#define SPIN_NEVER UINT32_MAX

struct xts_faults;

struct settings {
	char endpoint[108];
	char queue[128];
	char pcap[256];
	char faults[256];
	uint32_t spin_us, window_bytes, window_bytes_max, frame_window, dead_ms;
};

int settings_complete(struct settings *settings); /* environment and defaults where nothing was configured */
int faults_parse(const char *text, struct xts_faults *transmit, struct xts_faults *receive);

#endif
