/*
 * The application under measurement: one workload on kernel sockets or on libxts, one line of JSON on standard output.
 * It pins itself to the core given, before the library makes threads of its own.
 */
#include <errno.h>
#include <getopt.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "measure.h"
#include "net_api.h"

static const struct {
	const char *name;
	void (*run)(const struct options *o);
} workloads[] = {
	{ "send", bulk_send },
	{ "receive", bulk_receive },
	{ "check", bulk_check },
	{ "request", requests_one },
	{ "requests", requests_many },
	{ "requests-at-rate", requests_at_rate },
	{ "connect", connects },
	{ "idle", idle },
	{ "accept", accepts },
	{ "nvme-digest", nvme_with_digests },
	{ "nvme-plain", nvme_without },
	{ "processes-request", processes_request },
	{ "threads-request", threads_request },
	{ "threads-send", threads_send },
	{ "udp-request", datagrams_request },
	{ "udp-send", datagrams_send },
	{ "udp-receive", datagrams_receive },
	{ "udp-lossless", datagrams_lossless },
	{ "udp-group", datagrams_group },
	{ "udp-names", names },
};

static void usage(void)
{
	fprintf(stderr,
		"usage: client WORKLOAD --address A --port P [--seconds S] [--warmup S] [--connections N] "
		"[--spin US] [--request-bytes N] [--check-bytes N] [--batch N] [--segments N] [--rate N] "
		"[--interface A] [--groups N] [--watch NAME=PID,...] [--core N]\nexample: client send --address 198.18.0.2 --port 9001\n");
	exit(2);
}

static void pin(size_t core)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(core, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

/* Reads the arguments into o, which has the defaults. */
static void read_options(struct options *o, int argc, char **argv)
{
	static const struct option long_options[] = {
		{ "address", 1, NULL, 'a' },     { "port", 1, NULL, 'p' },
		{ "seconds", 1, NULL, 's' },     { "warmup", 1, NULL, 'w' },
		{ "connections", 1, NULL, 'n' }, { "spin", 1, NULL, 'u' },
		{ "check-bytes", 1, NULL, 'b' }, { "request-bytes", 1, NULL, 'r' },
		{ "core", 1, NULL, 'c' },        { "batch", 1, NULL, 'm' },
		{ "segments", 1, NULL, 'g' },    { "rate", 1, NULL, 'f' },
		{ "interface", 1, NULL, 'i' },   { "groups", 1, NULL, 'G' },
		{ "watch", 1, NULL, 'W' },       { NULL, 0, NULL, 0 },
	};
	int option;

	while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (option) {
		case 'a':
			o->address = optarg;
			break;
		case 'p':
			o->port = (uint16_t)atoi(optarg);
			break;
		case 's':
			o->seconds = atof(optarg);
			break;
		case 'w':
			o->warmup_s = atof(optarg);
			break;
		case 'n':
			o->connections = (uint32_t)atoi(optarg);
			break;
		case 'u':
			o->spin_us = (uint32_t)atoi(optarg);
			break;
		case 'r':
			o->request_bytes = (uint32_t)atoi(optarg);
			break;
		case 'b':
			o->check_bytes = strtoull(optarg, NULL, 10);
			break;
		case 'm':
			o->batch = (uint32_t)atoi(optarg);
			break;
		case 'g':
			o->segments = (uint32_t)atoi(optarg);
			break;
		case 'i':
			o->interface = optarg;
			break;
		case 'G':
			o->groups = (uint32_t)atoi(optarg);
			break;
		case 'W':
			watch_program(optarg);
			break;
		case 'f':
			o->rate = (uint32_t)atoi(optarg);
			break;
		case 'c':
			pin((size_t)atoi(optarg));
			break;
		default:
			usage();
		}
	}
	if (optind + 1 != argc || !o->address || !o->port || !o->connections || o->request_bytes < sizeof(uint64_t) ||
	    o->request_bytes > REQUEST_BYTES_MAX || !o->batch || !o->segments)
		usage();
	o->workload = argv[optind];
}

int main(int argc, char **argv)
{
	struct options o = { .seconds = 1,
			     .warmup_s = 0.3,
			     .connections = 32,
			     .check_bytes = 32u << 20,
			     .request_bytes = REQUEST_BYTES,
			     .interface = "0.0.0.0",
			     .batch = 1,
			     .segments = 1 };
	struct rlimit files;

	read_options(&o, argc, argv);
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (net_api.setup(o.spin_us))
		die("setting up");
	for (size_t i = 0; i < sizeof(workloads) / sizeof(workloads[0]); i++) {
		if (strcmp(workloads[i].name, o.workload))
			continue;
		workloads[i].run(&o);
		return 0;
	}
	usage();
}
