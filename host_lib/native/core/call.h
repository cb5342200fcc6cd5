/* Requests that have a reply with a token: call.c. */
#ifndef XTS_CALL_H
#define XTS_CALL_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/wire.h"

struct xts_sock;

#define OPTION_BYTES_MAX XTS_FILTER_BYTES_MAX /* the longest option value that is forwarded */

/* BIND, LISTEN, SETSOCKOPT, GETSOCKOPT, IOCTL, SHARE, PARK, CLAIM, TAKE, OPEN_DATAGRAM or CONNECT_DATAGRAM. */
struct call {
	uint8_t type; /* message type of the request */
	uint32_t token;
	int32_t level, option; /* IOCTL: option is the request */
	uint16_t ulp_id;       /* for a push */
	uint32_t post_credits, backlog;
	uint64_t key;
	uint32_t keep_ms, unread, purpose;
	bool died; /* this and the next two come with the answer to TAKE */
	uint64_t delivered_bytes, accepted_bytes;
	uint64_t deadline_ns; /* 0: none */
	struct xts_endpoint local, peer;
	uint32_t receive_bytes; /* for OPEN_DATAGRAM */
	uint8_t value[OPTION_BYTES_MAX];
	uint32_t length;
	bool makes; /* of the thread that makes the socket at the proxy, which no other call may do meanwhile */
	bool done;
	bool unanswered; /* until the proxy answers */
	bool again;      /* done, and not answered: the proxy's process has died, and the next one is asked */
	int error;       /* positive */
	/* what is to be done as the answer comes, before the next message: not if it is an error; NULL: nothing */
	void (*answered)(struct xts_sock *s, const struct call *call);
};

/* Sends the request and waits for the reply. 0 or -errno; values are in *call. -EBADF: the socket was closed
 * meanwhile, and must not be touched (core/socket.h). PARK, CLAIM and TAKE, which a close sends too, say only what the
 * proxy said. */
int call_proxy(struct xts_sock *s, struct call *call);
int call_proxy_unanswered(struct xts_sock *s, struct call *call);
/* Is it the same whether it is carried out once or twice? Then it is sent again when the proxy's process has died. */
bool call_may_be_repeated(const struct call *call);
/* The proxy's process has died before it has answered the socket's call: its thread sends it again. */
void call_goes_again(struct xts_sock *s);
int first_request_wait(struct xts_sock *s); /* waits until no other thread's first request is unanswered */

#endif
