/*
 * Receiving PDUs: kcm_recvmsg() of the kernel for messages, and tls_sw_recvmsg() for control records between the data
 * of a stream. One call returns one PDU, a part of one, or stream data up to the next PDU.
 */
#include "core/received_data.h"
#include "core/receive_callback.h"
#include "core/socket.h"
#include "core/transfer.h"
#include "ulps/ktls.h"
#include "ulps/pdu.h"
#include "xts.h"

/* put_cmsg() */
bool about_put(struct about *about, int level, int type, const void *data, size_t bytes)
{
	struct cmsghdr head = { .cmsg_level = level, .cmsg_type = type };
	size_t room;
	uint8_t *at;

	if (!about || about->room < about->used + sizeof head) {
		if (about)
			about->flags |= MSG_CTRUNC;
		return false;
	}
	room = about->room - about->used;
	head.cmsg_len = CMSG_LEN(bytes);
	if (head.cmsg_len > room) {
		about->flags |= MSG_CTRUNC;
		head.cmsg_len = room;
	}
	at = (uint8_t *)about->control + about->used;
	memcpy(at, &head, sizeof head);
	if (head.cmsg_len > CMSG_LEN(0))
		memcpy(at + CMSG_LEN(0), data, head.cmsg_len - CMSG_LEN(0));
	about->used += CMSG_SPACE(bytes) < room ? CMSG_SPACE(bytes) : room;
	return head.cmsg_len == CMSG_LEN(bytes);
}

/* Writes its control data. -EIO: there is no room for it, and without it the record must not be taken for data (as in
 * the kernel's net/tls). */
int pdu_control_put(const struct pdu *p, struct about *about)
{
	bool complete;

	if (!p->control_type)
		return 0;
	if (p->control_type != XTS_ULP_TLS_KEYS) {
		about_put(about, SOL_XTS, p->control_type, p->control, p->control_bytes);
		return 0;
	}
	complete = about_put(about, SOL_TLS, TLS_GET_RECORD_TYPE, p->control, p->control_bytes ? 1 : 0);
	return complete || p->control[0] == TLS_DATA_RECORD ? 0 : -EIO;
}

/* Length of the rest of the PDU, as far as it is known. */
static uint32_t length_of(const struct pdu *p)
{
	return p->record_bytes > p->read + p->bytes ? p->record_bytes - p->read : p->bytes;
}

static int recv_stream(struct xts_sock *s, const struct sink *to, size_t *done, int flags)
{
	const struct pdu *p = s->cold->pdu_first;
	uint32_t n = p->bytes < to->bytes ? p->bytes : (uint32_t)to->bytes;

	if (!(flags & MSG_TRUNC) && n > to->usable)
		return -EFAULT;
	if (!(flags & MSG_TRUNC))
		n = (uint32_t)buffer_copy(s, 0, to->iov, 0, n);
	*done = n;
	if (!(flags & MSG_PEEK) && n)
		pdu_consume(s, n);
	return 1;
}

static uint8_t first_byte(struct xts_sock *s)
{
	uint8_t byte = 0;
	struct iovec out = { .iov_base = &byte, .iov_len = 1 };

	buffer_copy(s, 0, &out, 0, 1);
	return byte;
}

int pdu_recv(struct xts_sock *s, const struct sink *to, size_t *done, int flags, struct about *about)
{
	const struct pdu *p = s->cold->pdu_first;
	size_t before = flags & MSG_PEEK ? 0 : *done;
	uint32_t n, length;
	bool ends;
	int r;

	if (s->pushing)
		return *done ? 1 : 0;
	if (before && (!p || !p->read || p->stream))
		return 1; /* another thread has taken the rest */
	if (p && !before && pdu_is_offered(s, p)) {
		r = callback_admits(s);
		if (r)
			return r;
	}
	if (!p || !pdu_is_readable(s))
		return 0;
	if (p->stream)
		return recv_stream(s, to, done, flags);
	n = p->bytes < to->bytes - before ? p->bytes : (uint32_t)(to->bytes - before);
	if (n > to->usable - before)
		return -EFAULT;
	if (!before) {
		r = pdu_control_put(p, about);
		if (r)
			return r;
	}
	n = (uint32_t)buffer_copy(s, 0, to->iov, before, n);
	ends = p->whole && n == p->bytes;
	length = length_of(p);
	if (about && (ends || n < p->bytes))
		about->flags |= ends ? MSG_EOR : MSG_TRUNC;
	if (!(flags & MSG_PEEK) && (n || ends)) {
		if (p->control_type == XTS_ULP_TLS_KEYS && !p->read && n)
			ktls_control_read(s, p->control[0], first_byte(s));
		pdu_consume(s, n);
	}
	*done = before + n;
	if (!ends && flags & MSG_WAITALL && !(flags & MSG_PEEK) && *done < to->bytes)
		return 0; /* more of the same PDU, or of the same run of stream data */
	if (flags & MSG_TRUNC)
		*done = before + length;
	return 1;
}
