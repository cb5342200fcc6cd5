/*
 * The status page: a sealed memfd that comes with an attachment (its last descriptor). The library writes one entry a
 * socket; whoever gave it keeps a duplicate, so that `xts status` can show a process's sockets without asking it.
 * Written by the application's own process, so it is believed by nobody: readers check every field.
 */
#ifndef XTS_STATUS_H
#define XTS_STATUS_H

#include <stdint.h>

#include "waits.h"
#include "wire.h"

#define XTS_STATUS_MAGIC 0x58545350u /* "XTSP" */
#define XTS_STATUS_VERSION 2u
/* In place of enum xts_link_state: the process has its queue from an agent before this one, and its page with it. */
#define XTS_STATUS_ADOPTED 3u
#define XTS_STATUS_ENTRIES 16384u /* sockets beyond these are not shown, only counted */

enum xts_socket_state { /* names as ss(8) shows them */
			XTS_STATE_FREE,
			XTS_STATE_UNCONNECTED,
			XTS_STATE_SYN_SENT,
			XTS_STATE_ESTABLISHED,
			XTS_STATE_LISTEN,
			XTS_STATE_CLOSE_WAIT, /* end of stream received */
			XTS_STATE_FIN_WAIT,   /* half-closed by us */
			XTS_STATE_LAST_ACK,   /* both ways closed, socket still open */
			XTS_STATE_CLOSING,    /* closed, waiting for CLOSED */
			XTS_STATE_FAILED,     /* reset or lost */
};

#define XTS_STATUS_ULPS 8u /* protocols on one another, in each direction */

struct xts_status_entry { /* 120 bytes */
	uint32_t xts_socket, proxy_id;
	uint8_t state;                 /* enum xts_socket_state */
	uint8_t reason;                /* enum xts_reason of a connection that could not be kept over fork or exec */
	uint8_t tls_send, tls_receive; /* who encrypts and decrypts: enum xts_tls_crypto; 0: nobody */
	uint32_t recv_queue;           /* bytes received and unread; for a listener, connections waiting */
	uint32_t send_credits;         /* post credits held: bytes that may be sent now */
	uint32_t recv_window;          /* bytes granted to the proxy in all */
	uint32_t recv_unadvertised;
	int32_t error;
	uint64_t sent_bytes, received_bytes;
	struct xts_endpoint local, peer; /* host order */
	/* What is pushed: enum xts_ulp_id, the first next to TCP; 0 after the last. */
	uint8_t receive_ulps[XTS_STATUS_ULPS], send_ulps[XTS_STATUS_ULPS];
	uint16_t tls_version; /* 0x0303, 0x0304; 0: no TLS, or its handshake is not done */
	uint16_t tls_cipher;  /* of TLS the suite's number at IANA, of TLS_KEYS the kernel's cipher type */
	uint8_t reserved[4];
};
_Static_assert(sizeof(struct xts_endpoint) == 24, "endpoint layout");
_Static_assert(sizeof(struct xts_status_entry) == 120, "entry layout");

struct xts_status_page {
	uint32_t magic, version;
	uint32_t entries;       /* XTS_STATUS_ENTRIES */
	uint32_t used;          /* entries ever used; those after it are zero */
	uint32_t link_state;    /* enum xts_link_state, or XTS_STATUS_ADOPTED */
	uint32_t frame_credits; /* of the queue, last seen */
	uint32_t sockets;       /* in being */
	uint32_t reserved;
	uint64_t sleeps, spins; /* waits that slept, and those a spin ended */
	struct xts_status_entry entry[];
};

/*
 * What the process has done so far, behind the last entry, so that who knows of no more can read the page. An endpoint
 * keeps this, and only this, of a process that was killed (xts_messages/ended.py).
 */
#define XTS_FIGURES_MAGIC 0x58545346u /* "XTSF" */
#define XTS_FIGURES_REASONS 32u

struct xts_status_figures { /* 312 bytes */
	uint32_t magic;     /* XTS_FIGURES_MAGIC; 0: the library writes none */
	uint32_t stack;     /* its number in the process */
	uint64_t program;   /* tells the pages of one program from those of another that the same process executed */
	uint32_t closed;    /* the attachment was given up in order, or the process exits */
	uint32_t counted; /* there are counts of sockets by reason: the process is under the interposer or install() */
	uint64_t sent_bytes, received_bytes;   /* of the stack */
	uint64_t user_us, system_us;           /* CPU time of the process, up to one of its last calls */
	uint64_t sockets[XTS_FIGURES_REASONS]; /* of the process, by enum xts_reason; [0]: offloaded */
};
_Static_assert(sizeof(struct xts_status_figures) == 312, "figures layout");

/* The device's clock as the process has measured it last (PROTOCOL.md), behind the figures: for the same reason. */
#define XTS_CLOCK_MAGIC 0x58545343u /* "XTSC" */

struct xts_status_clock { /* 40 bytes */
	uint32_t magic;   /* XTS_CLOCK_MAGIC; 0: nothing has been measured */
	uint32_t reserved;
	int64_t ahead_ns;     /* of this host's CLOCK_REALTIME, by as much as it was then */
	uint64_t error_ns;    /* of that, either way */
	uint64_t measured_ns; /* CLOCK_MONOTONIC */
	uint64_t follows_ns;  /* how far it may be from the time that it follows; all ones: it follows none */
};
_Static_assert(sizeof(struct xts_status_clock) == 40, "clock layout");

/* Why each socket waits, behind the clock: for the same reason. One for each entry, by the same index. */
#define XTS_WAITS_MAGIC 0x58545357u /* "XTSW" */

struct xts_status_waits {    /* 80 bytes */
	uint32_t magic;      /* XTS_WAITS_MAGIC; 0: nothing is known */
	uint32_t xts_socket; /* of the entry when this was written: if it is another one's now, nothing is known */
	struct xts_waits waits;
};
_Static_assert(sizeof(struct xts_status_waits) == 80, "waits layout");

/* What spins cost, and what they bring, behind that; page->spins are those that ended a wait. */
#define XTS_POLLING_MAGIC 0x5854534cu /* "XTSL" */

struct xts_status_polling { /* 24 bytes */
	uint32_t magic;     /* XTS_POLLING_MAGIC; 0: nothing is known */
	uint32_t reserved;
	uint64_t spin_misses; /* that found nothing: the wait slept after them */
	uint64_t spin_ns;     /* of a processor, in all */
};
_Static_assert(sizeof(struct xts_status_polling) == 24, "polling layout");

/* Which filter a datagram socket has on the device, behind that. One for each entry, by the same index. */
#define XTS_FILTERS_MAGIC 0x58545344u /* "XTSD" */
#define XTS_STATUS_FILTER_NAME 64u    /* bytes, with the zero at its end */

struct xts_status_filter {     /* 80 bytes */
	uint32_t magic;        /* XTS_FILTERS_MAGIC; 0: no filter that is known */
	uint32_t xts_socket;   /* of the entry when this was written: if it is another one's now, nothing is known */
	uint32_t instructions; /* of the program's own filter (SO_ATTACH_FILTER); 0: it is the operator's of this name */
	uint32_t reserved;
	char name[XTS_STATUS_FILTER_NAME];
};
_Static_assert(sizeof(struct xts_status_filter) == 80, "filter layout");

#endif
