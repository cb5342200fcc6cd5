/* Calls for Python about pushed protocols: handshakes, pushes, PDUs. python_calls.h has the theory of operation. */
#ifndef XTS_PYTHON_PDUS_H
#define XTS_PYTHON_PDUS_H

#include <string.h>

#include "python_waits.h"

static inline ssize_t xts_py_ulp_handshake(int s, int64_t timeout_ms)
{
	XTS_PY_WAITING(ssize_t, s, POLLOUT, timeout_ms, xts_ulp_handshake(s));
}

/* SIOC_PUSH_ULP and similar requests. EAGAIN: data sent earlier has not left yet; no event says when it has
 * (push_ulp.c). */
static inline ssize_t xts_py_push(int s, unsigned long request, void *info, int64_t timeout_ms)
{
	struct xts_py_wait wait = { timeout_ms, timeout_ms > 0 ? xts_py_now_ns() + timeout_ms * 1000000 : 0 };

	while (xts_ioctl(s, request, info) < 0) {
		int64_t left_ms = xts_py_left_ms(&wait);

		if (errno == EINTR)
			return (ssize_t)xts_py_interrupted(&wait);
		if (errno != EAGAIN || left_ms <= 0)
			return -errno;
		if (poll(NULL, 0, left_ms < 5 ? (int)left_ms : 5) < 0)
			return (ssize_t)xts_py_interrupted(&wait);
	}
	return 0;
}

/* What came with the data of a PDU, in one struct, which is quicker to read than a msghdr. */
#define XTS_PY_CONTROL_MAX 16
struct xts_py_pdu {
	int flags; /* MSG_EOR, MSG_TRUNC */
	int level, type;
	unsigned control_bytes; /* 0: there is none */
	unsigned char control[XTS_PY_CONTROL_MAX];
};

static inline void xts_py_take_control(struct xts_py_pdu *pdu, struct msghdr *message)
{
	const struct cmsghdr *head = CMSG_FIRSTHDR(message);

	pdu->flags = message->msg_flags;
	pdu->control_bytes = 0;
	if (!head || head->cmsg_len < CMSG_LEN(0) || head->cmsg_len > CMSG_LEN(XTS_PY_CONTROL_MAX))
		return;
	pdu->level = head->cmsg_level;
	pdu->type = head->cmsg_type;
	pdu->control_bytes = (unsigned)(head->cmsg_len - CMSG_LEN(0));
	memcpy(pdu->control, CMSG_DATA(head), pdu->control_bytes);
}

static inline ssize_t xts_py_recv_pdu(int s, void *data, size_t bytes, struct xts_py_pdu *pdu, int64_t timeout_ms)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(XTS_PY_CONTROL_MAX)];
	} control;
	struct iovec iov = { .iov_base = data, .iov_len = bytes };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control };
	ssize_t got;

	message.msg_controllen = sizeof(control);
	got = xts_py_recvmsg(s, &message, 0, timeout_ms);
	if (got >= 0)
		xts_py_take_control(pdu, &message);
	return got;
}

/* level 0: no control data. */
static inline ssize_t xts_py_send_pdu(int s, const void *data, size_t bytes, int level, int type, const void *control,
				      size_t control_bytes, int flags, int64_t timeout_ms)
{
	union {
		struct cmsghdr head;
		char bytes[CMSG_SPACE(XTS_PY_CONTROL_MAX)];
	} room = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = bytes };
	struct msghdr message = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (control_bytes > XTS_PY_CONTROL_MAX)
		return -EINVAL;
	if (level) {
		room.head.cmsg_level = level;
		room.head.cmsg_type = type;
		room.head.cmsg_len = CMSG_LEN(control_bytes);
		memcpy(CMSG_DATA(&room.head), control, control_bytes);
		message.msg_control = &room;
		message.msg_controllen = CMSG_SPACE(control_bytes);
	}
	return xts_py_sendmsg(s, &message, flags, timeout_ms);
}

#endif
