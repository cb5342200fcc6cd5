/*
 * The file in which sockets pass to the program that exec runs: record_file.c.
 */
#ifndef XTS_RECORD_FILE_H
#define XTS_RECORD_FILE_H

#include "processes/socket_record.h"
#include "wire/record.h"

struct stack;
struct xts_sock;

int record_make(const char *name, unsigned flags);               /* an empty memfd or -errno */
int record_write(int memfd, struct xts_sock *s, int descriptor); /* appends it, with unread data; 0 or -errno */
int record_write_again(int memfd, struct xts_sock *s, int descriptor);
/* Writes that the new program does not get it, and why. */
void record_write_refused(int memfd, int error, int descriptor);

/* What comes next in such a file. */
struct record_in {
	int descriptor;         /* in the program that wrote it; -1: none */
	uint32_t again;         /* not 0: another descriptor of the socket with this number; there is no record */
	struct socket_record b; /* points into made */
	uint8_t *made;
	uint32_t bytes;
};

/* Reads it. 1, and record_done() is to be called; 0 at the end; -errno of a socket that could not be given up, or whose
 * record is none; -EPROTONOSUPPORT: another version of the library wrote it; -EPROTO: what comes after it cannot be
 * found. Only the descriptor is set then. */
int record_next(int memfd, struct record_in *in);
void record_done(struct record_in *in);
/* Makes a new socket of it. 0 or -errno: *s is the socket, as far as it was made, or NULL. */
int record_adopt(struct stack *st, struct record_in *in, struct xts_sock **s);

#endif
