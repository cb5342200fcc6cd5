/*
 * Handshakes on the threads of the pool (handshake_pool.h).
 *
 * A step of a handshake is a job: SSL_do_handshake(), as far as the bytes that have arrived allow. While the job is
 * away (t->away), the connection's struct tls belongs to that thread, and the worker has only the stack. OpenSSL reads
 * the bytes that the worker has put into t->slice.ahead beforehand, and writes into a buffer here, which the worker
 * sends when the job is back. Where the kernel may get the keys, nothing can be read ahead, and everything written has
 * to leave before the kernel gets them. OpenSSL then reads and writes the socket itself, through a descriptor that the
 * job owns, and the worker does not touch the socket.
 *
 * A connection that ends meanwhile leaves its struct tls to the thread, which frees it. If a connection is given to
 * another worker meanwhile, its job is handed back there.
 *
 * If the connection's SSL_CTX does not exist yet, the first job makes it and does nothing else (tls_contexts.c). The
 * next one makes the SSL, and the last one frees it, if our record layer has the connection then (tls_ssl.c).
 *
 * Private keys are used only by SSL_do_handshake() on these threads. So waiting for a signature from another process
 * may block here.
 */
#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tls_direction.h"
#include "ulp/config.h"
#include "ulp/handshake_pool.h"

#define AHEAD_MAX (64u << 10)
#define READ_BYTES 16384u

struct tls_handshake_job {
	struct ulp_job job; /* first */
	struct tls *t;
	struct tls_asker asker; /* on whose behalf a context is made */
	struct tls_outcome outcome;
	int unmade;    /* -ENOMEM: there was no memory for an SSL */
	int unsettled; /* -ENOMEM: the handshake was done, and there was no memory for the connection */
	int ended;     /* -errno that follows what has been read: the peer's end, or an error */
	bool begun;    /* the job is a step of the handshake; else it makes the context */
	int fd;        /* the socket while the job is away; -1: not used */
	int refused;   /* errno of a write to it; 0: none */
	uint8_t *out;  /* written by OpenSSL, not sent yet */
	uint32_t out_first, out_bytes, out_room;
	struct xts_ulp_config *config; /* set for a job whose connection is gone */
};

/* --- on a thread of the pool -------------------------------------------------------------------------------------- */

ssize_t tls_handshake_receive(struct tls *t, void *out, size_t room)
{
	struct tls_handshake_job *s = t->handshake_job;
	ssize_t n;

	if (s->fd < 0)
		return s->ended ? s->ended : -EAGAIN; /* there is no more than the worker has read */
	do {
		n = recv(s->fd, out, room, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (!n && s->refused)
		return -s->refused; /* ulp_socket_end() */
	return n > 0 ? n : n < 0 ? -errno : -ENODATA;
}

int tls_handshake_put(struct tls *t, const void *data, uint32_t bytes)
{
	struct tls_handshake_job *s = t->handshake_job;
	uint32_t used = s->out_first + s->out_bytes;

	if (s->out_room - used < bytes) {
		uint32_t room = 2 * (used + bytes);
		uint8_t *more = realloc(s->out, room);

		if (!more)
			return -ENOMEM;
		s->out = more;
		s->out_room = room;
	}
	memcpy(s->out + used, data, bytes);
	s->out_bytes += bytes;
	return 0;
}

/* The peer is not there any more. That is no fault of the handshake, which may need nothing more from it: what it waits
 * for it does not find, and what the peer sent before it left is to be read. */
void tls_handshake_refused(struct tls *t, int error)
{
	if (!t->handshake_job->refused) /* the next write gets EPIPE */
		t->handshake_job->refused = error;
}

int tls_handshake_flush(struct tls *t)
{
	struct tls_handshake_job *s = t->handshake_job;

	while (s->out_bytes) {
		ssize_t n = send(s->fd, s->out + s->out_first, s->out_bytes, MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return -EAGAIN;
		if (n < 0) {
			tls_handshake_refused(t, errno);
			s->out_bytes = 0;
			break;
		}
		s->out_first += (uint32_t)n;
		s->out_bytes -= (uint32_t)n;
	}
	s->out_first = 0;
	return 0;
}

static void step(struct ulp_job *job)
{
	struct tls_handshake_job *s = list_entry(job, struct tls_handshake_job, job);
	struct tls *t = s->t;

	if (!s->begun) {
		t->context = tls_context_make(&s->asker, t->parameters);
		return;
	}
	if (!t->ssl)
		s->unmade = tls_make_ssl(t, s->fd);
	if (s->unmade)
		return;
	s->outcome = tls_outcome(t, tls_shake_hands(t));
	if (t->flooded)
		tls_flood_alert(t);
	else if (s->outcome.result == 1)
		s->unsettled = tls_settle(t);
}

static void job_free(struct tls_handshake_job *s)
{
	if (s->fd >= 0)
		close(s->fd);
	free(s->out);
	free(s);
}

static void abandoned(struct ulp_job *job)
{
	struct tls_handshake_job *s = list_entry(job, struct tls_handshake_job, job);
	struct xts_ulp_config *config = s->config;

	tls_free(s->t);
	job_free(s);
	xts_ulp_config_release(config);
}

/* --- on the worker's ---------------------------------------------------------------------------------------------- */

static void returned(struct ulp_job *job)
{
	ulp_wake_after(list_entry(job, struct tls_handshake_job, job)->t->layer, 0);
}

static struct tls_handshake_job *job_of(struct tls *t)
{
	struct tls_handshake_job *s = t->handshake_job;

	if (s)
		return s;
	s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->job = (struct ulp_job){ .run = step, .done = returned, .abandoned = abandoned };
	list_init(&s->job.node);
	s->fd = -1;
	s->t = t;
	t->handshake_job = s;
	return s;
}

/* Reads what has arrived for the job: how many bytes, 0 for none, or -errno: the end, or an error. Where memory was
 * missing for bytes that have been read, t->failed is set, too: nobody can read these bytes again. */
static ssize_t bring(struct tls *t)
{
	static _Thread_local uint8_t bytes[READ_BYTES];
	uint64_t since;
	ssize_t all = 0;

	if (t->asks_kernel)
		return ulp_socket_readable(t->layer, &since);
	while (t->slice.ahead.bytes < AHEAD_MAX) {
		ssize_t n = ulp_read_stream_below(t->layer, bytes, sizeof bytes);
		int r;

		if (n == -EAGAIN || (n < 0 && all))
			break;
		if (n < 0)
			return n;
		r = ulp_out_reserve(&t->slice.ahead, t->layer, (uint32_t)n);
		if (r)
			return t->failed = ulp_memory_fail(t->layer, r, "a handshake");
		ulp_out_put(&t->slice.ahead, bytes, (uint32_t)n);
		all += n;
	}
	return all;
}

static void submit(struct tls *t)
{
	t->away = true;
	ulp_pool_submit(&t->handshake_job->job, ulp_bell(t->layer), ulp_account(t->layer), ulp_weight(t->layer));
	ulp_wake_after(t->layer, ULP_POOL_HELP_MS);
}

static int send_away(struct tls *t)
{
	struct tls_handshake_job *s = t->handshake_job;

	if (t->asks_kernel) {
		/* the connection may be closed while the job is away */
		s->fd = fcntl(ulp_socket(t->layer), F_DUPFD_CLOEXEC, 0);
		if (s->fd < 0)
			return ulp_fail(t->layer, XTS_FAULT_MEMORY, "no descriptor for the handshake");
		if (t->socket)
			BIO_set_fd(t->socket, s->fd, BIO_NOCLOSE);
		ulp_socket_empty(t->layer); /* until the next event */
	}
	s->begun = true;
	submit(t);
	return 0;
}

/* Looks for the context, which another connection may have had made meanwhile. 0; -EAGAIN: it is being made; else the
 * error. */
static int find_context(struct tls *t)
{
	int r = t->context ? 0 : tls_context_get(t->layer, t->parameters, &t->context);

	if (r)
		return r;
	if (t->context)
		return tls_prepare(t);
	t->handshake_job->asker = tls_asker(t->layer);
	submit(t);
	return -EAGAIN;
}

/* Sends what OpenSSL has written. 0, -EAGAIN or -errno. A peer that has ended may not take it: why it ended is told,
 * and not that. Nor is it the handshake's end that a peer does not take the tickets which follow it: what the peer has
 * sent before it left is to be read. */
static int send_out(struct tls *t)
{
	struct tls_handshake_job *s = t->handshake_job;
	int r = 0, before = t->below_error;

	if (s->out_bytes)
		r = tls_bio_send(t, s->out + s->out_first, s->out_bytes);
	s->out_first = s->out_bytes = 0;
	if (!s->ended && s->outcome.result != 1)
		return r;
	t->below_error = before;
	return 0;
}

/* The job is back. 1: the handshake is done; -EAGAIN: it goes on; else the fault. */
static int come_back(struct tls *t)
{
	struct tls_handshake_job *s = t->handshake_job;
	int r = 0;

	t->away = false;
	ulp_spent(t->layer, s->job.spent_ns);
	s->job.spent_ns = 0;
	if (s->refused)
		(void)ulp_socket_failed(t->layer, s->refused);
	s->refused = 0;
	if (s->fd >= 0) {
		if (t->socket)
			BIO_set_fd(t->socket, ulp_socket(t->layer), BIO_NOCLOSE);
		close(s->fd);
		s->fd = -1;
		if (s->outcome.kind == SSL_ERROR_WANT_WRITE)
			ulp_socket_full(t->layer);
		if (s->outcome.kind != SSL_ERROR_WANT_READ) /* what came behind the handshake has had its event */
			ulp_socket_not_empty(t->layer);
	}
	if (!t->slice.ahead.bytes)
		ulp_out_free(&t->slice.ahead);
	if (s->job.undone)
		return ulp_fail(t->layer, XTS_FAULT_STALLED, "too many handshakes are waiting");
	if (!s->begun) {
		r = tls_context_check(t->layer, &t->context);
		return r ? r : -EAGAIN;
	}
	if (s->unmade)
		return ulp_fail(t->layer, XTS_FAULT_MEMORY, "no memory for TLS");
	r = send_out(t);
	if (r && r != -EAGAIN)
		return r;
	if (t->flooded)
		return tls_flood_fail(t);
	if (s->unsettled)
		return t->failed = ulp_memory_fail(t->layer, s->unsettled, "a connection");
	return s->outcome.result == 1 ? 1 : tls_fault_of(t, &s->outcome);
}

int tls_handshake_step(struct tls *t)
{
	struct tls_handshake_job *s = job_of(t);
	ssize_t n;
	int r;

	if (!s)
		return ulp_fail(t->layer, XTS_FAULT_MEMORY, "no memory for a handshake");
	if (t->away && !ulp_pool_returned(&s->job)) {
		ulp_pool_help();
		ulp_wake_after(t->layer, ULP_POOL_HELP_MS);
		return -EAGAIN;
	}
	if (t->away) {
		r = come_back(t);
		if (r != -EAGAIN)
			return r;
	}
	if (!s->begun) {
		if (!t->client && ulp_peer_is_silent(t->layer))
			/* a peer that may stay silent for ever gets no context, which takes long to make */
			return -EAGAIN;
		r = find_context(t);
		if (r)
			return r;
	}
	if (s->begun && s->outcome.kind == SSL_ERROR_WANT_WRITE && !ulp_socket_writable(t->layer))
		return -EAGAIN;
	n = bring(t);
	if (t->failed)
		return t->failed;
	if (n < 0) /* OpenSSL finds the same error */
		s->ended = (int)n;
	if (!n && (s->begun ? s->outcome.kind != SSL_ERROR_WANT_WRITE : !t->client))
		return -EAGAIN;
	r = send_away(t);
	return r ? r : -EAGAIN;
}

void tls_handshake_move(struct ulp_layer *l)
{
	struct tls *t = l->state;

	if (t && t->away)
		ulp_pool_move(&t->handshake_job->job, ulp_bell(l));
	else if (t)
		tls_direction_again(t);
}

void tls_handshake_forget(struct tls *t)
{
	if (t->handshake_job)
		job_free(t->handshake_job);
	t->handshake_job = NULL;
}

bool tls_handshake_end(struct tls *t)
{
	struct tls_handshake_job *s = t->handshake_job;

	if (t->away) {
		s->config = ulp_config(t->layer);
		xts_ulp_config_hold(s->config);
		ulp_out_uncount(&t->slice.ahead);
		ulp_out_uncount(&t->out);
		if (!ulp_pool_drop(&s->job))
			return false;
		xts_ulp_config_release(s->config);
	}
	tls_handshake_forget(t);
	return true;
}
