/*
 * What a process has to know about a socket that comes from another process: socket_record.c.
 */
#ifndef XTS_SOCKET_RECORD_H
#define XTS_SOCKET_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/stack.h"
#include "core/stamping.h"
#include "processes/deed.h"
#include "processes/relatives.h"
#include "ulps/pushed.h"
#include "wire.h"

#define RECORD_MAGIC 0x58545342u /* "XTSB" */
#define RECORD_VERSION 8u

enum { KEY_IS_HERE, KEY_IN_LISTENER, KEY_IN_DEED }; /* only a descriptor leads to the last two */

struct socket_record {
	uint32_t magic, version;
	uint32_t number;    /* its number in the program that wrote the record */
	int32_t descriptor; /* its descriptor in that program; -1: none */
	int32_t refused;    /* not 0: it could not be given up, for this errno; only the descriptor is set besides */
	/* not -1: other processes have it too. The descriptor of their common file, this process's slot, and the
	 * entry. */
	int32_t relatives;
	uint32_t relatives_slot, relatives_entry;
	/* 0: the connection has ended, and only its unread bytes are left; or key_is_apart. */
	uint64_t key;
	uint64_t receive_timeout_ns, send_timeout_ns;
	uint64_t sent_bytes, received_bytes;
	uint64_t common_read_bytes, common_sent_bytes; /* as in struct common */
	int32_t error, linger_s;
	uint32_t backlog, window, window_max, receive_lowat;
	uint32_t unread; /* bytes that follow the record */
	uint32_t pdus;   /* structures that follow the bytes */
	uint8_t family, state, phase, shutdown;
	/* Flags. They are not bool, since another program may have written other values than 0 and 1. */
	uint8_t done, nonblocking, close_on_exec, linger, seqpacket;
	uint8_t bound, bound_address, v6only;
	uint8_t passed;         /* it was passed to other programs: passed_copies.h */
	uint8_t deed_is_shared; /* over exec: other processes may have the same open file of its deed */
	uint8_t key_is_apart;   /* where: KEY_IN_LISTENER (listener_key.h), KEY_IN_DEED (deed.h) */
	uint8_t again;          /* another descriptor of a socket whose record came earlier: nothing else is set */
	int32_t deed_fd;        /* over exec: its deed; -1: none */
	struct deed_id deed_id;
	/* of a datagram socket */
	uint8_t datagrams; /* 1: it is a datagram socket */
	uint8_t connected, broadcast, tells_drops, queues_errors;
	uint16_t segment_bytes;
	uint32_t receive_bytes;
	struct stamping stamping;
	struct xts_endpoint local, peer;
	struct ulps ulps;
	char endpoint[ENDPOINT_BYTES]; /* empty: the process's default */
	uint32_t asked; /* over exec: bytes that follow the PDUs, what the program has asked (core/asked.h) */
};

struct socket_kind;
struct xts_sock;

void record_fill(struct socket_record *b, const struct xts_sock *s); /* leaves out what is unread */
/* The same, for a label: names the endpoint, since the other program's default endpoint may differ. */
void record_for_label(struct socket_record *b, const struct xts_sock *s);
/* What kind of socket it is about. */
const struct socket_kind *record_kind(const struct socket_record *b);
/* A bool has to be 0 or 1, even if another program has written it. */
bool record_bools(const bool *const *flags, size_t count);
/* Checks that everything in it is in range. */
bool record_is_sound(const struct socket_record *b);
/* Gives s, a new socket, the state of the record; does not look at which other processes have it. */
void record_apply(const struct socket_record *b, struct xts_sock *s);

int record_make(const char *name, unsigned flags);               /* an empty memfd or -errno */
int record_write(int memfd, struct xts_sock *s, int descriptor); /* appends it, with unread data; 0 or -errno */
int record_write_again(int memfd, struct xts_sock *s, int descriptor);
/* Writes that the new program does not get it, and why. */
void record_write_refused(int memfd, int error, int descriptor);
/* Reads the next record into *s, or into a new socket if *s is NULL. Returns 1, 0 at the end, -errno; RECORD_AGAIN: the
 * socket was read before, this record has another descriptor of it. */
#define RECORD_AGAIN 2
int record_read(struct stack *st, int memfd, struct xts_sock **s, int *descriptor);

#endif
