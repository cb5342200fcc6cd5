/*
 * Kinds of sockets: what a stream, a listener and a datagram socket do differently, as a table of functions each.
 *
 * A call, a message, an event or the end of a channel is handed to a socket's kind; nothing outside the kinds' own
 * files (streams/, listeners/, datagrams/) asks which kind that is. The kind follows from the socket's state, so it
 * takes no memory and cannot disagree with it: a socket is a stream until it listens, or if socket(2) has made it a
 * datagram socket.
 *
 * Each entry has a caller and each table fills in each entry, with a function that does nothing where a kind has
 * nothing to do: no caller tests for NULL. An entry whose comment says that it waits may find the socket closed after
 * that (socket.h). int: 0 or -errno, if nothing else is said.
 */
#ifndef XTS_HOST_SOCKET_KIND_H
#define XTS_HOST_SOCKET_KIND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "core/socket.h"

struct about;
struct connect_pushes;
struct mmsghdr;
struct offered;
struct sink;
struct socket_record;
struct source;
struct xts_head;
struct xts_recv;
struct xts_rx_frame;

struct socket_kind {
	const char *name;          /* for a program's log */
	int type, protocol;        /* SO_TYPE, SO_PROTOCOL */
	bool accepts;              /* SO_ACCEPTCONN */
	bool raises_sigpipe;       /* with EPIPE */
	bool lingers;              /* SO_LINGER says how it is closed */
	bool has_packets;          /* receive callbacks are asked about what comes, also without SOCK_SEQPACKET */
	bool members_receive;      /* of a shared one: what comes is for any member that shows interest */
	bool keeping_is_told;      /* a member that leaves tells the proxy how long to keep it for others */
	bool unread_stays;         /* exec does not carry what was received and not read */
	bool has_kernel_half;      /* a kernel socket may stand for it in another program (listener_key.h) */
	uint32_t readable_on;      /* EPOLL* events by which a descriptor that stands for it is readable */
	uint32_t changed_by_again; /* EPOLL* events that it may have when it has been made again */

	/* --- the calls; all wait ---------------------------------------------------------------------------------- */

	int (*make)(struct xts_sock *s); /* socket(2), out of a new stream; does not wait */
	int (*bind)(struct xts_sock *s, const struct sockaddr *address, socklen_t length);
	int (*connect)(struct xts_sock *s, const struct sockaddr *address, socklen_t length,
		       const struct connect_pushes *encoded);
	int (*listen)(struct xts_sock *s, int backlog);
	int (*accept)(struct xts_sock *s, struct sockaddr *address, socklen_t *length, int flags);
	int (*shutdown)(struct xts_sock *s, int how);
	/* May getpeername(2) have its address? */
	int (*peer)(const struct xts_sock *s, struct sockaddr *address, socklen_t *length);
	/* Bytes or -errno. message: name and control data; NULL, or without them: none. */
	ssize_t (*send)(struct xts_sock *s, struct source *src, int flags, const struct msghdr *message);
	/* Bytes or -errno. *keys: they are those of a direction with TLS_KEYS. */
	ssize_t (*recv)(struct xts_sock *s, const struct sink *to, int flags, struct about *about, bool *keys);
	/* sendmmsg(2) and recvmmsg(2) under one lock: messages or -errno; -ENOSYS: they go one by one. */
	int (*send_messages)(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags);
	int (*recv_messages)(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags,
			     uint64_t deadline_ns);
	/* ioctl(2), as far as not all sockets have the request. */
	int (*ioctl)(struct xts_sock *s, unsigned long request, void *argument);
	int (*unread)(const struct xts_sock *s); /* FIONREAD: bytes that the next call would return, or -errno */
	/* Options that only this kind has on this side: also 1: the option is common, or the proxy has to be asked, and
	 * is sent *value, which replaces one that points to memory. */
	int (*option_set)(struct xts_sock *s, int level, int option, const void **value, socklen_t *length);
	int (*option_get)(const struct xts_sock *s, int level, int option, void *value, socklen_t *length);
	int (*need_proxy)(struct xts_sock *s); /* the proxy has a socket for it from now on */
	/* An option was set at the proxy. */
	void (*option_was_set)(struct xts_sock *s, int level, int option, const void *value, socklen_t length);
	/* An option was set that is implemented here (HERE in option_table.h). */
	void (*hint_was_set)(struct xts_sock *s, bool on);

	/* --- packets about which a callback decides: receive_callback.h -------------------------------------------- */

	bool (*packet_is_here)(const struct xts_sock *s);      /* the first one of the queue may be offered */
	struct offered *(*packet_offered)(struct xts_sock *s); /* a copy of it; NULL: no memory */
	uint32_t (*packet_take)(struct xts_sock *s); /* removes it, and returns the credits that it goes on to take */
	void (*packet_give_back)(struct xts_sock *s, uint32_t credits);

	/* --- what happens to it ----------------------------------------------------------------------------------- */

	uint32_t (*events)(struct xts_sock *s);      /* readiness, as its poll() in the kernel */
	uint8_t (*status)(const struct xts_sock *s); /* XTS_STATE_*, while it is open and has not failed */
	/* RECV; it is not closing. True: the frame was taken over, or the channel has ended. */
	bool (*receive)(struct xts_sock *s, const struct xts_head *head, const struct xts_recv *m,
			struct xts_rx_frame *frame);
	uint32_t (*advertise)(struct xts_sock *s); /* credits to put into a message that is about to be sent */
	bool (*flush)(struct xts_sock *s);     /* sends pending data that does not go with SEND; false: some is left */
	int (*give_back)(struct xts_sock *s);  /* TODO_GIVE_BACK: 0, or -errno of channel_slot() */
	void (*lose)(struct xts_sock *s);      /* its channel has died */
	void (*drop)(struct xts_sock *s);      /* drops all that was received, but the pieces of received_data.c */
	int (*seek_error)(struct xts_sock *s); /* before SO_ERROR: one that is not here yet; waits; 0 or -errno */
	void (*leave)(struct xts_sock *s);     /* the program closes it: others may read what it has not; waits */
	void (*free)(struct xts_sock *s);      /* frees what only this kind has */

	/* --- another process of the proxy has it: processes/next_proxy.h ----------------------------------------------- */

	bool (*moves)(const struct xts_sock *s);   /* can it be claimed there, as far as its state says? */
	void (*leaves)(struct xts_sock *s);        /* it will be claimed, and nothing is under way any more */
	uint32_t (*promises)(struct xts_sock *s);  /* post credits, with CLAIM */
	bool (*takes_pending)(struct xts_sock *s); /* from s->credits, what was accepted before; false: not enough */

	/* --- it is made again: asked.c, again.c; all wait ----------------------------------------------------------- */

	int (*ask_first)(struct xts_sock *s);    /* before all that the program has asked */
	int (*bind_chosen)(struct xts_sock *s);  /* to the port that it had without a bind(2) of the program */
	int (*listen_again)(struct xts_sock *s); /* after all that the program has asked */

	/* --- several processes have it: processes/inherit.h --------------------------------------------------------- */

	bool (*is_fresh)(const struct xts_sock *s);  /* nothing distinguishes it from a new one: unconnected, unbound */
	bool (*is_server)(const struct xts_sock *s); /* it listens, or is bound and may */
	bool (*is_joined)(const struct xts_sock *s); /* by its key: share_by_key() */
	bool (*may_be_shared)(struct stack *st);     /* does the proxy support it? */
	void (*is_shared)(struct xts_sock *s);       /* it has its key, and is in stack->shared */
	void (*share_sent)(struct xts_sock *s);      /* SHARE has been sent, or is about to be */
	void (*share_answered)(struct xts_sock *s, bool refused);
	int (*join)(struct xts_sock *s);                    /* another process's socket by its key; waits */
	void (*interest)(struct xts_sock *s, bool accepts); /* a thread waits for what comes, or accepts */
	void (*withdraw)(struct xts_sock *s);               /* what the proxy was promised is void */
	void (*unshared)(struct xts_sock *s);               /* it is no longer a shared one of this process */
	void (*share_before_fork)(struct xts_sock *s);      /* gives it a key, if it needs one; does not wait */
	void (*share_tick)(struct xts_sock *s, uint64_t now);
	void (*give_back_offers)(struct xts_sock *s); /* another process is about to look for them */
	/* Has this process something that it has to give to others? *deadline_ns: when to look again, if earlier. */
	bool (*is_away)(const struct xts_sock *s, uint64_t now, uint64_t *deadline_ns);
	void (*before_fork)(struct stack *st);   /* for all of the kind; waits */
	void (*at_exit)(struct stack *st);       /* likewise */
	void (*forget)(struct xts_sock *s);      /* in a forked child: keeps only what the program has set */
	int (*give_up)(struct xts_sock *s);      /* before exec: for the new program; waits */
	void (*resume)(struct xts_sock *s);      /* exec has failed */
	int (*pass)(struct xts_sock *s);         /* to another program: makes ready; waits */
	void (*is_received)(struct xts_sock *s); /* it comes from another program */

	/* --- socket_record.h ---------------------------------------------------------------------------------------- */

	void (*record_fill)(struct socket_record *b, const struct xts_sock *s); /* after what all have */
	void (*record_apply)(const struct socket_record *b, struct xts_sock *s);
	bool (*record_is_sound)(const struct socket_record *b);
	bool (*label_is_sound)(const struct socket_record *b); /* the record of a socket that was passed */
};

enum { KIND_STREAM, KIND_LISTENER, KIND_DATAGRAM, SOCKET_KINDS };

extern const struct socket_kind *const socket_kinds[SOCKET_KINDS]; /* tables/socket_kinds.c */

static inline const struct socket_kind *kind_in_state(bool is_datagram, uint8_t state)
{
	return socket_kinds[is_datagram ? KIND_DATAGRAM : state == TCP_STATE_LISTEN ? KIND_LISTENER : KIND_STREAM];
}

static inline const struct socket_kind *kind_of(const struct xts_sock *s)
{
	return kind_in_state(s->datagrams, s->state);
}

/* What socket(2) makes. */
static inline const struct socket_kind *kind_of_type(int type)
{
	return kind_in_state(type == SOCK_DGRAM, TCP_STATE_CLOSE);
}

/* For kinds that have nothing to do in an entry, and entries that more than one kind has (socket_kind.c). */
void kind_does_nothing(struct xts_sock *s);
int kind_has_nothing_to_do(struct xts_sock *s);
void kind_has_none(struct stack *st);
bool kind_has_nothing_away(const struct xts_sock *s, uint64_t now, uint64_t *deadline_ns);
void kind_is_told(struct xts_sock *s, bool refused);
uint32_t kind_advertises(struct xts_sock *s);

#endif
