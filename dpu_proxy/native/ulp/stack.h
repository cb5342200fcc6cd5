/*
 * The stack of one connection, as its owner uses it: the connection (connection.c, stream.c), and tests and fuzzers with one end of a
 * socket pair for TCP.
 */
#ifndef XTS_ULP_STACK_H
#define XTS_ULP_STACK_H

#include "ulp.h"

enum ulp_direction { ULP_RECEIVE = 1, ULP_SEND = 2, ULP_BOTH = 3 };

struct ulp_owner {
	int fd;                        /* the TCP socket; -1 until started */
	bool message_socket;           /* SOCK_SEQPACKET */
	uint32_t queue_id;
	struct xts_ulp_config *config; /* the stack takes a reference of its own */
	uint64_t *faults;              /* XTS_FAULT_COUNT counters, or NULL */
	uint64_t (*now_ns)(void *owner);
	void (*wake_after)(void *owner, uint32_t timeout_ms);
	void *owner;
};

/* 0 or -ENOMEM. */
int ulp_stack_new(struct ulp_stack **out, const struct ulp_owner *owner);
void ulp_stack_free(struct ulp_stack *s);
/* The same layers, not started, for a connection that a listener has accepted. 0 or -errno. */
int ulp_stack_copy(struct ulp_stack **out, const struct ulp_stack *from, const struct ulp_owner *owner);
/* A parked connection goes on elsewhere. */
void ulp_stack_move(struct ulp_stack *s, const struct ulp_owner *owner);

/* Puts a protocol on top. The attributes are copied when they are needed later. 0; -ENOPROTOOPT: not offered; else why not, and
 * ulp_stack_error() has the reason. Nothing has changed after an error. */
int ulp_stack_push(struct ulp_stack *s, enum ulp_direction direction, uint16_t ulp_id, const uint8_t *attributes, uint32_t bytes);
/* The bytes the uppermost receive layer is to read first; s copies them. 0 or -ENOMEM. */
int ulp_stack_give_back(struct ulp_stack *s, const void *data, uint32_t bytes);

/* The connection is established: layers pushed so far are started; those pushed later start at once. 0 or -errno. */
int ulp_stack_start(struct ulp_stack *s, int fd, bool client);
/* 0: all are ready; -EAGAIN: a handshake is under way; else it has failed. */
int ulp_stack_handshake(struct ulp_stack *s);
bool ulp_stack_ready(const struct ulp_stack *s);

/* As the functions of a layer (ulp.h), of the uppermost one, or of the socket where there is none. -EAGAIN (write: 0 or fewer) while
 * not ready. *readable and *writable, which epoll sets and the stack clears, tell of the socket. */
ssize_t ulp_stack_read(struct ulp_stack *s, void *out, size_t room, struct ulp_mark *mark);
ssize_t ulp_stack_write(struct ulp_stack *s, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
bool ulp_stack_pending(const struct ulp_stack *s);
int ulp_stack_flush(struct ulp_stack *s);
int ulp_stack_finish(struct ulp_stack *s);
bool ulp_stack_receives(const struct ulp_stack *s); /* has layers in that direction */
bool ulp_stack_sends(const struct ulp_stack *s);
void ulp_stack_event(struct ulp_stack *s, bool readable, bool writable);
bool ulp_stack_readable(const struct ulp_stack *s); /* the socket, as far as is known */
bool ulp_stack_writable(const struct ulp_stack *s);

/* Answers of ULP_INFO and ULP_ERROR, in their wire form: bytes written, or -errno. */
ssize_t ulp_stack_tell(const struct ulp_stack *s, bool receive, uint8_t layer, uint16_t item, uint32_t offset, void *out, size_t room);
ssize_t ulp_stack_error(const struct ulp_stack *s, void *out, size_t room);
/* Names of the layers, "tls/http2", for the operator. */
void ulp_stack_describe(const struct ulp_stack *s, bool receive, char *out, size_t room);
/* ULP_LIST. */
ssize_t ulp_list(void *out, size_t room);

#endif
