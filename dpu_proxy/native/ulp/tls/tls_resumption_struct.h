/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_TLS_RESUMPTION_STRUCT_H
#define XTS_TLS_RESUMPTION_STRUCT_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/record.h"

/* A session of TLS that can be resumed, or a key of tickets, for the process of the proxy that takes over
 * (ulp/tls/tls_resumption.h). */
struct tls_resumption {
	/* 0: a key of tickets; 1: a session of a client; 2: one of a server, by its ID */
	uint8_t kind;
	/* by which a client finds it; the ID; or the name of the key of tickets, and zeros */
	uint8_t key[32];
	/* of a key of tickets: when (CLOCK_BOOTTIME) */
	uint64_t made_s;
	/* of one: not where clients show certificates */
	bool bare;
	/* the session as OpenSSL writes it, or the key */
	struct xts_record_bytes secret;
};

#endif
