/*
 * One connection acting out its script. Level-triggered: interest in reading is taken back while a slow reader pauses
 * or the stream has ended, interest in writing while there is nothing to write.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "net_api.h"
#include "stress.h"

#define MAGIC 0x53545253u
#define ROUNDS 4 /* calls each way before other connections have their turn */

static const struct side_script *mine(const struct conn *c)
{
	return &c->script.side[c->side];
}
static const struct side_script *theirs(const struct conn *c)
{
	return &c->script.side[!c->side];
}

void conn_print(const struct conn *c, FILE *out)
{
	static const char *const states[] = { "connecting", "header", "running", "finished" };
	uint64_t now = now_ns();

	fprintf(out,
		"  opened by %s, slot %u, generation %u, %s: %s, sent %" PRIu64 " of %" PRIu64 "%s, received %" PRIu64
		" of %" PRIu64 "%s, interest%s%s%s, quiet for %" PRIu64 " ms\n",
		c->opener == HOST ? "host" : "peer", c->slot, c->generation, c->side == OPENER ? "opener" : "acceptor",
		states[c->state], c->sent, mine(c)->bytes, c->shut ? " (shut)" : "", c->received, theirs(c)->bytes,
		c->ended ? " (ended)" : "", c->interest & EPOLLIN ? " in" : "", c->interest & EPOLLOUT ? " out" : "",
		c->paused_until_ns ? " (pausing)" : "", (now - c->progress_ns) / 1000000);
}

void fail(const struct conn *c, int status, const char *format, ...)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	va_list arguments;

	pthread_mutex_lock(&once); /* for good: the first failure is the one to read */
	va_start(arguments, format);
	fprintf(stderr, "%s: ", net_api.name);
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	if (c)
		conn_print(c, stderr);
	fflush(stderr);
	_Exit(status);
}

static void watch(struct conn *c, int op)
{
	struct epoll_event event = { .events = c->interest, .data.ptr = c };

	if (net_api.set_ctl(c->worker->set, op, c->s, &event))
		fail(c, 1, "epoll_ctl %d: %s", op, strerror(errno));
}

static void set_option(const struct conn *c, int level, int option, int value)
{
	if (net_api.setsockopt(c->s, level, option, &value, sizeof(value)))
		fail(c, 1, "setsockopt %d %d: %s", level, option, strerror(errno));
}

static struct conn *conn_new(struct worker *w, int s, enum side side)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		fail(NULL, 1, "out of memory");
	c->worker = w;
	c->s = s;
	c->side = side;
	c->progress_ns = now_ns();
	c->next = w->conns;
	c->link = &w->conns;
	if (w->conns)
		w->conns->link = &c->next;
	w->conns = c;
	w->open++;
	return c;
}

static void begin_script(struct conn *c)
{
	const struct side_script *script;

	script_derive(&c->script, &c->worker->options->config, c->opener, c->slot, c->generation);
	script = mine(c);
	c->sizes = script->sizes;
	if (script->send_buffer) {
		set_option(c, SOL_SOCKET, SO_SNDBUF, script->send_buffer);
		set_option(c, SOL_SOCKET, SO_RCVBUF, script->receive_buffer);
	}
	if (script->no_delay)
		set_option(c, IPPROTO_TCP, TCP_NODELAY, 1);
}

void conn_open(struct worker *w, uint32_t slot)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(w->options->connect_port) };
	int s = net_api.socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	struct conn *c;

	if (s < 0)
		fail(NULL, 1, "socket: %s", strerror(errno));
	c = conn_new(w, s, OPENER);
	c->opener = w->options->end;
	c->slot = slot;
	c->generation = w->generation[slot - w->slot_first]++;
	c->header = (struct header){ MAGIC, (uint32_t)c->opener, slot, c->generation };
	begin_script(c);
	inet_pton(AF_INET, w->options->connect_address, &to.sin_addr);
	if (net_api.connect(s, (struct sockaddr *)&to, sizeof(to)) && errno != EINPROGRESS)
		fail(c, 1, "connect: %s", strerror(errno));
	c->state = CONN_CONNECTING;
	c->interest = EPOLLOUT;
	watch(c, EPOLL_CTL_ADD);
	atomic_fetch_add(&w->totals->opened, 1);
}

void conn_adopt(struct worker *w, int s)
{
	struct conn *c = conn_new(w, s, ACCEPTOR);

	c->state = CONN_HEADER;
	c->interest = EPOLLIN;
	watch(c, EPOLL_CTL_ADD);
	atomic_fetch_add(&w->totals->accepted, 1);
}

static void finish(struct conn *c, enum outcome outcome)
{
	struct worker *w = c->worker;
	bool again = c->side == OPENER && w->options->reconnect && !atomic_load(&stopping);
	uint32_t slot = c->slot;

	if (net_api.close(c->s))
		fail(c, 1, "close: %s", strerror(errno));
	atomic_fetch_add(&w->totals->outcomes[outcome], 1);
	*c->link = c->next;
	if (c->next)
		c->next->link = c->link;
	w->open--;
	free(c);
	if (again)
		conn_open(w, slot);
}

/* The connection has failed. Right only when the other end aborts by its script. */
static void saw_reset(struct conn *c, const char *call)
{
	if (errno != ECONNRESET && errno != EPIPE)
		fail(c, 1, "%s: %s", call, strerror(errno));
	if (c->state == CONN_RUNNING && theirs(c)->abort_at == NEVER)
		fail(c, 1, "%s: %s, but the other end does not abort this connection", call, strerror(errno));
	finish(c, OUTCOME_SAW_ABORT);
}

static bool abort_is_due(const struct conn *c)
{
	return c->sent + c->received >= mine(c)->abort_at;
}

static void abort_now(struct conn *c)
{
	struct linger linger = { .l_onoff = 1, .l_linger = 0 };

	if (!mine(c)->abort_plainly && net_api.setsockopt(c->s, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)))
		fail(c, 1, "setsockopt SO_LINGER: %s", strerror(errno));
	finish(c, OUTCOME_ABORTED);
}

/* Each step returns false when the connection is gone. */

static bool step_connecting(struct conn *c)
{
	int error = 0;
	socklen_t length = sizeof(error);

	if (net_api.getsockopt(c->s, SOL_SOCKET, SO_ERROR, &error, &length))
		fail(c, 1, "getsockopt SO_ERROR: %s", strerror(errno));
	if (error)
		fail(c, 1, "connect: %s", strerror(error));
	c->state = CONN_HEADER;
	return true;
}

static bool step_header(struct conn *c)
{
	uint8_t *at = (uint8_t *)&c->header + c->header_done;
	size_t left = sizeof(c->header) - c->header_done;
	ssize_t n = c->side == OPENER ? net_api.send(c->s, at, left, MSG_NOSIGNAL) : net_api.recv(c->s, at, left, 0);

	if (n < 0 && errno == EAGAIN)
		return true;
	if (n < 0) {
		saw_reset(c, "header");
		return false;
	}
	if (n == 0) { /* the opener aborted before its header had left */
		finish(c, OUTCOME_SAW_ABORT);
		return false;
	}
	c->header_done += (uint32_t)n;
	if (c->header_done < sizeof(c->header))
		return true;
	if (c->header.magic != MAGIC || c->header.opener > PEER)
		fail(c, 1, "header of an accepted connection is not one of ours");
	if (c->side == ACCEPTOR) {
		c->opener = (enum end)c->header.opener;
		c->slot = c->header.slot;
		c->generation = c->header.generation;
		begin_script(c);
	}
	c->state = CONN_RUNNING;
	return true;
}

static bool step_send(struct conn *c)
{
	const struct side_script *script = mine(c);
	struct worker *w = c->worker;

	for (int round = 0; round < ROUNDS && c->sent < script->bytes; round++) {
		uint64_t left = script->bytes - c->sent;
		int flags = MSG_NOSIGNAL;
		size_t bytes;
		ssize_t n;

		if (abort_is_due(c)) {
			abort_now(c);
			return false;
		}
		if (!c->message_left)
			c->message_left = (uint32_t)random_size(&c->sizes, w->options->config.message_min,
								w->options->config.message_max);
		bytes = c->message_left < left ? c->message_left : left;
		if (script->corks && bytes < left)
			flags |= MSG_MORE;
		stream_fill(script->key, c->sent, w->buffer, bytes);
		n = net_api.send(c->s, w->buffer, bytes, flags);
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n <= 0) {
			saw_reset(c, "send");
			return false;
		}
		c->sent += (uint64_t)n;
		c->message_left -= (uint32_t)n;
		c->progress_ns = now_ns();
		atomic_fetch_add(&w->totals->sent_bytes, (uint64_t)n);
	}
	return true;
}

static void check(struct conn *c, const uint8_t *data, size_t bytes, const char *call)
{
	uint64_t wrong;

	if (c->received + bytes > theirs(c)->bytes)
		fail(c, 1, "%s: %zu bytes more than the stream has", call, bytes);
	wrong = stream_check(theirs(c)->key, c->received, data, bytes);
	if (wrong != NEVER) {
		size_t offset = wrong - c->received;
		uint64_t found = stream_find(theirs(c)->key, wrong, data + offset, bytes - offset);

		if (found != NEVER)
			fail(c, 1, "%s: wrong data at stream position %" PRIu64 ": it is that of position %" PRIu64,
			     call, wrong, found);
		fail(c, 1,
		     "%s: wrong data at stream position %" PRIu64 " (%zu of %zu bytes of this call), not found near it",
		     call, wrong, offset, bytes);
	}
}

static bool step_receive(struct conn *c)
{
	const struct side_script *script = mine(c);
	struct worker *w = c->worker;

	for (int round = 0; round < ROUNDS && !c->ended && !c->paused_until_ns; round++) {
		ssize_t n;

		if (abort_is_due(c)) {
			abort_now(c);
			return false;
		}
		if (script->peeks) {
			n = net_api.recv(c->s, w->buffer, script->read_max, MSG_PEEK);
			if (n > 0) {
				check(c, w->buffer, (size_t)n, "recv with MSG_PEEK");
				atomic_fetch_add(&w->totals->checked_peeks, 1);
			}
		}
		n = net_api.recv(c->s, w->buffer, script->read_max, 0);
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0) {
			saw_reset(c, "recv");
			return false;
		}
		c->progress_ns = now_ns();
		if (n == 0) {
			if (c->received < theirs(c)->bytes && theirs(c)->abort_at == NEVER)
				fail(c, 1, "the stream ended early");
			c->ended = true;
			return true;
		}
		check(c, w->buffer, (size_t)n, "recv");
		c->received += (uint64_t)n;
		atomic_fetch_add(&w->totals->received_bytes, (uint64_t)n);
		if (script->pause_us)
			c->paused_until_ns = c->progress_ns + script->pause_us * 1000ull;
	}
	return true;
}

/* Ends our stream when all is sent; the connection when both have ended. */
static bool step_end(struct conn *c)
{
	bool sent_all = c->sent == mine(c)->bytes;

	if (abort_is_due(c) && !(c->shut && c->ended)) {
		abort_now(c);
		return false;
	}
	if (sent_all && c->ended && (c->shut || mine(c)->close_without_shutdown)) {
		finish(c, c->received == theirs(c)->bytes ? OUTCOME_COMPLETE : OUTCOME_SAW_ABORT);
		return false;
	}
	if (sent_all && !c->shut) {
		if (net_api.shutdown(c->s, SHUT_WR)) {
			if (errno == ENOTCONN)
				errno = ECONNRESET; /* reset since we last looked */
			saw_reset(c, "shutdown");
			return false;
		}
		c->shut = true;
		return step_end(c);
	}
	return true;
}

void conn_step(struct conn *c, uint32_t events)
{
	uint32_t interest;

	if (c->state == CONN_CONNECTING && (!(events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) || !step_connecting(c)))
		return;
	if (c->state == CONN_HEADER && !step_header(c))
		return;
	if (c->state == CONN_HEADER) {
		interest = c->side == OPENER ? EPOLLOUT : EPOLLIN;
	} else {
		if (!step_send(c) || !step_receive(c) || !step_end(c))
			return;
		interest = c->sent < mine(c)->bytes ? EPOLLOUT : 0;
		if (!c->ended && !c->paused_until_ns)
			interest |= EPOLLIN;
	}
	if (interest != c->interest) {
		c->interest = interest;
		watch(c, EPOLL_CTL_MOD);
	}
}
