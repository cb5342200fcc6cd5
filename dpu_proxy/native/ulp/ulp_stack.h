/*
 * The stack of one connection, as its owner uses it: the connection (connection.c, to_tcp.c, to_host.c), and tests and
 * fuzzers with one end of a socket pair for TCP.
 */
#ifndef XTS_ULP_STACK_H
#define XTS_ULP_STACK_H

#include "ulp.h"

enum ulp_direction { ULP_RECEIVE = 1, ULP_SEND = 2, ULP_BOTH = 3 };

struct ulp_owner {
	int fd;              /* the TCP socket; -1 until started */
	bool message_socket; /* SOCK_SEQPACKET */
	/* it calls ulp_stack_read_to_end(): a short read then means that the socket is empty */
	bool reports_end;
	uint32_t tenant, queue_id;     /* whose it is, for what only some may use */
	struct xts_ulp_config *config; /* the stack takes a reference of its own */
	uint64_t *faults;              /* XTS_FAULT_COUNT counters, or NULL */
	uint64_t (*now_ns)(void *owner);
	void (*wake_after)(void *owner, uint32_t timeout_ms);
	/* Counts memory (negative: that is free again, true); false: the limit is reached. NULL: no limit. */
	bool (*memory)(void *owner, int64_t bytes);
	/* For what connections of several owners have in common, which may outlive this owner. */
	struct ulp_payer payer;
	/* For handshakes elsewhere (handshake_pool.h); bell NULL: they are done here. spent: what they took; NULL: it
	 * does not matter. */
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
/* A parked connection goes on elsewhere. */
void ulp_stack_move(struct ulp_stack *s, const struct ulp_owner *owner);

/* Before a push: what has to be made on another thread first, or NULL. Of the owner its configuration, and whose it is,
 * are enough. */
struct ulp_preparation *ulp_prepare(const struct ulp_owner *owner, uint16_t ulp_id, const uint8_t *attributes,
				    uint32_t bytes);
/* Puts a protocol on top. The attributes are copied when they are needed later. 0; -ENOPROTOOPT: not offered; else why
 * not, and ulp_stack_error() has the reason. Nothing has changed after an error. */
int ulp_stack_push(struct ulp_stack *s, enum ulp_direction direction, uint16_t ulp_id, const uint8_t *attributes,
		   uint32_t bytes);
/* The owner refuses a push by itself, and says why, for ulp_stack_error(); a reason of a fault stays. -error. */
int ulp_stack_refuse(struct ulp_stack *s, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Announces that so many bytes will be given back after the next push (0: none after all). 0, -ENOMEM, or -ENOBUFS: the
 * owner's limit. */
int ulp_stack_expect(struct ulp_stack *s, uint32_t bytes);
/* Gives some of them back. When all are there, the uppermost receive layer reads them first. To be called before
 * anything is read or a handshake goes on. 0, -ENOMEM or -ENOBUFS; -EINVAL: more than expected, or no layer. */
int ulp_stack_give_back(struct ulp_stack *s, const void *data, uint32_t bytes);
/* Bytes of memory counted with the owner. An owner that gives the stack to another, or frees it, takes them off its own
 * account: after ulp_stack_leave() the stack calls it no more. */
uint64_t ulp_stack_memory(const struct ulp_stack *s);
void ulp_stack_leave(struct ulp_stack *s);
/* Counts what the owner or a layer allocates for the stack. 0 or -ENOBUFS. */
int ulp_stack_take_memory(struct ulp_stack *s, uint32_t bytes);
void ulp_stack_return_memory(struct ulp_stack *s, uint32_t bytes);
/* Counts the memory of the struct itself. */
uint32_t ulp_stack_bytes(void);

/* The connection is established: layers pushed so far are started; those pushed later start at once. 0 or -errno, which
 * is final unless nothing has started (a layer of both directions that is in one only). */
int ulp_stack_start(struct ulp_stack *s, int fd, bool client);
/* Before it is started: the peer has connected to us, and it is for the peer to speak, within first_byte_timeout_ms. */
void ulp_stack_expect_peer(struct ulp_stack *s);
/* Has anything been read from the socket? */
bool ulp_stack_heard(const struct ulp_stack *s);
/* Goes on with what is not ready: to be called after start, after a push, on events and wake-ups until 0: all are
 * ready. -EAGAIN: a handshake is under way; else it has failed. */
int ulp_stack_handshake(struct ulp_stack *s);
bool ulp_stack_ready(const struct ulp_stack *s);
/* Is there a protocol with a handshake? */
bool ulp_stack_has_handshake(const struct ulp_stack *s);

/* Begins a turn of this connection: its layers may do as much work as one turn has (ulp.h). When it is used up, reads
 * return -EAGAIN, and the owner has been asked (wake_after()) to begin another turn in its next round. */
void ulp_stack_turn(struct ulp_stack *s);

/* As the functions of a layer (ulp.h), of the uppermost one, or of the socket where there is none. -EAGAIN (write: 0)
 * while that direction is not ready. After a fault they return its -errno. */
ssize_t ulp_stack_read(struct ulp_stack *s, void *out, size_t room, struct ulp_mark *mark);
ssize_t ulp_stack_write(struct ulp_stack *s, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
/* A read may have something although the socket is not readable. */
bool ulp_stack_pending(const struct ulp_stack *s);
/* What layers hold back, from the uppermost down. 0: nothing more; -EAGAIN: until writable; -errno. Goes on after a
 * fault (alerts). */
int ulp_stack_flush(struct ulp_stack *s);
/* The same, and ends the protocols (close_notify); the owner shuts the socket down at 0. */
int ulp_stack_finish(struct ulp_stack *s);
bool ulp_stack_receives(const struct ulp_stack *s); /* has layers in that direction */
bool ulp_stack_sends(const struct ulp_stack *s);
/* Takes what epoll (edge-triggered) has reported of the socket; false changes nothing. A new stack counts as readable
 * and writable. */
void ulp_stack_event(struct ulp_stack *s, bool readable, bool writable);
/* epoll has seen FIN or an error: from now on a short read does not mean that nothing is left. */
void ulp_stack_read_to_end(struct ulp_stack *s);
/* May the socket have something to read? False after a read's -EAGAIN, until an event or bytes given back. The same
 * holds for pending(), so that a loop that reads while either is true ends. */
bool ulp_stack_readable(const struct ulp_stack *s);
bool ulp_stack_writable(const struct ulp_stack *s); /* the socket, as far as is known */

/* Answers of ULP_INFO and ULP_ERROR, in their wire form: bytes written, or -errno. */
ssize_t ulp_stack_info(const struct ulp_stack *s, bool receive, uint8_t layer, uint16_t item, uint32_t offset,
		       void *out, size_t room);
ssize_t ulp_stack_error(const struct ulp_stack *s, void *out, size_t room);
/* How the connection is encrypted, by the uppermost TLS or TLS_KEYS; all 0: by neither, or its handshake is not
 * done. */
struct ulp_tls_state {
	uint16_t version, cipher; /* the suite's number at IANA; of TLS_KEYS the kernel's cipher type */
	uint8_t send, receive;    /* enum xts_tls_crypto */
};
struct ulp_tls_state ulp_stack_tls(const struct ulp_stack *s);
/* Names of the layers, "tls/http2", for the operator. */
void ulp_stack_describe(const struct ulp_stack *s, bool receive, char *out, size_t room);
/* ULP_LIST. */
ssize_t ulp_list(const struct xts_ulp_config *config, void *out, size_t room);

#endif
