/* Overwrites what of a message nobody else may see. secrets.h says what that is. */
#include "wire/secrets.h"

#include <string.h>

#include "ulp_wire.h"
#include "wire/wire.h"

#define PUSH_HEAD_BYTES 8u         /* of a push before its parameters: read_bytes, flags, ulp_id */
#define CONNECT_PUSH_HEAD_BYTES 8u /* of each push in CONNECT before that: request, bytes */

bool xts_has_secrets(uint8_t type)
{
	return xts_type_secret(type) || type == XTS_CMD_IOCTL || type == XTS_CMD_CONNECT || type == XTS_LINK_OVER;
}

static bool pushes(uint32_t request)
{
	return request == SIOC_PUSH_ULP_RX || request == SIOC_PUSH_ULP_TX || request == SIOC_PUSH_ULP;
}

/* A push, from its head on. */
static void blank_push(uint8_t *push, size_t bytes)
{
	if (bytes >= PUSH_HEAD_BYTES && xts_get16(push + PUSH_HEAD_BYTES - 2) == XTS_ULP_TLS_KEYS)
		memset(push + PUSH_HEAD_BYTES, 0, bytes - PUSH_HEAD_BYTES);
}

static void blank_in_ioctl(uint8_t *frame, size_t bytes)
{
	if (bytes > XTS_IOCTL_BYTES && pushes(xts_get32(frame + offsetof(struct xts_wire_ioctl, request))))
		blank_push(frame + XTS_IOCTL_BYTES, bytes - XTS_IOCTL_BYTES);
}

static void blank_in_connect(uint8_t *frame, size_t bytes)
{
	uint8_t *at = frame + XTS_CONNECT_BYTES;
	size_t left = bytes > XTS_CONNECT_BYTES ? bytes - XTS_CONNECT_BYTES : 0;

	while (left >= CONNECT_PUSH_HEAD_BYTES) {
		size_t length = xts_get32(at + 4);

		at += CONNECT_PUSH_HEAD_BYTES;
		left -= CONNECT_PUSH_HEAD_BYTES;
		if (length > left) {
			memset(at, 0, left);
			return;
		}
		blank_push(at, length);
		at += length;
		left -= length;
	}
}

void xts_blank_secrets(uint8_t *frame, size_t bytes)
{
	struct xts_head head;
	uint32_t first, length;

	if (xts_head_decode(&head, frame, bytes))
		return;
	first = xts_type_secret(head.type);
	length = xts_type_secret_bytes(head.type);
	if (first && first + length <= bytes)
		memset(frame + first, 0, length);
	else if (head.type == XTS_CMD_IOCTL)
		blank_in_ioctl(frame, bytes);
	else if (head.type == XTS_CMD_CONNECT)
		blank_in_connect(frame, bytes);
	else if (head.type == XTS_LINK_OVER && bytes > XTS_OVER_BYTES)
		memset(frame + XTS_OVER_BYTES, 0, bytes - XTS_OVER_BYTES);
}
