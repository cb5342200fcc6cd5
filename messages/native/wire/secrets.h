/*
 * What of a message must not be seen by anybody else: the fields that the wire table declares secret (keys of sockets,
 * authentication codes), and the parameters of a push of TLS_KEYS, in IOCTL or in CONNECT.
 */
#ifndef XTS_SECRETS_H
#define XTS_SECRETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* So many bytes from the beginning of a frame have all secrets of a message that keeps to the protocol. */
#define XTS_SECRETS_WITHIN 2048u

/* May a frame of this type have secrets? */
bool xts_has_secrets(uint8_t type);
/* Overwrites the secrets in a copy of the beginning of a frame with zeros. What is malformed is overwritten as a
 * whole, behind the message's fixed part. */
void xts_blank_secrets(uint8_t *frame, size_t bytes);

#endif
