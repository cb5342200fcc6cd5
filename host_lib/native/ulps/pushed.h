/* What has been pushed onto a socket: push_ulp.c, connect_pushes.c, ulp_info.c. */
#ifndef XTS_HOST_PUSHED_H
#define XTS_HOST_PUSHED_H

#include <stdbool.h>
#include <stdint.h>

#include "ulps/pushed_struct.h"
#include "wire/wire.h"

struct call;
struct xts_sock;

enum { ULPS_RECEIVE, ULPS_SEND };

/* Pushes a protocol: request is SIOC_PUSH_ULP_RX, SIOC_PUSH_ULP_TX or SIOC_PUSH_ULP. Waits; 0 or -errno. */
int socket_push(struct xts_sock *s, uint32_t request, uint16_t ulp_id, const uint8_t *attributes, uint32_t bytes);
int push_ioctl(struct xts_sock *s, unsigned long request, const void *argument);
/* The pushes in the payload of a CONNECT: connect_pushes.c. */
struct connect_pushes {
	uint32_t bytes;
	uint8_t payload[XTS_CONNECT_PUSH_BYTES];
};
void push_note(struct xts_sock *s, uint32_t request, uint16_t ulp_id);              /* it is pushed, or will be */
void connect_pushes_sent(struct xts_sock *s, const struct connect_pushes *encoded); /* they have been sent */
int push_give_back(struct xts_sock *s); /* 0: everything is given back; -EAGAIN: no frame can leave now; -ENETDOWN */
void push_forget(struct xts_sock *s);   /* a new connection begins without pushed protocols */
void push_inherit(struct xts_sock *s, const struct xts_sock *listener); /* it was accepted with these */
uint32_t push_window(const struct xts_sock *s, uint32_t window); /* raised to at least what such a socket needs */
void fault_forget(struct xts_sock *s);

#endif
