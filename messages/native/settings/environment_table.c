/* Generated from xts_messages/settings/environment.py and profiles.py by `python -m xts_messages.generate`. */
#include "settings/environment.h"

const struct xts_variable_entry xts_variables[XTS_ENV_COUNT] = {
	[XTS_ENV_ENDPOINT] = {
		.name = "XTS_ENDPOINT",
		.kind = XTS_VARIABLE_PATH,
		.allowed = "a path of at most 107 bytes",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "endpoint",
		.fallback = "/run/xts/endpoint.sock",
		.minimum = 0u,
		.maximum = 107u,
	},
	[XTS_ENV_CONFIG] = {
		.name = "XTS_CONFIG",
		.kind = XTS_VARIABLE_PATH,
		.allowed = "a path of at most 4095 bytes",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = NULL,
		.fallback = "/etc/xts/xts.toml",
		.minimum = 0u,
		.maximum = 4095u,
	},
	[XTS_ENV_PROFILE] = {
		.name = "XTS_PROFILE",
		.kind = XTS_VARIABLE_CHOICE,
		.allowed = "low-latency or throughput or low-cpu",
		.aliases = "",
		.choices = "low-latency\0" "throughput\0" "low-cpu\0",
		.prefix = "",
		.key = "profile",
		.fallback = "",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_QUEUE] = {
		.name = "XTS_QUEUE",
		.kind = XTS_VARIABLE_TEXT,
		.allowed = "shm:PATH (an AF_XDP queue is opened by xts-agent: set XTS_ENDPOINT), at most 111 bytes",
		.aliases = "",
		.choices = "",
		.prefix = "shm:",
		.key = NULL,
		.fallback = "",
		.minimum = 0u,
		.maximum = 111u,
	},
	[XTS_ENV_RULES] = {
		.name = "XTS_RULES",
		.kind = XTS_VARIABLE_PATH,
		.allowed = "a path",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "rules",
		.fallback = "",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_LOOPBACK] = {
		.name = "XTS_LOOPBACK",
		.kind = XTS_VARIABLE_SWITCH,
		.allowed = "0 or 1",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = NULL,
		.fallback = "0",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_STRICT] = {
		.name = "XTS_STRICT",
		.kind = XTS_VARIABLE_SWITCH,
		.allowed = "0 or 1",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "strict",
		.fallback = "0",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_APPLICATION_ID] = {
		.name = "XTS_APPLICATION_ID",
		.kind = XTS_VARIABLE_TEXT,
		.allowed = "a text",
		.aliases = "XLIO_APPLICATION_ID\0" "VMA_APPLICATION_ID\0",
		.choices = "",
		.prefix = "",
		.key = "application_id",
		.fallback = "",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_LOG] = {
		.name = "XTS_LOG",
		.kind = XTS_VARIABLE_CHOICE,
		.allowed = "none or warning or info or debug or 0 or 1",
		.aliases = "",
		.choices = "none\0" "warning\0" "info\0" "debug\0" "0\0" "1\0",
		.prefix = "",
		.key = "log",
		.fallback = "warning",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_QUIET] = {
		.name = "XTS_QUIET",
		.kind = XTS_VARIABLE_SWITCH,
		.allowed = "0 or 1",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "quiet",
		.fallback = "0",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_VERBOSE] = {
		.name = "XTS_VERBOSE",
		.kind = XTS_VARIABLE_SWITCH,
		.allowed = "0 or 1",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "verbose",
		.fallback = "0",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_ROOT_PID] = {
		.name = "XTS_ROOT_PID",
		.kind = XTS_VARIABLE_NUMBER,
		.allowed = "a number from 0 to 4194304 (process id)",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = NULL,
		.fallback = "",
		.minimum = 0u,
		.maximum = 4194304u,
	},
	[XTS_ENV_IO_URING] = {
		.name = "XTS_IO_URING",
		.kind = XTS_VARIABLE_CHOICE,
		.allowed = "refuse or allow",
		.aliases = "",
		.choices = "refuse\0" "allow\0",
		.prefix = "",
		.key = "io_uring",
		.fallback = "refuse",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_SPIN_US] = {
		.name = "XTS_SPIN_US",
		.kind = XTS_VARIABLE_NUMBER,
		.allowed = "a number from 0 to 4294967295 (microseconds)",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "spin_us",
		.fallback = "50",
		.minimum = 0u,
		.maximum = 4294967295u,
	},
	[XTS_ENV_POLLING] = {
		.name = "XTS_POLLING",
		.kind = XTS_VARIABLE_CHOICE,
		.allowed = "adaptive or always",
		.aliases = "",
		.choices = "adaptive\0" "always\0",
		.prefix = "",
		.key = "polling",
		.fallback = "adaptive",
		.minimum = 0u,
		.maximum = 0u,
	},
	[XTS_ENV_WAKEUP_GAP_US] = {
		.name = "XTS_WAKEUP_GAP_US",
		.kind = XTS_VARIABLE_NUMBER,
		.allowed = "a number from 0 to 10000 (microseconds)",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "wakeup_gap_us",
		.fallback = "0",
		.minimum = 0u,
		.maximum = 10000u,
	},
	[XTS_ENV_STACKS] = {
		.name = "XTS_STACKS",
		.kind = XTS_VARIABLE_TEXT,
		.allowed = "process, thread or a number from 1 to 1024, at most 8 bytes",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "stacks",
		.fallback = "process",
		.minimum = 0u,
		.maximum = 8u,
	},
	[XTS_ENV_WINDOW_BYTES] = {
		.name = "XTS_WINDOW_BYTES",
		.kind = XTS_VARIABLE_NUMBER,
		.allowed = "a number from 2 to 1073741824 (bytes)",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "window_bytes",
		.fallback = "65536",
		.minimum = 2u,
		.maximum = 1073741824u,
	},
	[XTS_ENV_WINDOW_BYTES_MAX] = {
		.name = "XTS_WINDOW_BYTES_MAX",
		.kind = XTS_VARIABLE_NUMBER,
		.allowed = "a number from 2 to 1073741824 (bytes)",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "window_bytes_max",
		.fallback = "2097152",
		.minimum = 2u,
		.maximum = 1073741824u,
	},
	[XTS_ENV_FRAME_WINDOW] = {
		.name = "XTS_FRAME_WINDOW",
		.kind = XTS_VARIABLE_NUMBER,
		.allowed = "a number from 4 to 128 (frames)",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "frame_window",
		.fallback = "",
		.minimum = 4u,
		.maximum = 128u,
	},
	[XTS_ENV_DEAD_MS] = {
		.name = "XTS_DEAD_MS",
		.kind = XTS_VARIABLE_NUMBER,
		.allowed = "a number from 500 to 4294967295 (milliseconds)",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = "dead_ms",
		.fallback = "3000",
		.minimum = 500u,
		.maximum = 4294967295u,
	},
	[XTS_ENV_PCAP] = {
		.name = "XTS_PCAP",
		.kind = XTS_VARIABLE_PATH,
		.allowed = "a path of at most 255 bytes",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = NULL,
		.fallback = "",
		.minimum = 0u,
		.maximum = 255u,
	},
	[XTS_ENV_FAULTS] = {
		.name = "XTS_FAULTS",
		.kind = XTS_VARIABLE_TEXT,
		.allowed = "seed=N and drop_ppm, duplicate_ppm, reorder_ppm, corrupt_ppm, truncate_ppm, delay_ppm, repeat_ppm, delay_us or skip_frames=N, separated by commas, at most 255 bytes",
		.aliases = "",
		.choices = "",
		.prefix = "",
		.key = NULL,
		.fallback = "",
		.minimum = 0u,
		.maximum = 255u,
	},
};

const struct xts_profile_entry xts_profiles[XTS_PROFILE_COUNT] = {
	{ .name = "low-latency",
	  .values = {
		[XTS_ENV_SPIN_US] = "1000",
	  } },
	{ .name = "throughput",
	  .values = {
		[XTS_ENV_WINDOW_BYTES] = "1048576",
	  } },
	{ .name = "low-cpu",
	  .values = {
		[XTS_ENV_SPIN_US] = "0",
	  } },
};

const char xts_variable_names[] =
	"XTS_APPLICATION_ID\0"
	"XTS_CASES_SHOW\0"
	"XTS_CONFIG\0"
	"XTS_CONTROL\0"
	"XTS_DEAD_MS\0"
	"XTS_ENDPOINT\0"
	"XTS_FAULTS\0"
	"XTS_FRAME_WINDOW\0"
	"XTS_INHERITED\0"
	"XTS_IO_URING\0"
	"XTS_LAB\0"
	"XTS_LOG\0"
	"XTS_LOOPBACK\0"
	"XTS_PCAP\0"
	"XTS_POLLING\0"
	"XTS_PROFILE\0"
	"XTS_PROGRAMS_KERNEL\0"
	"XTS_QUEUE\0"
	"XTS_QUIET\0"
	"XTS_ROOT_PID\0"
	"XTS_RULES\0"
	"XTS_SEARCH\0"
	"XTS_SPIN_US\0"
	"XTS_STACKS\0"
	"XTS_STRICT\0"
	"XTS_VERBOSE\0"
	"XTS_VM\0"
	"XTS_VM_KERNEL\0"
	"XTS_WAKEUP_GAP_US\0"
	"XTS_WINDOW_BYTES\0"
	"XTS_WINDOW_BYTES_MAX\0"
	;
