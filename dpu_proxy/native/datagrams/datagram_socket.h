/*
 * Datagram sockets: UDP sockets of the device, each for one socket of a host.
 *
 * Theory of operation
 *
 * A datagram socket is a struct connection in the state CONNECTION_DATAGRAM. Identifiers, turns, accounts and closing
 * are the same as for connections. What only datagram sockets need is in struct datagrams.
 *
 * Host to network (datagram_send.c): the records of a message are read once, checked against policy and credits, and
 * given to the kernel by sendmmsg(2), straight from the frame. A message may have a thousand records. Those that a turn
 * has no time for are read in the next turns, and the channel receives nothing meanwhile. Datagrams that the kernel has
 * no room for wait, in order, in the connection's spill buffer, as does a datagram whose end has not come yet (MORE).
 * So the spill buffer is bounded by the credits that were granted. A credit is freed when the kernel has the datagram,
 * or when the kernel or policy has refused it.
 *
 * Network to host (datagram_receive.c): datagrams are taken from the kernel only when the host's credits are enough for
 * them, as far as their size can be known. So a flood piles up in the socket's receive buffer, which the kernel bounds
 * (SO_RCVBUF) and whose drops it counts. Datagrams that were taken and do not fit into the messages that may be sent
 * now are kept until they do: one batch at most.
 *
 * Errors (of a send, or reported by ICMP) become the socket's pending error, in c->error: the host is sent the latest.
 * With IP_RECVERR the kernel's error queue has all of them, and they go to the host as records among the datagrams.
 *
 * Several channels may have one socket (share.h): each has a struct connection with a descriptor of its own for the
 * same socket of the kernel, whose address, peer, options and receive queue are therefore common. The first member with
 * credits that takes a datagram gets it; it takes no more than DATAGRAM_TURN before its host has posted credits again.
 * A member whose host has neither posted credits nor sent anything takes no errors either: they are for the members
 * that use the socket. Before other processes read, a host gives back the datagrams that it was sent and has not read,
 * and the others get them (returned_datagrams.c).
 */
#ifndef XTS_DATAGRAM_SOCKET_H
#define XTS_DATAGRAM_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "channel/channel.h"
#include "wire/datagram.h"
#include "datagrams/datagram_side.h"
#include "datagrams/filter_use.h"
#include "datagrams/multicast.h"

/* The control data of a datagram takes no more credits than this. */
#define DATAGRAM_CONTROL_MOST 96u
/* How many bytes of the sent datagram an entry of the error queue quotes. ICMP itself rarely quotes more. */
#define DATAGRAM_QUOTED_BYTES 1024u
#define DATAGRAM_CMSG_BYTES 384u
#define DATAGRAM_RECEIVES 32u    /* taken by one recvmmsg(2) at most */
#define DATAGRAM_RECEIVES_MIN 2u /* at least this many, as far as there is room for them */
#define DATAGRAM_TURN 8u         /* of a shared socket: for one member, which may be busy while others wait */
#define DATAGRAM_PERMITTED 4u    /* permitted destinations that are remembered */
/* Not a multiple of a page: else the beginnings of all datagrams would compete for the same few cache lines. */
#define DATAGRAM_SCRATCH_BYTES (65536u + 320u)

/* Datagrams taken from the kernel and not sent to the host yet: records as on the wire. */
struct datagrams_unsent {
	uint8_t *bytes;
	uint32_t at, end, room;
	uint32_t data_left; /* data left of a datagram that was sent in part */
};

struct returned_block;

struct datagrams {
	/* host to network */
	uint32_t waiting_credits; /* credits paid for what is in the spill buffer */
	uint32_t waiting;         /* datagrams in the spill buffer */
	uint32_t coming;          /* data of its last datagram that has not come yet (MORE) */
	uint32_t each_ns;         /* recent cost of sending a datagram */
	bool lost;                /* there was no memory for that last datagram: the rest of it is dropped */
	bool closing;             /* the host has closed it: what waits is still sent */
	bool closing_keeps;       /* other processes may still join it */
	bool sends;               /* a shared one: its host has sent since it was named, so it gets errors */
	bool bound;               /* the host has chosen an address or a port */
	bool peer_is_ipv4;        /* the connected peer has an IPv4 address */
	bool peer_is_multicast;   /* the connected peer is a multicast address */
	uint64_t policy_number;   /* number of the rules under which these were permitted */
	struct xts_endpoint permitted[DATAGRAM_PERMITTED];
	uint32_t permitted_next;
	struct xts_endpoint source; /* a source from which it may send (PKTINFO), under the same rules */
	/* network to host */
	struct filter_use filter;
	bool has_errors;         /* the kernel's error queue may have something */
	uint32_t dropped;        /* datagrams dropped by the kernel, from SO_RXQ_OVFL */
	uint32_t expected_bytes; /* the next datagrams are expected to be no larger */
	uint32_t takes;          /* the most that the next recvmmsg(2) is asked for */
	uint32_t turn;           /* a shared one: how many it may still take until its host posts credits again */
	struct datagrams_unsent unsent;
	struct multicast *multicast;
	/* credits for what was sent to the host; on a shared socket it may return no more than this */
	uint64_t delivered;
	struct returned_block *returning; /* set while a datagram that comes back goes on in the next message */
	uint32_t skipping;                /* bytes left of such a datagram when it was dropped */
	/* what came back, and has come from another process of the proxy: for the members, when the socket is shared */
	struct returned_block *come;
	int come_error;
};

/* Buffers for a worker's recvmmsg(2). */
struct datagram_scratch {
	uint8_t data[DATAGRAM_RECEIVES][DATAGRAM_SCRATCH_BYTES];
	uint8_t control[DATAGRAM_RECEIVES][DATAGRAM_CMSG_BYTES];
	struct sockaddr_storage address[DATAGRAM_RECEIVES];
};

/* --- datagram_socket.c -------------------------------------------------------------------------------------------- */

/* Sets the pending error, which the host will be sent. */
void datagram_fails(struct connection *c, int error);
/* As struct socket_kind's join and join_first. */
struct kind_record;
int datagram_join(struct connection *c, struct shared *s);
int datagram_join_first(struct connection *c, struct shared *s, struct kind_record **own);
/* With the lock held: s begins with this member. */
void datagram_share_begins(struct shared *s, struct connection *l);
/* c becomes a datagram socket. False: no memory. */
bool datagram_become(struct connection *c);
/* Reads the peer of a shared socket, which another member may have connected. */
void datagram_learn_peer(struct connection *c);
/* bind(2) where the host wants: 0 or an errno. */
int datagram_bind(struct connection *c, const struct xts_endpoint *local);
/* The kernel picks a port when a socket without one connects or sends, from all ports: this takes one of the tenant's
 * before that. 0 or an errno. */
int datagram_pick_port(struct connection *c);

/* --- datagram_policy.c -------------------------------------------------------------------------------------------- */

/* Returns the errno for which the datagram will not be sent; 0: it may be sent. */
uint32_t datagram_why_not(struct connection *c, const struct xts_datagram *d);

/* --- datagram_send.c ---------------------------------------------------------------------------------------------- */

/* Sends what waits, and goes on in the next turn if this one is over. */
void datagram_flush(struct connection *c);
/* Drops what waits to be sent. */
void datagram_drop_waiting(struct connection *c);

/* --- datagram_unsent.c -------------------------------------------------------------------------------------------- */

/* Frees datagrams that were taken from the kernel and will not be sent. */
void datagram_free_unsent(struct connection *c);

/* --- datagram_receive.c ------------------------------------------------------------------------------------------- */

/* Sends its messages to the host, at most budget; true when it has more. */
bool datagram_send(struct connection *c, uint32_t budget);

/* --- datagram_move.c: as struct socket_kind's ----------------------------------------------------------------------- */

struct handed;
int datagram_hand_over(struct connection *c, struct handed *to);
int datagram_arrive(struct handed *to, const uint8_t *record, uint32_t bytes, int fd, bool protocols);
struct tcp_side;
int datagram_load(struct connection *c, struct tcp_side *from, const struct kind_record *own);
/* With the lock held: c becomes the first member of s, with what the record has for all members, and loses. `check`:
 * 0 or an errno, if c may not. */
int datagram_begins_again(struct connection *c, struct shared *s, struct kind_record **own,
			  int (*check)(struct connection *, const struct shared *));

/* --- returned_datagrams.c ------------------------------------------------------------------------------------------ */

/* Drops a datagram that was coming back and will not be complete. */
void datagram_drop_returning(struct connection *c);
/* Are there datagrams that came back, for c to take? */
bool datagrams_have_returned(const struct connection *c);
bool datagram_has_returned_error(const struct connection *c);
void datagram_take_returned_error(struct connection *c); /* it becomes the pending error of this member */
/* The following are called with the registry's lock. */
struct returned_datagrams;
bool returned_drop_block(struct returned_datagrams *r); /* drops the first block; false: there is none */
/* Describes the first datagram and returns its data; NULL: there is none. */
const uint8_t *returned_first(const struct returned_datagrams *r, struct xts_datagram *d);
void returned_taken(struct returned_datagrams *r); /* a member has taken the first datagram */
/* All of them, in memory of malloc(). 0 or -ENOMEM. */
int returned_copy(const struct returned_datagrams *r, struct xts_record_bytes *out);
/* What c has received of its process, which goes on to send: the end of the last one is missing. Needs no lock. */
struct xts_record_bytes datagram_returning(const struct connection *c);
/* It has come with this from another process of the proxy. 0 or -ENOMEM. Needs no lock. */
int datagram_take_returned(struct connection *c, const struct datagram_side *s);
/* It is a member of a shared socket now. */
void returned_join_shared(struct shared *s, struct connection *c);

/* --- datagram_control.c ------------------------------------------------------------------------------------------- */

/* Room for everything that datagram_put_control() writes for a message. */
#define DATAGRAM_SEND_CMSG_BYTES 160u
/* Writes the control data of a host's datagram in the form of sendmsg(2). */
void datagram_put_control(struct msghdr *h, void *room, const struct xts_datagram *d, bool ipv4, bool to_group);
/* Reads the control data that recvmsg(2) returned for a datagram; *dropped is SO_RXQ_OVFL. */
void datagram_get_control(struct msghdr *h, struct xts_datagram *d, uint32_t *dropped);

/* --- datagram_filter.c -------------------------------------------------------------------------------------------- */

/* Is it one of SO_ATTACH_FILTER, SO_DETACH_FILTER and XTS_OPTION_FILTER? */
bool filter_is_option(int level, int option);
/* Sets the filter. value: the instructions, or a name, in memory that the host may change meanwhile. 0 or an errno. */
int filter_set(struct connection *c, int option, const void *value, uint32_t bytes);
/* The kernel reports that this many datagrams have been dropped at the socket in total: updates the totals of its
 * filter. */
void filter_drops_known(struct connection *c, uint32_t dropped);
/* The socket is gone, and so is its filter, unless other processes have the socket. */
void filter_free(struct connection *c);
/* The filter of the socket, whichever process has set it. */
struct filter_use filter_of(const struct connection *c);
/* It has come with this filter, which the kernel has, from another process of the proxy. 0 or -ENOMEM. */
int filter_arrives(struct connection *c, const struct datagram_side *s);
/* With the registry's lock: c has become a member of a socket that has come so by another member. */
void filter_joins(struct connection *c);
/* With the registry's lock. filter_share(): the socket gets a key, and from now on the charge for its filter belongs to
 * all its members. filter_unshare(): one member is left, which has the charge alone again. filter_end(): the socket
 * ends. */
void filter_share(struct connection *c, struct shared *s);
void filter_unshare(struct connection *c, struct shared *s);
void filter_end(struct shared *s);

/* --- datagram_stamps.c -------------------------------------------------------------------------------------------- */

/* Reads an item of level SOL_SOCKET if it is a time stamp. */
void datagram_take_stamp(struct xts_datagram *d, const struct cmsghdr *item);

#endif
