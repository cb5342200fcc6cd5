/*
 * The status page: a sealed memfd that comes with an attachment (its last descriptor). The library writes one entry for
 * each socket. The endpoint that gave the page keeps a duplicate, so that `xts status` can show a process's sockets
 * without asking the process. The application's own process writes it, so it is not trusted: readers check every field.
 */
#ifndef XTS_STATUS_H
#define XTS_STATUS_H

#include <stdint.h>

#include "attaching/waits.h"
#include "wire/wire.h"

#define XTS_STATUS_MAGIC 0x58545350u /* "XTSP" */
#define XTS_STATUS_VERSION 2u
/* A value in place of enum xts_link_state: the process got its queue, and this page, from an agent that has been
 * replaced since. */
#define XTS_STATUS_ADOPTED 3u
#define XTS_STATUS_ENTRIES 16384u /* further sockets are counted but not shown */

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

#define XTS_STATUS_ULPS 8u /* protocols pushed on top of one another, in each direction */

struct xts_status_entry { /* 120 bytes */
	uint32_t xts_socket, proxy_id;
	uint8_t state;                 /* enum xts_socket_state */
	uint8_t reason;                /* enum xts_reason, for a connection that could not be kept over fork or exec */
	uint8_t tls_send, tls_receive; /* where data is encrypted and decrypted: enum xts_tls_crypto; 0: nowhere */
	uint32_t recv_queue;           /* bytes received and unread; for a listener, connections waiting */
	uint32_t send_credits;         /* post credits held: how many bytes may be sent now */
	uint32_t recv_window;          /* bytes granted to the proxy in all */
	uint32_t recv_unadvertised;
	int32_t error;
	uint64_t sent_bytes, received_bytes;
	struct xts_endpoint local, peer; /* host order */
	/* Pushed protocols: enum xts_ulp_id, the first is next to TCP; 0 after the last. */
	uint8_t receive_ulps[XTS_STATUS_ULPS], send_ulps[XTS_STATUS_ULPS];
	uint16_t tls_version; /* 0x0303, 0x0304; 0: no TLS, or its handshake is not finished */
	uint16_t tls_cipher;  /* for TLS the IANA number of the suite, for TLS_KEYS the kernel's cipher type */
	uint8_t reserved[4];
};
_Static_assert(sizeof(struct xts_endpoint) == 24, "endpoint layout");
_Static_assert(sizeof(struct xts_status_entry) == 120, "entry layout");

struct xts_status_page {
	uint32_t magic, version;
	uint32_t entries;       /* XTS_STATUS_ENTRIES */
	uint32_t used;          /* entries ever used; the ones after them are zero */
	uint32_t link_state;    /* enum xts_link_state, or XTS_STATUS_ADOPTED */
	uint32_t frame_credits; /* frame credits of the queue, when last written */
	uint32_t sockets;       /* sockets that exist */
	uint32_t reserved;
	uint64_t sleeps, spins; /* waits that slept, and those a spin ended */
	struct xts_status_entry entry[];
};

/*
 * Totals of the process so far. They come after the last entry, so that programs that do not know of them can read the
 * page. Of a process that was killed, an endpoint keeps these and nothing else (xts_messages/attaching/killed_processes.py).
 */
#define XTS_FIGURES_MAGIC 0x58545346u /* "XTSF" */
#define XTS_FIGURES_REASONS 32u

struct xts_status_figures { /* 312 bytes */
	uint32_t magic;     /* XTS_FIGURES_MAGIC; 0: the library does not write them */
	uint32_t stack;     /* number of the stack in the process */
	uint64_t program;   /* distinguishes the pages of programs that the same process executed one after the other */
	uint32_t closed;    /* the attachment was given up normally, or the process exits */
	/* there are counts of sockets by reason: the process runs under the interposer or install() */
	uint32_t counted;
	uint64_t sent_bytes, received_bytes;   /* totals of the stack */
	uint64_t user_us, system_us;           /* CPU time of the process, up to one of its latest calls */
	uint64_t sockets[XTS_FIGURES_REASONS]; /* sockets of the process by enum xts_reason; [0]: offloaded */
};
_Static_assert(sizeof(struct xts_status_figures) == 312, "figures layout");

/* The device's clock, from the process's last measurement (PROTOCOL.md). After the figures, for the same reason. */
#define XTS_CLOCK_MAGIC 0x58545343u /* "XTSC" */

struct xts_status_clock { /* 40 bytes */
	uint32_t magic;   /* XTS_CLOCK_MAGIC; 0: nothing has been measured */
	uint32_t reserved;
	int64_t ahead_ns;     /* ahead of this host's CLOCK_REALTIME by this much at that time */
	uint64_t error_ns;    /* error of ahead_ns in either direction */
	uint64_t measured_ns; /* time of the measurement, CLOCK_MONOTONIC */
	uint64_t follows_ns;  /* how far it may be from the time source that it follows; all ones: it follows none */
};
_Static_assert(sizeof(struct xts_status_clock) == 40, "clock layout");

/* What each socket waits for. After the clock, for the same reason. One for each entry, with the same index. */
#define XTS_WAITS_MAGIC 0x58545357u /* "XTSW" */

struct xts_status_waits { /* 80 bytes */
	uint32_t magic;   /* XTS_WAITS_MAGIC; 0: nothing is known */
	/* socket of the entry when this was written: if the entry has another one now, nothing is known */
	uint32_t xts_socket;
	struct xts_waits waits;
};
_Static_assert(sizeof(struct xts_status_waits) == 80, "waits layout");

/* What spins cost, and how many fail, after that; page->spins counts those that ended a wait. */
#define XTS_POLLING_MAGIC 0x5854534cu /* "XTSL" */

struct xts_status_polling { /* 24 bytes */
	uint32_t magic;     /* XTS_POLLING_MAGIC; 0: nothing is known */
	uint32_t reserved;
	uint64_t spin_misses; /* spins that found nothing: the wait slept after them, or has failed */
	uint64_t spin_ns;     /* processor time of all spins, without yields */
};
_Static_assert(sizeof(struct xts_status_polling) == 24, "polling layout");

/* The filter that a datagram socket has on the device, after that. One for each entry, with the same index. */
#define XTS_FILTERS_MAGIC 0x58545344u /* "XTSD" */
#define XTS_STATUS_FILTER_NAME 64u    /* in bytes, with the terminating zero */

struct xts_status_filter { /* 80 bytes */
	uint32_t magic;    /* XTS_FILTERS_MAGIC; 0: no filter is known */
	/* socket of the entry when this was written: if the entry has another one now, nothing is known */
	uint32_t xts_socket;
	/* length of the program's own filter (SO_ATTACH_FILTER); 0: it is the operator's filter of this name */
	uint32_t instructions;
	uint32_t reserved;
	char name[XTS_STATUS_FILTER_NAME];
};
_Static_assert(sizeof(struct xts_status_filter) == 80, "filter layout");

#endif
