/* The struct of a stack, for the files that implement it. Layers and owners do not look inside. */
#ifndef XTS_ULP_STACK_INSIDE_H
#define XTS_ULP_STACK_INSIDE_H

#include <stddef.h>

#include "ulp_stack.h"

/* A push, kept for the connections that a listener will accept and for the other half of a duplex layer. */
struct ulp_push {
	struct ulp_push *next;
	const struct ulp_layer *layer; /* the layer that it made; NULL: it made more than one, or changed one */
	enum ulp_direction direction;
	uint16_t ulp_id;
	uint32_t bytes;
	uint8_t attributes[];
};

struct ulp_chain {
	struct ulp_layer *layer[ULP_DEPTH]; /* the first is next to TCP */
	unsigned count;
};

/* What is left of a turn. */
struct ulp_turn {
	uint32_t bytes, steps;
	bool over; /* used up, and the next one has been asked for */
};

struct ulp_stack {
	struct ulp_owner owner;
	struct ulp_chain receive, send;
	struct ulp_push *pushes; /* in order; after the start, only those of duplex layers */
	bool started, client;
	bool readable, writable; /* the socket, as far as is known */
	uint64_t readable_ns;    /* when it last became readable */
	bool read_to_end;
	bool ended; /* the peer's FIN has been read */
	/* -errno of the socket, or 0; write_error: which a write was told, and no read will be (ulp_socket_failed()) */
	int read_error, write_error;
	struct ulp_turn turn;
	bool idle;                   /* a read has returned -EAGAIN, and nothing has happened since */
	bool shown;                  /* the host sees what is written to the memory of a read */
	bool changed;                /* the last push onto the receive side changed a layer */
	uint64_t handshake_begun_ns; /* 0: none */
	bool expects_peer, heard;    /* the peer has to send first; a byte has been read */
	uint64_t wake_ns;            /* the earliest call that the owner was asked for and has not made yet; 0: none */
	uint64_t memory;             /* bytes counted with the owner */
	struct ulp_out given;        /* bytes given back, until all that were announced are here */
	uint8_t *touched;            /* ulp_stack_tells(); NULL: nobody wants to know */
	uint64_t read, written;      /* bytes of the socket, since then */
	int failed;                  /* -errno of a fault, or 0 */
	int cut;                     /* -errno: what the peer sends has been cut off; we may still send */
	struct {
		uint16_t error, fault;
		uint8_t protocol; /* whose fault it is; 0: nobody's */
		char text[ULP_REASON_BYTES];
	} reason;
};

static inline struct ulp_layer *ulp_chain_top(const struct ulp_chain *c)
{
	return c->count ? c->layer[c->count - 1] : NULL;
}

/* What is saved of it may change now. */
static inline void ulp_stack_touch(struct ulp_stack *s)
{
	if (s->touched)
		*(volatile uint8_t *)s->touched = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* --- layer.c --- */
ssize_t ulp_layer_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
ssize_t ulp_layer_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
bool ulp_layer_pending(const struct ulp_layer *l);
/* Flushes l and all layers below it in the send chain; NULL: nothing to do. */
int ulp_layer_flush(struct ulp_layer *l);
int ulp_layer_finish(struct ulp_layer *l);

/* --- bottom.c: the socket --- */
ssize_t ulp_bottom_read(struct ulp_stack *s, void *out, size_t room, struct ulp_mark *mark);
ssize_t ulp_bottom_write(struct ulp_stack *s, const struct iovec *iov, int pieces, const struct ulp_mark *mark);

/* --- turn.c --- */
/* As ulp_step(). */
bool ulp_turn_step(struct ulp_stack *s, uint32_t steps);
/* How many of this many bytes may be read from the socket now; 0: none in this turn. */
size_t ulp_turn_bytes(struct ulp_stack *s, size_t bytes);

/* --- out.c --- */
/* Changes the room to one into which the waiting bytes fit: 0, -ENOMEM or -ENOBUFS. */
int ulp_out_resize(struct ulp_out *o, struct ulp_stack *s, uint32_t room);

/* --- ulp_stack_push.c --- */
/* Frees all pushes, or all that are not needed after the start. */
void ulp_pushes_free(struct ulp_stack *s, bool all);
/* Of a layer of a duplex protocol that is in one chain: how it was pushed. NULL: that is not known. */
const struct ulp_push *ulp_push_of(const struct ulp_stack *s, const struct ulp_layer *l);
/* It was pushed so, in another process. 0 or -ENOMEM. */
int ulp_push_note(struct ulp_stack *s, const struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes);
void ulp_layer_free(struct ulp_layer *l);

/* --- handshake.c --- */
/* Starts the layer if all below it are ready. 0 or -errno. */
int ulp_layer_start(struct ulp_layer *l);
/* If a layer is not ready, its timeout begins. */
void ulp_stack_expect_handshake(struct ulp_stack *s);

#endif
