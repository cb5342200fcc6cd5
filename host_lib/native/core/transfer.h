/* Sending and receiving of byte streams: send.c, recv.c. */
#ifndef XTS_TRANSFER_H
#define XTS_TRANSFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

struct xts_sock;

/* What recvmsg() returns with the data. */
struct about {
	void *name;            /* NULL: not asked for */
	socklen_t name_length; /* the room, and then its length: 0: there is none */
	void *control;
	size_t room, used; /* of control */
	int flags;         /* msg_flags */
};

void about_return(const struct about *about, struct msghdr *message); /* what recvmsg() has asked for */

/* These bytes of the buffer have been read; credits: taken in addition. */
void recv_consume(struct xts_sock *s, uint32_t bytes, uint32_t credits);
/* The same in two steps: what is no longer in the buffer has been read; and such credits are free again. */
void recv_was_read(struct xts_sock *s, uint32_t bytes);
void recv_give_back(struct xts_sock *s, uint32_t credits);

struct source {
	const struct iovec *iov;
	size_t offset; /* in *iov */
	size_t left;   /* bytes in all */
};
void source_take(struct source *src, uint8_t *out, size_t bytes);
void send_account(struct xts_sock *s, uint32_t credits, uint32_t bytes);
/* tcp_sendmsg(): all of it when blocking, else what fits. Bytes or -errno. */
ssize_t send_all(struct xts_sock *s, struct source *src, int flags);
int send_wait_connected(struct xts_sock *s, bool blocking, uint64_t deadline); /* sk_stream_wait_connect() */

#endif
