/*
 * What the proxy reports about protocols: which ones it offers, information about a pushed one, and why one has failed.
 * The reason of a failure is requested once and kept, since the proxy forgets it with the connection.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/call.h"
#include "core/channel.h"
#include "core/error.h"
#include "core/socket.h"
#include "core/stack.h"
#include "ulps/pushed.h"
#include "xts.h"
#include "xts_private.h"

#define TEXT_BYTES 256u
#define OFFER_BYTES 5u     /* on the wire */
#define INFO_HEAD_BYTES 4u /* bytes at the start of an answer to ULP_INFO */

struct fault {
	int error;
	unsigned number;   /* enum xts_fault */
	unsigned protocol; /* enum xts_ulp_id; 0: not known */
	char text[TEXT_BYTES];
};

/* --- parameters --------------------------------------------------------------------------------------------------- */

/* An integer of the host, in network byte order. 0 or -EINVAL. */
static int put_integer(uint8_t *out, const void *value, size_t bytes)
{
	if (bytes != 1 && bytes != 2 && bytes != 4 && bytes != 8)
		return -EINVAL;
	for (size_t i = 0; i < bytes; i++)
		out[i] = ((const uint8_t *)value)[bytes - 1 - i]; /* the host is little-endian, as wire.h asserts */
	return 0;
}

int xts_ulp_put(struct ulp_info *info, size_t room, unsigned attribute, const void *value, size_t bytes, unsigned flags)
{
	uint8_t *at;
	int r = 0;

	if (!info || (!value && bytes) || attribute > UINT16_MAX || flags & ~XTS_ULP_INTEGER)
		return finish(-EINVAL);
	if (bytes > XTS_ULP_INFO_BYTES_MAX || info->ulp_bytes + 4 + bytes > XTS_ULP_INFO_BYTES_MAX ||
	    sizeof *info + info->ulp_bytes + 4 + bytes > room)
		return finish(-ENOSPC);
	at = info->ulp_parameters + info->ulp_bytes;
	if (flags & XTS_ULP_INTEGER)
		r = put_integer(at + 4, value, bytes);
	else if (bytes)
		memcpy(at + 4, value, bytes);
	if (r)
		return finish(r);
	xts_put16(at, (uint16_t)attribute);
	xts_put16(at + 2, (uint16_t)bytes);
	info->ulp_bytes = (uint16_t)(info->ulp_bytes + 4 + bytes);
	return 0;
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

void fault_forget(struct xts_sock *s)
{
	if (!s->cold->fault)
		return;
	free(s->cold->fault);
	s->cold->fault = NULL;
}

/* Text from the proxy is shown to people: this makes it printable, and terminates it. */
static void copy_text(char *out, const uint8_t *text, size_t bytes)
{
	size_t i;

	for (i = 0; i < bytes && i < TEXT_BYTES - 1; i++)
		out[i] = (char)(text[i] < ' ' || text[i] == 0x7f ? '?' : text[i]);
	out[i] = 0;
}

/* Asks the proxy for the fault; *out.error stays 0 if there is none. */
static int ask_fault(struct xts_sock *s, struct fault *out)
{
	struct stack *st = s->stack;
	struct call call = { .type = XTS_CMD_IOCTL, .option = SIOC_ULP_ERROR };
	int r;

	if (s->lost || !st->channel)
		return -ENETDOWN;
	if (!s->proxy_id && !s->opening)
		return 0; /* there was never a request to it */
	if (!(st->channel->link.features & XTS_FEATURE_ULP))
		return 0;
	r = call_proxy(s, &call);
	if (r)
		return r;
	if (call.length < 4)
		return -EPROTO;
	out->error = xts_get16(call.value);
	out->protocol = call.value[2];
	out->number = call.value[3];
	copy_text(out->text, call.value + 4, call.length - 4);
	return 0;
}

static int find_fault(struct xts_sock *s, struct fault *out)
{
	int r;

	channel_pump(s->stack);
	if (s->cold->fault) {
		*out = *s->cold->fault;
		return 0;
	}
	r = ask_fault(s, out);
	if (r || !out->error)
		return r;
	free(s->cold->fault);
	s->cold->fault = malloc(sizeof *s->cold->fault);
	if (s->cold->fault)
		*s->cold->fault = *out;
	return 0;
}

int xts_ulp_error_of(int number, unsigned *protocol, unsigned *fault, char *text, size_t bytes)
{
	struct stack *st;
	struct fault found = { 0 };
	struct xts_sock *s;
	int r;

	st = stack_enter_of(number);
	s = table_use(st, number);
	r = s ? find_fault(s, &found) : -EBADF;
	stack_leave(st);
	if (r)
		return finish(r);
	if (protocol)
		*protocol = found.protocol;
	if (fault)
		*fault = found.number;
	if (text && bytes)
		snprintf(text, bytes, "%s", found.text);
	return found.error;
}

int xts_ulp_error(int number, unsigned *fault, char *text, size_t bytes)
{
	return xts_ulp_error_of(number, NULL, fault, text, bytes);
}

/* --- items -------------------------------------------------------------------------------------------------------- */

struct item {
	uint8_t send, layer;
	uint16_t number;
	uint8_t *out;
	size_t room;
};

/* Asks for a part of it, from offset on. Returns how many bytes came, or -errno. */
static long ask_part(struct xts_sock *s, const struct item *item, uint32_t offset, uint32_t *total)
{
	struct call call = { .type = XTS_CMD_IOCTL, .option = SIOC_ULP_INFO, .length = 8 };
	uint32_t n;
	int r;

	call.value[0] = item->send;
	call.value[1] = item->layer;
	xts_put16(call.value + 2, item->number);
	xts_put32(call.value + 4, offset);
	r = call_proxy(s, &call);
	if (r)
		return r;
	if (call.length < INFO_HEAD_BYTES)
		return -EPROTO;
	*total = xts_get32(call.value);
	n = call.length - INFO_HEAD_BYTES;
	if (*total > INT32_MAX || n > *total - (offset < *total ? offset : *total))
		return -EPROTO;
	if (offset < item->room)
		memcpy(item->out + offset, call.value + INFO_HEAD_BYTES,
		       n < item->room - offset ? n : item->room - offset);
	return n;
}

static ssize_t read_item(struct xts_sock *s, const struct item *item)
{
	uint32_t offset = 0, total = 0, before;
	unsigned width;
	long n;

	if (s->lost || !s->stack->channel)
		return -ENETDOWN;
	if (item->layer >= s->cold->ulps.depth[item->send])
		return s->state == TCP_STATE_ESTABLISHED ? -ENOENT : -ENOTCONN;
	width = xts_ulp_item_bytes(s->cold->ulps.id[item->send][item->layer], item->number);
	do {
		before = total;
		n = ask_part(s, item, offset, &total);
		if (n < 0)
			return n;
		if (offset && total != before)
			return -EAGAIN; /* it has changed meanwhile */
		offset += (uint32_t)n;
	} while (n && offset < total && offset < item->room);
	if (offset < total && offset < item->room)
		return -EPROTO;
	if (width && total == width && item->room >= width)
		for (unsigned i = 0; i < width / 2; i++) {
			uint8_t byte = item->out[i];

			item->out[i] = item->out[width - 1 - i];
			item->out[width - 1 - i] = byte;
		}
	return (ssize_t)total;
}

ssize_t xts_ulp_tell(int number, int send, unsigned layer, unsigned item, void *value, size_t bytes)
{
	struct stack *st;
	struct item asked = { .send = send != 0,
			      .layer = (uint8_t)layer,
			      .number = (uint16_t)item,
			      .out = value,
			      .room = value ? bytes : 0 };
	struct xts_sock *s;
	ssize_t r;

	if (layer >= ULP_DEPTH || item > UINT16_MAX)
		return finish(-ENOENT);
	st = stack_enter_of(number);
	s = table_use(st, number);
	r = s ? read_item(s, &asked) : -EBADF;
	stack_leave(st);
	if (r >= 0)
		return r;
	return finish_of(number, (int)r);
}

/* --- offers ------------------------------------------------------------------------------------------------------- */

static int list(struct stack *st, struct xts_ulp_offer *offers, unsigned max)
{
	struct call call = { .type = XTS_CMD_IOCTL, .option = SIOC_ULP_LIST };
	struct xts_sock *s;
	unsigned count = 0;
	int r = st->channel ? 0 : channel_attach(st);

	if (r)
		return r;
	if (!st->channel || !(st->channel->link.features & XTS_FEATURE_ULP))
		return 0;
	s = socket_make(st, 4); /* an ioctl needs a socket: makes one for this */
	if (!s)
		return -EMFILE;
	socket_hold(s);
	s->open = true;
	r = call_proxy(s, &call);
	if (s->open)
		socket_close(s);
	socket_put(s);
	if (r)
		return r;
	for (uint32_t at = 0; call.length - at >= OFFER_BYTES; at += OFFER_BYTES, count++) {
		if (count >= max)
			continue;
		offers[count] = (struct xts_ulp_offer){ .ulp_id = xts_get16(call.value + at),
							.version = xts_get16(call.value + at + 2),
							.receive = call.value[at + 4] & 1,
							.send = call.value[at + 4] >> 1 & 1 };
	}
	return (int)count;
}

int xts_ulps(struct xts_ulp_offer *offers, unsigned max)
{
	struct stack *st;
	int r;

	st = stack_enter_own();
	r = list(st, offers, offers ? max : 0);
	stack_leave(st);
	return finish(r);
}
