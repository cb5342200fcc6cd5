/*
 * ULPs: protocols that are pushed onto a connection and run here, so that the host exchanges PDUs (the paper, "ULP
 * Offloads"). messages/ULPS.md describes the protocols, PROTOCOL.md ("Pushed protocols") the messages.
 *
 * Theory of operation
 *
 * A connection with pushed protocols has a *stack*: one chain of layers per direction, with TCP at the bottom. Received
 * data is pulled: the connection asks the uppermost layer to read into the transmit slot, that layer reads the one
 * below it, and the bottom reads the socket. So data is decrypted or checked straight into the frame that goes to the
 * host, and nothing is read that the host has no credits for. Sent data is pushed: the host's bytes are written to the
 * uppermost layer, which writes to the one below it. When a lower layer takes no more, the layer says how much it has
 * taken. The rest waits, as it came from the host, in the connection's spill buffer, and is offered again, as the next
 * bytes, when TCP is writable.
 *
 * In both directions a piece of data has a *mark*: which PDU it is part of, whether the PDU goes on after it, and what
 * the layer knows of it (control data). A layer that makes PDUs sets the marks; one that makes a byte stream clears
 * them. PDUs are not gathered but passed on in parts, as they come, unless a layer has to see the whole before it can
 * verify a part (TLS records).
 *
 * Which protocol may be pushed onto which. A protocol reads a byte stream unless its fits() says otherwise. So it may
 * be pushed onto TCP, onto a layer that makes a stream (TLS), and onto a layer that only delineates the stream and
 * leaves it unchanged (`transparent`: TLS_RECORDS, the parsers); it reads the PDUs of such a layer as the stream that
 * they are parts of. Onto a layer that removes bytes or demands PDUs on write (LENGTH_PREFIXED, HTTP2), only a protocol
 * whose fits() agrees may be pushed, because it has to know that it reads and writes these PDUs (GRPC on HTTP2). A
 * protocol with boundaries needs SOCK_SEQPACKET, wherever it is in the stack.
 *
 * Turns. Peers may send things that cost work and give the host nothing: key updates, empty records, frames that a
 * layer consumes. So everything read for one connection is paid for from its *turn*, which the owner begins with
 * ulp_stack_turn() each time it serves the connection: ULP_TURN_BYTES of the socket, and ULP_TURN_STEPS of work. Each
 * read of the layer below is a step. A layer that loops without reading pays by ulp_step(), and expensive work costs
 * more steps. When the turn is used up, a read from below gives -EAGAIN, which the layers return, and they are called
 * again in the owner's next round. So the work of one connection is spread over as many rounds as it takes, and the
 * other connections have their turns in between.
 *
 * When functions are called again. -EAGAIN from read() means that read() can return nothing until the socket's next
 * event, until the host gives bytes back, until the next turn, or until the time of ulp_wake_after(). So a layer
 * returns it only when the layer below has returned it, or when it has asked to be woken. A layer writes until the one
 * below takes less than it was given, because only then will epoll report room. A layer is not started, read or written
 * before all layers below it are ready.
 *
 * Memory. A layer keeps bounded memory: a header, one record, what its parameters allow. It allocates when it is
 * pushed, or when it first needs the room, never per PDU. Small allocations of a fixed size are bounded by the number
 * of connections. Memory that grows with lengths chosen by a peer or the host (gathered PDUs, bytes given back, tables
 * of streams) is also counted (memory.c), with one limit for all connections of a host together: beyond it a push is
 * refused, and a layer that needs more fails (XTS_FAULT_MEMORY). A layer reads what a peer wrote through copies or
 * bounds-checked views, each field once.
 *
 * Errors. ulp_fail() notes the fault with a reason for people to read, counts it, and gives the -errno to return.
 * Before it returns that, a layer may still write an alert of its protocol. The owner then sends the host RESET with
 * that errno, and closes the TCP connection. One fault is of the receiving direction only: a stream that was cut off
 * (XTS_FAULT_TRUNCATED). The stack reads ahead, and finds it before the host has answered what came before it. So the
 * owner sends the host the end of the stream with that errno, and the host may go on sending.
 */
#ifndef XTS_ULP_H
#define XTS_ULP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "ulp/ulp_mark.h"
#include "ulp_wire.h"

#define ULP_DEPTH 8 /* layers per direction */
#define ULP_REASON_BYTES 160

struct ulp_layer;
struct ulp_preparation;
struct xts_record;
struct xts_record_stream;
struct ulp_stack;
struct xts_ulp_config;

/* The counts of bytes of a stream: before keep() those that TCP has given and taken, as the kernel counts, then those
 * that the protocol has given and taken. */
struct ulp_kept {
	uint64_t read, written;
	uint32_t place; /* where it is written down, in the memory for keys; never 0 */
};

/* A protocol. Functions that a direction does not need may be NULL. No function blocks. */
struct ulp_protocol {
	uint16_t id, version;
	const char *name;   /* as in ulps.py, in small letters */
	bool receive, send; /* the directions that it can be pushed onto */
	/* one layer serves both directions (TLS): pushed onto both at once, or onto one and later onto the other, which
	 * gives the same layer */
	bool duplex;
	bool needs_both;  /* duplex, and does not start before it is in both chains */
	bool boundaries;  /* its output is PDUs */
	bool transparent; /* receive: its PDUs, one after the other, are the unchanged stream */
	/* May it be pushed above below (NULL: above TCP)? Asked for each direction; l->receive, l->send and l->below_*
	 * are set. 0, or ulp_refuse() with a reason. NULL: ulp_fits_stream(). */
	int (*fits)(const struct ulp_layer *l, const struct ulp_layer *below);
	/* If a push with these parameters needs something that does not exist and takes too long for a worker to make:
	 * returns the job that makes it, not submitted. NULL: it exists, or the push will refuse the parameters, or the
	 * push does without. l is not in a stack. prepare NULL: never needed. */
	struct ulp_preparation *(*prepare)(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes);
	/* Reads the parameters and makes l->state. 0, or ulp_refuse(), after which close() is called if l->state is not
	 * NULL. */
	int (*open)(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes);
	/* The connection is established, or was already: from now on the layer may be read and written. client: this
	 * side connected. 0 or -errno. */
	int (*start)(struct ulp_layer *l, bool client);
	/* Works on the handshake: 0 when it is done, -EAGAIN when it waits for the peer, else ulp_fail(). NULL: no
	 * handshake. Called whenever the socket has become readable or writable, until it is done. The layer is not
	 * read or written before. */
	int (*handshake)(struct ulp_layer *l);
	/* Reads at most room (> 0) bytes of one PDU or of the stream. Returns how many (0, with mark->pdu, only for an
	 * empty PDU or an empty last part of one); -EAGAIN: nothing now; -ENODATA: the stream has ended as the protocol
	 * demands; else ulp_fail(). A read may also write (an answer of the protocol itself); if TCP does not take it,
	 * flush() writes it when the socket is writable. */
	ssize_t (*read)(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
	/* Does the layer hold bytes that a read would return, or work on, although the socket has none? NULL: as
	 * ulp_pending_below(). */
	bool (*pending)(const struct ulp_layer *l);
	/* Takes bytes of one PDU (mark->pdu) or of the stream. Returns how many: fewer than offered when the layer
	 * below takes no more, or the protocol allows no more for now (HTTP/2's windows). The caller offers the rest
	 * again when the socket has become writable, and, even if the socket was never full, at the time of
	 * ulp_wake_after(), by which a layer says that it would take more. For an empty PDU: 1 if taken, else 0. A
	 * layer may hold back, encoded, at most one record of its own. On error ulp_fail(). */
	ssize_t (*write)(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
	/* Writes what the layer itself holds back (the layers below are flushed after it). 0: it holds nothing more;
	 * -EAGAIN; else ulp_fail(). */
	int (*flush)(struct ulp_layer *l);
	/* The host sends no more, and the layers above have finished: writes the protocol's end of stream
	 * (close_notify). 0, and it is not called again; -EAGAIN; else ulp_fail(). */
	int (*finish)(struct ulp_layer *l);
	/* The protocol is pushed again while this layer is the uppermost of that direction (TLS_KEYS: new keys). NULL:
	 * such a push makes another layer. Bytes that the host gives back with such a push have passed this layer
	 * already, and are delivered to the application again unchanged. */
	int (*change)(struct ulp_layer *l, bool receive, const uint8_t *attributes, uint32_t bytes);
	/* Reads an item of ulps.py: copies at most room bytes from offset on; *total is the item's length. -ENOENT: no
	 * such item. */
	ssize_t (*info)(const struct ulp_layer *l, bool receive, uint16_t item, uint32_t offset, void *out, size_t room,
			uint32_t *total);
	/* Who carries the connection's data, and why nobody better: text for the operator. Called when the layer is
	 * ready. NULL: the worker, as any protocol. */
	void (*carrier)(const struct ulp_layer *l, bool receive, char *out, size_t room);
	/* The stack has got another owner, or has none for now (see ulp_bell()). NULL: nothing to do. */
	void (*move)(struct ulp_layer *l);
	/* For another process of the proxy (ulp_stack_move.c): why the connection cannot go there, as text for the
	 * operator; NULL: it can. stays NULL: it always can. */
	const char *(*stays)(const struct ulp_layer *l);
	/* Writes the state as bytes: returns how many, also if that is more than room; or -errno. The caller wipes out.
	 * save NULL: no connection with this protocol can go. */
	ssize_t (*save)(const struct ulp_layer *l, void *out, size_t room);
	/* What was saved is somebody else's from now on: nothing here can use it any more. NULL: there are no keys. */
	void (*wipe)(struct ulp_layer *l);
	/* Makes l->state of what save() has written, or who says so: l->receive, l->send and l->below_* are set; the
	 * layer is ready then. 0, -EBADMSG, -ENOENT (what the operator has configured is not here), -ENOMEM or
	 * -ENOBUFS, after which close() is called if l->state is not NULL. */
	int (*restore)(struct ulp_layer *l, const void *state, size_t bytes);
	uint16_t moves_since; /* of the versions of records (record_table.py), the first that has its state */
	/* From now on the state is written down as it changes, for the process that goes on when this one has died
	 * (tls/tls_kept.h). 0 or -errno. NULL: it cannot be. */
	int (*keep)(struct ulp_layer *l, struct ulp_kept *k);
	/* 0 unless it is between two PDUs, and holds nothing. Then all states with the same number are alike: what
	 * save() wrote in one of them is true in the others. NULL: that cannot be said of any. */
	uint32_t (*rests)(const struct ulp_layer *l);
	/* Frees the state; wipes keys. */
	void (*close)(struct ulp_layer *l);
};

/* Bytes that wait: encoded bytes for the layer below, or bytes given back by the host for the layer above. out.c */
struct ulp_out {
	uint8_t *data;
	uint32_t first, bytes, room;
	struct ulp_stack *counted; /* the stack that the memory is counted for; NULL: too little to be counted */
};

/* Charges memory to a tenant. charge() takes the bytes (negative: freed again, returns true); false: the tenant's limit
 * is reached. charge NULL: nobody is charged. */
struct ulp_payer {
	bool (*charge)(void *who, int64_t bytes);
	void *who;
};

struct ulp_layer {
	const struct ulp_protocol *protocol;
	struct ulp_stack *stack;
	struct ulp_layer *below_receive, *below_send; /* NULL: TCP */
	bool receive, send;                           /* the chains that it is in */
	bool started, ready;                          /* ready: it has no handshake, or the handshake is done */
	void *state;                                  /* the protocol's own */
	bool finished;                                /* finish() has returned 0 */
	/* bytes that the host gave back when this layer was pushed: read before what comes from below */
	struct ulp_out replay;
	/* bytes given back when the layer was changed: delivered before what the layer itself reads */
	struct ulp_out again;
};

/* --- protocols.c -------------------------------------------------------------------------------------------------- */

/* By ulp_id; NULL: not offered. */
const struct ulp_protocol *ulp_protocol(uint16_t id);

/* --- for layers: layer.c ------------------------------------------------------------------------------------------ */

/* The rule of the theory above for protocols that read and write a stream. 0, or ulp_refuse(). */
int ulp_fits_stream(const struct ulp_layer *l, const struct ulp_layer *below);
/* Reads from the layer below, or from the socket; as protocol->read. The bottom gives a byte stream, and -ENODATA after
 * the peer's FIN. mark may be NULL. */
ssize_t ulp_read_below(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark);
/* The same as a byte stream: empty PDUs are skipped, so it never returns 0. */
ssize_t ulp_read_stream_below(struct ulp_layer *l, void *out, size_t room);
bool ulp_pending_below(const struct ulp_layer *l);
/* Writes to the layer below, or to the socket; as protocol->write. */
ssize_t ulp_write_below(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark);
/* Flushes all layers below. After flush() and finish() the stack does this itself. */
int ulp_flush_below(struct ulp_layer *l);
int ulp_finish_below(struct ulp_layer *l);
/* The TCP socket, for a layer that lets the kernel do its work and is directly above TCP in all its directions; else
 * -1. */
int ulp_socket(const struct ulp_layer *l);
/* A layer that uses ulp_socket() has found the socket full (or empty): wait for epoll. not_empty(): it has read, and
 * left what may be there. */
void ulp_socket_full(struct ulp_layer *l);
void ulp_socket_empty(struct ulp_layer *l);
void ulp_socket_not_empty(struct ulp_layer *l);
/* failed(): a write of its own has got this errno; returns it, negative. The kernel tells an error once, and whoever
 * reads then finds what looks like the peer's FIN. What it is, end() says: -ENODATA, or -errno. */
int ulp_socket_failed(struct ulp_layer *l, int error);
int ulp_socket_end(const struct ulp_layer *l);
/* Does the socket have something to read, as far as is known, and since when (as ulp_now_ns())? With this a layer
 * counts only time that the peer takes. */
bool ulp_socket_readable(const struct ulp_layer *l, uint64_t *since_ns);
/* Has a peer that should send first not sent anything yet? Checks the socket. */
bool ulp_peer_is_silent(struct ulp_layer *l);
bool ulp_socket_writable(const struct ulp_layer *l);

/* Notes why the connection fails; returns the fault's -errno. */
int ulp_fail(struct ulp_layer *l, enum xts_fault fault, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Notes why a push is refused (XTS_FAULT_PUSH); returns -error. */
int ulp_refuse(const struct ulp_layer *l, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* What the operator has configured: parser programs, identities, limits (config.h). Never NULL. */
struct xts_ulp_config *ulp_config(const struct ulp_layer *l);
/* Monotonic time, of this round of the worker. */
uint64_t ulp_now_ns(const struct ulp_layer *l);
/* Asks the owner to call read() or handshake(), and flush(), and to offer again what write() refused, after this many
 * milliseconds (0: in this round of the worker, or the next), even if nothing arrives. For timeouts, and for a peer
 * that allows us to send again. */
void ulp_wake_after(struct ulp_layer *l, uint32_t timeout_ms);
/* Is the socket SOCK_SEQPACKET? */
bool ulp_message_socket(const struct ulp_layer *l);
/* For the pool (handshake_pool.h). ulp_bell(): where jobs are handed back; NULL: there is no pool, everything is done
 * here. ulp_account(), ulp_weight(): the account that jobs are charged to, and its weight. ulp_spent(): reports the
 * time that a job took. */
struct ulp_bell *ulp_bell(const struct ulp_layer *l);
uint32_t ulp_account(const struct ulp_layer *l);
/* Who pays for objects that this connection shares with others. */
struct ulp_payer ulp_payer(const struct ulp_layer *l);
uint32_t ulp_weight(const struct ulp_layer *l);
void ulp_spent(struct ulp_layer *l, uint64_t ns);
/* The host's queue, and whether the local side connected: for policies and default roles. */
uint32_t ulp_queue_id(const struct ulp_layer *l);
uint32_t ulp_tenant(const struct ulp_layer *l);
/* By which other processes of the proxy know it, too. */
const char *ulp_tenant_name(const struct ulp_layer *l);

/* For info(), when the value is in memory: copies the part that was asked for. */
ssize_t ulp_info_part(const void *value, size_t bytes, uint32_t offset, void *out, size_t room, uint32_t *total);

/* --- turns: turn.c ------------------------------------------------------------------------------------------------ */

#define ULP_TURN_BYTES (256u << 10)
#define ULP_TURN_STEPS 512u /* each of some 200 ns */

/* Pays for work from this turn. False: the turn is used up, and the next one has been asked for; the layer returns what
 * it has, or -EAGAIN. Expensive work may be paid for after it is done. */
bool ulp_step(struct ulp_layer *l, uint32_t steps);
/* Does the host see what is written to the memory of a read, before the read has returned? */
bool ulp_is_shown(const struct ulp_layer *l);

/* --- parameters: attributes.c ------------------------------------------------------------------------------------- */

struct ulp_attribute {
	uint16_t type, bytes;
	const uint8_t *value; /* points into the copy of the message */
};

/* The next attribute from *offset on: 1; 0 at the end; -EINVAL, refused with a reason, when the bytes are not an
 * attribute, or when it is given twice and may be given only once. */
int ulp_attribute_next(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes, uint32_t *offset,
		       struct ulp_attribute *out);
/* Calls set() for each attribute, until it refuses one. 0, or the error of set(). */
int ulp_attributes(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes,
		   int (*set)(struct ulp_layer *l, const struct ulp_attribute *a));
/* Refuses, with a reason, an attribute that the protocol does not know. */
int ulp_attribute_unknown(struct ulp_layer *l, const struct ulp_attribute *a);
/* Reads the attribute's value. Refuses, with a reason that names the attribute, when it has another length. */
int ulp_attribute_u8(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint8_t *out);
int ulp_attribute_u16(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint16_t *out);
int ulp_attribute_u32(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint32_t *out);
int ulp_attribute_u64(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, uint64_t *out);
int ulp_attribute_flag(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, bool *out);
/* A string of 1 to room - 1 bytes, which must contain no NUL; out gets it with a NUL at the end. */
int ulp_attribute_string(struct ulp_layer *l, const struct ulp_attribute *a, const char *name, char *out, size_t room);

/* MAX_BYTES, which many protocols have: 1 MiB unless the configuration allows less. 0, and more than the configuration
 * allows, is refused. */
uint32_t ulp_max_bytes_default(const struct ulp_layer *l);
int ulp_max_bytes(struct ulp_layer *l, const struct ulp_attribute *a, uint32_t *out);

/* --- memory: memory.c --------------------------------------------------------------------------------------------- */

/* Counts what a layer is about to allocate: 0, or -ENOBUFS at the limit. Everything taken has to be returned, at the
 * latest in close(). */
int ulp_memory_take(struct ulp_layer *l, uint32_t bytes);
void ulp_memory_return(struct ulp_layer *l, uint32_t bytes);
/* ulp_fail() for lack of memory. why: -ENOBUFS of ulp_memory_take(), or -ENOMEM. */
int ulp_memory_fail(struct ulp_layer *l, int why, const char *what);
#define ULP_MEMORY_LIMIT "all protocols of this tenant together keep as much as they may"

/* --- bytes that wait: out.c --------------------------------------------------------------------------------------- */

/* Makes room for at least this many more bytes: 0, -ENOMEM or -ENOBUFS (for ulp_memory_fail()). Appending them cannot
 * fail then. */
int ulp_out_reserve(struct ulp_out *o, struct ulp_layer *l, uint32_t bytes);
void ulp_out_put(struct ulp_out *o, const void *data, uint32_t bytes);
/* Writes what waits as a byte stream. 0: nothing waits any more (and the memory is freed if it was much); -EAGAIN; else
 * -errno. */
int ulp_out_flush(struct ulp_out *o, struct ulp_layer *l);
/* Takes the first bytes, at most room; the memory is freed with the last byte. */
size_t ulp_out_take(struct ulp_out *o, void *out, size_t room);
/* Frees and wipes the memory: what waited may have been secret. */
void ulp_out_free(struct ulp_out *o);
/* Ends the charge to the account: for a buffer that outlives the stack. */
void ulp_out_uncount(struct ulp_out *o);
/* The other way: of a buffer that has come in a record. 0 or -ENOBUFS. */
int ulp_out_count(struct ulp_out *o, struct ulp_layer *l);
extern const struct xts_record_stream ulp_out_stream; /* as a member of a record */

/* --- bytes read ahead from the layer below: in.c ------------------------------------------------------------------ */

#define ULP_IN_BYTES 4096u

struct ulp_in {
	uint8_t *data; /* ULP_IN_BYTES, allocated when first needed */
	uint32_t first, bytes;
};

/* Reads at most bytes (> 0) of the stream below, from what was read ahead if there is any. room: if it is at least
 * bytes, out has this much room, and the room behind the bytes may be overwritten; 0: out has room for the bytes only.
 * As ulp_read_below(), but never returns 0. */
ssize_t ulp_in_read(struct ulp_in *in, struct ulp_layer *l, void *out, size_t bytes, size_t room);
/* For a layer that looks at bytes before it takes them: reads more behind what is here, which is data[first] to
 * data[first + bytes] and has to be less than ULP_IN_BYTES. As ulp_read_stream_below(). */
ssize_t ulp_in_more(struct ulp_in *in, struct ulp_layer *l);
/* Reads until out has want bytes, of which *got are there already: 0; -EAGAIN, and the next call goes on; -ENODATA: the
 * stream has ended; else it has failed. */
int ulp_in_gather(struct ulp_in *in, struct ulp_layer *l, void *out, uint32_t *got, uint32_t want);
bool ulp_in_pending(const struct ulp_in *in, const struct ulp_layer *l);
void ulp_in_free(struct ulp_in *in);
extern const struct xts_record_stream ulp_in_stream; /* as a member of a record */

/* --- a state that is a record: state.c ---------------------------------------------------------------------------- */

/* save() and the first half of restore(), where l->state, of so many bytes, begins with the struct of this record.
 * Members that are in no record are zero then. */
ssize_t ulp_state_save(const struct xts_record *r, const struct ulp_layer *l, void *out, size_t room);
int ulp_state_restore(const struct xts_record *r, struct ulp_layer *l, size_t state_bytes, const void *state,
		      size_t bytes);

/* --- pieces: layer.c ---------------------------------------------------------------------------------------------- */

size_t ulp_iov_bytes(const struct iovec *iov, int pieces);
/* Copies at most bytes from byte skip of the pieces on; returns how many. */
size_t ulp_iov_copy(void *out, const struct iovec *iov, int pieces, size_t skip, size_t bytes);
/* Describes the same bytes by at most max pieces in out; returns how many. */
int ulp_iov_slice(struct iovec *out, int max, const struct iovec *iov, int pieces, size_t skip, size_t bytes);

#endif
