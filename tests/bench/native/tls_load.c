/*
 * Clients of a TLS server: so many connections at a time, each one handshake and then the server's end, for so many
 * seconds. With "resumed" each offers the session that the last one at its place was given, and all but the first have
 * to be resumed; with "full" none. The server's certificate is verified. One line of JSON: handshakes, seconds,
 * percentiles of the time from connect() to the end of the handshake.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "measure.h"

#define STALL_MS 5000

struct place {
	int s;
	SSL *ssl;
	SSL_SESSION *session;
	uint64_t begin_ns;
	bool done, offered;
};

static struct sockaddr_in server = { .sin_family = AF_INET };
static SSL_CTX *context;
static struct intervals handshakes;
static bool resumes;
static uint64_t resumed;
static int set;

static _Noreturn void fail(const char *what)
{
	ERR_print_errors_fp(stderr);
	fprintf(stderr, "tls-load: %s\n", what);
	exit(1);
}

/* The last one that comes counts; OpenSSL's reference is ours. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
	struct place *p = SSL_get_app_data(ssl);

	SSL_SESSION_free(p->session);
	p->session = session;
	return 1;
}

static void set_up(const char *trust)
{
	context = SSL_CTX_new(TLS_client_method());
	if (!context || SSL_CTX_load_verify_file(context, trust) != 1)
		fail(trust);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_session_cache_mode(context, resumes ? SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL :
							  SSL_SESS_CACHE_OFF);
	if (resumes)
		SSL_CTX_sess_set_new_cb(context, on_session);
	set = epoll_create1(EPOLL_CLOEXEC);
	if (set < 0)
		die("epoll_create1");
}

static void begin(struct place *p)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = p };

	p->begin_ns = now_ns();
	p->done = false;
	p->s = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (p->s < 0 || (connect(p->s, (struct sockaddr *)&server, sizeof(server)) && errno != EINPROGRESS))
		die("connect");
	p->ssl = SSL_new(context);
	if (!p->ssl || SSL_set_fd(p->ssl, p->s) != 1 || SSL_set_tlsext_host_name(p->ssl, TLS_NAME) != 1 ||
	    SSL_set1_host(p->ssl, TLS_NAME) != 1)
		fail("SSL_new");
	SSL_set_app_data(p->ssl, p);
	SSL_set_connect_state(p->ssl);
	p->offered = p->session;
	if (p->session && SSL_set_session(p->ssl, p->session) != 1)
		fail("SSL_set_session");
	SSL_SESSION_free(p->session);
	p->session = NULL;
	if (epoll_ctl(set, EPOLL_CTL_ADD, p->s, &event))
		die("epoll_ctl");
}

static bool waits(struct place *p, int result)
{
	int error = SSL_get_error(p->ssl, result);

	return error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE;
}

/* True: the server has ended the connection, as it should. */
static bool go_on(struct place *p)
{
	char byte;
	int result;

	ERR_clear_error();
	if (!p->done) {
		result = SSL_do_handshake(p->ssl);
		if (result != 1 && waits(p, result))
			return false;
		if (result != 1)
			fail("handshake");
		p->done = true;
		intervals_add(&handshakes, now_ns() - p->begin_ns);
		if (p->offered && !SSL_session_reused(p->ssl))
			fail("a session was not resumed");
		resumed += p->offered;
	}
	result = SSL_read(p->ssl, &byte, 1);
	if (result <= 0 && waits(p, result))
		return false;
	if (SSL_get_error(p->ssl, result) != SSL_ERROR_ZERO_RETURN)
		fail("close_notify expected");
	return true;
}

static void end(struct place *p)
{
	SSL_set_shutdown(p->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN); /* the session stays good */
	SSL_free(p->ssl);
	close(p->s);
}

int main(int argc, char **argv)
{
	struct epoll_event events[256];
	struct place *places;
	uint64_t begin_ns, end_ns;
	int count;

	if (argc != 7 || (strcmp(argv[6], "full") != 0 && strcmp(argv[6], "resumed") != 0)) {
		fprintf(stderr, "usage: tls-load ADDRESS PORT SECONDS CONNECTIONS TRUST full|resumed\n"
				"example: tls-load 198.18.0.1 9411 1 16 trust.pem full\n");
		return 2;
	}
	server.sin_port = htons((uint16_t)atoi(argv[2]));
	if (inet_pton(AF_INET, argv[1], &server.sin_addr) != 1)
		fail(argv[1]);
	count = atoi(argv[4]);
	places = calloc((size_t)count, sizeof(*places));
	if (count < 1 || !places)
		fail("connections");
	resumes = !strcmp(argv[6], "resumed");
	set_up(argv[5]);
	begin_ns = now_ns();
	end_ns = begin_ns + (uint64_t)(atof(argv[3]) * 1e9);
	for (int i = 0; i < count; i++)
		begin(&places[i]);
	while (now_ns() < end_ns) {
		int n = epoll_wait(set, events, 256, STALL_MS);

		if (n == 0)
			fail("nothing has happened for 5 s");
		for (int i = 0; i < n; i++) {
			struct place *p = events[i].data.ptr;

			if (!go_on(p))
				continue;
			end(p);
			begin(p);
		}
	}
	printf("{\"operations\": %zu, \"resumed\": %" PRIu64 ", \"seconds\": %.6f", handshakes.count, resumed,
	       (double)(now_ns() - begin_ns) / 1e9);
	intervals_print(&handshakes, "");
	printf("}\n");
	return 0;
}
