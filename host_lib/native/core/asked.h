/* What a program has asked of a socket: asked.c. */
#ifndef XTS_ASKED_H
#define XTS_ASKED_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/record.h"
#include "wire/wire.h"

struct call;
struct xts_sock;

/* A request that the proxy has carried out. */
struct asked {
	struct asked *next;
	uint8_t type; /* XTS_CMD_SETSOCKOPT, IOCTL, BIND or CONNECT_DATAGRAM */
	int32_t level, option;
	struct xts_endpoint address; /* BIND: as it was answered; CONNECT_DATAGRAM: the peer */
	uint32_t length;
	uint8_t value[];
};

/* call_proxy() for a request that is to be made again: it is noted if it succeeds. -ENOMEM: nothing was asked. */
int asked_call(struct xts_sock *s, struct call *call);
/* The same in steps, for a request that is made in another way: NULL: no memory. */
struct asked *asked_make(const struct call *call);
/* Puts the request, which has been carried out, into the list. */
void asked_note(struct xts_sock *s, struct asked *e, const struct call *asked, const struct call *answered);
void asked_release(struct asked *e); /* it has not been carried out */
/* Makes all requests again, in their order, of a socket that the proxy does not know: it has the options, protocols,
 * address and peer then, and does not listen yet. Waits. 0, -errno of the first request that fails, or -EBADF: the
 * program has closed the socket meanwhile. After a failure the proxy has a socket that is to be closed. */
int asked_play(struct xts_sock *s);
int asked_bind(struct xts_sock *s, struct xts_endpoint local); /* a part of it: BIND of the same address; waits */
bool asked_anything(const struct xts_sock *s);
bool asked_is_push(int32_t request);          /* of IOCTL */
bool asked_pushes(const struct xts_sock *s);  /* are there protocols among it? */
int asked_play_listening(struct xts_sock *s); /* what may come only when it listens again; waits */
int asked_push_again(struct xts_sock *s);     /* a part of it: the pushes, onto a listener that is there; waits */
/* Has the program set this option, and is it in the list? */
bool asked_option(const struct xts_sock *s, int level, int option);
void asked_forget(struct xts_sock *s);
/* CONNECT has been sent, with this behind it. */
void asked_connect(struct xts_sock *s, const uint8_t *payload, uint32_t bytes);
void asked_connected(struct xts_sock *s); /* it is answered, or will not be */

/* For another process: a member struct asked *, the first of a list. */
extern const struct xts_record_list asked_list;
int asked_part_check(const void *made); /* of one of its elements */

/* --- asked_groups.c ----------------------------------------------------------------------------------------------- */

/* Is it an option by which a socket becomes a member of a group, or changes what it gets there? Such options add to
 * one another. */
bool asked_is_of_group(const struct call *call);
/* The request has been carried out. Removes from the list what it has undone. True: nothing is left to be asked again;
 * false: the request has to be, too. */
bool asked_group_undoes(struct asked **list, const struct call *call);

#endif
