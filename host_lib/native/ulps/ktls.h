/* The kernel's TLS interface: ktls.c. Results are 0 or -errno. */
#ifndef XTS_KTLS_H
#define XTS_KTLS_H

#include <stdint.h>
#include <sys/socket.h>

struct xts_sock;

#define TLS_DATA_RECORD 23 /* RFC 8446: application_data */
#ifndef SOL_TLS
#define SOL_TLS 282 /* in linux/socket.h, which programs cannot include */
#endif

int ktls_set_ulp(struct xts_sock *s, const void *value, socklen_t length);
int ktls_get_ulp(const struct xts_sock *s, void *value, socklen_t *length);
int ktls_set(struct xts_sock *s, int option, const void *value, socklen_t length);
int ktls_get(const struct xts_sock *s, int option, void *value, socklen_t *length);
/* the application has read a control record of this type with this first byte */
void ktls_control_read(struct xts_sock *s, uint8_t type, uint8_t first);

#endif
