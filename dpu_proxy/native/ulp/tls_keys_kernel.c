/*
 * TLS_KEYS by the kernel (CONFIG_TLS): the connection's own socket gets the keys, and is read and written with payload from then on; a record's type travels
 * as control data. A network card that can do it takes it over from the kernel by itself.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/crypto.h>

#include "tls_keys.h"

#ifndef SOL_TLS
#define SOL_TLS 282
#endif
#define NS_PER_S UINT64_C(1000000000)
#define ASK_AGAIN_S 60u /* a kernel without TLS may look for its module each time it is asked */

static _Atomic uint64_t without_until_ns;

static int attach(struct ulp_layer *l, int fd, struct tls_keys *k)
{
	if (ulp_now_ns(l) < atomic_load_explicit(&without_until_ns, memory_order_relaxed)) {
		errno = ENOENT;
	} else if (!setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 3) || errno == EEXIST) {
		return 0; /* EEXIST: for the other direction */
	} else if (errno == ENOENT) {
		atomic_store_explicit(&without_until_ns, ulp_now_ns(l) + ASK_AGAIN_S * NS_PER_S, memory_order_relaxed);
	}
	if (errno == ENOENT)
		snprintf(k->reason, sizeof k->reason, "the kernel has no TLS, or its module (tls) is not loaded");
	else
		snprintf(k->reason, sizeof k->reason, "the kernel's TLS does not take this connection: %s", strerror(errno));
	return -errno;
}

int tls_kernel_take(struct ulp_layer *l, struct tls_keys *k, bool receive)
{
	uint32_t bytes = tls_cipher_info_bytes(k->aead.cipher);
	int fd = ulp_socket(l), r;

	if (fd < 0) {
		snprintf(k->reason, sizeof k->reason, "the kernel does it directly above TCP only");
		return -EINVAL;
	}
	r = attach(l, fd, k);
	if (r)
		return r;
	for (unsigned i = 0; i < 8; i++)
		k->info.bytes[bytes - 1 - i] = (uint8_t)(k->aead.sequence >> 8 * i);
	if (!setsockopt(fd, SOL_TLS, receive ? TLS_RX : TLS_TX, k->info.bytes, bytes))
		return 0;
	snprintf(k->reason, sizeof k->reason, "the kernel does not take version 0x%04x with cipher type %u: %s", k->version,
		 k->info.info.cipher_type, strerror(errno));
	return -errno;
}

int tls_kernel_change(struct ulp_layer *l, const union tls_crypto_info_any *info, uint32_t bytes, bool receive)
{
	return setsockopt(ulp_socket(l), SOL_TLS, receive ? TLS_RX : TLS_TX, info->bytes, bytes) ? -errno : 0;
}

/* --- data ------------------------------------------------------------------------------------------------------------ */

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

ssize_t tls_kernel_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct iovec piece = { .iov_base = out, .iov_len = room };
	union control control = { 0 };
	struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	struct tls_keys *k = l->state;
	struct cmsghdr *head;
	uint8_t type = TLS_APPLICATION_DATA;
	ssize_t n;

	do {
		n = recvmsg(ulp_socket(l), &message, MSG_DONTWAIT);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return receive_failed(l, errno);
	head = CMSG_FIRSTHDR(&message);
	if (head && head->cmsg_level == SOL_TLS && head->cmsg_type == TLS_GET_RECORD_TYPE)
		type = *CMSG_DATA(head);
	if (!n && type == TLS_APPLICATION_DATA)
		return -ENODATA;
	if (type != TLS_APPLICATION_DATA) {
		bool more = !(message.msg_flags & MSG_EOR);

		tls_control_mark(k, mark, type, k->within ? 0 : *(const uint8_t *)out, (uint32_t)n, more);
		mark->record_bytes = more || k->within ? 0 : mark->record_bytes;
		k->within = more;
	}
	return n;
}

ssize_t tls_kernel_write(struct ulp_layer *l, const struct iovec *iov, int pieces, uint8_t type)
{
	struct msghdr message = { .msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)pieces };
	size_t bytes = ulp_iov_bytes(iov, pieces);
	union control control = { 0 };
	ssize_t n;

	if (type != TLS_APPLICATION_DATA) {
		message.msg_control = &control;
		message.msg_controllen = sizeof control;
		control.head = (struct cmsghdr){ .cmsg_level = SOL_TLS, .cmsg_type = TLS_SET_RECORD_TYPE, .cmsg_len = CMSG_LEN(1) };
		*CMSG_DATA(&control.head) = type;
	}
	do {
		n = sendmsg(ulp_socket(l), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0 && errno != EAGAIN)
		return -errno;
	if (n < 0 || (size_t)n < bytes)
		ulp_socket_full(l);
	return n < 0 ? 0 : n;
}
