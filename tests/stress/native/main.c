/*
 * Arguments, threads, the listener, and commands on standard input: "pause", "resume", "report", "stop" (no new
 * connections), "quit". Answers, and the figures of each report, are lines of JSON on standard output.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "net_api.h"
#include "stress.h"

static struct options options = {
	.config = { .seed = 1, .stream_max = 1u << 20, .message_min = 1, .message_max = 65536, .slow_pause_us = 5000 },
	.connections = 32,
	.threads = 1,
	.stall_ms = 15000,
	.reconnect = true,
};
static struct totals totals;
static struct worker *workers;

static const struct option long_options[] = {
	{ "end", 1, NULL, 'e' },
	{ "seed", 1, NULL, 's' },
	{ "connections", 1, NULL, 'n' },
	{ "threads", 1, NULL, 't' },
	{ "stream-max", 1, NULL, 'b' },
	{ "message-min", 1, NULL, 'm' },
	{ "message-max", 1, NULL, 'M' },
	{ "slow-host", 1, NULL, 'h' },
	{ "slow-peer", 1, NULL, 'p' },
	{ "slow-pause-us", 1, NULL, 'u' },
	{ "abort", 1, NULL, 'a' },
	{ "buffer-min", 1, NULL, 'f' },
	{ "buffer-max", 1, NULL, 'F' },
	{ "listen", 1, NULL, 'l' },
	{ "connect", 1, NULL, 'c' },
	{ "stall-ms", 1, NULL, 'w' },
	{ "once", 0, NULL, 'o' },
	{ "host-window", 1, NULL, 'W' },
	{ NULL, 0, NULL, 0 },
};

/* "ADDRESS:PORT" */
static const char *split(char *text, uint16_t *port)
{
	char *colon = strrchr(text, ':');

	if (!colon)
		fail(NULL, 2, "'%s' is not ADDRESS:PORT", text);
	*colon = 0;
	*port = (uint16_t)atoi(colon + 1);
	return text;
}

static void parse(int argc, char **argv)
{
	struct config *c = &options.config;

	for (int option; (option = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
		uint64_t number = optarg ? strtoull(optarg, NULL, 10) : 0;

		switch (option) {
		case 'e':
			options.end = strcmp(optarg, "host") ? PEER : HOST;
			break;
		case 's':
			c->seed = number;
			break;
		case 'n':
			options.connections = (uint32_t)number;
			break;
		case 't':
			options.threads = (uint32_t)number;
			break;
		case 'b':
			c->stream_max = number;
			break;
		case 'm':
			c->message_min = (uint32_t)number;
			break;
		case 'M':
			c->message_max = (uint32_t)number;
			break;
		case 'h':
			c->slow_share[HOST] = (uint32_t)number;
			break;
		case 'p':
			c->slow_share[PEER] = (uint32_t)number;
			break;
		case 'u':
			c->slow_pause_us = (uint32_t)number;
			break;
		case 'a':
			c->abort_share = (uint32_t)number;
			break;
		case 'f':
			c->buffer_min = (uint32_t)number;
			break;
		case 'F':
			c->buffer_max = (uint32_t)number;
			break;
		case 'W':
			c->host_window = (uint32_t)number;
			break;
		case 'l':
			options.listen_address = split(optarg, &options.listen_port);
			break;
		case 'c':
			options.connect_address = split(optarg, &options.connect_port);
			break;
		case 'w':
			options.stall_ms = (uint32_t)number;
			break;
		case 'o':
			options.reconnect = false;
			break;
		default:
			fail(NULL, 2, "see ./tests/stress/run --help");
		}
	}
	if (!options.threads || !c->message_min || c->message_min > c->message_max || !c->stream_max ||
	    !options.listen_address || (options.connections && !options.connect_address))
		fail(NULL, 2, "arguments out of range or missing: see ./tests/stress/run --help");
}

static int start_listening(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(options.listen_port) };
	int s = net_api.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), one = 1;

	if (s < 0)
		fail(NULL, 1, "socket: %s", strerror(errno));
	inet_pton(AF_INET, options.listen_address, &at.sin_addr);
	if (net_api.setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	    net_api.bind(s, (struct sockaddr *)&at, sizeof(at)) || net_api.listen(s, 1024))
		fail(NULL, 1, "listening on %s:%u: %s", options.listen_address, options.listen_port, strerror(errno));
	return s;
}

/* Accepts for all, and hands over in turn. */
static void *accept_run(void *listener)
{
	struct epoll_event event = { .events = EPOLLIN };
	void *set = net_api.set_create();
	unsigned turn = 0;
	int s = *(int *)listener;

	if (!set || net_api.set_ctl(set, EPOLL_CTL_ADD, s, &event))
		fail(NULL, 1, "epoll set of the listener: %s", strerror(errno));
	for (;;) {
		struct worker *w = &workers[turn % options.threads];
		int accepted;

		pthread_mutex_lock(&w->inbox_lock);
		accepted = w->inbox_used == sizeof(w->inbox) / sizeof(w->inbox[0]) ?
				   -2 :
				   net_api.accept4(s, NULL, NULL, SOCK_NONBLOCK);
		if (accepted >= 0)
			w->inbox[w->inbox_used++] = accepted;
		pthread_mutex_unlock(&w->inbox_lock);
		turn++;
		if (accepted == -1 && errno != EAGAIN && errno != ECONNABORTED && errno != EINTR)
			fail(NULL, 1, "accept: %s", strerror(errno));
		if (accepted < 0)
			net_api.set_wait(set, &event, 1, 100);
	}
	return NULL;
}

static void start_workers(void)
{
	uint32_t share = options.connections / options.threads, rest = options.connections % options.threads, slot = 0;

	workers = calloc(options.threads, sizeof(*workers));
	if (!workers)
		fail(NULL, 1, "out of memory");
	for (unsigned i = 0; i < options.threads; i++) {
		struct worker *w = &workers[i];

		w->options = &options;
		w->totals = &totals;
		w->number = i;
		w->slot_first = slot;
		slot += share + (i < rest);
		w->slot_end = slot;
		w->generation = calloc(w->slot_end - w->slot_first + 1, sizeof(*w->generation));
		w->buffer_bytes = options.config.message_max;
		w->buffer = malloc(w->buffer_bytes);
		w->set = net_api.set_create();
		pthread_mutex_init(&w->inbox_lock, NULL);
		if (!w->generation || !w->buffer || !w->set)
			fail(NULL, 1, "setting up a thread: %s", strerror(errno));
	}
	for (unsigned i = 0; i < options.threads; i++)
		if (pthread_create(&workers[i].thread, NULL, worker_run, &workers[i]))
			fail(NULL, 1, "pthread_create");
}

static uint32_t open_now(void)
{
	uint32_t open = 0;

	for (unsigned i = 0; i < options.threads; i++)
		open += atomic_load(&workers[i].now_open);
	return open;
}

static void report(const char *state)
{
	printf("{\"state\": \"%s\", \"open\": %u, \"opened\": %" PRIu64 ", \"accepted\": %" PRIu64
	       ", \"sent_bytes\": %" PRIu64 ", \"received_bytes\": %" PRIu64 ", \"checked_peeks\": %" PRIu64
	       ", \"complete\": %" PRIu64 ", \"aborted\": %" PRIu64 ", \"saw_abort\": %" PRIu64 "}\n",
	       state, open_now(), totals.opened, totals.accepted, totals.sent_bytes, totals.received_bytes,
	       totals.checked_peeks, totals.outcomes[OUTCOME_COMPLETE], totals.outcomes[OUTCOME_ABORTED],
	       totals.outcomes[OUTCOME_SAW_ABORT]);
	fflush(stdout);
}

static void pause_all(void)
{
	struct timespec rest = { .tv_nsec = 1000000 };

	atomic_store(&pausing, true);
	for (unsigned i = 0; i < options.threads; i++)
		while (!atomic_load(&workers[i].paused))
			nanosleep(&rest, NULL);
}

static void obey(void)
{
	char line[32];

	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "pause"))
			pause_all();
		else if (!strcmp(line, "resume"))
			atomic_store(&pausing, false);
		else if (!strcmp(line, "stop"))
			atomic_store(&stopping, true);
		else if (!strcmp(line, "quit"))
			_exit(0);
		report(line);
	}
}

int main(int argc, char **argv)
{
	struct rlimit files;
	pthread_t acceptor;
	int listener;

	parse(argc, argv);
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	signal(SIGPIPE, SIG_IGN);
	listener = start_listening();
	workers = NULL;
	printf("{\"state\": \"listening\"}\n");
	fflush(stdout);
	/* Nobody connects before both ends listen: the first line of input says so. */
	if (getc(stdin) == EOF)
		return 1;
	start_workers();
	if (pthread_create(&acceptor, NULL, accept_run, &listener))
		fail(NULL, 1, "pthread_create");
	obey();
	return 0;
}
