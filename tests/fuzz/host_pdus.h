/*
 * Connections of the host library with pushed protocols, PDUs, and the kernel's interface for TLS; and the proxy's side
 * of connections, mostly well-formed: what takes several right messages to reach.
 */
#ifndef XTS_FUZZ_HOST_PDUS_H
#define XTS_FUZZ_HOST_PDUS_H

#include <arpa/inet.h>
#include <linux/tls.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "link/credit.h"
#include "host_datagrams.h"
#include "ulp_wire.h"

#define TCP_WITH_ULP 31 /* TCP_ULP */

/* --- the proxy ---------------------------------------------------------------------------------------------------- */

static void proxy_connects(struct input *in, const struct xts_sock *s)
{
	uint8_t frame[XTS_CONNECT_ACK_BYTES] = { 0 }, how = take(in);
	struct xts_connect_ack m = { .proxy_id = s->proxy_id ? s->proxy_id : ++scene.next_proxy_id,
				     .post_credits = (uint32_t)how << 8,
				     .local = some_endpoint(1),
				     .peer = some_endpoint(2) };

	if (s->state != TCP_STATE_SYN_SENT)
		return;
	xts_head_encode(frame, XTS_REPLY_CONNECT_ACK, 0, how < 4 ? ECONNREFUSED : 0, s->id);
	xts_connect_ack_encode(frame, &m);
	proxy_send(frame, sizeof frame);
}

static void proxy_accepts(struct input *in, const struct xts_sock *s)
{
	uint8_t frame[XTS_NEWCONN_BYTES] = { 0 };
	struct xts_newconn m = { .proxy_id = ++scene.next_proxy_id,
				 .post_credits = (uint32_t)take(in) << 8,
				 .local = some_endpoint(1),
				 .peer = some_endpoint(2) };

	if (s->state != TCP_STATE_LISTEN || !s->grant.outstanding)
		return;
	xts_head_encode(frame, XTS_REPLY_NEWCONN, 0, 0, s->id);
	xts_newconn_encode(frame, &m);
	proxy_send(frame, sizeof frame);
}

/* Data within the credits, the end of the stream, or a reset. */
static void proxy_sends_stream(struct input *in, const struct xts_sock *s)
{
	static uint8_t frame[LARGEST];
	uint8_t how = take(in);
	uint32_t most = s->grant.outstanding < LARGEST - XTS_RECV_BYTES ? s->grant.outstanding :
									  LARGEST - XTS_RECV_BYTES;
	struct xts_recv m = { .post_credits = how & 1 ? take(in) : 0 };

	if (s->state != TCP_STATE_ESTABLISHED)
		return;
	m.length = most && how & 2 ? pick_number(in) % most : 0;
	xts_head_encode(frame, XTS_REPLY_RECV,
			how >= 248 ? XTS_FLAG_RESET :
			how >= 240 ? XTS_FLAG_EOS :
				     0,
			how >= 248 ? ECONNRESET : 0, s->id);
	xts_recv_encode(frame, &m);
	proxy_send(frame, XTS_RECV_BYTES + m.length);
}

/* A PDU or a part of one, with control data; or an event. */
static void proxy_sends_pdu(struct input *in, const struct xts_sock *s)
{
	static uint8_t frame[LARGEST];
	uint8_t how = take(in), what = take(in);
	uint32_t credits = s->grant.outstanding, most = LARGEST - XTS_RECV_PDU_BYTES;
	struct xts_recv_pdu m = { .post_credits = how & 1 ? take(in) : 0 };

	if (s->state != TCP_STATE_ESTABLISHED || credits < XTS_PDU_CREDITS + 1)
		return;
	if (credits - XTS_PDU_CREDITS < most)
		most = credits - XTS_PDU_CREDITS;
	if (how & 2) {
		m.control_type = how & 4 ? XTS_CONTROL_TLS : XTS_CONTROL_READY;
		m.control_bytes = how & 4 ? 6 : 0;
		m.control_high = (uint64_t)what << 56 | take(in);
	} else {
		m.length = pick_number(in) % most;
		m.record_bytes = how & 8 ? m.length + what : 0;
		m.control_type = what % (XTS_ULP_COUNT + 1u);
		m.control_bytes = m.control_type ? how >> 4 : 0;
	}
	xts_head_encode(frame, XTS_REPLY_RECV_PDU, how & 0x80 ? XTS_FLAG_MORE : 0, 0, s->id);
	xts_recv_pdu_encode(frame, &m);
	proxy_send(frame, XTS_RECV_PDU_BYTES + m.length);
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static void set_push(struct ulp_info *info, size_t room, struct input *in)
{
	uint8_t which = take(in);
	uint64_t value = take(in);

	info->ulp_id = which % (XTS_ULP_COUNT + 1u);
	info->ulp_bytes = 0;
	if (which & 0x80)
		xts_ulp_put(info, room, take(in) % 16u, &value, 1u << (value & 3), XTS_ULP_INTEGER);
	if (which & 0x40)
		xts_ulp_put(info, room, take(in) % 16u, "text", value % 5u, 0);
}

static void push_or_tell(struct input *in, int s)
{
	static const unsigned long request[] = { SIOC_PUSH_ULP_RX, SIOC_PUSH_ULP_TX, SIOC_PUSH_ULP };
	_Alignas(struct ulp_info) uint8_t memory[64];
	struct ulp_info *info = (struct ulp_info *)(void *)memory;
	struct sockaddr_in address = { .sin_family = AF_INET,
				       .sin_port = htons(80),
				       .sin_addr.s_addr = htonl(0xC6120002) };
	struct xts_ulp_push push = { .info = info };
	uint8_t which = take(in);
	uint32_t dropped = which;
	char text[64];
	unsigned fault;
	int on = which >> 7;

	set_push(info, sizeof memory, in);
	push.request = request[which % 3u];
	switch (which % 8u) {
	case 0:
	case 1:
	case 2:
		xts_ioctl(s, push.request, info);
		break;
	case 3:
		xts_ulp_connect(s, (struct sockaddr *)&address, sizeof address, &push, 1);
		break;
	case 4:
		xts_ulp_error(s, &fault, text, sizeof text);
		break;
	case 5:
		xts_ulp_tell(s, on, 0, which >> 4, text, sizeof text);
		break;
	case 6:
		xts_ioctl(s, SIOC_PEEK_MODE, &on);
		break;
	default:
		xts_ioctl(s, SIOC_END_PEEK_MODE, &dropped);
	}
}

/* As a program does that has made the handshake itself. */
static void kernel_tls(struct input *in, int s)
{
	uint8_t which = take(in);
	struct tls12_crypto_info_aes_gcm_128 keys = { .info = { .version = which & 1 ? TLS_1_3_VERSION : TLS_1_2_VERSION,
								.cipher_type = TLS_CIPHER_AES_GCM_128 } };

	keys.key[0] = which;
	if (which & 2)
		keys.info.cipher_type = take(in);
	if (which & 4)
		xts_setsockopt(s, IPPROTO_TCP, TCP_WITH_ULP, "tls", sizeof "tls");
	xts_setsockopt(s, SOL_TLS, which & 8 ? TLS_TX : TLS_RX, &keys, which & 0x80 ? which : sizeof keys);
}

static void sends_pdu(struct input *in, int s)
{
	uint8_t how = take(in);
	struct program_message m;

	set_message(&m, in, how & 0xef);
	m.header.msg_controllen = 0;
	if (how & 32) {
		set_control(&m, in);
		((struct cmsghdr *)(void *)m.control)->cmsg_level = how & 1 ? SOL_XTS : SOL_TLS;
		((struct cmsghdr *)(void *)m.control)->cmsg_type = how & 1 ? how % (int)(XTS_ULP_COUNT + 1u) : 1;
	}
	xts_sendmsg(s, &m.header, MSG_DONTWAIT | MSG_NOSIGNAL | (how & 64 ? MSG_MORE : 0) | (how & 128 ? MSG_EOR : 0));
}

static void op_pdu(struct input *in, uint8_t which)
{
	int *number = &scene.sockets[which % SOCKETS];
	const struct xts_sock *s = socket_of(*number);

	which = which / SOCKETS % 16u;
	if (which >= 8) {
		if (!s || s->datagrams || !scene.queue || !xts_link_credits(&scene.link))
			return;
		if (which < 10)
			proxy_connects(in, s);
		else if (which == 10)
			proxy_accepts(in, s);
		else if (which < 13)
			proxy_sends_stream(in, s);
		else
			proxy_sends_pdu(in, s);
		return;
	}
	if (s && (s->opening || s->state == TCP_STATE_SYN_SENT))
		return; /* calls would wait for an answer that the input may not give */
	switch (which) {
	case 0:
		xts_close(*number);
		*number = xts_socket(AF_INET, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
		break;
	case 1:
	case 2:
		push_or_tell(in, *number);
		break;
	case 3:
		kernel_tls(in, *number);
		break;
	case 4:
		xts_ulp_handshake(*number);
		break;
	case 5:
	case 6:
		sends_pdu(in, *number);
		break;
	default:
		datagram_receives(in, *number);
	}
}

#endif
