/*
 * ULPs: protocols that are pushed onto a connection and run here, so that the host exchanges PDUs (the paper, "ULP
 * Offloads"). messages/ULPS.md has what there is, PROTOCOL.md ("Pushed protocols") what travels.
 *
 * Theory of operation
 *
 * A connection with pushed protocols has a *stack*: one chain of layers per direction, TCP at the bottom. What is
 * received is pulled: the connection asks the uppermost layer to read into the transmit slot, that layer reads the one
 * below, and the bottom reads the socket. So data is decrypted or checked straight into the frame that goes to the
 * host, and nothing is read that the host has no credits for. What is sent is pushed: the host's bytes are written to
 * the uppermost layer, which writes below. A layer that is refused by the one below says how much it has taken; the
 * rest waits, as it came from the host, in the connection's spill buffer, and is offered again, behind the same bytes,
 * when TCP is writable.
 *
 * Both ways a piece of data has a *mark*: of which PDU it is a part, whether that goes on, and what the layer knows of
 * it (control data). A layer that makes PDUs sets the marks; one that makes a byte stream clears them. PDUs are passed
 * on as they come, in parts, not gathered, unless a layer cannot vouch for a part before it has seen the whole (TLS
 * records).
 *
 * What fits on what. A protocol reads a byte stream unless its fits() says otherwise, so it goes above TCP, above what
 * makes a stream (TLS), and above what only delineates the stream and leaves it as it is (`transparent`: TLS_RECORDS,
 * the parsers): it reads the PDUs of such a layer as the stream that they are parts of. Above what takes bytes away or
 * wants PDUs written (LENGTH_PREFIXED, HTTP2) goes only a protocol whose fits() agrees, for only it knows that it reads
 * or writes those PDUs (GRPC above HTTP2). With boundaries a protocol needs SOCK_SEQPACKET, wherever it is in the
 * stack.
 *
 * Turns. Peers may send what costs work and gives the host nothing: key updates, empty records, frames that a layer
 * keeps. So all that is read for one connection is paid from its *turn*, which the owner begins (ulp_stack_turn()) each
 * time it is this connection's: ULP_TURN_BYTES of the socket, and ULP_TURN_STEPS of work. Each read of the layer below
 * is a step; a layer that goes round without one pays by ulp_step(), and what is dear by more. When the turn is used up
 * the layers find that nothing comes from below, say so, and are called again in the owner's next round: one
 * connection's work is spread over as many rounds as it takes, and the others have their turns between.
 *
 * Who calls again when: -EAGAIN from read() says that nothing comes of it before the socket's next event, a hand-back
 * of bytes, the next turn, or ulp_wake_after(): a layer returns it only when the one below has, or it has asked to be
 * woken. A layer writes until the one below takes less than it was given: only then epoll will report room. Layers do
 * not start, and are not read or written through, before all below them are ready.
 *
 * A layer keeps bounded memory: a header, one record, what its parameters allow. It allocates when it is pushed, or
 * when it first needs the room, never per PDU. What is small and of a fixed size is bounded by the number of
 * connections. What grows with lengths that a peer or the host chooses (PDUs that are gathered, bytes given back,
 * tables of streams) is counted besides (memory.c), with one limit for all connections of a host together: beyond it a
 * push is refused, and a layer that needs more fails (XTS_FAULT_MEMORY). What a peer wrote is looked at through copies
 * or bounds-checked views, each field once.
 *
 * Errors: ulp_fail() notes the fault with a reason for people to read, counts it, and gives the -errno to return. A
 * layer may still write an alert of its protocol before it returns it. The connection is then
 * sent RESET with that errno, and is closed on TCP.
 */
#ifndef XTS_ULP_H
#define XTS_ULP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "ulp_wire.h"

#define ULP_DEPTH 8 /* layers per direction */
#define ULP_CONTROL_BYTES 16
#define ULP_REASON_BYTES 160

struct ulp_layer;
struct ulp_preparation;
struct ulp_stack;
struct xts_ulp_config;

/* About the bytes of one read or write, which all belong to one PDU (or to a byte stream). */
struct ulp_mark {
	bool pdu;  /* false: a byte stream, nothing else is set */
	bool more; /* the PDU goes on after these bytes */
	uint8_t control_bytes;
	uint16_t control_type; /* enum xts_ulp_id, 0: none */
	uint32_t record_bytes; /* length of the whole PDU; 0: not known (yet) */
	uint8_t control[ULP_CONTROL_BYTES];
};

/* What a protocol is. Functions that a direction does not need may be NULL. None blocks. */
struct ulp_protocol {
	uint16_t id, version;
	const char *name;   /* as in ulps.py, in small letters */
	bool receive, send; /* directions it can be pushed onto */
	/* one layer for both (TLS): pushed onto both, or onto one side and then onto the other, where it is the same
	 * layer */
	bool duplex;
	bool needs_both;  /* duplex, and does not start before it is in both chains */
	bool boundaries;  /* its output are PDUs */
	bool transparent; /* receive: the PDUs, one after the other, are the stream as it was */
	/* May it be pushed above below (NULL: above TCP)? Asked for each direction; l->receive, l->send and l->below_*
	 * are set. 0, or ulp_refuse() with a reason. NULL: ulp_fits_stream(). */
	int (*fits)(const struct ulp_layer *l, const struct ulp_layer *below);
	/* A push with these parameters would need what takes too long for a worker to make, and is not there: the job
	 * that makes it, not submitted. NULL: it is there, or the push will refuse them, or goes on without. l has no
	 * place in a stack. prepare NULL: never. */
	struct ulp_preparation *(*prepare)(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes);
	/* Reads its parameters and makes l->state. 0, or ulp_refuse(); close() follows then if l->state is not NULL. */
	int (*open)(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes);
	/* The connection is established, or already was: from now on reads and writes may come. client: we connected. 0
	 * or -errno. */
	int (*start)(struct ulp_layer *l, bool client);
	/* Works on the handshake: 0 when it is done, -EAGAIN when it waits for the peer, else ulp_fail(). NULL: there
	 * is none. Called when the socket has become readable or writable, until it is done; no read or write comes
	 * before. */
	int (*handshake)(struct ulp_layer *l);
	/* A read may have something to write too (an answer of the protocol itself): what is refused then, flush()
	 * writes when the socket is writable. At most room (> 0) bytes of one PDU or of the stream: bytes read (0 only
	 * for a PDU, or the last part of one, that is empty, with mark->pdu), -EAGAIN: nothing now; -ENODATA: the
	 * stream has ended as the protocol demands; else ulp_fail(). */
	ssize_t (*read)(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
	/* Bytes are here that a read would return, or work on, although the socket has none; NULL: as
	 * ulp_pending_below(). */
	bool (*pending)(const struct ulp_layer *l);
	/* Takes bytes of one PDU (mark->pdu) or of the stream. Returns how many; less than all when the layer below
	 * takes no more, or the protocol allows no more for now (HTTP/2's windows). The caller offers the rest again
	 * when the socket has become writable, or, whether or not it is full, after ulp_wake_after(), by which a layer
	 * says that it would take more. An empty PDU: 1 for taken, 0 for not. A layer may hold back, encoded, at most
	 * one record of its own. Else ulp_fail(). */
	ssize_t (*write)(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
	/* Writes what the layer itself holds back (those below are asked after it). 0: it holds nothing more; -EAGAIN;
	 * else ulp_fail(). */
	int (*flush)(struct ulp_layer *l);
	/* The host sends no more, and the layers above have finished: what the protocol says to that (close_notify). 0,
	 * then it is not called again; -EAGAIN, else ulp_fail(). */
	int (*finish)(struct ulp_layer *l);
	/* Pushed once more, while it is the uppermost of that direction (TLS_KEYS: other keys). NULL: that makes
	 * another layer. What the host gives back then has been through the layer and is read by the application again
	 * as it is. */
	int (*change)(struct ulp_layer *l, bool receive, const uint8_t *attributes, uint32_t bytes);
	/* An item of ulps.py: copies at most room bytes from offset on, *total is its length. -ENOENT: no such item. */
	ssize_t (*info)(const struct ulp_layer *l, bool receive, uint16_t item, uint32_t offset, void *out, size_t room,
			uint32_t *total);
	/* The stack has another owner, or none for now (see ulp_bell()). NULL: nothing to do. */
	void (*move)(struct ulp_layer *l);
	/* Frees the state; wipes keys. */
	void (*close)(struct ulp_layer *l);
};

/* Bytes that wait: encoded ones for the layer below, given back ones for the layer above. out.c */
struct ulp_out {
	uint8_t *data;
	uint32_t first, bytes, room;
	struct ulp_stack *counted; /* whose memory it is; NULL: too little to be counted */
};

/* Counts memory (negative: that is free again, true) with a tenant; false: its limit is reached. charge NULL: with
 * nobody. */
struct ulp_payer {
	bool (*charge)(void *who, int64_t bytes);
	void *who;
};

struct ulp_layer {
	const struct ulp_protocol *protocol;
	struct ulp_stack *stack;
	struct ulp_layer *below_receive, *below_send; /* NULL: TCP */
	bool receive, send;                           /* the chains it is in */
	bool started, ready;                          /* ready: no handshake, or it is done */
	void *state;                                  /* the protocol's own */
	bool finished;                                /* finish() has returned 0 */
	/* read before what comes from below: given back by the host when this layer was pushed */
	struct ulp_out replay;
	struct ulp_out again; /* read before what the layer itself reads: given back when it was changed */
};

/* --- protocols.c -------------------------------------------------------------------------------------------------- */

/* By ulp_id; NULL: not offered. */
const struct ulp_protocol *ulp_protocol(uint16_t id);

/* --- for layers: layer.c ------------------------------------------------------------------------------------------ */

/* The rule above for protocols that read and write a stream. 0, or ulp_refuse(). */
int ulp_fits_stream(const struct ulp_layer *l, const struct ulp_layer *below);
/* From the layer below, or the socket; as protocol->read. The bottom gives a byte stream, and -ENODATA after the peer's
 * FIN. mark may be NULL. */
ssize_t ulp_read_below(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
/* The same as a byte stream: never 0, empty PDUs are skipped. */
ssize_t ulp_read_stream_below(struct ulp_layer *l, void *out, size_t room);
bool ulp_pending_below(const struct ulp_layer *l);
/* To the layer below, or the socket; as protocol->write. */
ssize_t ulp_write_below(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
/* What all layers below hold back; the stack does it by itself after flush() and finish(). */
int ulp_flush_below(struct ulp_layer *l);
int ulp_finish_below(struct ulp_layer *l);
/* The TCP socket, for a layer directly above it (in all directions it has) that lets the kernel do its work; else
 * -1. */
int ulp_socket(const struct ulp_layer *l);
/* The socket was found full (or empty) behind the stack's back, through ulp_socket(): wait for epoll. */
void ulp_socket_full(struct ulp_layer *l);
void ulp_socket_empty(struct ulp_layer *l);
/* Has it something to read, as far as is known, and since when (as ulp_now_ns()): for time that is the peer's, not
 * ours. */
bool ulp_socket_readable(const struct ulp_layer *l, uint64_t *since_ns);
/* Does the peer have the first word, and has not said it yet? Looks at the socket. */
bool ulp_peer_is_silent(struct ulp_layer *l);
bool ulp_socket_writable(const struct ulp_layer *l);

/* Notes why the connection fails; returns the fault's -errno. */
int ulp_fail(struct ulp_layer *l, enum xts_fault fault, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Notes why a push is refused (XTS_FAULT_PUSH); returns -error. */
int ulp_refuse(const struct ulp_layer *l, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What the operator has configured: parser programs, identities, limits (config.h). Never NULL. */
struct xts_ulp_config *ulp_config(const struct ulp_layer *l);
/* Monotonic, of this round of the worker. */
uint64_t ulp_now_ns(const struct ulp_layer *l);
/* Asks for a call of read() or handshake(), and for flush() and what write() refused to be offered again, after some
 * milliseconds (0: in this round of the worker, or the next) even if nothing comes: time-outs, and a peer that allows
 * us to send again. */
void ulp_wake_after(struct ulp_layer *l, uint32_t timeout_ms);
/* Is the socket SOCK_SEQPACKET? */
bool ulp_message_socket(const struct ulp_layer *l);
/* The pool (handshake_pool.h): where its jobs come back, NULL: there is none, everything is done here; to whose account
 * they are; and reports the time a job took. */
struct ulp_bell *ulp_bell(const struct ulp_layer *l);
uint32_t ulp_account(const struct ulp_layer *l);
/* Who pays for what this connection has in common with others. */
struct ulp_payer ulp_payer(const struct ulp_layer *l);
uint32_t ulp_weight(const struct ulp_layer *l);
void ulp_spent(struct ulp_layer *l, uint64_t ns);
/* The host's queue, and whether the local side connected: for policies and default roles. */
uint32_t ulp_queue_id(const struct ulp_layer *l);
uint32_t ulp_tenant(const struct ulp_layer *l);

/* For info(), of a value in memory: copies the part that was asked for. */
ssize_t ulp_info_part(const void *value, size_t bytes, uint32_t offset, void *out, size_t room, uint32_t *total);

/* --- turns: turn.c ------------------------------------------------------------------------------------------------ */

#define ULP_TURN_BYTES (256u << 10)
#define ULP_TURN_STEPS 512u /* of some 200 ns each */

/* Pays for work, of this turn. False: the turn is used up, and the next one has been asked for: return what there is,
 * or -EAGAIN. Expensive work may be paid for after it was done. */
bool ulp_step(struct ulp_layer *l, uint32_t steps);

/* --- parameters: attributes.c ------------------------------------------------------------------------------------- */

struct ulp_attribute {
	uint16_t type, bytes;
	const uint8_t *value; /* into the copy of the message */
};

/* The next attribute from *offset on: 1, 0 at the end, or -EINVAL when the bytes are none, or it is there twice and the
 * table has it once (refused with a reason). */
int ulp_attribute_next(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes, uint32_t *offset,
		       struct ulp_attribute *out);
/* Goes through all of them, with set() for each, until it refuses one. 0, or what was refused. */
int ulp_attributes(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes,
		   int (*set)(struct ulp_layer *l, const struct ulp_attribute *a));
/* For an attribute that the protocol does not know: refused with a reason. */
int ulp_attribute_unknown(struct ulp_layer *l, const struct ulp_attribute *a);
/* Its value; refused with a reason, by the attribute's name, when it has another length. */
int ulp_attribute_u8(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint8_t *out);
int ulp_attribute_u16(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint16_t *out);
int ulp_attribute_u32(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint32_t *out);
int ulp_attribute_u64(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint64_t *out);
int ulp_attribute_flag(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, bool *out);
/* A string without NUL, of 1 to room - 1 bytes, terminated in out. */
int ulp_attribute_string(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, char *out, size_t room);

/* MAX_BYTES, which many protocols have: 1 MiB unless the configuration allows less; refused when it is 0 or more than
 * that allows. */
uint32_t ulp_max_bytes_default(const struct ulp_layer *l);
int ulp_max_bytes(struct ulp_layer *l, const struct ulp_attribute *a, uint32_t *out);

/* --- memory: memory.c --------------------------------------------------------------------------------------------- */

/* Counts what a layer is about to allocate: 0, or -ENOBUFS at the limit. Whatever is taken is returned, by close()
 * too. */
int ulp_memory_take(struct ulp_layer *l, uint32_t bytes);
void ulp_memory_return(struct ulp_layer *l, uint32_t bytes);
/* ulp_fail() for want of memory; why: -ENOBUFS of ulp_memory_take(), or -ENOMEM. */
int ulp_memory_fail(struct ulp_layer *l, int why, const char *what);
#define ULP_MEMORY_LIMIT "all protocols of this tenant together keep as much as they may"

/* --- bytes that wait: out.c --------------------------------------------------------------------------------------- */

/* Makes room for at least bytes more: 0, -ENOMEM or -ENOBUFS (ulp_memory_fail() has words for them). Appending then
 * cannot fail. */
int ulp_out_reserve(struct ulp_out *o, struct ulp_layer *l, uint32_t bytes);
void ulp_out_put(struct ulp_out *o, const void *data, uint32_t bytes);
/* Writes what waits as a byte stream. 0: nothing waits (its memory is free again when it was much); -EAGAIN; -errno. */
int ulp_out_flush(struct ulp_out *o, struct ulp_layer *l);
/* Takes the first bytes, at most room; the memory is freed with the last. */
size_t ulp_out_take(struct ulp_out *o, void *out, size_t room);
/* Frees, and wipes: what waits may have been secret. */
void ulp_out_free(struct ulp_out *o);
/* Ends its charge to the account: for a buffer that outlives the stack. */
void ulp_out_uncount(struct ulp_out *o);

/* --- bytes read ahead from the layer below: in.c ------------------------------------------------------------------ */

#define ULP_IN_BYTES 4096u

struct ulp_in {
	uint8_t *data; /* of ULP_IN_BYTES, made when it is first needed */
	uint32_t first, bytes;
};

/* At most bytes (> 0) of the stream below, from what was read ahead if there is any. room >= bytes: out has so much
 * room, and what is behind the bytes may be written over (0: just the bytes). As ulp_read_below(), but never 0. */
ssize_t ulp_in_read(struct ulp_in *in, struct ulp_layer *l, void *out, size_t bytes, size_t room);
/* For a layer that looks before it takes: reads more behind what is here, data[first] to data[first + bytes], which is
 * less than ULP_IN_BYTES. As ulp_read_stream_below(). */
ssize_t ulp_in_more(struct ulp_in *in, struct ulp_layer *l);
/* Until out has want bytes, of which *got are there: 0; -EAGAIN, and the next call goes on; -ENODATA: the stream has
 * ended; else it has failed. */
int ulp_in_gather(struct ulp_in *in, struct ulp_layer *l, void *out, uint32_t *got, uint32_t want);
bool ulp_in_pending(const struct ulp_in *in, const struct ulp_layer *l);
void ulp_in_free(struct ulp_in *in);

/* --- pieces: layer.c ---------------------------------------------------------------------------------------------- */

size_t ulp_iov_bytes(const struct iovec *iov, int pieces);
/* Copies at most bytes from byte skip of the pieces on; returns how many. */
size_t ulp_iov_copy(void *out, const struct iovec *iov, int pieces, size_t skip, size_t bytes);
/* The same bytes as at most max pieces of their own; returns how many. */
int ulp_iov_slice(struct iovec *out, int max, const struct iovec *iov, int pieces, size_t skip, size_t bytes);

#endif
