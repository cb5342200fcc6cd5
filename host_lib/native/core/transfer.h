/* Sending and receiving of byte streams: transfer.c, calls/send.c, calls/recv.c. */
#ifndef XTS_TRANSFER_H
#define XTS_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

struct xts_sock;

/* Where a call receives to. */
struct sink {
	const struct iovec *iov;
	size_t bytes;  /* of all pieces */
	size_t usable; /* of these: a copy of more fails (core/arguments.h) */
};

/* What recvmsg() returns with the data. */
struct about {
	void *name;            /* NULL: the address is not asked for, or */
	bool name_is_bad;      /* the place for it is no memory. After: and there was an address */
	socklen_t name_length; /* before: the room for it; after: its length; 0: none */
	void *control;
	size_t room, used; /* bytes of control */
	int flags;         /* msg_flags */
};

/* What the program's pieces are, as a sink: 0, -EFAULT, -EINVAL. */
int sink_of(struct sink *out, const struct iovec *iov, size_t count);

/* What is received has no address. */
void about_no_name(struct about *about);
/* What a msghdr of recvmsg(2) asks for: 0 or -errno. A name or control data that are no memory are left out. */
int about_message(struct about *out, const struct msghdr *message);
/* Returns it in the fields of the program's msghdr. The result of the call, or -EFAULT: the place for the name is no
 * memory. */
ssize_t about_return(const struct about *about, struct msghdr *message, ssize_t received);

/* These bytes of the buffer have been read; credits: taken in addition to the bytes. */
void recv_consume(struct xts_sock *s, uint32_t bytes, uint32_t credits);
/* The same in two steps: bytes that have left the buffer were read; and their credits are free again. */
void recv_was_read(struct xts_sock *s, uint32_t bytes);
void recv_give_back(struct xts_sock *s, uint32_t credits);

struct source {
	const struct iovec *iov;
	size_t offset; /* position in *iov */
	size_t left;   /* bytes in all */
	bool faults;   /* the copy fails: core/arguments.h */
};
/* What the program's pieces are, as a source: 0, -EFAULT, -EINVAL. */
int source_of(struct source *out, const struct iovec *iov, size_t count);
void source_take(struct source *src, uint8_t *out, size_t bytes);
void send_account(struct xts_sock *s, uint32_t credits, uint32_t bytes);
/* tcp_sendmsg(): sends all if it may block, else what fits. Bytes or -errno. */
ssize_t send_all(struct xts_sock *s, struct source *src, int flags);
int send_wait_connected(struct xts_sock *s, bool blocking, uint64_t deadline_ns); /* sk_stream_wait_connect() */

#endif
