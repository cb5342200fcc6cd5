/*
 * What on Linux belongs to the open file description, and so to all processes that have the socket, and what no message
 * tells: O_NONBLOCK, SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVLOWAT, SO_LINGER.
 *
 * A process keeps them in its own struct xts_sock, as those that nobody shares. Processes that share a socket also have
 * memory in common: its deed (servers and datagram sockets), or its entry of the relatives' file (connections). Who
 * changes something writes all of it there, and counts. Each call on a shared socket compares the count with the one
 * that this process has seen, which is one load of memory that is in the cache unless somebody has written to it. A
 * call on a socket that is not shared does not look.
 *
 * Not covered are a connection that was passed to a program that is no relative, since the two have no such memory, and
 * files that an older version of this library has made, which have no room for it.
 */
#ifndef XTS_SHARED_STATUS_H
#define XTS_SHARED_STATUS_H

#include <stdatomic.h>
#include <stdint.h>

struct xts_sock;

struct shared_status {
	_Atomic uint32_t changes; /* 0: it is what it was when the socket was shared */
	_Atomic uint32_t nonblocking, receive_lowat;
	_Atomic uint32_t linger; /* 0: off; else the seconds and one */
	_Atomic uint64_t receive_timeout_ns, send_timeout_ns;
};

/* Before a call uses them. */
void shared_status_follow(struct xts_sock *s);
/* This process has changed some. */
void shared_status_changed(struct xts_sock *s);
/* The socket has such memory from now on; NULL: not any more. */
void shared_status_is(struct xts_sock *s, struct shared_status *status);

#endif
