/* Datagram sockets, as a kind (core/socket_kind.h): the table, and what is short. */
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include "core/arguments.h"
#include "core/asked.h"
#include "core/call.h"
#include "core/channel.h"
#include "core/error.h"
#include "core/stack.h"
#include "datagrams/datagram_calls.h"
#include "datagrams/datagrams.h"
#include "tables/socket_kinds.h"
#include "processes/inherit.h"
#include "processes/socket_record.h"
#include "attaching/status.h"
#include "streams/stream.h"

/* --- calls that are for connections ------------------------------------------------------------------------------- */

static int listen_on(struct xts_sock *s, int backlog)
{
	(void)s;
	(void)backlog;
	return -EOPNOTSUPP;
}

static int accept_on(struct xts_sock *s, struct sockaddr *address, socklen_t *length, int flags)
{
	(void)s;
	(void)address;
	(void)length;
	(void)flags;
	return -EOPNOTSUPP;
}

/* --- other calls -------------------------------------------------------------------------------------------------- */

/* SIOCOUTQ: bytes that the device's kernel may not have taken yet. UDP has no other ioctl(). */
static int control(struct xts_sock *s, unsigned long request, void *argument)
{
	int bytes = (int)(s->peer_window > s->credits ? s->peer_window - s->credits : 0);

	switch (request) {
	case SIOC_PUSH_ULP_RX:
	case SIOC_PUSH_ULP_TX:
	case SIOC_PUSH_ULP:
	case SIOC_PEEK_MODE:
	case SIOC_END_PEEK_MODE:
		last_error_note(EOPNOTSUPP, "protocols are pushed onto connections, and this is a UDP socket");
		return -EOPNOTSUPP;
	case SIOCOUTQ:
		break;
	default:
		return -ENOTTY;
	}
	if (!xts_argument_is_writable(argument, sizeof bytes))
		return -EFAULT;
	memcpy(argument, &bytes, sizeof bytes);
	return 0;
}

static int unread(const struct xts_sock *s)
{
	const struct received_datagram *d = datagram_first(s);

	return d ? d->data_bytes : 0;
}

static void hint_was_set(struct xts_sock *s, bool on)
{
	s->datagrams->errors_are_urgent = on;
}

static bool packet_is_here(const struct xts_sock *s)
{
	return datagram_first(s);
}

/* --- what happens to it ------------------------------------------------------------------------------------------- */

static uint8_t status(const struct xts_sock *s)
{
	return s->datagrams->connected ? XTS_STATE_ESTABLISHED : XTS_STATE_UNCONNECTED;
}

static int ask_first(struct xts_sock *s)
{
	struct call call = { .type = XTS_CMD_OPEN_DATAGRAM, .receive_bytes = s->datagrams->receive_bytes, .makes = true };

	datagram_grant(s);
	call.post_credits = s->grant.outstanding;
	return call_proxy(s, &call);
}

/* The port of a socket that the program has not bound: the device chose it, and peers may know it. If another socket
 * has it now, the device chooses another one, unless that is this very socket, whose key is being renewed. */
static int bind_chosen(struct xts_sock *s)
{
	struct xts_endpoint local = { .ip_version = s->family, .port = s->local.port };
	int r;

	if (!local.port)
		return 0;
	r = asked_bind(s, local);
	if (r != -EADDRINUSE || (s->cold->sharing.others_may_have && !s->away))
		return r;
	memset(&s->local, 0, sizeof s->local);
	return 0;
}

/* --- several processes have it ------------------------------------------------------------------------------------ */

static bool no(const struct xts_sock *s)
{
	(void)s;
	return false;
}

static bool is_joined(const struct xts_sock *s)
{
	return s->cold->sharing.key && !s->lost;
}

static void is_shared(struct xts_sock *s)
{
	if (s->datagrams->withheld)
		datagram_return_unread(s);
}

/* Unread datagrams go back to the proxy, so that the new program can read them. */
static int give_up(struct xts_sock *s)
{
	int r;

	if (!s->proxy_id || s->lost)
		return stream_give_up(s);
	r = share_by_key_with_others(s);
	if (r)
		return r;
	s->cold->sharing.others_may_have = s->stack->joint = true;
	datagram_leave(s);
	return s->open ? 0 : -EBADF;
}

static void resume(struct xts_sock *s)
{
	s->datagrams->leaves = s->cold->sharing.leaves = false;
}

/* Unread datagrams go back to the proxy, for whichever of the two processes reads next. */
static int pass(struct xts_sock *s)
{
	int r = datagram_need_proxy(s);

	if (r)
		return r;
	r = pass_by_key(s);
	if (!r && s->stack->channel)
		channel_flush(s->stack, true);
	return r;
}

/* Its window is within the limit of this process's settings. */
static void is_received(struct xts_sock *s)
{
	datagram_set_window(s, s->datagrams->window);
}

static void fill(struct socket_record *b, const struct xts_sock *s)
{
	const struct datagrams *q = s->datagrams;

	b->datagrams = 1;
	b->connected = q->connected;
	b->broadcast = q->broadcast;
	b->tells_drops = q->tells_drops;
	b->queues_errors = q->queues_errors;
	b->segment_bytes = q->segment_bytes;
	b->receive_bytes = q->receive_bytes;
	b->window = q->window;
	b->stamping = q->stamping;
}

static void apply(const struct socket_record *b, struct xts_sock *s)
{
	struct datagrams *q = s->datagrams;

	q->connected = b->connected;
	q->broadcast = b->broadcast;
	q->tells_drops = b->tells_drops;
	q->queues_errors = b->queues_errors;
	q->segment_bytes = b->segment_bytes;
	q->receive_bytes = b->receive_bytes;
	q->window = b->window;
	q->stamping = b->stamping;
}

static bool is_sound(const struct socket_record *b)
{
	return record_has_key(b) && !b->unread.bytes && !b->pdus.first && b->relatives == -1 &&
	       b->state == TCP_STATE_CLOSE && b->phase == PHASE_UNCONNECTED && b->window >= XTS_DATAGRAM_WINDOW_MIN;
}

static bool label_is_sound(const struct socket_record *b)
{
	return b->phase == PHASE_UNCONNECTED;
}

const struct socket_kind datagram_kind = {
	.name = "UDP socket",
	.type = SOCK_DGRAM,
	.protocol = IPPROTO_UDP,
	.has_packets = true,
	.members_receive = true,
	.unread_stays = true,
	.readable_on = EPOLLIN | EPOLLERR, /* an error waits to be fetched */
	.changed_by_again = EPOLLOUT,
	.make = datagram_make,
	.bind = datagram_bind,
	.connect = datagram_connect,
	.listen = listen_on,
	.accept = accept_on,
	.shutdown = datagram_shutdown,
	.peer = datagram_peer,
	.send = datagram_send,
	.recv = datagram_recv,
	.send_messages = datagram_send_messages,
	.recv_messages = datagram_recv_messages,
	.ioctl = control,
	.unread = unread,
	.option_set = datagram_option_set,
	.option_get = datagram_option_get,
	.need_proxy = datagram_need_proxy,
	.option_was_set = datagram_option_was_set,
	.hint_was_set = hint_was_set,
	.packet_is_here = packet_is_here,
	.packet_offered = datagram_offered,
	.packet_take = datagram_take,
	.packet_give_back = datagram_give_back,
	.events = datagram_events,
	.status = status,
	.receive = datagram_told,
	.advertise = datagram_advertise,
	.flush = datagram_flush,
	.give_back = datagram_send_returns,
	.lose = datagram_lose,
	.drop = datagram_drop,
	.seek_error = datagram_seek_error,
	.leave = datagram_leave,
	.free = datagram_free,
	.moves = datagram_moves,
	.leaves = datagram_leaves,
	.promises = datagram_promises,
	.takes_pending = datagram_takes_pending,
	.ask_first = ask_first,
	.bind_chosen = bind_chosen,
	.listen_again = kind_has_nothing_to_do,
	.is_fresh = no,
	.is_server = no,
	.is_joined = is_joined,
	.may_be_shared = sharing_datagrams_possible,
	.is_shared = is_shared,
	.share_sent = datagram_naming,
	.share_answered = datagram_is_named,
	.join = datagram_join,
	.interest = datagram_interest,
	.withdraw = kind_does_nothing,
	.unshared = kind_does_nothing,
	.share_before_fork = datagram_share_before_fork,
	.share_tick = datagram_share_tick,
	.give_back_offers = kind_does_nothing,
	.is_away = datagram_is_away,
	.before_fork = datagrams_before_fork,
	.at_exit = datagrams_leave,
	.forget = datagram_forget,
	.give_up = give_up,
	.resume = resume,
	.pass = pass,
	.is_received = is_received,
	.record_fill = fill,
	.record_apply = apply,
	.record_is_sound = is_sound,
	.label_is_sound = label_is_sound,
};
