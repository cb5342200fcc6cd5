/*
 * The stack of one connection, as its owner uses it. The owner is the connection (connection.c, to_tcp.c, to_host.c),
 * or a test or fuzzer with one end of a socket pair in place of TCP.
 */
#ifndef XTS_ULP_STACK_H
#define XTS_ULP_STACK_H

#include "ulp.h"

enum ulp_direction { ULP_RECEIVE = 1, ULP_SEND = 2, ULP_BOTH = 3 };

struct ulp_owner {
	int fd;              /* the TCP socket; -1 until started */
	bool message_socket; /* SOCK_SEQPACKET */
	/* it calls ulp_stack_read_to_end(); so without that call a short read means that the socket is empty */
	bool reports_end;
	uint32_t tenant, queue_id;     /* the tenant and queue, for things that not all may use */
	const char *tenant_name;       /* NULL: it has none */
	struct xts_ulp_config *config; /* the stack takes a reference of its own */
	uint64_t *faults;              /* XTS_FAULT_COUNT counters, or NULL */
	uint64_t (*now_ns)(void *owner);
	void (*wake_after)(void *owner, uint32_t timeout_ms);
	/* Counts memory (negative: freed again, returns true); false: the limit is reached. NULL: no limit. */
	bool (*memory)(void *owner, int64_t bytes);
	/* Pays for objects that connections of several owners share, and that may outlive this owner. */
	struct ulp_payer payer;
	/* For handshakes on other threads (handshake_pool.h). bell NULL: they are done on this thread. spent: is told
	 * the time that they took; may be NULL. */
	struct ulp_bell *bell;
	uint32_t account, weight;
	void (*spent)(void *owner, uint64_t ns);
	void *owner;
};

/* 0 or -ENOMEM. */
int ulp_stack_new(struct ulp_stack **out, const struct ulp_owner *owner);
void ulp_stack_free(struct ulp_stack *s);
/* The same layers, not started, for a connection that a listener has accepted. 0 or -errno. */
int ulp_stack_copy(struct ulp_stack **out, const struct ulp_stack *from, const struct ulp_owner *owner);
/* Gives the stack of a parked connection to another owner. */
void ulp_stack_move(struct ulp_stack *s, const struct ulp_owner *owner);

/* For another process of the proxy: ulp_stack_move.c, and ulp_moved.h for what goes there. */
struct ulp_moved;
/* Why it cannot go to one that reads records up to this version, as text for the operator; NULL: it can. */
const char *ulp_stack_stays(const struct ulp_stack *s, uint16_t version);
/* What it is, in memory that the caller frees. Only what waits in the stack itself is not copied. 0 or -errno. */
int ulp_stack_save(const struct ulp_stack *s, struct ulp_moved **out);
void ulp_moved_free(struct ulp_moved *m);
/* What was saved is somebody else's: as wipe() of all protocols. */
void ulp_stack_wipe(struct ulp_stack *s);
/* As keep() of a protocol, of which there is one, and nothing else. */
int ulp_stack_keep(struct ulp_stack *s, struct ulp_kept *k);
/* Can what ulp_stack_save() gives be written where others may read it, for the process that goes on when this one has
 * died? Not if there are keys. */
bool ulp_stack_can_be_kept(const struct ulp_stack *s);
/* From now on the stack sets *touched before it does anything that changes what is saved, and it has read and written
 * so many bytes of the socket. touched NULL: no more. */
void ulp_stack_tells(struct ulp_stack *s, uint8_t *touched, const struct ulp_kept *counts);
void ulp_stack_counts(const struct ulp_stack *s, struct ulp_kept *out);
/* Is it between PDUs, and nothing else waits in it? As rests() of all its protocols together. */
uint64_t ulp_stack_rests(const struct ulp_stack *s);
/* Asks the owner for a call, unless it was asked for an earlier one already. */
void ulp_stack_wake_after(struct ulp_stack *s, uint32_t timeout_ms);
/* Makes a new stack of what was saved. 0 or -errno. */
int ulp_stack_restore(struct ulp_stack *s, const struct ulp_moved *m);

/* Before a push: the job that another thread has to do first, or NULL. Of the owner, only the configuration, tenant and
 * queue are needed. */
struct ulp_preparation *ulp_prepare(const struct ulp_owner *owner, uint16_t ulp_id, const uint8_t *attributes,
				    uint32_t bytes);
/* Pushes a protocol onto the top. The attributes are copied if they are needed later. 0; -ENOPROTOOPT: not offered;
 * else another -errno, with the reason in ulp_stack_error(). After an error nothing has changed. */
int ulp_stack_push(struct ulp_stack *s, enum ulp_direction direction, uint16_t ulp_id, const uint8_t *attributes,
		   uint32_t bytes);
/* For an owner that refuses a push itself: notes why, for ulp_stack_error(), unless the reason of a fault is there.
 * Returns -error. */
int ulp_stack_refuse(struct ulp_stack *s, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Announces that this many bytes will be given back after the next push (0: none after all). 0; -ENOMEM; -ENOBUFS: the
 * owner's limit. */
int ulp_stack_expect(struct ulp_stack *s, uint32_t bytes);
/* Gives some of the announced bytes back. When all are there, the uppermost receive layer reads them first. It must be
 * called before anything is read or a handshake goes on. 0, -ENOMEM or -ENOBUFS; -EINVAL: more than announced, or no
 * layer. */
int ulp_stack_give_back(struct ulp_stack *s, const void *data, uint32_t bytes);
/* How many bytes of memory are counted with the owner. An owner that gives the stack to another, or frees it, subtracts
 * them from its own account: after ulp_stack_leave() the stack does not call it any more. */
uint64_t ulp_stack_memory(const struct ulp_stack *s);
void ulp_stack_leave(struct ulp_stack *s);
/* Counts what the owner or a layer allocates for the stack. 0 or -ENOBUFS. */
int ulp_stack_take_memory(struct ulp_stack *s, uint32_t bytes);
void ulp_stack_return_memory(struct ulp_stack *s, uint32_t bytes);
/* The memory of the struct itself. */
uint32_t ulp_stack_bytes(void);

/* The connection is established: starts the layers pushed so far; later ones start when they are pushed. 0 or -errno.
 * An error is final unless nothing has started (a layer that needs both directions is in one only). */
int ulp_stack_start(struct ulp_stack *s, int fd, bool client);
/* Called before the start: the peer has connected to us, and has to send first, within first_byte_timeout_ms. */
void ulp_stack_expect_peer(struct ulp_stack *s);
/* Has anything been read from the socket? */
bool ulp_stack_heard(const struct ulp_stack *s);
/* Continues with the layers that are not ready. It is called after the start, after a push, and on events and wake-ups,
 * until it returns 0: all are ready. -EAGAIN: a handshake is not done; else it has failed. */
int ulp_stack_handshake(struct ulp_stack *s);
bool ulp_stack_ready(const struct ulp_stack *s);
/* Is there a layer with a handshake? */
bool ulp_stack_has_handshake(const struct ulp_stack *s);

/* Begins a turn of this connection: its layers may do the work of one turn (ulp.h). When the turn is used up, reads
 * return -EAGAIN, and the owner has been asked (wake_after()) to begin another turn in its next round. */
void ulp_stack_turn(struct ulp_stack *s);

/* What is read into from now on is memory that the host may read meanwhile (shm), or not: then a layer writes to it
 * only what the host may have. */
void ulp_stack_shows(struct ulp_stack *s, bool shown);

/* The functions of the uppermost layer (ulp.h), or of the socket where there is no layer. -EAGAIN (write: 0) while that
 * direction is not ready. After a fault they return its -errno. */
ssize_t ulp_stack_read(struct ulp_stack *s, void *out, size_t room, struct ulp_mark *mark);
ssize_t ulp_stack_write(struct ulp_stack *s, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
/* May a read return something although the socket is not readable? */
bool ulp_stack_pending(const struct ulp_stack *s);
/* The last read has failed because what the peer sends was cut off: nothing more will be read, but writing goes on. */
bool ulp_stack_is_cut(const struct ulp_stack *s);
/* Writes what the layers hold back, from the uppermost down. 0: nothing is left; -EAGAIN: call again when writable;
 * else -errno. Also works after a fault, for alerts. */
int ulp_stack_flush(struct ulp_stack *s);
/* The same, and also ends the protocols (close_notify). At 0 the owner shuts the socket down. */
int ulp_stack_finish(struct ulp_stack *s);
bool ulp_stack_receives(const struct ulp_stack *s); /* are there layers in that direction? */
bool ulp_stack_sends(const struct ulp_stack *s);
/* Notes what epoll (edge-triggered) has reported for the socket; false changes nothing. A new stack counts as readable
 * and writable. */
void ulp_stack_event(struct ulp_stack *s, bool readable, bool writable);
/* epoll has seen FIN or an error: from now on a short read does not mean that nothing is left. */
void ulp_stack_read_to_end(struct ulp_stack *s);
/* May the socket have something to read? False after a read has returned -EAGAIN, until an event or until bytes are
 * given back. The same holds for ulp_stack_pending(), so a loop that reads while either is true ends. */
bool ulp_stack_readable(const struct ulp_stack *s);
bool ulp_stack_writable(const struct ulp_stack *s); /* the socket, as far as is known */

/* The answers to ULP_INFO and ULP_ERROR, in wire form: bytes written, or -errno. */
ssize_t ulp_stack_info(const struct ulp_stack *s, bool receive, uint8_t layer, uint16_t item, uint32_t offset,
		       void *out, size_t room);
/* whose: with the protocol's number. */
ssize_t ulp_stack_error(const struct ulp_stack *s, bool whose, void *out, size_t room);
/* How the connection is encrypted, by the uppermost TLS or TLS_KEYS layer; all 0: there is no such layer, or its
 * handshake is not done. */
struct ulp_tls_state {
	uint16_t version, cipher; /* IANA's number of the suite; with TLS_KEYS the kernel's cipher type */
	uint8_t send, receive;    /* enum xts_tls_crypto */
};
struct ulp_tls_state ulp_stack_tls(const struct ulp_stack *s);
/* The names of the layers, as in "tls/http2", for the operator. */
void ulp_stack_describe(const struct ulp_stack *s, bool receive, char *out, size_t room);
/* Who carries the data in this direction, by the uppermost layer that says so; "": none does. */
void ulp_stack_carrier(const struct ulp_stack *s, bool receive, char *out, size_t room);
/* The answer to ULP_LIST. */
ssize_t ulp_list(const struct xts_ulp_config *config, void *out, size_t room);

#endif
