/*
 * TLS_KEYS done by the kernel (CONFIG_TLS): the connection's own socket gets the keys, and from then on the proxy reads
 * and writes payload; the type of a record passes as control data of sendmsg() and recvmsg(). A network card that can
 * do it takes the crypto over without our help.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "tls_keys.h"
#include "ulp/config_inside.h"
#include "ulp/tls/tls.h"

#ifndef SOL_TLS
#define SOL_TLS 282
#endif
/* It is settled who does the crypto of this direction. */
static void settle(struct tls_keys *k, bool receive)
{
	tls_count(receive ? &tls_counters.received_by[k->crypto] : &tls_counters.sent_by[k->crypto]);
}

void keys_kernel_consider(struct ulp_layer *l, struct tls_keys *k)
{
	const struct xts_tls_config *config = ulp_config(l)->tls;
	uint8_t asked = k->wanted;

	k->wanted = tls_crypto_wanted(asked, config->settings.crypto);
	k->crypto = XTS_TLS_CRYPTO_USER;
	if (k->wanted == XTS_TLS_CRYPTO_USER)
		k->reason = asked == XTS_TLS_CRYPTO_USER ? "it was asked for" : tls_fall_back(TLS_CONFIGURED);
	else if (config->kernel_error)
		k->reason = tls_fall_back(TLS_NO_KERNEL);
	else if (ulp_socket(l) < 0)
		k->reason = tls_fall_back(TLS_STACK);
	else if (!xts_tls_kernel_may(k->wanted, k->version, config->kernel_changes_keys))
		k->reason = tls_fall_back(TLS_KEYS_CHANGE);
	else
		k->try_kernel = true;
	if (!k->try_kernel)
		settle(k, l->receive);
}

/* EEXIST: the other direction has attached it already. */
static int attach(int fd)
{
	return setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 4) && errno != EEXIST ? -errno : 0;
}

int keys_kernel_take(struct ulp_layer *l, struct tls_keys *k)
{
	const struct tls_aead *key = l->send ? &k->out_key : &k->in.aead;
	uint32_t bytes = tls_cipher_info_bytes(key->cipher);
	int fd = ulp_socket(l), r = attach(fd);

	for (unsigned i = 0; i < 8; i++)
		k->info.bytes[bytes - 1 - i] = (uint8_t)(key->sequence >> 8 * i);
	if (!r)
		r = tls_kernel_give(ulp_config(l)->tls, fd, l->send, k->info.bytes, bytes, &k->crypto);
	if (r)
		k->reason = tls_fall_back(TLS_REFUSED);
	else if (k->crypto == XTS_TLS_CRYPTO_KERNEL && k->wanted != XTS_TLS_CRYPTO_KERNEL)
		k->reason = tls_fall_back(TLS_NO_DEVICE);
	settle(k, l->receive);
	return r;
}

int keys_kernel_change(struct ulp_layer *l, const union tls_crypto_info_any *info, uint32_t bytes, bool receive)
{
	return setsockopt(ulp_socket(l), SOL_TLS, receive ? TLS_RX : TLS_TX, info->bytes, bytes) ? -errno : 0;
}

/* --- data --------------------------------------------------------------------------------------------------------- */

union control {
	struct cmsghdr head;
	uint8_t bytes[CMSG_SPACE(1)];
};

static ssize_t receive_failed(struct ulp_layer *l, int error)
{
	switch (error) {
	case EAGAIN:
	case EKEYEXPIRED: /* since Linux 6.14, after KeyUpdate */
		ulp_socket_empty(l);
		return -EAGAIN;
	case EBADMSG:
		return ulp_fail(l, XTS_FAULT_RECORD, "a TLS record cannot be authenticated (says the kernel)");
	case EMSGSIZE:
		return ulp_fail(l, XTS_FAULT_TOO_LONG, "a TLS record is too long (says the kernel)");
	case EINVAL:
		return ulp_fail(l, XTS_FAULT_RECORD, "a TLS record is malformed (says the kernel)");
	default:
		return -error;
	}
}

ssize_t keys_kernel_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct iovec piece = { .iov_base = out, .iov_len = room };
	union control control = { 0 };
	struct msghdr message = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
	};
	struct tls_keys *k = l->state;
	struct cmsghdr *head;
	uint8_t type = TLS_APPLICATION_DATA;
	ssize_t n;

	if (!ulp_step(l, TLS_RECORD_STEPS))
		return -EAGAIN;
	do {
		n = recvmsg(ulp_socket(l), &message, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return receive_failed(l, errno);
	head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_level == SOL_TLS && head->cmsg_type == TLS_GET_RECORD_TYPE)
		type = *CMSG_DATA(head);
	if (!n && type == TLS_APPLICATION_DATA)
		return ulp_socket_end(l);
	if (type == TLS_APPLICATION_DATA) {
		k->quiet = 0;
	} else {
		bool more = !(message.msg_flags & MSG_EOR);
		int r = more ? 0 : keys_quiet(l);

		if (r)
			return r;

		keys_control_mark(k, mark, type, k->within ? 0 : *(const uint8_t *)out, (uint32_t)n, more);
		mark->record_bytes = more || k->within ? 0 : mark->record_bytes;
		k->within = more;
	}
	return n;
}

ssize_t keys_kernel_write(struct ulp_layer *l, const struct iovec *iov, int pieces, uint8_t type)
{
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)pieces };
	size_t bytes = ulp_iov_bytes(iov, pieces);
	union control control = { 0 };
	ssize_t n;

	if (type != TLS_APPLICATION_DATA) {
		message.msg_control = &control;
		message.msg_controllen = sizeof control;
		control.head = (struct cmsghdr){ .cmsg_level = SOL_TLS,
						 .cmsg_type = TLS_SET_RECORD_TYPE,
						 .cmsg_len = CMSG_LEN(1) };
		*CMSG_DATA(&control.head) = type;
	}
	do {
		n = sendmsg(ulp_socket(l), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		return ulp_socket_failed(l, errno);
	if (n < 0 || (size_t)n < bytes)
		ulp_socket_full(l);
	return n < 0 ? 0 : n;
}
