/* The calls of a datagram socket, as entries of its kind (core/socket_kind.h), and what they share. */
#ifndef XTS_DATAGRAM_CALLS_H
#define XTS_DATAGRAM_CALLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "wire/datagram.h"

struct about;
struct connect_pushes;
struct mmsghdr;
struct sink;
struct source;
struct xts_sock;

/* --- datagram_connect.c: bind(2), connect(2), shutdown(2) and getpeername(2). 0 or -errno ------------------------- */

int datagram_bind(struct xts_sock *s, const struct sockaddr *address, socklen_t length);
int datagram_connect(struct xts_sock *s, const struct sockaddr *address, socklen_t length,
		     const struct connect_pushes *encoded);
int datagram_shutdown(struct xts_sock *s, int how);
/* May getpeername(2) have its address? */
int datagram_peer(const struct xts_sock *s, struct sockaddr *address, socklen_t *length);

/* --- datagram_send.c, datagram_recv.c: bytes or -errno ------------------------------------------------------------ */

/* message: name and control data; NULL: neither. */
ssize_t datagram_send(struct xts_sock *s, struct source *src, int flags, const struct msghdr *message);
/* MSG_ERRQUEUE: an entry of the error queue, without waiting. */
ssize_t datagram_recv(struct xts_sock *s, const struct sink *to, int flags, struct about *about, bool *keys);
/* sendmmsg(2) and recvmmsg(2). Returns the number of messages, or -errno if the first one failed. */
int datagram_send_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags);
/* deadline_ns: checked after each message; once it has passed, no more are received. FOREVER: no deadline. */
int datagram_recv_messages(struct xts_sock *s, struct mmsghdr *messages, unsigned count, int flags, uint64_t deadline_ns);

/* UDP_CORK was cleared: sends the pending datagram. 0 or -errno. */
int datagram_uncork(struct xts_sock *s);

/* --- datagram_control.c: control data both ways ------------------------------------------------------------------- */

/* Reads the control data of sendmsg(2), as ip_cmsg_send() and ip6_datagram_send_ctl() in the kernel. 0 or -errno. */
int datagram_controls_read(const struct xts_sock *s, struct xts_datagram *out, const struct msghdr *message);
/* Writes the control data of recvmsg(2) for the first datagram. */
void datagram_controls_put(struct xts_sock *s, struct about *about);
/* The same for a datagram that is not in the queue; dropped: the count for SO_RXQ_OVFL. */
void datagram_controls_of(const struct xts_sock *s, const struct xts_datagram *d, uint32_t dropped, struct about *about);
/* Control data for an entry of the error queue: the control data of the datagram that failed, and struct
 * sock_extended_err. */
void datagram_error_put(const struct xts_sock *s, const struct xts_datagram *d, struct about *about);

/* --- datagram_stamps.c: time stamps ------------------------------------------------------------------------------- */

struct cmsghdr;

/* Reads an item of level SOL_SOCKET of sendmsg(2), as __sock_cmsg_send() in the kernel. 0 or -errno. */
int datagram_stamps_read(const struct xts_sock *s, struct xts_datagram *out, const struct cmsghdr *c);
/* Writes the time stamp for recvmsg(2), in the form that the program has asked for. */
void datagram_stamps_put(const struct xts_sock *s, const struct xts_datagram *d, struct about *about);
/* When the datagram arrived, by the clock that the program wants; 0: the program has not asked for it. */
uint64_t datagram_stamp_of(const struct xts_sock *s, const struct xts_datagram *d);
/* The option was set on the device's socket: sock_set_timestamp() and sock_set_timestamping() of the kernel. */
void datagram_stamps_were_set(struct xts_sock *s, int option, const void *value, socklen_t length);
/* SO_XTS_CLOCK: 0 or -errno; the first use of the host's clock waits for a round trip. */
int datagram_clock_set(struct xts_sock *s, const void *value, socklen_t length);
int datagram_clock_get(const struct xts_sock *s);

/* --- datagram_filter.c: SO_ATTACH_FILTER and related options ------------------------------------------------------ */

/* Replaces a value that points to a program by what is sent to the proxy. 1: the proxy has to be asked; or -errno. */
int datagram_filter_value(int option, const void **value, socklen_t *length);
/* The filter was set on the device's socket. */
void datagram_filter_was_set(struct xts_sock *s, int option, const void *program, socklen_t bytes);
/* SO_GET_FILTER, as sk_get_filter(): *length counts instructions, on entry and on return. 0 or -errno. */
int datagram_filter_get(const struct xts_sock *s, void *value, socklen_t *length);
/* SO_XTS_FILTER: writes the name that was set, or 0 bytes if there is none. Returns 0. */
int datagram_filter_name(const struct xts_sock *s, void *value, socklen_t *length);

/* --- datagram_option.c: options of this side. 0 or -errno, or 1: the proxy has to be asked ------------------------ */

int datagram_option_set(struct xts_sock *s, int level, int option, const void **value, socklen_t *length);
int datagram_option_get(const struct xts_sock *s, int level, int option, void *value, socklen_t *length);
void datagram_option_was_set(struct xts_sock *s, int level, int option, const void *value, socklen_t length);

#endif
