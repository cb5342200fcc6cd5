/* The calls of a datagram socket: what the public functions do with a socket that has s->datagrams. */
#ifndef XTS_DATAGRAM_CALLS_H
#define XTS_DATAGRAM_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "datagram.h"

struct about;
struct mmsghdr;
struct source;
struct xts_sock;

/* --- datagram_connect.c: bind(2), connect(2), shutdown(2) and getpeername(2). 0 or -errno ------------------------- */

int datagram_bind(struct xts_sock *s, const struct sockaddr *address, socklen_t length);
int datagram_connect(struct xts_sock *s, const struct sockaddr *address, socklen_t length);
int datagram_shutdown(struct xts_sock *s, int how);
int datagram_peer(const struct xts_sock *s, struct sockaddr *address, socklen_t *length);

/* --- datagram_send.c, datagram_recv.c: bytes or -errno ------------------------------------------------------------ */

/* message has name and control data; NULL: neither. */
ssize_t datagram_send(struct xts_sock *s, struct source *src, int flags, const struct msghdr *message);
ssize_t datagram_recv(struct xts_sock *s, const struct iovec *iov, size_t bytes, int flags, struct about *about);
/* MSG_ERRQUEUE: an entry of the error queue, without waiting. */
ssize_t datagram_recv_error(struct xts_sock *s, const struct iovec *iov, size_t bytes, struct about *about);
/* sendmmsg(2) and recvmmsg(2): messages, or -errno when the first has failed. */
int datagram_send_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags);
/* deadline_ns: after the message with which it has passed no more are received; FOREVER: there is none. */
int datagram_recv_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags, uint64_t deadline_ns);

/* UDP_CORK is off: what is pending leaves. 0 or -errno. */
int datagram_uncork(struct xts_sock *s);

/* --- datagram_control.c: control data both ways ------------------------------------------------------------------- */

/* Of sendmsg(2), as ip_cmsg_send() and ip6_datagram_send_ctl() in the kernel. 0 or -errno. */
int datagram_controls_read(const struct xts_sock *s, struct xts_datagram *out, const struct msghdr *message);
/* Of recvmsg(2): of the first datagram. */
void datagram_controls_put(struct xts_sock *s, struct about *about);
/* The same of a datagram that is not in the queue; dropped: as SO_RXQ_OVFL. */
void datagram_controls_of(const struct xts_sock *s, const struct xts_datagram *d, uint32_t dropped, struct about *about);
/* Of an entry of the error queue: what came with the datagram's error, and struct sock_extended_err. */
void datagram_error_put(const struct xts_sock *s, const struct xts_datagram *d, struct about *about);

/* --- datagram_stamps.c: time stamps ------------------------------------------------------------------------------- */

struct cmsghdr;

/* An item of level SOL_SOCKET of sendmsg(2), as __sock_cmsg_send() in the kernel. 0 or -errno. */
int datagram_stamps_read(const struct xts_sock *s, struct xts_datagram *out, const struct cmsghdr *c);
/* Of recvmsg(2), in the form that the program has asked for. */
void datagram_stamps_put(const struct xts_sock *s, const struct xts_datagram *d, struct about *about);
/* When it arrived, by the clock that the program wants; 0: it has not asked. */
uint64_t datagram_stamp_of(const struct xts_sock *s, const struct xts_datagram *d);
/* The device's socket has this option: sock_set_timestamp() and sock_set_timestamping() of the kernel. */
void datagram_stamps_were_set(struct xts_sock *s, int option, const void *value, socklen_t length);
/* SO_XTS_CLOCK: 0 or -errno; the first use of the host's clock waits for a round trip. */
int datagram_clock_set(struct xts_sock *s, const void *value, socklen_t length);
int datagram_clock_get(const struct xts_sock *s);

/* --- datagram_filter.c: SO_ATTACH_FILTER and its like ------------------------------------------------------------- */

/* What the proxy is sent instead of a value that points to a program. 1: the proxy has to be asked; or -errno. */
int datagram_filter_value(const struct xts_sock *s, int option, const void **value, socklen_t *length);
/* The device's socket has it. */
void datagram_filter_was_set(struct xts_sock *s, int option, const void *program, socklen_t bytes);
/* SO_GET_FILTER, as sk_get_filter(): *length counts instructions, before and after. 0 or -errno. */
int datagram_filter_get(const struct xts_sock *s, void *value, socklen_t *length);
/* SO_XTS_FILTER: the name that was set; of no bytes: there is none. 0. */
int datagram_filter_name(const struct xts_sock *s, void *value, socklen_t *length);

/* --- datagram_option.c: options of this end. 0 or -errno, or 1: the proxy has to be asked ------------------------- */

int datagram_option_set(struct xts_sock *s, int level, int option, const void *value, socklen_t length);
bool datagram_option_is_here(int level, int option);
int datagram_option_get(const struct xts_sock *s, int level, int option, void *value, socklen_t *length);
void datagram_option_was_set(struct xts_sock *s, int level, int option, const void *value, socklen_t length);

#endif
