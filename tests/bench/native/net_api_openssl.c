/*
 * Kernel sockets with OpenSSL in the application's own process: what XTS with TLS in the proxy is compared with. The
 * peer's certificate is verified against $BENCH_CA for the name in measure.h, as the proxy does it. No session is
 * resumed, unless there is $BENCH_RESUMES: then each connection takes one that an earlier one was given. A server has
 * $BENCH_CERTIFICATE, a file with its key in it.
 *
 * A set watches a connection for both directions until its handshake is done; set_wait() works on handshakes itself and
 * reports only what concerns the workload.
 */
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "measure.h"
#include "net_api.h"

#define DESCRIPTORS_MAX 65536

struct tls_socket {
	SSL *ssl;
	uint32_t events; /* what the workload waits for, while the handshake is under way */
	bool watched, ready;
};

static struct tls_socket sockets[DESCRIPTORS_MAX];
static SSL_CTX *context;
static uint32_t spin_us;
static SSL_SESSION *sessions[64]; /* the newest last; each is used once, as with TLS 1.3 */
static unsigned session_count;

/* OpenSSL's reference is ours. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
	(void)ssl;
	if (session_count == sizeof(sessions) / sizeof(*sessions)) {
		SSL_SESSION_free(sessions[0]);
		memmove(sessions, sessions + 1, sizeof(sessions) - sizeof(*sessions));
		session_count--;
	}
	sessions[session_count++] = session;
	return 1;
}

static void offer_session(SSL *ssl)
{
	if (!session_count)
		return;
	if (SSL_set_session(ssl, sessions[--session_count]) != 1)
		die("SSL_set_session");
	SSL_SESSION_free(sessions[session_count]);
}

static int server_setup(const char *certificate)
{
	context = SSL_CTX_new(TLS_server_method());
	if (!context || SSL_CTX_use_certificate_chain_file(context, certificate) != 1 ||
	    SSL_CTX_use_PrivateKey_file(context, certificate, SSL_FILETYPE_PEM) != 1) {
		errno = EINVAL;
		return -1;
	}
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	signal(SIGPIPE, SIG_IGN); /* clients go away in the middle of a handshake */
	return 0;
}

static int tls_setup(uint32_t us)
{
	const char *trust = getenv("BENCH_CA"), *certificate = getenv("BENCH_CERTIFICATE");

	spin_us = us;
	if (certificate)
		return server_setup(certificate);
	context = SSL_CTX_new(TLS_client_method());
	if (!context || !trust || SSL_CTX_load_verify_file(context, trust) != 1) {
		errno = EINVAL;
		return -1;
	}
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
	if (getenv("BENCH_RESUMES")) {
		SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
		SSL_CTX_sess_set_new_cb(context, on_session);
	}
	SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
	return 0;
}

/* errno for a result of OpenSSL; ends the program for what is no lack of data or room. */
static ssize_t tls_result(SSL *ssl, int result)
{
	int error = SSL_get_error(ssl, result);

	if (result > 0)
		return result;
	if (error == SSL_ERROR_ZERO_RETURN)
		return 0;
	if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
		errno = EAGAIN;
		return -1;
	}
	ERR_print_errors_fp(stderr);
	errno = EPROTO;
	return -1;
}

static int tls_connect(int s, const struct sockaddr *address, socklen_t length)
{
	struct tls_socket *t = &sockets[s];
	int result = connect(s, address, length), error = errno;

	t->ssl = SSL_new(context);
	t->ready = t->watched = false;
	if (!t->ssl || SSL_set_fd(t->ssl, s) != 1 || SSL_set_tlsext_host_name(t->ssl, TLS_NAME) != 1 ||
	    SSL_set1_host(t->ssl, TLS_NAME) != 1)
		die("SSL_new");
	SSL_set_connect_state(t->ssl);
	offer_session(t->ssl);
	if (result) {
		errno = error;
		return result;
	}
	if (SSL_connect(t->ssl) != 1)
		return tls_result(t->ssl, -1) < 0 ? -1 : 0;
	t->ready = true;
	return 0;
}

static int tls_accept4(int listener, struct sockaddr *address, socklen_t *length, int flags)
{
	int s = accept4(listener, address, length, flags);
	struct tls_socket *t = &sockets[s < 0 ? 0 : s];

	if (s < 0)
		return -1;
	*t = (struct tls_socket){ .ssl = SSL_new(context) };
	if (!t->ssl || SSL_set_fd(t->ssl, s) != 1)
		die("SSL_new");
	SSL_set_accept_state(t->ssl);
	return s;
}

static ssize_t tls_send(int s, const void *data, size_t bytes, int flags)
{
	(void)flags;
	return tls_result(sockets[s].ssl, SSL_write(sockets[s].ssl, data, (int)bytes));
}

/* Blocks as the socket does, after spinning; MSG_DONTWAIT is for non-blocking sockets here. */
static ssize_t tls_recv(int s, void *data, size_t bytes, int flags)
{
	SSL *ssl = sockets[s].ssl;

	if (spin_us && !(flags & MSG_DONTWAIT) && !SSL_pending(ssl)) {
		uint64_t until = now_ns() + spin_us * 1000ull;
		char byte;

		while (recv(s, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN && now_ns() < until)
			;
	}
	return tls_result(ssl, SSL_read(ssl, data, (int)bytes));
}

static int tls_shutdown(int s, int how)
{
	(void)SSL_shutdown(sockets[s].ssl);
	return shutdown(s, how);
}

static int tls_close(int s)
{
	if (sockets[s].ssl && SSL_is_init_finished(sockets[s].ssl))
		(void)SSL_shutdown(sockets[s].ssl);
	if (sockets[s].ssl) /* the session stays good, also where the peer has not said its end */
		SSL_set_shutdown(sockets[s].ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
	SSL_free(sockets[s].ssl);
	sockets[s] = (struct tls_socket){ 0 };
	return close(s);
}

/* --- sets --------------------------------------------------------------------------------------------------------- */

static void *tls_set_create(void)
{
	int *set = malloc(sizeof(*set));

	if (!set)
		return NULL;
	*set = epoll_create1(EPOLL_CLOEXEC);
	if (*set >= 0)
		return set;
	free(set);
	return NULL;
}

/* The workload's data is 32 bits; ours carries the descriptor in addition. */
static int kernel_ctl(int set, int op, int s, uint32_t events, uint32_t data)
{
	struct epoll_event event = { .events = events, .data.u64 = (uint64_t)s << 32 | data };

	return epoll_ctl(set, op, s, &event);
}

static int tls_set_ctl(void *set, int op, int s, struct epoll_event *event)
{
	struct tls_socket *t = &sockets[s];
	uint32_t events = event ? event->events : 0;

	t->events = events;
	t->watched = op != EPOLL_CTL_DEL;
	t->ready |= !t->ssl; /* a listener */
	return kernel_ctl(*(int *)set, op, s, t->ready ? events : EPOLLIN | EPOLLOUT, event ? event->data.u32 : 0);
}

/* Goes on with a handshake. True when it is done, so that the event may be the workload's. */
static bool tls_handshake(int set, int s, uint32_t data)
{
	struct tls_socket *t = &sockets[s];
	int result = SSL_do_handshake(t->ssl), error;

	if (result == 1) {
		t->ready = true;
		if (kernel_ctl(set, EPOLL_CTL_MOD, s, t->events, data))
			die("epoll_ctl");
		return t->events & EPOLLOUT;
	}
	error = SSL_get_error(t->ssl, result);
	if (error == SSL_ERROR_WANT_READ)
		error = kernel_ctl(set, EPOLL_CTL_MOD, s, EPOLLIN, data);
	else if (error == SSL_ERROR_WANT_WRITE)
		error = kernel_ctl(set, EPOLL_CTL_MOD, s, EPOLLOUT, data);
	if (error && SSL_is_server(t->ssl)) {
		ERR_clear_error();
		return true; /* a client that has given up: it is closed as any other */
	}
	if (error) {
		ERR_print_errors_fp(stderr);
		die("TLS handshake");
	}
	return false;
}

static int tls_set_wait(void *set, struct epoll_event *events, int maxevents, int timeout_ms)
{
	for (;;) {
		int n = epoll_wait(*(int *)set, events, maxevents, timeout_ms), kept = 0;

		if (n <= 0)
			return n;
		for (int i = 0; i < n; i++) {
			int s = (int)(events[i].data.u64 >> 32);
			uint32_t data = (uint32_t)events[i].data.u64;

			if (!sockets[s].ready && !tls_handshake(*(int *)set, s, data))
				continue;
			events[kept] = events[i];
			events[kept++].data.u64 = data;
		}
		if (kept)
			return kept;
	}
}

static void tls_set_destroy(void *set)
{
	close(*(int *)set);
	free(set);
}

const struct net_api net_api = {
	.name = "openssl",
	.setup = tls_setup,
	.socket = socket,
	.bind = bind,
	.connect = tls_connect,
	.listen = listen,
	.accept4 = tls_accept4,
	.send = tls_send,
	.recv = tls_recv,
	.shutdown = tls_shutdown,
	.close = tls_close,
	.setsockopt = setsockopt,
	.getsockopt = getsockopt,
	.set_create = tls_set_create,
	.set_ctl = tls_set_ctl,
	.set_wait = tls_set_wait,
	.set_destroy = tls_set_destroy,
};
