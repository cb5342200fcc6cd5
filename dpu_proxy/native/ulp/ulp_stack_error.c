/* Faults of a connection and reasons of refused pushes, as text; and other information about a stack (ULP_INFO,
 * TLS). */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/time_units.h"
#include "config.h"
#include "ulp_stack_inside.h"

/* l: of the protocol that it concerns; NULL: none. */
static void note(struct ulp_stack *s, const struct ulp_layer *l, enum xts_fault fault, int error, const char *format,
		 va_list arguments)
{
	if (s->owner.faults)
		s->owner.faults[fault]++;
	s->reason.error = (uint16_t)error;
	s->reason.fault = (uint16_t)fault;
	s->reason.protocol = l ? (uint8_t)l->protocol->id : 0;
	vsnprintf(s->reason.text, sizeof s->reason.text, format, arguments);
}

int ulp_fail(struct ulp_layer *l, enum xts_fault fault, const char *format, ...)
{
	static const int errors[XTS_FAULT_COUNT] = XTS_FAULT_ERRNOS;
	struct ulp_stack *s = l->stack;
	int *reached = fault == XTS_FAULT_TRUNCATED ? &s->cut : &s->failed;
	va_list arguments;

	if (s->failed || *reached) /* only the first reason counts */
		return s->failed ? s->failed : *reached;
	va_start(arguments, format);
	note(s, l, fault, errors[fault], format, arguments);
	va_end(arguments);
	*reached = -errors[fault];
	return *reached;
}

int ulp_refuse(const struct ulp_layer *l, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (!l->stack->failed && !l->stack->cut)
		note(l->stack, l, XTS_FAULT_PUSH, error, format, arguments);
	va_end(arguments);
	return -error;
}

int ulp_stack_refuse(struct ulp_stack *s, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	if (!s->failed && !s->cut)
		note(s, NULL, XTS_FAULT_PUSH, error, format, arguments);
	va_end(arguments);
	return -error;
}

void ulp_stack_wake_after(struct ulp_stack *s, uint32_t timeout_ms)
{
	uint64_t now = s->owner.now_ns(s->owner.owner), at = now + (uint64_t)timeout_ms * NS_PER_MS;

	if (s->wake_ns > now && s->wake_ns <= at)
		return;
	s->wake_ns = at;
	s->owner.wake_after(s->owner.owner, timeout_ms);
}

/* --- answers ------------------------------------------------------------------------------------------------------ */

static void put_u16(uint8_t *out, uint16_t v)
{
	out[0] = (uint8_t)(v >> 8);
	out[1] = (uint8_t)v;
}

ssize_t ulp_info_part(const void *value, size_t bytes, uint32_t offset, void *out, size_t room, uint32_t *total)
{
	*total = (uint32_t)bytes;
	if (offset >= bytes)
		return 0;
	if (room > bytes - offset)
		room = bytes - offset;
	memcpy(out, (const uint8_t *)value + offset, room);
	return (ssize_t)room;
}

ssize_t ulp_stack_info(const struct ulp_stack *s, bool receive, uint8_t layer, uint16_t item, uint32_t offset,
		       void *out, size_t room)
{
	const struct ulp_chain *c = receive ? &s->receive : &s->send;
	uint8_t *answer = out;
	uint32_t total = 0;
	ssize_t n;

	if (layer >= c->count || !c->layer[layer]->protocol->info)
		return -ENOENT;
	if (room < 4)
		return -EMSGSIZE;
	n = c->layer[layer]->protocol->info(c->layer[layer], receive, item, offset, answer + 4, room - 4, &total);
	if (n < 0)
		return n;
	put_u16(answer, (uint16_t)(total >> 16));
	put_u16(answer + 2, (uint16_t)total);
	return 4 + n;
}

ssize_t ulp_stack_error(const struct ulp_stack *s, bool whose, void *out, size_t room)
{
	size_t n = strlen(s->reason.text);
	uint8_t *answer = out;

	if (room < 4)
		return -EMSGSIZE;
	put_u16(answer, s->reason.error);
	answer[2] = whose ? s->reason.protocol : 0;
	answer[3] = (uint8_t)s->reason.fault;
	if (n > room - 4)
		n = room - 4;
	for (size_t i = 0; i < n; i++) /* text on the wire does not end with NUL */
		answer[4 + i] = (uint8_t)s->reason.text[i];
	return (ssize_t)(4 + n);
}

/* Reads an item of a layer that is an integer of one or two bytes; 0 if it is not there. */
static unsigned info_number(const struct ulp_layer *l, bool receive, uint16_t item)
{
	uint8_t value[2] = { 0 };
	uint32_t total = 0;
	ssize_t n = l->protocol->info(l, receive, item, 0, value, sizeof value, &total);

	if (n == 1)
		return value[0];
	return n == 2 ? (unsigned)value[0] << 8 | value[1] : 0;
}

static uint8_t tls_of_layer(const struct ulp_layer *l, bool receive, struct ulp_tls_state *out)
{
	uint8_t info[4] = { 0 }; /* struct tls_crypto_info, little-endian */
	uint32_t total = 0;

	if (l->protocol->id == XTS_ULP_TLS) {
		out->version = (uint16_t)info_number(l, receive, XTS_TLS_INFO_VERSION);
		out->cipher = (uint16_t)info_number(l, receive, XTS_TLS_INFO_CIPHER_ID);
		return (uint8_t)info_number(l, receive, receive ? XTS_TLS_INFO_CRYPTO_RECEIVE : XTS_TLS_INFO_CRYPTO_SEND);
	}
	(void)l->protocol->info(l, receive, XTS_TLS_KEYS_INFO_CRYPTO_INFO, 0, info, sizeof info, &total);
	out->version = (uint16_t)(info[0] | info[1] << 8);
	out->cipher = (uint16_t)(info[2] | info[3] << 8);
	return (uint8_t)info_number(l, receive, XTS_TLS_KEYS_INFO_CRYPTO);
}

struct ulp_tls_state ulp_stack_tls(const struct ulp_stack *s)
{
	struct ulp_tls_state out = { 0 };

	for (unsigned receive = 0; receive <= 1; receive++) {
		const struct ulp_chain *c = receive ? &s->receive : &s->send;

		for (unsigned i = c->count; i-- > 0;) {
			uint16_t id = c->layer[i]->protocol->id;

			if (id != XTS_ULP_TLS && id != XTS_ULP_TLS_KEYS)
				continue;
			*(receive ? &out.receive : &out.send) = tls_of_layer(c->layer[i], receive, &out);
			break;
		}
	}
	return out;
}

void ulp_stack_describe(const struct ulp_stack *s, bool receive, char *out, size_t room)
{
	const struct ulp_chain *c = receive ? &s->receive : &s->send;
	size_t used = 0;

	out[0] = 0;
	for (unsigned i = 0; i < c->count && used < room; i++)
		used += (size_t)snprintf(out + used, room - used, "%s%s", i ? "/" : "", c->layer[i]->protocol->name);
}

void ulp_stack_carrier(const struct ulp_stack *s, bool receive, char *out, size_t room)
{
	const struct ulp_chain *c = receive ? &s->receive : &s->send;

	out[0] = 0;
	for (unsigned i = c->count; i-- > 0 && !out[0];) {
		const struct ulp_layer *l = c->layer[i];

		if (l->ready && l->protocol->carrier)
			l->protocol->carrier(l, receive, out, room);
	}
}

ssize_t ulp_list(const struct xts_ulp_config *config, void *out, size_t room)
{
	uint8_t *answer = out;
	size_t n = 0;

	for (uint16_t id = 0; id < XTS_ULP_COUNT; id++) {
		const struct ulp_protocol *p = ulp_protocol(id);

		if (!p || !xts_ulp_config_offers(config, id))
			continue;
		if (room - n < 5)
			return -EMSGSIZE;
		put_u16(answer + n, p->id);
		put_u16(answer + n + 2, p->version);
		answer[n + 4] = (uint8_t)((p->receive ? ULP_RECEIVE : 0) | (p->send ? ULP_SEND : 0));
		n += 5;
	}
	return (ssize_t)n;
}
