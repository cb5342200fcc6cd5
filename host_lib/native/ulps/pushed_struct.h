/* Generated from messages/xts_messages/wire/host_record_table.py by `python -m xts_messages.generate`. Do not edit. */
#ifndef XTS_PUSHED_STRUCT_H
#define XTS_PUSHED_STRUCT_H

#include <linux/tls.h>
#include <stdbool.h>
#include <stdint.h>

#define ULP_DEPTH 8u /* the highest stack of protocols */

/* The protocols pushed onto a socket, and the PDU that is being sent: push_ulp.c. Arrays are indexed by ULPS_RECEIVE
 * and ULPS_SEND. */
struct ulps {
	/* the first is next to TCP */
	uint8_t id[2][8];
	/* how many */
	uint8_t depth[2];
	/* peek mode */
	bool peeking;
	/* READY is still to come, or RESET */
	bool handshaking;
	/* a thread waits in the middle of a PDU; such a socket goes nowhere */
	bool sending;
	/* a PDU has begun, and the next send call continues it */
	bool begun;
	/* length of that PDU; 0: not known */
	uint32_t record_bytes;
	/* bytes of it that have been sent */
	uint32_t sent;
	/* the number of credits for lack of which a PDU was refused */
	uint32_t wanted;
	/* version and cipher set through the kernel's interface (ktls.c); version 0: none */
	struct tls_crypto_info keys[2];
	/* from the event TLS; 0: none so far */
	uint16_t tls_version;
	/* the same */
	uint16_t tls_cipher;
	/* where data is decrypted and encrypted */
	uint8_t tls_by[2];
	/* setsockopt(TCP_ULP, "tls") */
	bool tls;
	/* the peer has sent KeyUpdate */
	bool keys_expired;
	/* pushed in a CONNECT: if that fails, it is unknown what is pushed */
	bool with_connect;
	/* TLS_TX_ZEROCOPY_RO */
	bool zerocopy_ro;
	/* TLS_RX_EXPECT_NO_PAD */
	bool expect_no_pad;
};

#endif
