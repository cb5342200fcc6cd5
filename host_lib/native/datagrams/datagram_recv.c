/* Receiving datagrams: udp_recvmsg() of the kernel. A pending error comes before data. */
#include <time.h> /* which errqueue.h needs */

#include <linux/errqueue.h>

#include "core/operation.h"
#include "datagrams/datagram_calls.h"
#include "core/address.h"
#include "core/received_data.h"
#include "core/channel.h"
#include "core/clock.h"
#include "datagrams/datagrams.h"
#include "core/receive_callback.h"
#include "core/socket.h"
#include "core/stack.h"
#include "core/transfer.h"

/* One wait for a datagram. */
struct awaiting {
	struct operation op;
	bool asks; /* the proxy may have one that it has not sent yet */
	bool shut; /* there is none, and none will come */
};

static int datagram_step(struct operation *op)
{
	struct awaiting *o = (struct awaiting *)op;
	struct xts_sock *s = op->s;
	int r = take_error(s);

	if (r)
		return r;
	if (datagram_first(s)) {
		r = callback_admits(s);
		if (r || !callback_decides(s))
			return r ? r : STEP_DONE;
	}
	if (s->lost)
		return -ENETDOWN;
	datagram_interest(s, false);
	if (!op->pumped)
		return STEP_WAITS;
	if (o->asks) {
		o->asks = op->pumped = false;
		r = datagram_ask(s);
		return r ? r : STEP_AGAIN;
	}
	o->shut = op->blocking && s->shutdown & RCV_SHUTDOWN;
	return o->shut ? STEP_DONE : STEP_WAITS;
}

/* __skb_recv_udp(): returns 0 if there is a datagram, 1 if the socket is shut down for receiving, or -errno. */
static int wait_for_one(struct xts_sock *s, int flags)
{
	struct awaiting o = { .op = operation_to_receive(s, datagram_step, !s->nonblocking && !(flags & MSG_DONTWAIT)) };
	int r;

	o.op.spins = true;
	o.asks = !o.op.blocking && s->own.shared && s->datagrams->withheld;
	r = operation_run(&o.op);
	return r ? r : o.shut;
}

static ssize_t recv_one(struct xts_sock *s, const struct sink *to, int flags, struct about *about)
{
	const struct received_datagram *d;
	size_t n, length;
	int r = wait_for_one(s, flags);

	if (r < 0)
		return r;
	if (r) {
		if (about)
			about_no_name(about);
		return 0;
	}
	d = s->datagrams->first;
	length = d->data_bytes;
	n = length < to->bytes ? length : to->bytes;
	if (n > to->usable) {
		if (!(flags & MSG_PEEK))
			datagram_consume(s); /* it is lost, as in the kernel */
		return -EFAULT;
	}
	if (n)
		buffer_copy(s, d->control_bytes, to->iov, 0, n);
	if (about) {
		if (about->name)
			about->name_length = address_bytes(s->family, &d->from, about->name, about->name_length);
		if (n < length)
			about->flags |= MSG_TRUNC;
		datagram_controls_put(s, about);
	}
	if (!(flags & MSG_PEEK))
		datagram_consume(s);
	return (ssize_t)(flags & MSG_TRUNC ? length : n);
}

/* An error from ICMP: the pending error is the first of these. */
static bool is_of_icmp(const struct queued_error *e)
{
	return e->about.error.origin == SO_EE_ORIGIN_ICMP || e->about.error.origin == SO_EE_ORIGIN_ICMP6;
}

/* ip_recv_error(), and sock_dequeue_err_skb(): after the last error from ICMP, none is pending any more. */
static ssize_t recv_error(struct xts_sock *s, const struct sink *to, struct about *about)
{
	struct queued_error *e = datagram_first_error(s);
	bool of_icmp;
	size_t n, done = 0;

	if (!e) {
		channel_pump(s->stack);
		e = datagram_first_error(s);
	}
	if (!e)
		return -EAGAIN;
	n = e->about.record.data_bytes < to->bytes ? e->about.record.data_bytes : to->bytes;
	if (n > to->usable) {
		datagram_drop_error(s);
		return -EFAULT;
	}
	for (const struct iovec *at = to->iov; done < n; at++) {
		size_t part = at->iov_len < n - done ? at->iov_len : n - done;

		if (part)
			memcpy(at->iov_base, e->data + done, part);
		done += part;
	}
	if (about) {
		about->flags |= MSG_ERRQUEUE;
		if (n < e->about.record.data_bytes)
			about->flags |= MSG_TRUNC;
		if (!e->about.record.endpoint.ip_version)
			about_no_name(about); /* a time stamp */
		else if (about->name)
			about->name_length = address_bytes(s->family, &e->about.record.endpoint, about->name,
							   about->name_length);
		datagram_error_put(s, &e->about, about);
	}
	of_icmp = is_of_icmp(e);
	datagram_drop_error(s);
	e = datagram_first_error(s);
	if (of_icmp && !(e && is_of_icmp(e)))
		s->error = 0;
	return (ssize_t)n;
}

ssize_t datagram_recv(struct xts_sock *s, const struct sink *to, int flags, struct about *about, bool *keys)
{
	(void)keys;
	return flags & MSG_ERRQUEUE ? recv_error(s, to, about) : recv_one(s, to, flags, about);
}

static ssize_t recv_message(struct xts_sock *s, struct msghdr *m, int flags)
{
	struct about about;
	struct sink to;
	ssize_t r = about_message(&about, m);

	if (!r)
		r = sink_of(&to, m->msg_iov, m->msg_iovlen);
	if (r)
		return r;
	r = recv_one(s, &to, flags, &about);
	return r < 0 ? r : about_return(&about, m, r);
}

int datagram_recv_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags, uint64_t deadline_ns)
{
	unsigned got = 0;
	ssize_t r = take_error(s);

	while (!r && got < count) {
		struct mmsghdr *m = &messages[got];

		r = recv_message(s, &m->msg_hdr, flags & ~MSG_WAITFORONE);
		if (r < 0)
			break;
		m->msg_len = (unsigned)r;
		r = 0;
		got++;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		if (deadline_ns != FOREVER && now_ns() >= deadline_ns)
			break;
	}
	return got ? (int)got : (int)r;
}
