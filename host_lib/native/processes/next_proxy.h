/*
 * Another process of the proxy takes the queue over (PROTOCOL.md, "Upgrade"): next_proxy.c, claims.c.
 *
 * Theory of operation. MOVE says so. This side goes on as usual until no request of it is under way; then MOVE_ACK is
 * its last message of this epoch, and no frame may leave (channel_slot(), as without frame credits). Data of
 * connections that had to wait for these does not delay it, as it may follow behind their claims. GOODBYE with ERESTART
 * ends the epoch; it acknowledges all frames that have come. If none is missing, nothing was under way, and the link
 * opens again in place, with HELLO on the same queue. A process that is asleep sends nothing, and need not answer MOVE:
 * the proxy waits until it has been quiet for XTS_MOVE_QUIET_MS. One that wakes up looks at its queue before it sends
 * anything (look_first()), and answers MOVE before anything else; so MOVE_ACK is the only message that may cross
 * GOODBYE, and may be lost.
 *
 * Connections and listeners are claimed there by their keys, which are made of the ticket in MOVE and their old
 * identifiers. Until the answer comes they are as after a first request that is out (s->opening): calls that need the
 * proxy wait for it, and a close follows it. What has been received stays here, and counts as unread. Datagram sockets
 * are claimed so, too, where the proxy knows that (MOVE_DATAGRAM). A listener comes without its protocols: it accepts
 * nothing before the progress thread has pushed them again (again.h), from the configuration of that process. All other
 * sockets are as after the end of a channel: those that can be made again are (again.h).
 *
 * When the process of the proxy has died (PROTOCOL.md, "Crash"), REPLACED ends the epoch, with a ticket, at any moment.
 * What was under way is lost, and nobody knows how much of it. So RESUME, in place of CLAIM, says how many bytes have
 * gone both ways since the socket came to its channel. The proxy compares, and resets what does not agree. A CONNECT
 * that was not answered is sent again. If that process dies as well, before it has answered a claim, the next one is
 * sent the same claim: it does not know the socket if the claim had come, and does if not.
 */
#ifndef XTS_HOST_MOVE_H
#define XTS_HOST_MOVE_H

#include <stdbool.h>
#include <stdint.h>

struct channel;
struct stack;
struct xts_sock;

/* A socket that is to be claimed. */
struct moved_socket {
	struct xts_sock *socket;
	uint32_t id;
	uint32_t proxy_id;                 /* that it had; 0: its CONNECT was not answered, and is sent again */
	uint64_t sent_base, received_base; /* before its claim was sent */
};

/* Of a channel. */
struct move {
	uint64_t ticket;      /* 0: nothing moves */
	uint64_t deadline_ns; /* when MOVE_ACK has to leave, whatever is under way; 0: it has left, or none is due */
	uint64_t goodbye_ns;  /* when the answer to MOVE_ACK has to be here; 0: none is due */
	bool acked;           /* no frame may leave before the next epoch */
	bool opening;         /* the link opens again */
	struct moved_socket *sockets;
	uint32_t count, claimed;
	uint32_t unanswered; /* claims that were sent: until there is none, `sockets` is kept */
	bool died;           /* the process before this one: sockets are claimed by RESUME */
	bool all_due;        /* it has to be said that all are claimed */
};

/* Are there sockets to claim? Or does it still have to say that all are claimed? */
static inline bool move_is_claiming(const struct move *m)
{
	return m->claimed < m->count || m->all_due;
}

/* Is there something to do, other than to receive? */
static inline bool move_is_busy(const struct move *m)
{
	return m->deadline_ns || m->opening || move_is_claiming(m);
}

/* From MOVE_ACK until all sockets are claimed. */
static inline bool move_is_between(const struct move *m)
{
	return m->acked || m->opening || move_is_claiming(m);
}

/* Entries of struct socket_kind for streams and listeners: is it connected, or does it listen? */
bool move_is_of_state(const struct xts_sock *s);
/* The window, without what is here already. A shared listener promises nothing before it is shared again. */
uint32_t move_promises(struct xts_sock *s);
bool move_takes_pending(struct xts_sock *s);
/* The proxy's process has died before it answered CONNECT: is that sent to the next one? Not where it would miss what
 * was set before. */
bool move_connects_again(const struct xts_sock *s);
/* Waits until sockets are claimed that are about to be, for a second at most: before that, a fork or exec cannot keep
 * them. */
void move_settle(struct stack *st);
/* Between two processes of the proxy, does it have the room that it had before? So poll() reports, and a call that may
 * not wait waits a moment for the next process. */
bool move_has_room(const struct xts_sock *s);
/* When to call next_proxy.tick(). */
static inline uint64_t move_next_ns(const struct move *m)
{
	return m->deadline_ns ? m->deadline_ns : m->goodbye_ns ? m->goodbye_ns : UINT64_MAX;
}
/* CLAIM_ACK for one of these, which message_reply() handles next. False: the channel has ended. */
bool move_claimed(struct xts_sock *s, uint32_t post_credits, uint16_t error);
/* Counts from now on what the socket's channel is sent and sends: a claim is about to leave. */
void move_base(struct xts_sock *s);

/* Sends claims, as far as frames may leave. */
void claims_send(struct stack *st);
void claims_forget(struct channel *c);

/* What a channel does at these moments, if its queue goes to another process. */
struct next_proxy {
	/* A call of the program begins. If the queue has not been looked at for a while, the proxy may have handed it
	 * on: nothing may be sent before that is known. */
	void (*look_first)(struct stack *st);
	/* A frame is to leave, and MOVE has come: sends MOVE_ACK, if nothing is under way. True: it has left, and no
	 * frame may follow. */
	bool (*ack)(struct channel *c);
	void (*claim_some)(struct stack *st); /* claims_send() */
	void (*tick)(struct stack *st, uint64_t now);
	/* The link has gone down. True: it opens again, and the channel lives. */
	bool (*restarts)(struct stack *st, int error);
	/* The link is up, perhaps again. */
	void (*opened)(struct stack *st);
	/* A call that sends may not wait, and there is no room. False: there was none before, or it does not come back
	 * so soon. The lock is released meanwhile. */
	bool (*wait_for_room)(struct xts_sock *s);
	void (*release)(struct channel *c); /* claims_forget(): the channel is freed */
};
extern const struct next_proxy next_proxy;

#endif
