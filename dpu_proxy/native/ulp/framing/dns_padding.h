/* EDNS padding of a DNS message (RFC 7830). */
#ifndef XTS_ULP_DNS_PADDING_H
#define XTS_ULP_DNS_PADDING_H

#include <stdint.h>

/* Pads the message to a multiple of block bytes, at most to room; returns its length then. It stays as it is when it
 * has no OPT record, is padded already, is signed (TSIG, SIG(0)), or is malformed: the peer will say so. */
uint32_t dns_pad(uint8_t *message, uint32_t bytes, uint32_t room, uint16_t block);

#endif
