/*
 * What a process has to know of a socket that comes to it from another one: socket_record.c.
 */
#ifndef XTS_SOCKET_RECORD_H
#define XTS_SOCKET_RECORD_H

#include <stdbool.h>
#include <stdint.h>

#include "core/datagram_socket.h"
#include "core/stack.h"
#include "processes/relatives.h"
#include "ulps/pushed.h"
#include "wire.h"

#define RECORD_MAGIC 0x58545342u /* "XTSB" */
#define RECORD_VERSION 7u

struct socket_record {
	uint32_t magic, version;
	uint32_t number;    /* in the program that wrote it */
	int32_t descriptor; /* of the program; -1: none */
	int32_t refused; /* not 0: it could not be given up, for this errno; nothing else is set but the descriptor */
	/* not -1: other processes have it too: the descriptor of their file, this process's slot, the entry */
	int32_t relatives;
	uint32_t relatives_slot, relatives_entry;
	uint64_t key; /* 0: the connection has ended, only what is unread is left of it */
	uint64_t receive_timeout_ns, send_timeout_ns;
	uint64_t sent_bytes, received_bytes;
	uint64_t common_read_bytes, common_sent_bytes; /* as in struct common */
	int32_t error, linger_s;
	uint32_t backlog, window, window_max, receive_lowat;
	uint32_t unread; /* bytes that follow */
	uint32_t pdus;   /* structures that follow */
	uint8_t family, state, phase, shutdown;
	/* Flags: not bool, for another program may have written them. */
	uint8_t done, nonblocking, close_on_exec, linger, seqpacket;
	uint8_t bound, bound_address, v6only;
	uint8_t passed;       /* it was passed to other programs, too: passed_names.h */
	uint8_t passed_place; /* of this process, over exec */
	uint8_t again;        /* another descriptor of a socket whose record came before: nothing else is set */
	int32_t passed_fd;    /* of the place; -1: none */
	struct passed_name passed_name;
	/* of a datagram socket */
	uint8_t datagrams; /* 1: it is one */
	uint8_t connected, broadcast, tells_drops;
	uint16_t segment_bytes;
	uint32_t receive_bytes;
	struct stamping stamping;
	struct xts_endpoint local, peer;
	struct ulps ulps;
	char endpoint[ENDPOINT_BYTES]; /* empty: the process's */
};

struct xts_sock;

void record_fill(struct socket_record *b, const struct xts_sock *s); /* with nothing that is unread */
/* It may be believed: nothing in it is out of range. */
bool record_is_sound(const struct socket_record *b);
/* s, which is new, becomes what the record says; who else has it is not looked at. */
void record_apply(const struct socket_record *b, struct xts_sock *s);

int record_make(const char *name, unsigned flags);               /* an empty memfd or -errno */
int record_write(int memfd, struct xts_sock *s, int descriptor); /* appends it, with unread data; 0 or -errno */
int record_write_again(int memfd, struct xts_sock *s, int descriptor);
/* That the new program has it not, and why. */
void record_write_refused(int memfd, int error, int descriptor);
/* Reads the next one into *s, or a new socket where that is NULL: 1, 0 at the end, -errno; RECORD_AGAIN: one that was
 * read before, with another descriptor. */
#define RECORD_AGAIN 2
int record_read(struct stack *st, int memfd, struct xts_sock **s, int *descriptor);

#endif
