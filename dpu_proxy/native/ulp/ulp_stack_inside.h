/* What a stack is, for the files that make it up. Layers and owners do not look inside. */
#ifndef XTS_ULP_STACK_INSIDE_H
#define XTS_ULP_STACK_INSIDE_H

#include <stddef.h>

#include "ulp_stack.h"

/* A push, for the connections of a listener and for the other half of a duplex layer. */
struct ulp_push {
	struct ulp_push *next;
	const struct ulp_layer *layer; /* that it made; NULL: more than one, or it changed one */
	enum ulp_direction direction;
	uint16_t ulp_id;
	uint32_t bytes;
	uint8_t attributes[];
};

struct ulp_chain {
	struct ulp_layer *layer[ULP_DEPTH]; /* the first is next to TCP */
	unsigned count;
};

/* What is left of it. */
struct ulp_turn {
	uint32_t bytes, steps;
	bool over; /* and the next one was asked for */
};

struct ulp_stack {
	struct ulp_owner owner;
	struct ulp_chain receive, send;
	struct ulp_push *pushes; /* in order; once started, those of duplex layers only */
	bool started, client;
	bool readable, writable; /* the socket, as far as is known */
	uint64_t readable_ns;    /* when it last became so */
	bool read_to_end;
	bool ended;     /* the peer's FIN has been read */
	int read_error; /* of the socket, or 0 */
	struct ulp_turn turn;
	bool idle;                   /* a read said -EAGAIN, and nothing has happened since */
	bool changed;                /* the last push onto the receive side changed a layer */
	uint64_t handshake_begun_ns; /* 0: none */
	bool expects_peer, heard;    /* its first byte; any has been read */
	uint64_t wake_ns;            /* the earliest call the owner was asked for and has not made; 0: none */
	uint64_t memory;             /* counted */
	struct ulp_out given;        /* bytes given back, until as many as it has room for are there */
	int failed;                  /* -errno of a fault, or 0 */
	struct {
		uint16_t error, fault;
		char text[ULP_REASON_BYTES];
	} reason;
};

static inline struct ulp_layer *ulp_chain_top(const struct ulp_chain *c)
{
	return c->count ? c->layer[c->count - 1] : NULL;
}

/* --- layer.c --- */
ssize_t ulp_layer_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
ssize_t ulp_layer_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
bool ulp_layer_pending(const struct ulp_layer *l);
/* l and all below it in the send chain; NULL: nothing to do. */
int ulp_layer_flush(struct ulp_layer *l);
int ulp_layer_finish(struct ulp_layer *l);

/* --- bottom.c: the socket --- */
ssize_t ulp_bottom_read(struct ulp_stack *s, void *out, size_t room, struct ulp_mark *mark);
ssize_t ulp_bottom_write(struct ulp_stack *s, const struct iovec *iov, int pieces, const struct ulp_mark *mark);

/* --- turn.c --- */
/* As ulp_step(). */
bool ulp_turn_step(struct ulp_stack *s, uint32_t steps);
/* How many of so many bytes may be read from the socket now; 0: none in this turn. */
size_t ulp_turn_bytes(struct ulp_stack *s, size_t bytes);

/* --- ulp_stack_error.c --- */
/* Asks the owner for a call, unless it has been asked for an earlier one. */
void ulp_stack_wake_after(struct ulp_stack *s, uint32_t timeout_ms);

/* --- out.c --- */
/* Other room for what waits, which fits into it: 0, -ENOMEM, -ENOBUFS. */
int ulp_out_resize(struct ulp_out *o, struct ulp_stack *s, uint32_t room);

/* --- ulp_stack_push.c --- */
/* All, or all that are of no use once the stack has started. */
void ulp_pushes_free(struct ulp_stack *s, bool all);
void ulp_layer_free(struct ulp_layer *l);

/* --- handshake.c --- */
/* If it is its turn. 0 or -errno. */
int ulp_layer_start(struct ulp_layer *l);
/* Something is not ready: its time begins. */
void ulp_stack_expect_handshake(struct ulp_stack *s);

#endif
