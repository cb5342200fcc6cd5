/*
 * libxts: TCP sockets whose protocol work is done by an offload proxy on a SmartNIC or DPU.
 *
 * The eighteen calls of the paper (Herbert, "TCP and ULP Offload via AF_XDP Sockets", "Application API") under their
 * names, with the arguments, results and errno of their BSD counterparts (the man page of the counterpart applies,
 * section 2), and what programs need beside them. An XTS socket number is not a file descriptor; xts_fileno() gives
 * one that mirrors its readiness.
 *
 * The first socket attaches the process: $XTS_ENDPOINT (default /run/xts/endpoint.sock) names the agent or proxy that
 * hands out its queue; $XTS_QUEUE ("shm:/path/to/endpoint.sock") goes before it and insists on shared memory. Without
 * an endpoint xts_socket() fails with ENETDOWN.
 *
 * All calls are thread-safe; threads may share sockets. A call blocks unless the socket is non-blocking (O_NONBLOCK,
 * SOCK_NONBLOCK) or MSG_DONTWAIT is given; it is interrupted by signals as in signal(7). After fork() the child has
 * no XTS sockets (EBADF); its first xts_socket() attaches it anew. Under libxts-preload sockets are kept over fork() and exec(),
 * with limits; xts_get_info() counts what could not be kept (not_inherited).
 *
 * Where this differs from the kernel: DIFFERENCES.md has the list. Above all, a connection, and every socket the proxy
 * knows, ends with the proxy or the way to it: ECONNRESET (ECONNABORTED while connecting); calls that need the proxy then
 * fail with ENETDOWN. Calls are no cancellation points.
 *
 * Signal handlers that call the library, fork(), or leave by siglongjmp() are to be installed with xts_sigaction(): they run where their
 * thread holds nothing of the library's. Others may do so only while no call is under way in their thread; the child of a fork()
 * in one that has interrupted a call may only exec or _exit. Under libxts-preload sigaction() and its kin do the same for all.
 */
#ifndef XTS_H
#define XTS_H

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

struct pollfd;
struct sigaction;

#pragma GCC visibility push(default)

/* --- the paper's calls ---------------------------------------------------------------------------------------------- */

/* domain AF_INET or AF_INET6, type SOCK_STREAM, or SOCK_SEQPACKET for PDUs (below), with SOCK_NONBLOCK and SOCK_CLOEXEC, protocol 0 or IPPROTO_TCP.
 * EAFNOSUPPORT, ESOCKTNOSUPPORT, EPROTONOSUPPORT, EMFILE; ENETDOWN: no proxy to be reached; EUSERS: it is there, and has no queue
 * for this process. The sentence for people is xts_get_info()'s attach_error. */
int xts_socket(int domain, int type, int protocol);
int xts_close(int s);
int xts_ioctl(int s, unsigned long request, ...);
int xts_fcntl(int s, int command, ...);
int xts_getsockopt(int s, int level, int option, void *value, socklen_t *length);
int xts_setsockopt(int s, int level, int option, const void *value, socklen_t length);
int xts_bind(int s, const struct sockaddr *address, socklen_t length);
int xts_connect(int s, const struct sockaddr *address, socklen_t length);
int xts_listen(int s, int backlog);
int xts_accept(int s, struct sockaddr *address, socklen_t *length);
ssize_t xts_send(int s, const void *data, size_t bytes, int flags);
ssize_t xts_sendto(int s, const void *data, size_t bytes, int flags, const struct sockaddr *address, socklen_t length);
ssize_t xts_sendmsg(int s, const struct msghdr *message, int flags);
ssize_t xts_recv(int s, void *data, size_t bytes, int flags);
ssize_t xts_recvfrom(int s, void *data, size_t bytes, int flags, struct sockaddr *address, socklen_t *length);
ssize_t xts_recvmsg(int s, struct msghdr *message, int flags);
int xts_getsockname(int s, struct sockaddr *address, socklen_t *length);
int xts_getpeername(int s, struct sockaddr *address, socklen_t *length);

/* --- polling (the paper, "Polling") --------------------------------------------------------------------------------- */

void *xts_epoll_ctx_create(void);
/* op, ev: as epoll_ctl(2): level- and edge-triggered, EPOLLONESHOT. */
int xts_epoll_ctl(void *ectx, int op, int xts_socket_num, struct epoll_event *ev);
/* The ready events now; never blocks. */
int xts_epoll(void *ectx, struct epoll_event *events, int maxevents);

/* The descriptor to put into an epoll set (EPOLLIN): when it is ready, call xts_epoll(). Belongs to the context. */
int xts_epoll_fd(void *ectx);
/* As epoll_wait(2) on XTS sockets alone: spins, then sleeps. */
int xts_epoll_wait(void *ectx, struct epoll_event *events, int maxevents, int timeout_ms);
void xts_epoll_ctx_destroy(void *ectx);

/* With XTS_EPOLL_BATCH the caller promises to come back to xts_epoll_wait(), xts_epoll() or xts_flush() soon: what it
 * sends in between leaves then, with one doorbell for all. */
#define XTS_EPOLL_BATCH 1u
/* With XTS_EPOLL_TURN the caller promises to call xts_flush() after it has handled what xts_epoll() gave, if that was not
 * nothing, before it sleeps on the descriptor: until then nothing rings, which spares an event loop two system calls and a
 * turn for each event. */
#define XTS_EPOLL_TURN 2u
/* With XTS_EPOLL_PATIENT a wait spins for up to four times XTS_SPIN_US: for a program that loses more than that by sleeping,
 * as an interpreter does, and that lets the proxy wait so long between two requests that it has fallen asleep as well. */
#define XTS_EPOLL_PATIENT 4u
/* With XTS_EPOLL_HOLD, what is sent while several events of one xts_epoll_wait() are being handled leaves together too, but
 * nothing is promised: it leaves by itself after 200 us at the latest. Only where a doorbell is a system call (AF_XDP). */
#define XTS_EPOLL_HOLD 8u
void *xts_epoll_ctx_create_flags(unsigned flags);
/* Sends what an XTS_EPOLL_BATCH program has gathered, and ends the turn of XTS_EPOLL_TURN. */
void xts_flush(void);

/* --- pushed protocols (the paper, "ULP Offloads"; ULPS.md has protocols and parameters) ------------------------------ */

/* The argument of SIOC_PUSH_ULP_RX, SIOC_PUSH_ULP_TX and SIOC_PUSH_ULP (both): which protocol, and its parameters as attributes, built by
 * xts_ulp_put(). (The paper's structure has no length: xts_ioctl() could not know it.) Blocks for a round trip. ENOPROTOOPT: the proxy does not offer it; EINVAL,
 * EPROTOTYPE (a protocol with PDUs uppermost needs SOCK_SEQPACKET), EACCES, ENOBUFS …: xts_ulp_error() has the reason. */
struct ulp_info {
	uint16_t ulp_id;           /* enum xts_ulp_id of ulp_wire.h; host byte order */
	uint16_t ulp_bytes;        /* of ulp_parameters */
	uint8_t ulp_parameters[];
};
#define XTS_ULP_INFO_BYTES_MAX 480
/* Appends an attribute to info, which has room bytes in all (its head included): 0, or -1 with ENOSPC. Integers: value in host byte order, bytes 1, 2, 4 or 8, with
 * XTS_ULP_INTEGER; anything else is copied as it is. */
#define XTS_ULP_INTEGER 1u
int xts_ulp_put(struct ulp_info *info, size_t room, unsigned attribute, const void *value, size_t bytes, unsigned flags);

/* Connects with protocols pushed: as xts_ioctl() of each in this order and then xts_connect(), but for one round trip in all, for none of which a non-blocking socket waits.
 * What the proxy refuses is therefore an error of the connection: of this call, or of SO_ERROR; xts_ulp_error() has the reason. A failure of any kind leaves a socket
 * that can be asked for it, and closed: nothing else (EINVAL). EMSGSIZE: the parameters of all pushes are too long to travel together (some 1000 bytes). */
struct xts_ulp_push {
	unsigned long request;     /* SIOC_PUSH_ULP_RX, SIOC_PUSH_ULP_TX or SIOC_PUSH_ULP */
	const struct ulp_info *info;
};
int xts_ulp_connect(int s, const struct sockaddr *address, socklen_t length, const struct xts_ulp_push *pushes, unsigned count);

/* SIOC_PEEK_MODE: int *, 1 to begin; SIOC_END_PEEK_MODE: uint32_t *, bytes to drop from the first received on. */

/* Waits until the handshakes of what was pushed are done: 0, or -1 with their error; EAGAIN (non-blocking: not yet; poll for POLLOUT),
 * ENOTCONN. connect() and accept() wait by themselves for what was pushed before. */
int xts_ulp_handshake(int s);
/* The reason, for people, of the last refused push or of the fault that ended the connection: its errno (0: none), and *fault its number (enum xts_fault). text (NULL: not
 * wanted) is terminated. -1: EBADF, ENETDOWN. Blocks for a round trip, the first time after a fault. */
int xts_ulp_error(int s, unsigned *fault, char *text, size_t bytes);
/* What the layer (0 is next to TCP) of a direction tells: length of the item, of which at most bytes are written, or -1: ENOENT, ENOTCONN … Integers in host byte order. */
ssize_t xts_ulp_tell(int s, int send, unsigned layer, unsigned item, void *value, size_t bytes);
/* What the attached proxy offers; returns how many there are (at most max are written), -1: ENETDOWN. Attaches the process. */
struct xts_ulp_offer {
	uint16_t ulp_id, version;
	uint8_t receive, send;
};
int xts_ulps(struct xts_ulp_offer *offers, unsigned max);

/* A socket of type SOCK_SEQPACKET with a protocol that makes PDUs, as the kernel's KCM: a receive call gives one PDU, or the rest of one, MSG_EOR in msg_flags when it is
 * complete, MSG_TRUNC when more of it is there than the buffer took (the rest waits for the next call). A PDU of more than half the window (XTS_WINDOW_BYTES_MAX) comes in
 * parts. MSG_TRUNC asked for: the return value is the whole length of the PDU, as far as it is known. A PDU of length 0 is received as 0 with MSG_EOR. A send call is one PDU, or with MSG_MORE a part
 * of one. Control data: cmsg_level SOL_XTS, cmsg_type the protocol's ulp_id, both ways; for TLS_KEYS SOL_TLS with TLS_GET_RECORD_TYPE and TLS_SET_RECORD_TYPE, as the kernel has it. */
#define SOL_XTS 0x5854

/* --- beside the paper ----------------------------------------------------------------------------------------------- */

int xts_shutdown(int s, int how);
int xts_accept4(int s, struct sockaddr *address, socklen_t *length, int flags);
/* sigaction(2), for handlers that may run in the middle of these calls: see above. */
int xts_sigaction(int number, const struct sigaction *action, struct sigaction *old);
/* poll(2) over XTS socket numbers. */
int xts_poll(struct pollfd *fds, unsigned long nfds, int timeout_ms);
/* A kernel descriptor that is readable, writable and hung up when the socket is, for select, poll, epoll, asyncio,
 * io_uring. Made at the first call; belongs to the socket and closes with it. Only for polling: do not read it. */
int xts_fileno(int s);

/* Settings of this process; call before the first socket (EBUSY while it is attached). Zero or NULL: default, or environment. That is read once,
 * when the library is loaded: what the program does to it afterwards changes nothing here, and is for what it starts by exec().
 * A privileged program (AT_SECURE: set-uid, file capabilities) believes nothing of it. XTS_QUIET=1: nothing is said on standard error. */
struct xts_options {
	size_t size;              /* sizeof(struct xts_options): tells the version */
	const char *endpoint;     /* XTS_ENDPOINT */
	uint32_t spin_us;         /* XTS_SPIN_US: longest spin before sleeping; default 50; UINT32_MAX: never spin */
	uint32_t window_bytes;    /* XTS_WINDOW_BYTES: receive window of a new socket; default 65536 */
	uint32_t window_bytes_max;/* XTS_WINDOW_BYTES_MAX: to which a busy one grows; default 2 MiB */
	uint32_t frame_window;    /* XTS_FRAME_WINDOW */
	const char *pcap;         /* XTS_PCAP: write all frames to this file; if it exists, to a new one with ".1", ".2" … behind its name */
	uint32_t dead_ms;         /* XTS_DEAD_MS: after so long a silent device is given up, and sockets end; default 3000, at least 500 */
};
int xts_configure(const struct xts_options *options);

/* The state of this process's attachment, for diagnosis. Returns 0, or -1 with ENOTCONN when not attached. */
struct xts_info {
	size_t size;
	char queue_kind[16];      /* "afxdp" or "shm" */
	char interface[16];
	uint32_t queue_id;
	uint32_t link_state;      /* 0 opening, 1 up, 2 down */
	int32_t link_error;
	uint32_t frame_window, frame_credits, largest_message;
	uint32_t sockets;
	uint64_t features, epoch;
	uint64_t sent_frames, received_frames, sent_acks, received_acks, kicks, sleeps, spins, malformed;
	uint64_t not_inherited;   /* sockets that were refused after fork or exec, or lost in it */
	uint64_t sent_packets, received_packets; /* in which frames travelled; small ones several in one (afxdp) */
	char attach_error[256];   /* why this process could not be attached, when it last tried: a sentence; empty: it could */
};
int xts_get_info(struct xts_info *info);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
