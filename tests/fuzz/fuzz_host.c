/*
 * libFuzzer target: the host library, its calls and a proxy's messages in any order, over a queue in memory.
 *
 * The input is a program of one-byte operations with their arguments: socket calls of the application, well-formed
 * messages with fields of the input's choosing, raw frames. The target plays the proxy: its link is a proper one, and
 * it answers the calls that the library waits for (bind, listen, options), so that no call blocks. It takes the place
 * of attach.c and of the progress thread. All sockets are non-blocking.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "core/outbox.h"
#include "host_datagrams.h"
#include "host_pdus.h"
#include "host_proxy.h"
#include "steps.h"

#define FEATURES \
	(XTS_FEATURE_SHARE | XTS_FEATURE_SHARE_BOUND | XTS_FEATURE_ULP | XTS_FEATURE_ULP_TLS | XTS_FEATURE_SHRINK | \
	 XTS_FEATURE_REFUSAL | XTS_FEATURE_DATAGRAM | XTS_FEATURE_STAMPS | XTS_FEATURE_SHARE_DATAGRAM | \
	 XTS_FEATURE_NAMES | XTS_FEATURE_CATCH_UP | XTS_FEATURE_LISTENING | XTS_FEATURE_OVER)

/* --- the proxy ---------------------------------------------------------------------------------------------------- */

static void proxy_answer(const uint8_t *frame, uint32_t bytes)
{
	struct memory_frame *f = &scene.waiting[scene.waiting_count];

	if (scene.waiting_count == WAITING_MAX)
		return;
	scene.waiting_count++;
	f->bytes = bytes;
	f->data = malloc(bytes);
	ENSURE(f->data);
	memcpy(f->data, frame, bytes);
}

static void send_answers(void)
{
	unsigned sent = 0;

	while (sent < scene.waiting_count && xts_link_credits(&scene.link)) {
		proxy_send(scene.waiting[sent].data, scene.waiting[sent].bytes);
		free(scene.waiting[sent++].data);
	}
	scene.waiting_count -= sent;
	memmove(scene.waiting, scene.waiting + sent, scene.waiting_count * sizeof scene.waiting[0]);
}

static void drop_answers(void)
{
	while (scene.waiting_count)
		free(scene.waiting[--scene.waiting_count].data);
}

/* Confirms a close: always where the application waits for it, else three times of four; the input may do the rest. */
static void confirm(uint32_t proxy_id)
{
	struct xts_recv m = { 0 };
	struct xts_sock *s = NULL;
	uint8_t frame[XTS_RECV_BYTES] = { 0 };

	while ((s = table_next(process_stacks(), s))) {
		if (s->proxy_id != proxy_id || !s->closing || !(s->disconnecting || proxy_id % 4))
			continue;
		xts_head_encode(frame, XTS_REPLY_RECV, XTS_FLAG_CLOSED, 0, s->id);
		xts_recv_encode(frame, &m);
		proxy_answer(frame, sizeof frame);
		return;
	}
}

/* What follows the answer to who has joined. */
static void tell_listening(uint32_t xts_socket)
{
	uint8_t frame[XTS_LISTENING_BYTES] = { 0 };

	xts_head_encode(frame, XTS_REPLY_LISTENING, 0, 0, xts_socket);
	xts_listening_encode(frame, &(struct xts_listening){ .listens = scene.next_proxy_id % 3, .backlog = 5 });
	proxy_answer(frame, sizeof frame);
}

/* Answers a call, so that the library need not wait for it. */
static void answer(const struct xts_head *head, const uint8_t *request)
{
	static const uint8_t reply_of[256] = {
		[XTS_CMD_LISTEN] = XTS_REPLY_LISTEN_ACK,      [XTS_CMD_BIND] = XTS_REPLY_BIND_ACK,
		[XTS_CMD_SETSOCKOPT] = XTS_REPLY_SOCKOPT_ACK, [XTS_CMD_GETSOCKOPT] = XTS_REPLY_SOCKOPT_ACK,
		[XTS_CMD_IOCTL] = XTS_REPLY_IOCTL_ACK,        [XTS_CMD_SHARE] = XTS_REPLY_SHARE_ACK,
		[XTS_CMD_PARK] = XTS_REPLY_PARK_ACK,          [XTS_CMD_CLAIM] = XTS_REPLY_CLAIM_ACK,
		[XTS_CMD_TAKE] = XTS_REPLY_TAKE_ACK,          [XTS_CMD_SHUT_LISTENER] = XTS_REPLY_SHUT_LISTENER_ACK,
	};
	uint8_t frame[128] = { 0 }, type = reply_of[head->type];
	uint32_t xts_socket = xts_get32(request + 24), bytes = answer_datagram(frame, head->type, head->id, request);

	if (head->type != XTS_CMD_SEND)
		scene.ids[scene.id_count++ % IDS] = xts_socket;
	if (head->type == XTS_CMD_SEND && head->flags & XTS_FLAG_CLOSE)
		confirm(head->id);
	if (bytes)
		proxy_answer(frame, bytes);
	if (!type)
		return;
	xts_head_encode(frame, type, 0, 0, xts_socket);
	if (type == XTS_REPLY_PARK_ACK) {
		frame[18 + 1] = scene.next_proxy_id % 4 ? 0 : EINVAL;
		xts_put32(frame + 24, xts_get32(request + 28)); /* the token */
	} else {
		xts_put32(frame + 24, head->id ? head->id : ++scene.next_proxy_id);
		xts_put32(frame + 28, xts_get32(request + 28));
	}
	proxy_answer(frame, (uint32_t)xts_type_bytes(type));
	if (head->type == XTS_CMD_SHARE && !head->id)
		tell_listening(xts_socket);
}

/* The library has rung: takes everything it has sent. */
static void proxy_receive(struct memory_queue *m)
{
	struct memory_frame f;
	uint8_t control[128];
	size_t bytes;

	if (m != scene.queue)
		return; /* the last words of a channel that has been replaced */
	while (pipe_get(&m->out, &f)) {
		struct xts_head head;

		if (xts_link_receive(&scene.link, f.data, f.bytes, f.bytes, now_ns(), &head) == XTS_LINK_DELIVER) {
			uint8_t request[64] = { 0 }; /* some are shorter than what an answer looks at */

			memcpy(request, f.data, f.bytes < sizeof request ? f.bytes : sizeof request);
			xts_link_recycled(&scene.link);
			answer(&head, request);
		}
		free(f.data);
	}
	xts_link_caught_up(&scene.link);
	while ((bytes = xts_link_control(&scene.link, control, now_ns())))
		pipe_put(&m->in, control, (uint32_t)bytes);
	send_answers();
}

int xts_attach(struct xts_attachment *out, const char *endpoint, const struct xts_attach_request *request, int timeout_ms)
{
	struct xts_link_config config = {
		.role = XTS_LINK_PROXY, .frame_window = WINDOW, .largest_message = LARGEST, .features = FEATURES
	};

	(void)endpoint, (void)request, (void)timeout_ms;
	memset(out, 0, sizeof *out);
	drop_answers();
	scene.queue = memory_open(true);
	scene.queue->kicked = proxy_receive;
	memcpy(config.local_mac, proxy_mac, 6);
	memcpy(config.peer_mac, host_mac, 6);
	ENSURE(!xts_link_init(&scene.link, &config, now_ns()));
	scene.id_count = 0;
	out->queue = &scene.queue->queue;
	out->connection = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	out->status = calloc(1, sizeof *out->status + XTS_STATUS_ENTRIES * sizeof out->status->entry[0]);
	ENSURE(out->connection >= 0 && out->status);
	out->reply.kind = XTS_QUEUE_SHM;
	out->reply.epoch = ++scene.epoch;
	return 0;
}

void xts_detach(struct xts_attachment *attachment)
{
	if ((struct memory_queue *)attachment->queue == scene.queue)
		scene.queue = NULL;
	/* The frame whose violation ended the channel goes with the queue, as message_receive() says. */
	ENSURE(((struct memory_queue *)attachment->queue)->lent <= 1);
	xts_queue_close(attachment->queue);
	free(attachment->status);
	close(attachment->connection);
	memset(attachment, 0, sizeof *attachment);
}

/* --- operations --------------------------------------------------------------------------------------------------- */

static uint32_t pick_id(struct input *in)
{
	uint8_t which = take(in);

	if (which < 240 && scene.id_count)
		return scene.ids[which % (scene.id_count < IDS ? scene.id_count : IDS)];
	return which << 4;
}

/* A message as it is (0), or in a frame of gathered ones, once or twice (1, 2); and so that it does not quite fit (3). */
static void proxy_send_as(uint8_t *frame, uint32_t bytes, unsigned how)
{
	static uint8_t gathered[LARGEST];
	struct xts_gathered m = { 0 };

	if (!how || XTS_GATHERED_BYTES + 2 * (bytes + 2) > sizeof gathered) {
		proxy_send(frame, bytes);
		return;
	}
	memset(gathered, 0, sizeof gathered);
	for (unsigned i = 0; i < (how == 1 ? 1 : 2); i++) {
		uint8_t *at = gathered + XTS_GATHERED_BYTES + m.length;

		xts_put16(at, (uint16_t)bytes);
		memcpy(at + 2, frame, bytes);
		m.length += 2 + bytes;
	}
	m.length -= how == 3;
	xts_head_encode(gathered, XTS_REPLY_GATHERED, 0, 0, 0);
	xts_gathered_encode(gathered, &m);
	proxy_send(gathered, XTS_GATHERED_BYTES + m.length);
}

static void op_message(struct input *in)
{
	static const uint8_t types[] = {
		XTS_REPLY_RECV,        XTS_REPLY_RECV,      XTS_REPLY_RECV,       XTS_REPLY_CONNECT_ACK,
		XTS_REPLY_CONNECT_ACK, XTS_REPLY_NEWCONN,   XTS_REPLY_LISTEN_ACK, XTS_REPLY_BIND_ACK,
		XTS_REPLY_SOCKOPT_ACK, XTS_REPLY_IOCTL_ACK, XTS_REPLY_SHARE_ACK,  XTS_REPLY_PARK_ACK,
		XTS_REPLY_CLAIM_ACK,   XTS_REPLY_TAKE_ACK,  XTS_REPLY_YIELD,      XTS_REPLY_MOVE,
		XTS_REPLY_LISTENING,   XTS_REPLY_LISTENING,
	};
	uint8_t frame[LARGEST] = { 0 };
	uint8_t type = types[take(in) % sizeof types], flags = take(in);
	uint32_t fixed = (uint32_t)xts_type_bytes(type), payload = 0;

	if (!scene.queue || !xts_link_credits(&scene.link))
		return;
	xts_head_encode(frame, type, flags < 128 ? 0 : flags & 0xe0, flags == 77 ? ECONNREFUSED : 0, pick_id(in));
	xts_put32(frame + 24, pick_number(in));
	xts_put32(frame + 28, pick_number(in));
	if (type == XTS_REPLY_RECV || type == XTS_REPLY_SOCKOPT_ACK || type == XTS_REPLY_IOCTL_ACK) {
		payload = pick_number(in) % (LARGEST - fixed);
		xts_put32(frame + fixed - 4, payload);
	}
	proxy_send_as(frame, fixed + payload, flags & 3u);
}

static void op_raw(struct input *in)
{
	uint8_t frame[256] = { 0 }, how = take(in);
	uint32_t bytes = take(in);

	if (!scene.queue)
		return;
	memcpy(frame, host_mac, 6);
	memcpy(frame + 6, proxy_mac, 6);
	xts_put16(frame + 12, XTS_ETHERTYPE);
	for (uint32_t i = 14; i < bytes; i++)
		frame[i] = take(in);
	if (how & 1)
		frame[15] = scene.link.sent++;
	if (how & 2)
		frame[16] = scene.link.recycled;
	pipe_put(&scene.queue->in, frame, bytes);
}

/* While a CONNECT is out as a socket's first message, calls on it wait for the answer, which the input may not give. */
static bool would_wait(int number)
{
	struct xts_sock *s;
	bool waits;
	struct stack *st = process_stacks();

	pthread_mutex_lock(&st->lock);
	s = table_open(st, number);
	waits = s && (s->opening || s->state == TCP_STATE_SYN_SENT);
	pthread_mutex_unlock(&st->lock);
	return waits;
}

/* To another process, as far as this one can tell, and back after a failed exec; or the socket is taken over here. */
static void exec_prepare(int s, bool resume)
{
	struct xts_exec_socket sockets = { .number = s, .descriptor = 1 }, got;
	int memfd = xts_exec_prepare(&sockets, 1), r;

	ENSURE(memfd >= 0);
	if (resume) {
		xts_resume(memfd);
		return;
	}
	while ((r = xts_inherit_next(memfd, &got)) != 0)
		if (r == 1)
			xts_close(got.number);
	xts_close(s);
}

/* As after a fork: others may have the listeners now, and the time that offers may wait is over. */
static void become_joint(void)
{
	struct stack *st = stack_enter_own();

	for (struct xts_sock *s = st->shared; s; s = s->cold->sharing.shared_next) {
		s->cold->sharing.others_may_have = st->joint = true;
		outbox_add(s, TODO_SHARE);
	}
	share_tick(st, now_ns() + NS_PER_S);
	stack_leave(st);
}

static void op_call(struct input *in)
{
	static uint8_t buffer[70000];
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(80),
				       .sin_addr.s_addr = htonl(0xC6120002) };
	struct linger abort_now = { .l_onoff = 1 };
	socklen_t length = sizeof address;
	uint8_t which = take(in);
	int *s = &scene.sockets[which % SOCKETS];
	int value = 1;

	which /= SOCKETS;
	if (which % 16 >= 8 && would_wait(*s))
		return;
	switch (which % 16) {
	case 0:
	case 1:
		xts_close(*s);
		*s = xts_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
		break;
	case 2:
	case 3:
		xts_connect(*s, (struct sockaddr *)&address, sizeof address);
		break;
	case 4:
	case 5:
		xts_send(*s, buffer, pick_number(in) % sizeof buffer, MSG_NOSIGNAL | MSG_DONTWAIT);
		break;
	case 6:
	case 7:
		xts_recv(*s, buffer, pick_number(in) % sizeof buffer, MSG_DONTWAIT | (take(in) & MSG_PEEK));
		break;
	case 8:
		xts_shutdown(*s, take(in) % 3);
		break;
	case 9:
		xts_bind(*s, (struct sockaddr *)&address, sizeof address);
		break;
	case 10:
		if (take(in) % 2)
			xts_share_listener(*s);
		xts_listen(*s, take(in));
		break;
	case 11:
		value = xts_accept4(*s, (struct sockaddr *)&address, &length, SOCK_NONBLOCK);
		s = &scene.sockets[take(in) % SOCKETS];
		xts_close(*s);
		*s = value;
		break;
	case 12:
		xts_setsockopt(*s, SOL_SOCKET, SO_LINGER, &abort_now, sizeof abort_now);
		break;
	case 13:
		if (take(in) % 2) {
			exec_prepare(*s, take(in) % 2);
			break;
		}
		xts_setsockopt(*s, IPPROTO_TCP, 1, &value, sizeof value);
		break;
	case 14:
		xts_getsockopt(*s, SOL_SOCKET, SO_ERROR, &value, &length);
		break;
	default:
		xts_close(*s);
		*s = -1;
	}
}

static void look(void)
{
	struct pollfd fds[SOCKETS];

	for (unsigned i = 0; i < SOCKETS; i++)
		fds[i] = (struct pollfd){ .fd = scene.sockets[i], .events = POLLIN | POLLOUT };
	xts_poll(fds, SOCKETS, 0);
}

static void op_other(struct input *in, uint8_t what)
{
	if (what >= 160) {
		op_datagram(in, take(in));
		return;
	}
	if (what >= 64) {
		op_pdu(in, take(in));
		return;
	}
	if (what % 8 == 0)
		become_joint();
	look();
}

static void check(void)
{
	const struct xts_sock *s = NULL;
	struct stack *st = process_stacks();
	uint32_t count = 0;

	pthread_mutex_lock(&st->lock);
	while ((s = table_next(st, (struct xts_sock *)(uintptr_t)s))) {
		count++;
		ENSURE(s->credits <= XTS_CREDITS_MAX);
		ENSURE((s->first != NULL) == (s->unread != 0));
		if (s->datagrams)
			continue;
		if (s->state == TCP_STATE_ESTABLISHED && !s->lost && !s->closing && s->grant.window)
			ENSURE(xts_credit_buffered(&s->grant) >= s->unread);
	}
	ENSURE(count == st->sockets);
	pthread_mutex_unlock(&st->lock);
}

/* The proxy goes: every socket ends, and can then be closed without an answer. */
static void finish_scene(void)
{
	struct stack *st = process_stacks();
	uint8_t frame[XTS_GOODBYE_BYTES];

	if (scene.queue && scene.link.state == XTS_LINK_UP) {
		xts_link_goodbye(&scene.link, 0);
		ENSURE(xts_link_control(&scene.link, frame, now_ns()) == sizeof frame);
		while (scene.queue->in.count == WAITING_MAX)
			look();
		pipe_put(&scene.queue->in, frame, sizeof frame);
	}
	look();
	for (unsigned i = 0; i < SOCKETS; i++)
		xts_close(scene.sockets[i]);
	datagrams_end();
	look();
	ENSURE(!st->channel || st->channel->link.state == XTS_LINK_UP);
	if (st->channel) { /* the raw frames have spoiled the GOODBYE */
		stack_enter(st);
		channel_die(st, ENETDOWN);
		stack_leave(st);
	}
	ENSURE(st->sockets == 0);
	ENSURE(!st->channel);
	ENSURE(!st->dead);
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static uint64_t slept_ns;

/* In place of the C library's. */
int clock_gettime(clockid_t clock, struct timespec *time)
{
	int r = (int)syscall(SYS_clock_gettime, clock, time);
	uint64_t ns;

	if (!r && clock == CLOCK_MONOTONIC) {
		ns = (uint64_t)time->tv_nsec + slept_ns;
		time->tv_sec += (time_t)(ns / NS_PER_S);
		time->tv_nsec = (long)(ns % NS_PER_S);
	}
	return r;
}

/* What is to wait for a while finds it over: nobody else is here who could wake it. */
static int sleeps(struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask)
{
	static const struct timespec none;
	int r = ppoll(fds, count, timeout ? &none : NULL, mask);

	if (!r)
		slept_ns += (uint64_t)timeout->tv_sec * NS_PER_S + (uint64_t)timeout->tv_nsec;
	return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	static const struct xts_kernel_calls calls = { .ppoll = sleeps };
	struct xts_options options = { .size = sizeof options, .endpoint = "/nowhere", .spin_us = UINT32_MAX };
	struct input in = { data, bytes };

	xts_use_kernel_calls(&calls);
	xts_configure(&options); /* takes effect once */
	for (unsigned i = 0; i < SOCKETS; i++)
		scene.sockets[i] = -1;
	scene.sockets[0] = xts_socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ENSURE(scene.sockets[0] >= 0);
	datagrams_begin();
	while (in.bytes) {
		uint8_t op;

		step_begins(&in, data);
		op = take(&in);
		switch (op % 8) {
		case 0:
		case 1:
		case 2:
			op_message(&in);
			break;
		case 3:
		case 4:
		case 5:
			op_call(&in);
			break;
		case 6:
			op_raw(&in);
			break;
		default:
			op_other(&in, take(&in));
		}
		check();
	}
	steps_ran(data, bytes);
	finish_scene();
	return 0;
}
