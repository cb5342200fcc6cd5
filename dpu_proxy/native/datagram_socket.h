/*
 * Datagram sockets: UDP sockets of the device, each for one socket of a host.
 *
 * Theory of operation
 *
 * A datagram socket is a struct connection in the state CONNECTION_DATAGRAM: identifiers, turns, accounts and ends are
 * those of connections. What only datagrams need is in struct datagrams.
 *
 * Host to network (datagram_send.c): the records of a message are read once, checked against policy and credits, and
 * given to the kernel by sendmmsg(2), their data from where it lies in the frame. A message may have a thousand
 * records: those that a turn has no time for are read in the next ones, and the channel receives nothing meanwhile.
 * What the kernel has no room for waits, in order, in the connection's spill buffer, as does a datagram whose end is
 * still to come (MORE). So the spill buffer is bounded by the credits that were granted. Each credit is free when the
 * kernel has the datagram, or when the kernel or policy has refused it.
 *
 * Network to host (datagram_receive.c): datagrams are taken from the kernel only when the host's credits are enough for
 * them, as far as their size can be known. So the place where a flood piles up is SO_RCVBUF, which the kernel bounds
 * and whose drops it counts. What was taken and does not fit into the messages that may be sent now is kept until then:
 * one batch at most. What several sockets of a channel have received, of a group, crosses once (datagram_copies.c).
 *
 * Errors (of a send, or that ICMP has brought) are the socket's pending error, in c->error: the host is sent the latest.
 * With IP_RECVERR the kernel's error queue has each of them; they go to the host as records, among the datagrams.
 *
 * Several channels may have one socket (share.h): each has a struct connection with a descriptor of its own for the same
 * socket of the kernel, whose address, peer, options and receive queue are therefore common. Who has credits and takes a
 * datagram first gets it, and takes no more than DATAGRAM_TURN before its host has posted credits again. A member whose
 * host has neither posted credits nor sent takes no errors either: they are for those that use the socket. What a host
 * was sent and has not read it gives back before others are to read, and it goes to them (datagram_returned.c).
 */
#ifndef XTS_DATAGRAM_SOCKET_H
#define XTS_DATAGRAM_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "channel.h"
#include "datagram.h"
#include "filter_use.h"
#include "multicast.h"

/* A datagram and what the kernel says about it take no more of the credits than this. */
#define DATAGRAM_CONTROL_MOST 96u
/* Of what was sent, that an entry of the error queue quotes: all of what ICMP does as a rule. */
#define DATAGRAM_QUOTED_BYTES 1024u
#define DATAGRAM_CMSG_BYTES 384u
#define DATAGRAM_RECEIVES 32u    /* taken by one recvmmsg(2) at most */
#define DATAGRAM_RECEIVES_MIN 2u /* at least, as far as there is room for them */
#define DATAGRAM_TURN 8u         /* of a shared socket: for one member, which may be busy, while others wait */
#define DATAGRAM_PERMITTED 4u    /* destinations that are remembered */
/* Not a multiple of a page: the beginnings of all datagrams would compete for the same few lines of the cache. */
#define DATAGRAM_SCRATCH_BYTES (65536u + 320u)

/* Taken from the kernel and not sent to the host yet: records as on the wire. */
struct datagrams_unsent {
	uint8_t *bytes;
	uint32_t at, end, room;
	uint32_t data_left; /* of the datagram of which a part has been sent */
};

struct returned_block;

struct datagrams {
	/* host to network */
	uint32_t waiting_credits; /* paid for what is in the spill buffer */
	uint32_t waiting;         /* datagrams there */
	uint32_t coming;          /* data of the last datagram there that is still to come (MORE) */
	uint32_t each_ns;         /* what sending a datagram has lately cost */
	bool lost;                /* there was no memory for that datagram: what comes of it is dropped */
	bool closing;             /* the host has closed it: what waits is still sent */
	bool closing_keeps;       /* and other processes may still join it */
	bool sends;               /* a shared one: its host has sent since it was named, so it is told of errors */
	bool bound;               /* by the host: it has chosen an address or a port */
	bool peer_is_ipv4;        /* of the peer it is connected to */
	bool peer_is_multicast;   /* likewise */
	uint64_t policy_number;   /* of the rules under which these were permitted */
	struct xts_endpoint permitted[DATAGRAM_PERMITTED];
	uint32_t permitted_next;
	struct xts_endpoint source; /* from which it may send (PKTINFO), under the same rules */
	/* network to host */
	struct filter_use filter;
	bool has_errors;         /* the kernel's error queue may have something */
	uint32_t dropped;        /* by the kernel, as SO_RXQ_OVFL says */
	uint32_t expected_bytes; /* the next datagrams are not larger, as far as can be known */
	uint32_t takes;          /* the most that the next recvmmsg(2) is asked for */
	uint32_t turn;           /* a shared one: it takes so many until its host posts credits again */
	struct datagrams_unsent unsent;
	struct multicast *multicast;
	/* for messages to several sockets (datagram_copies.c), once it is bound */
	struct connection *connection;
	struct list by_port;   /* of the worker's sockets */
	struct list same_port; /* a ring: of the same channel, and family */
	uint16_t port;
	uint8_t differs;    /* others had lately not the same: it is looked at before it is taken */
	uint64_t delivered; /* credits for what was sent to the host: of a shared one it returns no more than that */
	struct returned_block *returning; /* a datagram comes back, and goes on in the next message */
	uint32_t skipping;                /* of such a one, which was dropped */
};

/* Where recvmmsg(2) of a worker puts what comes. */
struct datagram_scratch {
	uint8_t data[DATAGRAM_RECEIVES][DATAGRAM_SCRATCH_BYTES];
	uint8_t control[DATAGRAM_RECEIVES][DATAGRAM_CMSG_BYTES];
	struct sockaddr_storage address[DATAGRAM_RECEIVES];
};

/* --- datagram_socket.c -------------------------------------------------------------------------------------------- */

/* epoll has said something. */
void datagram_event(struct connection *c, uint32_t events);
/* The timer has expired: the kernel had no memory for a datagram. */
void datagram_look(struct connection *c);
/* CLOSE: true when the socket can be closed now, false when something still waits. keeps: a shared one stays for others. */
bool datagram_close(struct connection *c, bool keeps);
/* The pending error is this one, and the host is to be sent it. */
void datagram_fails(struct connection *c, int error);
/* It has just been given a key, or its key again: what credits its host has posted are void. */
void datagram_named(struct connection *c);
/* A connection of state IDLE, with a descriptor of a shared socket, becomes a member of it. bound: by a host. 0 or an
 * errno. */
int datagram_join(struct connection *c, struct multicast *multicast, bool bound);
/* The peer of a shared socket may be one that another member has connected it to. */
void datagram_learn_peer(struct connection *c);
/* bind(2) where the host wants: 0 or an errno. */
int datagram_bind(struct connection *c, const struct xts_endpoint *local);
/* For connection_free(): ends the count of it, and frees what it has. */
void datagram_free(struct connection *c);

/* --- datagram_policy.c -------------------------------------------------------------------------------------------- */

/* Why it will not be sent: an errno; 0: nothing is known against it. */
uint32_t datagram_why_not(struct connection *c, const struct xts_datagram *d);

/* --- datagram_send.c ---------------------------------------------------------------------------------------------- */

/* Sends what waits; goes on in the next turn if this one is over. */
void datagram_flush(struct connection *c);
/* What waits will not be sent. */
void datagram_drop_waiting(struct connection *c);

/* --- datagram_unsent.c -------------------------------------------------------------------------------------------- */

/* What was taken from the kernel will not be sent. */
void datagram_free_unsent(struct connection *c);

/* --- datagram_receive.c ------------------------------------------------------------------------------------------- */

/* Sends its messages to the host, at most budget; true when it has more. */
bool datagram_send(struct connection *c, uint32_t budget);

/* --- datagram_returned.c ------------------------------------------------------------------------------------------ */

/* What was coming back, and will not be complete. */
void datagram_drop_returning(struct connection *c);
/* With the registry's lock, of a shared socket's: a block, whole, which is its from now on. False: it has too many. */
struct returned_datagrams;
bool returned_append(struct returned_datagrams *r, struct returned_block *b);
bool returned_drop_block(struct returned_datagrams *r); /* false: there is none */
/* The first one, without its data, which it returns; NULL: there is none. */
const uint8_t *returned_first(const struct returned_datagrams *r, struct xts_datagram *d);
void returned_taken(struct returned_datagrams *r); /* that one is a member's now */

/* --- datagram_control.c ------------------------------------------------------------------------------------------- */

/* Of a message to be sent: enough for all that datagram_put_control() puts there. */
#define DATAGRAM_SEND_CMSG_BYTES 160u
/* Control data of a datagram of the host's, as sendmsg(2) wants it. */
void datagram_put_control(struct msghdr *h, void *room, const struct xts_datagram *d, bool ipv4, bool to_group);
/* What recvmsg(2) has said about a datagram; *dropped is SO_RXQ_OVFL. */
void datagram_get_control(struct msghdr *h, struct xts_datagram *d, uint32_t *dropped);

/* --- datagram_filter.c -------------------------------------------------------------------------------------------- */

/* Is it one of SO_ATTACH_FILTER, SO_DETACH_FILTER and XTS_OPTION_FILTER? */
bool filter_is_option(int level, int option);
/* value: the instructions, or a name, in memory that the host may change meanwhile. 0 or an errno. */
int filter_set(struct connection *c, int option, const void *value, uint32_t bytes);
/* The kernel says that so many datagrams have been dropped at the socket: its filter's totals learn of it. */
void filter_drops_known(struct connection *c, uint32_t dropped);
/* The socket has gone, and its filter with it, unless other processes have it. */
void filter_free(struct connection *c);
/* Of the socket, whichever process has set it. */
struct filter_use filter_of(const struct connection *c);
/* With the registry's lock: the socket gets a key, and what its filter is charged for is all its members' from now on;
 * it has one member, whose alone it is again; it ends. */
void filter_share(struct connection *c, struct shared *s);
void filter_unshare(struct connection *c, struct shared *s);
void filter_end(struct shared *s);

/* --- datagram_stamps.c -------------------------------------------------------------------------------------------- */

/* An item of level SOL_SOCKET: a time stamp, or nothing that is looked at. */
void datagram_take_stamp(struct xts_datagram *d, const struct cmsghdr *item);

#endif
