/* What a socket still has to send, in the order in which it leaves: nothing of a connection before it is accepted, its
 * data before its end, and PARK last, as the connection is no longer ours after it. */
#include <errno.h>

#include "core/outbox.h"
#include "core/socket_kind.h"
#include "processes/inherit.h"
#include "processes/take_over.h"

static int give_back(struct xts_sock *s)
{
	return kind_of(s)->give_back(s);
}

/* Data that does not go with SEND. */
static int flush(struct xts_sock *s)
{
	return kind_of(s)->flush(s) ? 0 : -EAGAIN;
}

const struct outbox_step outbox_steps[OUTBOX_STEPS] = {
	{ TODO_ACCEPTED, outbox_send_accepted },
	{ TODO_SHARE, share_send },
	{ TODO_GIVE_BACK, give_back },
	{ TODO_DATA, flush },
	{ (uint8_t)~TODO_PARK, outbox_send_todo },
	{ TODO_PARK, turn_send_park },
};
