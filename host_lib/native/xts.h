/*
 * libxts: TCP and UDP sockets whose protocol work is done by an offload proxy on a SmartNIC or DPU.
 *
 * These are the eighteen calls of the paper (Herbert, "TCP and ULP Offload via AF_XDP Sockets",
 * section "Application API"), its polling, and what else programs need. A call takes the same
 * arguments as its counterpart of BSD sockets, returns the same and sets the same errno: the
 * counterpart's manual page (section 2) applies. What is different is said here, and listed in
 * DIFFERENCES.md.
 *
 * Numbers. An XTS socket has a number of its own. It is not a file descriptor. xts_fileno() gives
 * a descriptor that becomes readable and writable together with the socket.
 *
 * Attaching. The first socket attaches the process: it asks the agent or proxy at XTS_ENDPOINT
 * (/run/xts/endpoint.sock by default) for a queue. xts_configure() and the environment have the
 * settings; `xts env` lists the variables.
 *
 * Blocking. A call blocks unless the socket is non-blocking (O_NONBLOCK, SOCK_NONBLOCK) or
 * MSG_DONTWAIT is given. Signals interrupt it as signal(7) says.
 *
 * Datagrams. A socket of type SOCK_DGRAM is one of UDP. The proxy makes its own socket with the
 * first call that needs one, which takes a round trip. What only the device can know about a
 * datagram (no route, policy, a closed port at the peer) is the pending error of a later call:
 * POLLERR, and the next send, receive or SO_ERROR has it. A datagram that does not fit into the
 * socket's receive window waits in the device's kernel, whose SO_RCVBUF bounds it.
 *
 * Errors. A call that fails returns -1 and sets errno. xts_last_error() has a sentence that says
 * why. When the proxy dies, or the way to it, its connections end with ECONNRESET (ECONNABORTED
 * while they are being connected), and calls that need the proxy fail with ENETDOWN. When a proxy
 * can be reached again, the process attaches again by itself, and makes its listeners, its UDP
 * sockets and what was bound again, with all that was asked of them (DIFFERENCES.md). Until then
 * they are as sockets whose network is down: nothing is readable, and calls that wait go on waiting.
 *
 * Threads. All calls are thread-safe, and threads may share sockets.
 *
 * Cancellation. The calls that wait are cancellation points, as those of pthreads(7) are. A thread
 * that waits in one ends for xts_pthread_cancel(), and at its next call for pthread_cancel(). It
 * holds nothing of the library when it does.
 *
 * Processes. After fork() the child has no XTS sockets (EBADF); its first xts_socket() attaches it.
 * So it is in every child that has a copy of this memory, however it was made (clone, _Fork()). A
 * child that shares this memory may exec and exit; what it calls here, it does to its parent.
 * Under libxts-preload sockets are kept over fork() and exec(), with limits: xts_get_info() counts
 * those that could not be kept (not_inherited).
 *
 * Signal handlers. A handler that calls this library, forks, or leaves by siglongjmp() has to be
 * installed with xts_sigaction(), so that it runs where its thread holds none of the library's
 * locks. A handler installed in another way may do so only while its thread is in none of these
 * calls. If it forks inside one, the child may only exec or _exit. Under libxts-preload
 * sigaction() and similar functions do the same for all handlers.
 */
#ifndef XTS_H
#define XTS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "ulp_wire.h"

#ifdef __cplusplus
extern "C" {
#endif

struct mmsghdr;
struct pollfd;
struct sigaction;
struct timespec;

#pragma GCC visibility push(default)

/* --- the paper's calls ------------------------------------------------------------------------ */

/*
 * Make a TCP or UDP socket.
 *
 * domain is AF_INET or AF_INET6. type is SOCK_STREAM, SOCK_DGRAM, or SOCK_SEQPACKET for a socket
 * that carries PDUs (see "pushed protocols"), with SOCK_NONBLOCK and SOCK_CLOEXEC if wanted.
 * protocol is 0, or IPPROTO_TCP or IPPROTO_UDP by the type. The first call attaches the process,
 * which takes some milliseconds; all other calls return at once.
 *
 * Returns: the socket's number.
 * Errors: EAFNOSUPPORT, ESOCKTNOSUPPORT, EPROTONOSUPPORT: another domain, type or protocol; or the
 * proxy is of a version without datagram sockets.
 * EMFILE: the process has as many sockets as the proxy gives one host, or the library can number.
 * ENETDOWN: no proxy can be reached. EUSERS: the agent or proxy is there, and has no queue for one
 * process more. EACCES, EPERM: it refuses this process. EINVAL: a setting is wrong.
 * See: socket(2), xts_configure(), xts_last_error().
 */
int xts_socket(int domain, int type, int protocol);

/*
 * Close a socket.
 *
 * What was sent is still delivered, as with the kernel; SO_LINGER has its usual meaning. Blocks
 * only where SO_LINGER asks for it.
 *
 * Returns: 0.
 * Errors: EBADF.
 * See: close(2).
 */
int xts_close(int s);

/*
 * Control a socket, or push a protocol onto it.
 *
 * FIONREAD, SIOCOUTQ, SIOCATMARK, FIONBIO, FIOCLEX and FIONCLEX are as for a kernel socket. SIOCOUTQ
 * of a datagram socket also counts what the device's kernel may have taken. Requests that are not
 * about the connection, such as SIOCGIFADDR, have the answer of this host's kernel.
 * SIOC_PUSH_ULP and similar requests push a protocol and block for a round trip; see "pushed
 * protocols". SIOC_PEEK_MODE takes an int *, 1 to begin. SIOC_END_PEEK_MODE takes a uint32_t *: the
 * bytes to drop, from the first received one on.
 *
 * Returns: 0.
 * Errors: as ioctl(2), and those of a push.
 * See: ioctl(2), tcp(7), xts_ulp_put().
 */
int xts_ioctl(int s, unsigned long request, ...);

/*
 * Read or change a socket's flags.
 *
 * F_GETFL and F_SETFL (O_NONBLOCK), F_GETFD and F_SETFD (FD_CLOEXEC). Never blocks.
 *
 * Returns: the flags, or 0.
 * Errors: EBADF. EINVAL: another command, or O_ASYNC.
 * See: fcntl(2).
 */
int xts_fcntl(int s, int command, ...);

/*
 * Read an option of a socket.
 *
 * Options are those of the device's TCP. SO_ERROR, SO_TYPE, SO_DOMAIN, SO_PROTOCOL and
 * SO_ACCEPTCONN are known at once; others block for a round trip.
 *
 * Returns: 0.
 * Errors: as getsockopt(2). ENOPROTOOPT: the proxy does not offer the option. EPERM: it refuses
 * this one to hosts. ENOBUFS: a limit of the proxy. ENETDOWN.
 * See: getsockopt(2), tcp(7).
 */
int xts_getsockopt(int s, int level, int option, void *value, socklen_t *length);

/*
 * Set an option of a socket.
 *
 * Most options block for a round trip.
 *
 * Returns: 0.
 * Errors: as setsockopt(2). ENOPROTOOPT: the proxy does not offer the option. EPERM: it refuses
 * this one to hosts. ENOBUFS: a limit of the proxy. ESHUTDOWN: the proxy is about to stop.
 * ENETDOWN.
 * See: setsockopt(2), tcp(7).
 */
int xts_setsockopt(int s, int level, int option, const void *value, socklen_t length);

/*
 * Bind a socket to an address of the device.
 *
 * Blocks for a round trip.
 *
 * Returns: 0.
 * Errors: as bind(2). EADDRNOTAVAIL: the device does not have the address. EACCES: the proxy's
 * policy forbids it to this host. ENOBUFS: a limit of the proxy. ESHUTDOWN: the proxy is about to
 * stop. ENETDOWN.
 * See: bind(2).
 */
int xts_bind(int s, const struct sockaddr *address, socklen_t length);

/*
 * Connect a socket.
 *
 * The device connects: addresses and routes are the device's. Blocks until the connection is there
 * or has failed, unless the socket is non-blocking: then EINPROGRESS, and the socket becomes
 * writable when its outcome is known (SO_ERROR). The handshakes of protocols that were pushed
 * before are part of it. A datagram socket is connected, connected again or (AF_UNSPEC) dissolved
 * in one round trip, whatever O_NONBLOCK says.
 *
 * Returns: 0.
 * Errors: as connect(2). EACCES: the proxy's policy forbids that address or port to this host.
 * ENOBUFS: a limit of the proxy. ESHUTDOWN: the proxy is about to stop. ECONNABORTED: it has gone
 * meanwhile. ENETDOWN.
 * See: connect(2), xts_ulp_connect().
 */
int xts_connect(int s, const struct sockaddr *address, socklen_t length);

/*
 * Listen for connections on the device.
 *
 * Blocks for a round trip.
 *
 * Returns: 0.
 * Errors: as listen(2). EACCES: the proxy's policy forbids it to this host. ENOBUFS: a limit of the
 * proxy. ESHUTDOWN: the proxy is about to stop. ENETDOWN.
 * See: listen(2).
 */
int xts_listen(int s, int backlog);

/*
 * Take a connection from a listener.
 *
 * Blocks until there is one, unless the listener is non-blocking.
 *
 * Returns: the number of a new socket, which is blocking.
 * Errors: as accept(2). EADDRINUSE and others of bind(2), once: the proxy had gone, and the listener
 * cannot be made again for now.
 * See: accept(2), xts_accept4().
 */
int xts_accept(int s, struct sockaddr *address, socklen_t *length);

/*
 * Send data.
 *
 * Flags: MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE, MSG_EOR. Blocks until all of it has been taken,
 * unless the socket is non-blocking: then as much as there is room for. The data may be changed
 * when the call has returned. On a socket with PDUs one call is one PDU; see SOL_XTS. On a
 * datagram socket one call is one datagram, which is taken whole or not at all.
 *
 * Returns: the bytes taken.
 * Errors: as send(2). EPIPE, with SIGPIPE unless MSG_NOSIGNAL is given: the connection is shut down
 * for sending. EOPNOTSUPP: MSG_OOB; there is no urgent data. ECONNRESET, also when the proxy has
 * gone.
 * See: send(2).
 */
ssize_t xts_send(int s, const void *data, size_t bytes, int flags);

/*
 * Send data, or a datagram to an address.
 *
 * As xts_send(). A stream socket ignores the address, as the kernel's does.
 *
 * Errors: as sendto(2). What the proxy or the device refuses of a datagram is told by a later call.
 * See: sendto(2), xts_send().
 */
ssize_t xts_sendto(int s, const void *data, size_t bytes, int flags, const struct sockaddr *address, socklen_t length);

/*
 * Send data from several buffers, a PDU or a datagram with control data.
 *
 * As xts_sendto(). Control data is that of a pushed protocol: see SOL_XTS. A datagram's is
 * IP_PKTINFO, IP_TTL, IP_TOS, IPV6_PKTINFO, IPV6_HOPLIMIT, IPV6_TCLASS or UDP_SEGMENT. On a stream,
 * control data of other levels is passed over, as by the kernel.
 *
 * Errors: as xts_send(), and EMSGSIZE: more than IOV_MAX buffers. EINVAL: other control data of
 * SOL_SOCKET, SOL_TLS or SOL_XTS.
 * See: sendmsg(2), xts_send().
 */
ssize_t xts_sendmsg(int s, const struct msghdr *message, int flags);

/*
 * Send several messages.
 *
 * As xts_sendmsg() for one after the other; msg_len of each that has been taken is set. The
 * datagrams of one call share the messages to the device, and so cost less than by themselves.
 *
 * Returns: how many have been taken, which are at most 1024.
 * Errors: as xts_sendmsg(), of the first message.
 * See: sendmmsg(2), xts_sendmsg().
 */
int xts_sendmmsg(int s, struct mmsghdr *messages, unsigned count, int flags);

/*
 * Receive data.
 *
 * Flags: MSG_DONTWAIT, MSG_PEEK, MSG_WAITALL, MSG_TRUNC; on a datagram socket MSG_ERRQUEUE. Blocks
 * until there is some, unless the socket is non-blocking. On a socket with PDUs one call gives one
 * PDU; see SOL_XTS. On a datagram socket one call gives one datagram, cut to the size of the buffer.
 *
 * Returns: the bytes received; 0 at the end of the stream.
 * Errors: as recv(2). ECONNRESET: the peer has reset the connection, or the proxy has gone.
 * EINVAL: MSG_OOB. The fault of a pushed protocol: xts_ulp_error() has its reason. EBADMSG may say
 * that the peer's stream was cut off; then each further call says so, and sending goes on.
 * See: recv(2).
 */
ssize_t xts_recv(int s, void *data, size_t bytes, int flags);

/*
 * Receive data, or a datagram and the address it is from.
 *
 * As xts_recv(). A stream socket does not set the address, as the kernel's does not.
 *
 * See: recvfrom(2), xts_recv().
 */
ssize_t xts_recvfrom(int s, void *data, size_t bytes, int flags, struct sockaddr *address, socklen_t *length);

/*
 * Receive data into several buffers, or a PDU or datagram with its control data.
 *
 * As xts_recvfrom(). msg_flags has MSG_EOR, MSG_TRUNC and MSG_CTRUNC; see SOL_XTS. A datagram's
 * control data is what the options of its socket ask for (IP_PKTINFO, IP_RECVTTL, IP_RECVTOS,
 * IPV6_RECVPKTINFO, IPV6_RECVHOPLIMIT, IPV6_RECVTCLASS, UDP_GRO, SO_RXQ_OVFL; IP_RECVERR and
 * IPV6_RECVERR with MSG_ERRQUEUE).
 *
 * Errors: as xts_recv(), and EMSGSIZE: more than IOV_MAX buffers.
 * See: recvmsg(2), xts_recv().
 */
ssize_t xts_recvmsg(int s, struct msghdr *message, int flags);

/*
 * Receive several messages.
 *
 * As xts_recvmsg() for one after the other; msg_len of each is set. MSG_WAITFORONE: waits for the
 * first only. The timeout is looked at after each message, as the kernel does, and what is left of
 * it is in *timeout when something has been received.
 *
 * Returns: how many have been received, which are at most 1024.
 * Errors: as xts_recvmsg(), of the first message. EINVAL: an invalid timeout. A pending error comes
 * before anything that waits.
 * See: recvmmsg(2), xts_recvmsg().
 */
int xts_recvmmsg(int s, struct mmsghdr *messages, unsigned count, int flags, struct timespec *timeout);

/*
 * Tell the address that a socket has on the device.
 *
 * Never blocks.
 *
 * Returns: 0.
 * Errors: as getsockname(2).
 * See: getsockname(2).
 */
int xts_getsockname(int s, struct sockaddr *address, socklen_t *length);

/*
 * Tell the address of a socket's peer.
 *
 * Never blocks.
 *
 * Returns: 0.
 * Errors: as getpeername(2). ENOTCONN.
 * See: getpeername(2).
 */
int xts_getpeername(int s, struct sockaddr *address, socklen_t *length);

/* --- polling ---------------------------------------------------------------------------------- */

/* The caller promises to come back to xts_epoll_wait(), xts_epoll() or xts_flush() soon. What it
 * sends in between leaves then, with one doorbell for all. */
#define XTS_EPOLL_BATCH 1u

/* The caller promises to call xts_flush() after it has handled what xts_epoll() gave it, if that
 * was anything, and before it sleeps on the descriptor. No doorbell rings until then. This spares
 * an event loop two system calls and one turn of the loop for each event. */
#define XTS_EPOLL_TURN 2u

/* A wait spins for up to four times XTS_SPIN_US. This is for a program that loses more than that by
 * sleeping, as an interpreter does, and whose pauses are so long that the proxy sleeps as well. */
#define XTS_EPOLL_PATIENT 4u

/* What is sent while several events of one xts_epoll_wait() are handled leaves together, but
 * nothing is promised: it leaves by itself after 200 us at the latest. It has an effect only where
 * a doorbell is a system call (AF_XDP). */
#define XTS_EPOLL_HOLD 8u

/*
 * Make a set of XTS sockets to wait for.
 *
 * Returns: the set, or NULL.
 * Errors: ENOMEM.
 * See: epoll_create(2), xts_epoll_ctx_destroy().
 */
void *xts_epoll_ctx_create(void);

/*
 * Make a set of XTS sockets to wait for, with promises of the caller.
 *
 * flags: XTS_EPOLL_BATCH, XTS_EPOLL_TURN, XTS_EPOLL_PATIENT and XTS_EPOLL_HOLD, or 0.
 *
 * Returns: the set, or NULL.
 * Errors: ENOMEM. EINVAL: another flag.
 * See: xts_epoll_ctx_create(), xts_flush().
 */
void *xts_epoll_ctx_create_flags(unsigned flags);

/*
 * Add a socket to a set, change what is waited for, or remove it.
 *
 * op and ev are as for epoll_ctl(2): level-triggered or edge-triggered (EPOLLET), EPOLLONESHOT.
 * Never blocks.
 *
 * Returns: 0.
 * Errors: as epoll_ctl(2).
 * See: epoll_ctl(2).
 */
int xts_epoll_ctl(void *ectx, int op, int xts_socket_num, struct epoll_event *ev);

/*
 * Tell which sockets of a set are ready now.
 *
 * Never blocks.
 *
 * Returns: how many events are in events.
 * Errors: EINVAL: maxevents is not above 0. EFAULT: an event cannot be written to events. EBADF: ectx is NULL.
 * See: xts_epoll_wait().
 */
int xts_epoll(void *ectx, struct epoll_event *events, int maxevents);

/*
 * Wait until a socket of a set is ready.
 *
 * Spins for up to XTS_SPIN_US, then sleeps. timeout_ms: -1 waits for ever, 0 does not wait.
 *
 * Returns: how many events are in events; 0: the time is over.
 * Errors: as xts_epoll(), and EINTR.
 * See: epoll_wait(2).
 */
int xts_epoll_wait(void *ectx, struct epoll_event *events, int maxevents, int timeout_ms);

/*
 * Give a descriptor that is readable when a socket of the set is ready.
 *
 * Put it into an epoll set of the kernel (EPOLLIN); when it is readable, call xts_epoll(). It belongs
 * to the set: do not read it and do not close it.
 *
 * Returns: the descriptor.
 * Errors: EMFILE, ENFILE, ENOMEM. EBADF: ectx is NULL.
 * See: xts_fileno().
 */
int xts_epoll_fd(void *ectx);

/*
 * Destroy a set. Its sockets stay as they are.
 *
 * See: xts_epoll_ctx_create().
 */
void xts_epoll_ctx_destroy(void *ectx);

/*
 * Send what a program with XTS_EPOLL_BATCH has gathered, and end the turn of XTS_EPOLL_TURN.
 *
 * See: xts_epoll_ctx_create_flags().
 */
void xts_flush(void);

/* --- time stamps of datagrams ----------------------------------------------------------------- */

/*
 * Options of level SOL_XTS. SO_XTS_CLOCK says of which clock the stamps of a datagram socket are
 * (SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING): as the device has made them, or converted to
 * this host's CLOCK_REALTIME. `xts status` shows how far the clocks are apart, and the error of
 * that. Stamps of a network card have the card's clock, and are not converted. Its first use for
 * XTS_CLOCK_HOST waits for an answer of the proxy; EOPNOTSUPP: that proxy does not tell its time.
 */
#define SO_XTS_CLOCK 0x58540001
#define XTS_CLOCK_DEVICE 0
#define XTS_CLOCK_HOST 1

/* --- the operator's filters --------------------------------------------------------------------- */

/*
 * An option of level SOL_XTS: a datagram socket gets the filter that the proxy's operator has under
 * this name (a string of at most 63 bytes), an eBPF program that runs on the device. It takes the
 * place of what SO_ATTACH_FILTER has set, and is taken away by a string of no bytes or by
 * SO_DETACH_FILTER. ENOENT: there is none of that name for this host. ENOBUFS: a limit of the
 * proxy. ENOPROTOOPT: the proxy is of an older version. (SO_ATTACH_BPF names a program of this
 * host's kernel, and fails.)
 */
#define SO_XTS_FILTER 0x58540002

/* --- datagrams and PDUs without a call --------------------------------------------------------- */

/* A datagram or PDU that has just come. */
struct xts_packet {
	const void *data;
	size_t bytes;
	size_t segment_bytes; /* of a train (UDP_GRO): each datagram of it but the last has so many; 0: one datagram */
	const struct sockaddr *address; /* of a PDU the peer of the connection */
	socklen_t address_bytes;
	uint64_t stamp_ns;   /* when it arrived, if the socket has SO_TIMESTAMPNS or SO_TIMESTAMP; else 0 */
	const void *control; /* as recvmsg(2) has it in msg_control */
	size_t control_bytes;
	int s; /* the socket */
};

/* What becomes of it. */
enum xts_packet_verdict {
	XTS_PACKET_DROP, /* nothing: it is gone */
	XTS_PACKET_RECV, /* it is queued, for xts_recv() and polling as any other */
	XTS_PACKET_HOLD, /* it is the program's, until xts_packet_free() */
};
typedef enum xts_packet_verdict (*xts_recv_callback)(const struct xts_packet *packet, void *context);

/*
 * Have a function called with each datagram or PDU of a socket before it is queued.
 *
 * It is called inside a call of this library, by whichever thread finds the datagram: one that
 * receives, polls or waits for events. It must not call this library, except for
 * xts_packet_free(): the library aborts the program with a message if it does. What it holds takes
 * receive credits: when those are used up the device's kernel keeps what comes, as SO_RCVBUF says.
 * NULL as callback: datagrams are queued again. What was queued before stays in the queue. A PDU
 * that is longer than half of the window is queued in parts as it comes; the function is not called
 * if a part of it has been received by then.
 *
 * Returns: 0.
 * Errors: EOPNOTSUPP: s is a stream socket. ENOMEM. EBADF.
 * See: xts_packet_free(), SO_ATTACH_FILTER of socket(7).
 */
int xts_register_recv_callback(int s, xts_recv_callback callback, void *context);

/*
 * Give back a datagram that was held.
 *
 * Its socket may be closed by then.
 *
 * See: xts_register_recv_callback().
 */
void xts_packet_free(const struct xts_packet *packet);

/* --- pushed protocols ------------------------------------------------------------------------- */

/*
 * The proxy can carry out protocols above TCP, such as TLS or HTTP/2. A program pushes them onto a
 * socket, the lowest first. ULPS.md lists the protocols and their parameters, and xts_ulps() what
 * the attached proxy offers.
 *
 * A socket of type SOCK_SEQPACKET with a protocol that makes PDUs works like the kernel's KCM. A
 * receive call gives one PDU or the rest of one: msg_flags has MSG_EOR when it is complete, and
 * MSG_TRUNC when there is more of it than the buffer took; the next call gives the rest. A PDU of
 * more than half the window (XTS_WINDOW_BYTES_MAX) comes in parts. With MSG_TRUNC as a flag of the
 * call the result is the whole length of the PDU, as far as it is known. A PDU of length 0 is
 * received as 0 with MSG_EOR. A send call is one PDU, or with MSG_MORE a part of one.
 */

/* The level of control data (cmsg_level) both ways; cmsg_type is the protocol's ulp_id. TLS_KEYS
 * has SOL_TLS with TLS_GET_RECORD_TYPE and TLS_SET_RECORD_TYPE instead, as the kernel's has. */
#define SOL_XTS 0x5854

/* The argument of SIOC_PUSH_ULP_RX, SIOC_PUSH_ULP_TX and SIOC_PUSH_ULP (both directions): which
 * protocol, and its parameters as attributes, which xts_ulp_put() appends. The paper's structure
 * has no length, without which xts_ioctl() could not know how much to read. */
struct ulp_info {
	uint16_t ulp_id;    /* enum xts_ulp_id of ulp_wire.h; host byte order */
	uint16_t ulp_bytes; /* of ulp_parameters */
	uint8_t ulp_parameters[];
};
#define XTS_ULP_INFO_BYTES_MAX 480

/*
 * Append an attribute to the parameters of a protocol.
 *
 * room is the size of info in bytes, its head included. With XTS_ULP_INTEGER in flags, value is an
 * integer of 1, 2, 4 or 8 bytes in host byte order; anything else is copied as it is.
 *
 * Returns: 0.
 * Errors: ENOSPC: no room. EINVAL.
 * See: xts_ioctl(), xts_ulp_connect().
 */
#define XTS_ULP_INTEGER 1u
int xts_ulp_put(struct ulp_info *info, size_t room, unsigned attribute, const void *value, size_t bytes, unsigned flags);

/*
 * Push protocols and connect, in one round trip.
 *
 * As xts_ioctl() of each push in order and xts_connect() after them. What the proxy refuses is an
 * error of the connection, of this call or of SO_ERROR. After a failure the socket can be asked
 * for its reason (xts_ulp_error()) and closed, and nothing else (EINVAL).
 *
 * Returns: 0.
 * Errors: as xts_connect() and as a push. EMSGSIZE: the parameters of all pushes are too long to
 * travel together (some 1000 bytes).
 * See: xts_connect(), xts_ulp_handshake().
 */
struct xts_ulp_push {
	unsigned long request; /* SIOC_PUSH_ULP_RX, SIOC_PUSH_ULP_TX or SIOC_PUSH_ULP */
	const struct ulp_info *info;
};
int xts_ulp_connect(int s, const struct sockaddr *address, socklen_t length, const struct xts_ulp_push *pushes,
		    unsigned count);

/*
 * Wait until the handshakes of what was pushed are done.
 *
 * Needed after a push onto a connection in use. xts_connect() and xts_accept() wait by themselves
 * for what was pushed before.
 *
 * Returns: 0.
 * Errors: the handshake's. EAGAIN: the socket is non-blocking and it is not done; poll for POLLOUT.
 * ENOTCONN.
 * See: xts_ulp_error().
 */
int xts_ulp_handshake(int s);

/*
 * Tell why a push was refused, or which fault of a protocol ended the connection.
 *
 * *fault is its number (enum xts_fault); text is a sentence, cut to bytes and terminated. Both may
 * be NULL. Blocks for a round trip, the first time after a fault.
 *
 * Returns: its errno; 0: there was none.
 * Errors: EBADF, ENETDOWN.
 * See: xts_last_error().
 */
int xts_ulp_error(int s, unsigned *fault, char *text, size_t bytes);

/*
 * Tell what a pushed protocol knows, such as the version of TLS or the peer's certificate.
 *
 * send: 0 for the receive side, 1 for the send side. layer: 0 is next to TCP. item: of ULPS.md. At
 * most bytes are written to value, integers in host byte order. Blocks for a round trip.
 *
 * Returns: the item's whole length in bytes.
 * Errors: ENOENT: there is no such layer or item. ENOTCONN. EAGAIN: it has changed meanwhile; ask
 * again. ENETDOWN.
 * See: xts_ulp_error().
 */
ssize_t xts_ulp_tell(int s, int send, unsigned layer, unsigned item, void *value, size_t bytes);

/*
 * List the protocols that the attached proxy offers to this host.
 *
 * At most max offers are written. Attaches the process. Blocks for a round trip.
 *
 * Returns: how many there are.
 * Errors: as xts_socket().
 * See: xts_ioctl().
 */
struct xts_ulp_offer {
	uint16_t ulp_id, version;
	uint8_t receive, send; /* 1: in this direction */
};
int xts_ulps(struct xts_ulp_offer *offers, unsigned max);

/* --- other calls ------------------------------------------------------------------------------ */

/*
 * Shut down one direction of a connection, or both.
 *
 * What was sent before is still delivered. Never blocks.
 *
 * Returns: 0.
 * Errors: as shutdown(2).
 * See: shutdown(2).
 */
int xts_shutdown(int s, int how);

/*
 * Take a connection from a listener, with flags.
 *
 * As xts_accept(). flags: SOCK_NONBLOCK and SOCK_CLOEXEC, of the new socket.
 *
 * See: accept4(2), xts_accept().
 */
int xts_accept4(int s, struct sockaddr *address, socklen_t *length, int flags);

/*
 * Install a signal handler that may run in the middle of these calls.
 *
 * As sigaction(2). See "Signal handlers" at the top.
 *
 * See: sigaction(2).
 */
int xts_sigaction(int number, const struct sigaction *action, struct sigaction *old);

/*
 * Cancel a thread that may wait in one of these calls.
 *
 * As pthread_cancel(3). See "Cancellation" at the top. Under libxts-preload pthread_cancel() does
 * the same.
 *
 * Returns: 0, or an error number.
 * Errors: as pthread_cancel(3).
 * See: pthread_cancel(3), pthreads(7).
 */
int xts_pthread_cancel(pthread_t thread);

/*
 * Wait for XTS sockets, by number.
 *
 * As poll(2), with numbers of XTS sockets in place of descriptors. For many sockets
 * xts_epoll_wait() is faster. nfds may be more than RLIMIT_NOFILE, because these are no descriptors.
 *
 * Returns: how many have events; 0: the time is over.
 * Errors: EFAULT. EINTR.
 * See: poll(2), xts_epoll_wait().
 */
int xts_poll(struct pollfd *fds, unsigned long nfds, int timeout_ms);

/*
 * Give a descriptor that is readable, writable and hung up when the socket is.
 *
 * For select, poll, epoll, event loops and io_uring. It is made at the first call and belongs to
 * the socket, with which it closes. It is only for polling: do not read or close it. A write to it
 * fails (ENOTCONN). Each call takes what has come for the socket first, so that the descriptor shows
 * it. In an edge-triggered set each arrival is an edge, as on the kernel.
 *
 * Returns: the descriptor.
 * Errors: EBADF, EMFILE, ENFILE, ENOMEM.
 * See: xts_epoll_fd().
 */
int xts_fileno(int s);

/*
 * Tell why the last call of this thread that failed did so, as a sentence.
 *
 * "the proxy's policy forbids this host to connect to that address: ..." says more than "Permission
 * denied". The reason of a pushed protocol is fetched if needed, which blocks for a round trip. errno
 * is kept.
 *
 * Returns: the sentence, or the text of errno where there is no more to say; "" when no call of
 * this thread has failed. Never NULL. It is valid until this thread's next call of this library.
 * See: errno(3), strerror(3), xts_ulp_error().
 */
const char *xts_last_error(void);

/*
 * Ask the device's name servers.
 *
 * query is a standard query with one question, as res_mkquery(3) makes it, of 1,024 bytes at most;
 * answer is for what a name server has said to it, which ns_initparse(3) reads. Which servers are
 * asked, and for how long, the proxy's operator has configured; timeout_ms is how long this call
 * waits at most, -1: until the proxy answers. A truncated answer never comes: the proxy asks again
 * over TCP. Attaches the process. Blocks until there is an answer; signals do not interrupt it.
 *
 * Returns: the length of the answer, which may be more than answer_bytes; the rest is cut off then.
 * Errors: EACCES: the proxy lets this host not look up that name. EHOSTUNREACH: no name server can be
 * reached. ETIMEDOUT: none has answered, or timeout_ms is over. EINVAL: it is no such query, or its
 * class is not IN. EMSGSIZE: the query, or the answer, is too long for a message. ENOBUFS: a limit of
 * the proxy. EOPNOTSUPP: the proxy looks up no names. ESHUTDOWN: the proxy is about to stop. And those
 * of xts_socket() for a process that is not attached.
 * See: resolver(3), resolv.conf(5).
 */
int xts_query_name(const void *query, size_t query_bytes, void *answer, size_t answer_bytes, int timeout_ms);

/*
 * Set how this process uses the library.
 *
 * Call it before the first socket. 0 or NULL leaves a setting to the environment, or to its
 * default; `xts env` lists both. The environment is read once, when the library is loaded. A
 * privileged program (AT_SECURE: set-uid, file capabilities) ignores it.
 *
 * Returns: 0.
 * Errors: EBUSY: the process is attached. EINVAL: options is NULL or its size is wrong.
 * ENAMETOOLONG: endpoint or pcap is too long. A value that is out of range makes xts_socket() fail
 * with EINVAL.
 * See: xts_socket().
 */
struct xts_options {
	size_t size;               /* sizeof(struct xts_options): tells the version */
	const char *endpoint;      /* XTS_ENDPOINT: socket of the agent or proxy */
	uint32_t spin_us;          /* XTS_SPIN_US: longest spin before sleeping; UINT32_MAX: none */
	uint32_t window_bytes;     /* XTS_WINDOW_BYTES: receive window of a new socket */
	uint32_t window_bytes_max; /* XTS_WINDOW_BYTES_MAX: what a busy one may grow to */
	uint32_t frame_window;     /* XTS_FRAME_WINDOW: frames on their way, each direction */
	const char *pcap;          /* XTS_PCAP: write all frames to a new file of this name */
	uint32_t dead_ms;          /* XTS_DEAD_MS: a device silent for so long is given up */
	const char *stacks;        /* XTS_STACKS: process, thread or a number; NULL: not given */
};
int xts_configure(const struct xts_options *options);

/* --- stacks ------------------------------------------------------------------------------------ */

/*
 * A stack has a queue of its own, a lock of its own, and is at one endpoint. Threads that use sockets
 * of different stacks never wait for one another. New sockets and sets of xts_epoll_ctx_create() come
 * into the calling thread's stack. XTS_STACKS says which that is: `process`, all threads use one;
 * `thread`, each has its own; a number, they are spread over so many.
 *
 * A socket stays in its stack, whichever thread uses it. A connection comes into its listener's. When
 * a thread that has its own stack exits, its sockets go on working from other threads. The stack ends,
 * and its queue is given back, with its last socket.
 *
 * One call may wait for sockets of several stacks, which are all alike to it.
 */

/* For xts_stack_use(): the stack that XTS_STACKS says. */
#define XTS_STACK_OF_SETTING (-2)

/*
 * Make a stack.
 *
 * endpoint is where it attaches, with its first socket; NULL is the process's endpoint.
 *
 * Returns: the stack's number.
 * Errors: ENAMETOOLONG: endpoint is too long. ENOMEM: no memory, or the process has 1024 stacks.
 * See: xts_stack_use(), xts_stack_release().
 */
int xts_stack_create(const char *endpoint);

/*
 * Let new sockets of the calling thread come into a stack.
 *
 * stack is a number of xts_stack_create() or xts_stack_of(), or XTS_STACK_OF_SETTING.
 *
 * Returns: what the thread used before, in the same form.
 * Errors: ENOENT: there is no such stack. ENOMEM.
 * See: xts_stack_create().
 */
int xts_stack_use(int stack);

/*
 * Give up a stack that xts_stack_create() has made.
 *
 * No new sockets come into it. It ends when its last socket and its last polling set have gone.
 *
 * Errors: ENOENT: there is no such stack.
 * See: xts_stack_create().
 */
int xts_stack_release(int stack);

/*
 * Tell which stack a socket is in.
 *
 * Returns: the stack's number.
 * Errors: EBADF.
 * See: xts_stack_use().
 */
int xts_stack_of(int s);

/*
 * Give the calling thread rules of its own, in a program under the interposer.
 *
 * path is a file of transport rules (RULES.md), or NULL: the process's rules again. They decide about
 * sockets that the thread binds, connects or lets listen from now on. Threads that it makes begin with
 * the process's.
 *
 * Errors: EOPNOTSUPP: the program does not run under the interposer: its XTS sockets need no rules.
 * EINVAL: a mistake in the file, and xts_last_error() has its place. ENOENT, EACCES and others of
 * open(2). ENOMEM.
 * See: xts_last_error().
 */
int xts_rules_thread(const char *path);

/*
 * Tell the state of this process's attachment, for diagnosis.
 *
 * Set info->size to sizeof *info first. Never blocks.
 *
 * Returns: 0.
 * Errors: ENOTCONN: not attached; info is filled all the same. EINVAL: the size is wrong.
 * See: xts_last_error().
 */
struct xts_info {
	size_t size;
	char queue_kind[16]; /* "afxdp", "shm", or "relay": shared memory to a relay of the agent */
	char interface[16];
	uint32_t queue_id;
	uint32_t link_state; /* 0 opening, 1 up, 2 down */
	int32_t link_error;  /* errno: why it is down */
	uint32_t frame_window, frame_credits, largest_message;
	uint32_t sockets; /* that exist now */
	uint64_t features, epoch;
	uint64_t sent_frames, received_frames, sent_acks, received_acks;
	uint64_t kicks;                          /* doorbells rung */
	uint64_t sleeps, spins;                  /* waits that slept, and that a spin ended */
	uint64_t malformed;                      /* frames dropped */
	uint64_t not_inherited;                  /* sockets refused after fork or exec, or lost in it */
	uint64_t sent_packets, received_packets; /* in which frames travelled (afxdp) */
	char attach_error[256];                  /* why attaching failed, when last tried; empty: it did not */
	uint64_t sent_bytes, received_bytes;     /* of all sockets, closed ones too */
	uint64_t lock_waits;                     /* calls that found the stack's lock taken by another thread */
	uint32_t stack;                          /* which stack all this is about: the calling thread's */
};
int xts_get_info(struct xts_info *info);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
