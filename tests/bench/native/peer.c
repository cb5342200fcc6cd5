/*
 * The TCP peer in the network: one process, one epoll set, services on consecutive ports from the one given: sink
 * (counts, MSG_TRUNC), source (the pattern for ever), echo, accept and close, checking sink, source again (for the
 * client's check), NVMe/TCP PDUs for ever with digests and without, HTTP/2 frames for ever to who has asked (pdus.h). A
 * sink answers the end of the stream with the bytes it got and the position of the first wrong byte. With certificates
 * given, the same services again over TLS: TLS_SHIFT further for the first, twice that for the second. Behind these
 * accept and close once more for each, with tickets. The last plain service says how many handshakes of these there
 * were, and how many of them have resumed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"
#include "pdus.h"
#include "peer_tls.h"

#define SERVICES 9
#define TLS_SHIFT 300
#define ROUNDS 16 /* calls on one connection before others have their turn */
#define BACKLOG 4096

enum service { SINK, SOURCE, ECHO, CLOSER, CHECKER, SOURCE_TOO, NVME_DIGEST, NVME_PLAIN, HTTP2, OF_COUNTS };

struct conn {
	int s;
	bool listener, handshake, ending, counted;
	SSL_CTX *context; /* of a listener: NULL for plain TCP */
	SSL *ssl;
	enum service service;
	uint64_t position; /* in the stream */
	uint64_t first_wrong;
	bool asked; /* HTTP/2: a request has come */
};

/* What a source sends: the first bytes once, then the others for ever. */
struct stream {
	const uint8_t *data;
	size_t once, bytes;
};

static uint8_t nvme[2][NVME_STREAM_BYTES], http2[HTTP2_STREAM_BYTES];
static struct stream streams[SERVICES + 1];
static uint8_t pattern[PATTERN_BYTES], buffer[PATTERN_BYTES];
static uint64_t counts[2]; /* handshakes of closers with tickets, and those that have resumed */
static int set;

static void watch(struct conn *c, int op)
{
	bool writes = !c->listener && !c->handshake && !c->ending && streams[c->service].bytes &&
		      (c->service != HTTP2 || c->asked);
	struct epoll_event event = { .events = writes ? EPOLLOUT | EPOLLRDHUP : EPOLLIN, .data.ptr = c };

	if (epoll_ctl(set, op, c->s, &event))
		die("epoll_ctl");
}

static ssize_t conn_recv(struct conn *c, void *data, size_t bytes, int flags)
{
	return c->ssl ? tls_recv(c->ssl, data, bytes) : recv(c->s, data, bytes, flags);
}

static ssize_t conn_send(struct conn *c, const void *data, size_t bytes)
{
	return c->ssl ? tls_send(c->ssl, data, bytes) : send(c->s, data, bytes, MSG_NOSIGNAL);
}

static struct conn *listen_on(const char *address, uint16_t port, enum service service, SSL_CTX *context)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct conn *c = calloc(1, sizeof(*c));
	int one = 1;

	if (!c)
		die("memory");
	c->listener = true;
	c->context = context;
	c->service = service;
	c->s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (c->s < 0 || setsockopt(c->s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)))
		die("socket");
	if (inet_pton(AF_INET, address, &at.sin_addr) != 1 || bind(c->s, (struct sockaddr *)&at, sizeof(at)))
		die("bind");
	if (listen(c->s, BACKLOG))
		die("listen");
	watch(c, EPOLL_CTL_ADD);
	return c;
}

static void accept_all(struct conn *listener)
{
	int one = 1;

	for (int s; (s = accept4(listener->s, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
		struct conn *c;

		if (listener->service == OF_COUNTS)
			(void)!send(s, counts, sizeof(counts), MSG_NOSIGNAL);
		if ((listener->service == CLOSER || listener->service == OF_COUNTS) && !listener->context) {
			close(s);
			continue;
		}
		c = calloc(1, sizeof(*c));
		if (!c)
			die("memory");
		*c = (struct conn){
			.s = s, .service = listener->service, .first_wrong = UINT64_MAX, .counted = listener->counted
		};
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (listener->context) {
			c->ssl = tls_accept(listener->context, s);
			c->handshake = true;
		}
		watch(c, EPOLL_CTL_ADD);
	}
}

static void drop(struct conn *c)
{
	SSL_free(c->ssl);
	close(c->s);
	free(c);
}

/* Sends all of it, waiting where it must: only small answers, so the others do not suffer. */
static bool send_all(struct conn *c, const uint8_t *data, size_t bytes)
{
	while (bytes) {
		ssize_t n = conn_send(c, data, bytes);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd p = { .fd = c->s, .events = POLLOUT };

			if (poll(&p, 1, 5000) != 1)
				return false;
			continue;
		}
		if (n < 0)
			return false;
		data += n;
		bytes -= (size_t)n;
	}
	return true;
}

static void serve_sink(struct conn *c)
{
	int flags = c->service == SINK ? MSG_TRUNC : 0;

	for (int round = 0; round < ROUNDS; round++) {
		ssize_t n = conn_recv(c, buffer, sizeof(buffer), flags);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			uint64_t report[2] = { c->position, c->first_wrong };

			if (n == 0)
				send_all(c, (uint8_t *)report, sizeof(report));
			drop(c);
			return;
		}
		if (c->service == CHECKER && c->first_wrong == UINT64_MAX)
			c->first_wrong = pattern_check(pattern, c->position, buffer, (size_t)n);
		c->position += (uint64_t)n;
	}
}

static void serve_source(struct conn *c)
{
	const struct stream *of = &streams[c->service];

	for (int round = 0; round < ROUNDS; round++) {
		size_t at = c->position;
		ssize_t n;

		if (at >= of->once)
			at = of->once + (at - of->once) % (of->bytes - of->once);
		n = conn_send(c, of->data + at, of->bytes - at);
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			drop(c);
			return;
		}
		c->position += (uint64_t)n;
	}
}

/* A request of HTTP/2, which nobody looks at: the answer begins. */
static void serve_request(struct conn *c)
{
	ssize_t n = conn_recv(c, buffer, sizeof(buffer), 0);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0) {
		drop(c);
		return;
	}
	c->asked = true;
	watch(c, EPOLL_CTL_MOD);
}

static void serve_echo(struct conn *c)
{
	ssize_t n = conn_recv(c, buffer, sizeof(buffer), 0);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n <= 0 || !send_all(c, buffer, (size_t)n))
		drop(c);
}

/* Goes on with a handshake. A closer then says goodbye and waits for the client's end, so that no reset overtakes
 * it. */
static void serve_handshake(struct conn *c)
{
	int done = tls_handshake(c->ssl);

	if (done < 0) {
		drop(c);
		return;
	}
	if (!done)
		return;
	c->handshake = false;
	if (c->counted) {
		counts[0]++;
		counts[1] += SSL_session_reused(c->ssl) != 0;
	}
	if (c->service == CLOSER) {
		c->ending = true;
		(void)SSL_shutdown(c->ssl);
		shutdown(c->s, SHUT_WR);
	}
	watch(c, EPOLL_CTL_MOD);
}

static void serve(struct conn *c, uint32_t events)
{
	if (c->listener)
		accept_all(c);
	else if (c->handshake)
		serve_handshake(c);
	else if (c->ending) {
		if (recv(c->s, buffer, sizeof(buffer), 0) <= 0)
			drop(c);
	} else if (c->service == SINK || c->service == CHECKER)
		serve_sink(c);
	else if (c->service == ECHO)
		serve_echo(c);
	else if (c->service == HTTP2 && !c->asked)
		serve_request(c);
	else if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		drop(c);
	else
		serve_source(c);
}

int main(int argc, char **argv)
{
	struct epoll_event events[256];
	struct rlimit files;

	if (argc < 3 || argc > 5) {
		fprintf(stderr, "usage: peer ADDRESS FIRST_PORT [CERTIFICATE_AND_KEY…]\nexample: peer 198.18.0.2 9001\n");
		return 2;
	}
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	signal(SIGPIPE, SIG_IGN);
	pattern_fill(pattern);
	streams[SOURCE] = streams[SOURCE_TOO] = (struct stream){ pattern, 0, sizeof(pattern) };
	for (int digests = 0; digests < 2; digests++) {
		size_t bytes = nvme_stream(nvme[digests], digests);

		streams[digests ? NVME_DIGEST : NVME_PLAIN] = (struct stream){ nvme[digests], 0, bytes };
	}
	streams[HTTP2].bytes = http2_stream(http2, &streams[HTTP2].once);
	streams[HTTP2].data = http2;
	set = epoll_create1(EPOLL_CLOEXEC);
	if (set < 0)
		die("epoll_create1");
	for (int i = 0; i <= OF_COUNTS; i++)
		listen_on(argv[1], (uint16_t)(atoi(argv[2]) + i), (enum service)i, NULL);
	for (int which = 3; which < argc; which++) {
		SSL_CTX *context = tls_server(argv[which], false);
		int first = atoi(argv[2]) + (which - 2) * TLS_SHIFT;

		for (int i = 0; i < SERVICES; i++)
			listen_on(argv[1], (uint16_t)(first + i), (enum service)i, context);
		listen_on(argv[1], (uint16_t)(first + 2 * TLS_SHIFT + CLOSER), CLOSER, tls_server(argv[which], true))
			->counted = true;
	}
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		int n = epoll_wait(set, events, 256, -1);

		for (int i = 0; i < n; i++)
			serve(events[i].data.ptr, events[i].events);
	}
}
