/* A stream leaves its channel without its connection: its TCP side goes to another owner, and comes back to a
 * connection of a channel (save and load of socket_kind.h). */
#include "channel/channel.h"
#include "connection/socket_kind.h"
#include "connection/tcp_move.h"
#include "pushed/pushed.h"
#include "pushed/pushed_move.h"

#include <errno.h>
#include <sys/epoll.h>

#define CREDITS_LEAST 2u /* a window of which one can be given back */

/* Is it connected, and does nobody but its host know more of it than its TCP side? */
static int can_be_saved(const struct connection *c)
{
	const struct pushed *p = c->tcp.pushed;

	if ((c->state != CONNECTION_ESTABLISHED && c->state != CONNECTION_FAILED) || c->connect_reply || c->spent)
		return EINVAL;                                          /* it is not connected, and never was */
	return p && (p->peeking || p->give_back_left) ? EOPNOTSUPP : 0; /* positions that only this host knows */
}

static void count_spilled(struct connection *c, int64_t bytes)
{
	c->worker->stats.spill_bytes += (uint64_t)bytes;
	c->channel->spill_bytes += (uint64_t)bytes;
}

int stream_save(struct connection *c, struct tcp_side *to)
{
	if (!to)
		return can_be_saved(c);
	if (c->in_epoll)
		(void)epoll_ctl(c->worker->epoll_fd, EPOLL_CTL_DEL, c->tcp.fd, NULL);
	c->in_epoll = false;
	buffers_tune(c);
	closed_handed_over(c);
	if (c->tcp.pushed)
		pushed_leave(c);
	count_spilled(c, -(int64_t)c->tcp.out.spill.bytes);
	tcp_side_move(to, &c->tcp);
	return 0;
}

bool stream_stays_for_key(const struct connection *c)
{
	return c->key_held && !(c->channel->link.features & XTS_FEATURE_MOVE_NAMED);
}

const char *stream_stays(const struct connection *c)
{
	if (stream_stays_for_key(c))
		return "other processes may ask for it";
	return pushed_any(c) || (c->tcp.pushed && c->tcp.pushed->peeking) ? pushed_stays(c->tcp.pushed) : NULL;
}

/* An offer that was not answered is handed over, too: its host has answered nothing else either. */
int stream_hand_over(struct connection *c, struct handed *to)
{
	if (c->state != CONNECTION_ESTABLISHED || c->connect_reply || c->close_reply || c->tcp.fd < 0)
		return EINVAL;
	if (c->tcp.pushed && c->tcp.pushed->started && !c->tcp.pushed->ready && !stream_stays_for_key(c))
		return EAGAIN;
	if (stream_stays(c))
		return EBUSY;
	if (!to)
		return 0;
	if (c->tcp.pushed && !pushed_any(c)) { /* all that was pushed onto it was refused */
		pushed_free(c->tcp.pushed);
		c->tcp.pushed = NULL;
	}
	c->announced = false;
	listener_offer_ends(c);
	return stream_save(c, &to->side);
}

int stream_load(struct connection *c, struct tcp_side *from, const struct kind_record *own)
{
	(void)own;
	connection_grant_claimed(c, outgoing_credits(&from->out), from->pushed ? XTS_ULP_WINDOW_MIN : CREDITS_LEAST);
	tcp_side_move(&c->tcp, from);
	if (c->tcp.pushed && !pushed_adopt(c)) {
		tcp_side_move(from, &c->tcp);
		return ENOBUFS;
	}
	c->tcp.received_bytes = c->tcp.accepted_bytes = 0; /* over this channel */
	c->fin_of_another = c->tcp.fin_wanted;
	connection_enter(c, CONNECTION_ESTABLISHED);
	/* layers may hold bytes that epoll does not report */
	c->readable = c->tcp.error || c->tcp.pushed || c->tcp.returned.last;
	count_spilled(c, c->tcp.out.spill.bytes);
	closed_begin(c, XTS_BEGUN_CLAIM, NULL);
	return 0;
}
