/*
 * Attaching: how a process without privilege gets its queue. It connects to a Unix socket (SOCK_SEQPACKET;
 * XTS_ENDPOINT, default /run/xts/endpoint.sock), sends one struct xts_attach_request, and receives one struct
 * xts_attach_reply with descriptors (SCM_RIGHTS). One handshake for both kinds of queue: xts-agent answers with an
 * AF_XDP socket and its UMEM (kind XTS_QUEUE_AFXDP; descriptors: xsk, umem memfd, status page), the proxy itself with
 * shared memory (kind XTS_QUEUE_SHM; descriptors: memfd, the host's bell (shm.c), status page). The status page is
 * status.h's. The connection stays open: its end tells each side that the other has died. For shm it means that the
 * proxy, or the agent's relay, has gone; for afxdp only that the agent has, and the queue goes on working. An agent
 * that is stopped takes its AF_XDP queues back, and announces this first (struct xts_attach_taken): nothing arrives
 * there any more, and without the announcement only pings would show that, after seconds.
 *
 * When all queues are in use, an agent may answer with shared memory whose other end is its relay (relay_loop.h), which
 * carries the frames over a queue that several processes share. Then `relayed` is the number of the process's channel.
 *
 * Both ends are on one machine, so the structs are in host byte order.
 *
 * A process that has to wait is told so, if it has said that it understands that (`waits`): by a struct
 * xts_attach_waiting as soon as the server has read its request, and again each second. So it can tell a server that is
 * busy from one that is stopped, and waits as long as it hears. Servers serve the users of a machine by turns.
 *
 * A refusal has an errno for the program, and a sentence for people, which says which resource has run out and where
 * its limit is set; the same sentence is in the server's log. EUSERS: there is no queue for this process, since all are
 * in use, or its user or all users together have as many as they may; EAGAIN: none became free in time; ESHUTDOWN: the
 * server is stopping; EPROTONOSUPPORT: another version; ENOMEM, EMFILE …: the server could not make one.
 */
#ifndef XTS_ATTACH_H
#define XTS_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "queues/queue.h"
#include "attaching/status.h"

#define XTS_ATTACH_MAGIC 0x58545341u           /* "XTSA" */
#define XTS_ATTACH_STATUS_MAGIC 0x58545351u    /* "XTSQ": not to attach, but to list the attached processes */
#define XTS_ATTACH_ENDED_MAGIC 0x5854534bu     /* "XTSK": not to attach, but to list processes that were killed */
#define XTS_ATTACH_QUEUES_MAGIC 0x58545343u    /* "XTSC": not to attach, but to ask how many queues there are */
#define XTS_ATTACH_TAKEN_MAGIC 0x58545342u     /* "XTSB": the server takes the queue back */
#define XTS_ATTACH_WAITING_MAGIC 0x58545357u   /* "XTSW": the request waits */
#define XTS_ATTACH_RELATIVES_MAGIC 0x58545352u /* "XTSR": the process is attached, and shares connections */
#define XTS_ATTACH_OVER_MAGIC 0x5854534fu      /* "XTSO": the same, to who says OVER to the proxy for it */
#define XTS_ATTACH_VERSION 2u
#define XTS_ATTACH_TOKEN_BYTES_MAX 300u

enum xts_queue_number {
	XTS_QUEUE_AFXDP = 1,
	XTS_QUEUE_SHM = 2,
	XTS_QUEUE_RELAY = 3, /* in a listing: shared memory to a relay of the agent */
	XTS_QUEUE_RDMA = 4,  /* between a relay and the proxy; no process is given one */
	/* shared memory within the proxy: a worker's end of a queue over RDMA, whose queue pair another process has */
	XTS_QUEUE_CARRIED = 5,
};

struct xts_attach_request {
	uint32_t magic, version;
	uint32_t umem_bytes_max;   /* 0: the server's default */
	uint32_t frame_window_max; /* 0: the server's default */
	char program[56];          /* name of the process, NUL-terminated; for people only */
	uint32_t knows;            /* XTS_ATTACH_KNOWS and what it understands. Older: the end of program */
	uint32_t waits;            /* XTS_ATTACH_WAITS: knows xts_attach_waiting. Older: the end of program */
};

/* No text in UTF-8 has these bytes. */
#define XTS_ATTACH_WAITS 0xfffefdfcu
/* Nor these, whatever the last one is, which has bits: queues with small chunks (afxdp.h). */
#define XTS_ATTACH_KNOWS 0xfbfaf900u
#define XTS_ATTACH_KNOWS_MASK 0xffffff00u
#define XTS_ATTACH_SMALL_CHUNKS 1u
/* A process waits this long at most, however often it is told that its request waits. */
#define XTS_ATTACH_WAIT_MAX_MS 60000

/* To a process whose request waits. */
struct xts_attach_waiting {
	uint32_t magic, version;
	uint32_t before; /* requests that came before it, and wait, too */
	uint32_t reserved;
};

struct xts_attach_reply {
	uint32_t magic, version;
	int32_t error;  /* 0, or a positive errno (above): refused, reason says why */
	uint32_t kind;  /* enum xts_queue_number */
	uint64_t epoch; /* epoch of this attachment, which goes into HELLO */
	uint16_t ethertype;
	uint16_t frame_window;    /* frames for which there are buffers, in each direction */
	uint32_t largest_message; /* bytes */
	uint32_t queue_id;        /* number of the queue, for people */
	uint8_t local_mac[6], peer_mac[6];
	/* afxdp: geometry of the UMEM and its rings. */
	uint32_t chunk_bytes; /* 4096; or 2048, to who knows that (XTS_ATTACH_SMALL_CHUNKS) */
	uint32_t rx_chunks;   /* the first chunks of the UMEM, for the fill ring */
	/* the number of slots after them; each has slot_bytes (a multiple of chunk_bytes) of contiguous memory */
	uint32_t tx_slots;
	uint32_t slot_bytes;
	uint32_t ring_entries; /* entries of each of the four rings */
	/* shm: see shm.h for the layout of the memory. */
	uint32_t shm_slots;   /* slots in each direction */
	uint32_t token_bytes; /* afxdp: size of token; 0: there is none */
	/* shm: number of the channel, if the other end is a relay of the agent; else 0 */
	uint32_t relayed;
	/* afxdp: the secret of this attachment, which is in the head of each frame (headed.h); 0: frames have no head */
	uint32_t secret_high, secret_low;
	char interface[16]; /* afxdp: name of the interface, for people */
	char reason[156];   /* for a refusal, NUL-terminated; the reader makes it printable */
	uint32_t relatives; /* 1: it wants files of relatives (below); else 0. Older: the end of reason */
	/* the payload of XTS_LINK_TOKEN; only the proxy interprets it */
	uint8_t token[XTS_ATTACH_TOKEN_BYTES_MAX];
	uint32_t reliable; /* afxdp: 1: lost frames are repeated (arq.h); 0: none is lost. Older: the end of token */
};

/*
 * The answer to a request with XTS_ATTACH_STATUS_MAGIC: one of these for each attached process that the client may see
 * (root: all, others: their own), with the status page as its descriptor, then end of file. An older server's struct
 * ends after program: the missing members are zero.
 */
struct xts_attach_listing {
	uint32_t magic, version;
	uint32_t kind, queue_id;
	uint64_t epoch;
	int32_t pid;
	uint32_t uid;
	char program[64];
	char interface[16]; /* interface of the queue; over shm: empty */
	uint32_t relayed;   /* number of the channel, if there is a relay; else 0 */
	uint32_t reserved;
};

/*
 * The answer to a request with XTS_ATTACH_ENDED_MAGIC: one of these for each process that was killed not long ago and
 * that the client may see, then end of file. An older server refuses the request.
 */
struct xts_attach_ended {
	uint32_t magic, version;
	int32_t pid;
	uint32_t uid;
	char program[64];
	uint32_t ended_ms_ago;
	uint32_t signal; /* the signal that killed it; 0: unknown */
	uint32_t stacks; /* how many attachments it had at its end */
	uint32_t reserved;
	struct xts_status_figures figures; /* sums over all its stacks */
};

/* What the kernel has dropped at the queues of an interface since its agent has opened them: XDP_STATISTICS of their
 * sockets, of closed ones, too. */
struct xts_attach_drops {
	uint64_t rx_dropped;    /* for another reason than the next two */
	uint64_t rx_ring_full;  /* the process did not take frames in time */
	uint64_t rx_no_buffers; /* the fill ring was empty; in copy mode only, else the card drops them */
	uint64_t rx_invalid;    /* descriptors in the fill ring with an address that is none */
	uint64_t tx_invalid;    /* descriptors to send that are none */
};

/*
 * The answer to a request with XTS_ATTACH_QUEUES_MAGIC, which anybody may send: one of these for each interface, then
 * end of file. A proxy, which makes queues on demand, sends none. An older server refuses the request.
 */
struct xts_attach_queues {
	uint32_t magic, version;
	uint32_t queues;  /* queues that processes can have for themselves */
	uint32_t relayed; /* how many more processes the relay can serve; 0: there is no relay */
	uint32_t used;    /* of both: in use, or kept after an attachment has ended */
	uint32_t program; /* the kernel's number of the XDP program that the interface has to have; 0: not known */
	char interface[16];
	/* why no queue of it carries anything at the moment; empty: they do. An older server's struct ends before. */
	char problem[160];
	/* how frames find their queue, for people; an older server's struct ends before */
	char steering[160];
	uint32_t lacking; /* so many queues are not given away, since frames do not find them: steering says why */
	/* whether the driver copies, and why, for people; an older server's struct ends before */
	char copying[160];
	struct xts_attach_drops drops;
};

/* The last message of a server that takes an AF_XDP queue back. An older process treats it as the end of the
 * connection. */
struct xts_attach_taken {
	uint32_t magic, version;
};

/*
 * From a process that is attached, with a descriptor of a file that says which processes have its connections
 * (relatives.h). When a process has ended, the server sees there which connections nobody has any more. Only to a
 * server that has said in its reply that it wants it. Without it the proxy keeps these for as long as their last holder
 * has said. A server that is not the proxy has to say it to the proxy (OVER, PROTOCOL.md): it is told with
 * XTS_ATTACH_OVER_MAGIC, and only if that feature is in force, since older proxies end a link at this message.
 */
struct xts_attach_relatives {
	uint32_t magic, version;
};

/* A live attachment. */
struct xts_attachment {
	struct xts_queue *queue;
	int connection;                     /* the Unix socket; readable (end of file) once the server has gone */
	struct xts_status_page *status;     /* mapped for writing (MADV_DONTFORK) */
	struct xts_status_figures *figures; /* in the same memory; NULL: not in an older server's page */
	struct xts_status_clock *clock;     /* after the figures; NULL: as above */
	struct xts_status_waits *waits;     /* one for each socket, after the clock; NULL: as above */
	struct xts_status_polling *polling; /* after the waits; NULL: as above */
	struct xts_status_filter *filters;  /* one for each socket, after polling; NULL: as above */
	size_t status_bytes;                /* size of the mapping */
	bool waited;                        /* the server has said that the request waits */
	struct xts_attach_reply reply;
};

/*
 * Connects to the endpoint (NULL: "shm:PATH" of $XTS_QUEUE, $XTS_ENDPOINT or the default, as read by environment.h),
 * attaches and opens the queue. Blocks while the server works (milliseconds); timeout_ms: for how long it may be
 * silent. Returns 0 or -errno: ENOENT or ECONNREFUSED: no server there; ETIMEDOUT: a server is there, and was silent
 * for that long, or out->waited and the process waited for XTS_ATTACH_WAIT_MAX_MS; EPROTO: it does not speak this
 * version; else the server's errno. The reason is in out->reply.reason. request may be NULL for the defaults. Its
 * magic, its version and an empty program are filled in here.
 */
int xts_attach(struct xts_attachment *out, const char *endpoint, const struct xts_attach_request *request,
	       int timeout_ms);

/* Is the other end of the attachment the proxy? Else it is an agent. */
bool xts_attach_is_proxy(const struct xts_attachment *attachment);
/* Sends the server a file of relatives (xts_attach_relatives). over: the proxy takes OVER. Does not wait, and may fail:
 * then it does not have it. */
void xts_attach_tell_relatives(const struct xts_attachment *attachment, int fd, bool over);

/* Closes the queue and the connection. */
void xts_detach(struct xts_attachment *attachment);

#endif
