/* EDNS padding of a DNS message (RFC 7830). */
#ifndef XTS_ULP_DNS_PADDING_H
#define XTS_ULP_DNS_PADDING_H

#include <stdint.h>

/* Pads the message to a multiple of block bytes, at most to room, and returns its new length. A message without an OPT
 * record stays as it is, and so does one that is padded already, signed (TSIG, SIG(0)), or malformed, which the peer
 * will report. */
uint32_t dns_pad(uint8_t *message, uint32_t bytes, uint32_t room, uint16_t block);

#endif
