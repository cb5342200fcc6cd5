/* What layers call: the layer below, and questions to the stack. */
#include "ulp_stack_inside.h"

#include <errno.h>
#include <string.h>

/* --- receiving ---------------------------------------------------------------------------------------------------- */

static ssize_t read_again(struct ulp_out *o, void *out, size_t room, struct ulp_mark *mark)
{
	memset(mark, 0, sizeof *mark);
	return (ssize_t)ulp_out_take(o, out, room);
}

ssize_t ulp_layer_read(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	if (!l->ready)
		return -EAGAIN;
	if (l->again.bytes)
		return read_again(&l->again, out, room, mark);
	memset(mark, 0, sizeof *mark);
	return l->protocol->read ? l->protocol->read(l, out, room, mark) : ulp_read_below(l, out, room, mark);
}

ssize_t ulp_read_below(struct ulp_layer *l, void *out, size_t room, struct ulp_mark *mark)
{
	struct ulp_mark ignored;

	if (!mark)
		mark = &ignored;
	if (l->replay.bytes)
		return read_again(&l->replay, out, room, mark);
	if (l->below_receive && !ulp_step(l, 1))
		return -EAGAIN;
	if (l->below_receive)
		return ulp_layer_read(l->below_receive, out, room, mark);
	return ulp_bottom_read(l->stack, out, room, mark);
}

ssize_t ulp_read_stream_below(struct ulp_layer *l, void *out, size_t room)
{
	ssize_t n;

	do {
		n = ulp_read_below(l, out, room, NULL);
	} while (!n); /* the turn ends the loop */
	return n;
}

bool ulp_layer_pending(const struct ulp_layer *l)
{
	if (!l->ready)
		return false;
	return l->again.bytes || (l->protocol->pending ? l->protocol->pending(l) : ulp_pending_below(l));
}

bool ulp_pending_below(const struct ulp_layer *l)
{
	return l->replay.bytes || (l->below_receive && ulp_layer_pending(l->below_receive));
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

ssize_t ulp_layer_write(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	if (!l->ready)
		return 0;
	return l->protocol->write ? l->protocol->write(l, iov, pieces, mark) : ulp_write_below(l, iov, pieces, mark);
}

ssize_t ulp_write_below(struct ulp_layer *l, const struct iovec *iov, int pieces, const struct ulp_mark *mark)
{
	static const struct ulp_mark stream;

	if (!mark)
		mark = &stream;
	if (l->below_send)
		return ulp_layer_write(l->below_send, iov, pieces, mark);
	return ulp_bottom_write(l->stack, iov, pieces, mark);
}

int ulp_layer_flush(struct ulp_layer *l)
{
	for (; l; l = l->below_send) {
		int r = l->started && l->protocol->flush ? l->protocol->flush(l) : 0;

		if (r)
			return r;
	}
	return 0;
}

int ulp_layer_finish(struct ulp_layer *l)
{
	for (; l; l = l->below_send) {
		int r = l->started && !l->finished && l->protocol->finish ? l->protocol->finish(l) : 0;

		if (!r && l->started) {
			l->finished = true;
			r = l->protocol->flush ? l->protocol->flush(l) : 0;
		}
		if (r)
			return r;
	}
	return 0;
}

int ulp_flush_below(struct ulp_layer *l)
{
	return ulp_layer_flush(l->below_send);
}

int ulp_finish_below(struct ulp_layer *l)
{
	return ulp_layer_finish(l->below_send);
}

/* --- what fits on what -------------------------------------------------------------------------------------------- */

int ulp_fits_stream(const struct ulp_layer *l, const struct ulp_layer *below)
{
	if (!below || !below->protocol->boundaries)
		return 0;
	if (l->receive && below == l->below_receive && below->protocol->transparent)
		return 0;
	return ulp_refuse(l, EINVAL, "%s does not go above %s, which makes PDUs that it does not know",
			  l->protocol->name, below->protocol->name);
}

/* --- what the stack knows ----------------------------------------------------------------------------------------- */

struct xts_ulp_config *ulp_config(const struct ulp_layer *l)
{
	return l->stack->owner.config;
}

uint64_t ulp_now_ns(const struct ulp_layer *l)
{
	return l->stack->owner.now_ns(l->stack->owner.owner);
}

void ulp_wake_after(struct ulp_layer *l, uint32_t timeout_ms)
{
	ulp_stack_wake_after(l->stack, timeout_ms);
}

bool ulp_is_shown(const struct ulp_layer *l)
{
	return l->stack->shown;
}

bool ulp_message_socket(const struct ulp_layer *l)
{
	return l->stack->owner.message_socket;
}

uint32_t ulp_queue_id(const struct ulp_layer *l)
{
	return l->stack->owner.queue_id;
}

uint32_t ulp_tenant(const struct ulp_layer *l)
{
	return l->stack->owner.tenant;
}

const char *ulp_tenant_name(const struct ulp_layer *l)
{
	return l->stack->owner.tenant_name ? l->stack->owner.tenant_name : "";
}

struct ulp_bell *ulp_bell(const struct ulp_layer *l)
{
	return l->stack->owner.bell;
}

uint32_t ulp_account(const struct ulp_layer *l)
{
	return l->stack->owner.account;
}

struct ulp_payer ulp_payer(const struct ulp_layer *l)
{
	return l->stack->owner.payer;
}

uint32_t ulp_weight(const struct ulp_layer *l)
{
	return l->stack->owner.weight;
}

void ulp_spent(struct ulp_layer *l, uint64_t ns)
{
	if (l->stack->owner.spent)
		l->stack->owner.spent(l->stack->owner.owner, ns);
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

size_t ulp_iov_bytes(const struct iovec *iov, int pieces)
{
	size_t bytes = 0;

	for (int i = 0; i < pieces; i++)
		bytes += iov[i].iov_len;
	return bytes;
}

size_t ulp_iov_copy(void *out, const struct iovec *iov, int pieces, size_t skip, size_t bytes)
{
	uint8_t *to = out;
	size_t done = 0;

	for (int i = 0; i < pieces && done < bytes; i++) {
		size_t n = iov[i].iov_len;

		if (skip >= n) {
			skip -= n;
			continue;
		}
		n -= skip;
		if (n > bytes - done)
			n = bytes - done;
		memcpy(to + done, (const uint8_t *)iov[i].iov_base + skip, n);
		done += n;
		skip = 0;
	}
	return done;
}

int ulp_iov_slice(struct iovec *out, int max, const struct iovec *iov, int pieces, size_t skip, size_t bytes)
{
	int n = 0;

	for (int i = 0; i < pieces && n < max && bytes; i++) {
		size_t length = iov[i].iov_len;

		if (skip >= length) {
			skip -= length;
			continue;
		}
		out[n].iov_base = (uint8_t *)iov[i].iov_base + skip;
		out[n].iov_len = length - skip < bytes ? length - skip : bytes;
		bytes -= out[n++].iov_len;
		skip = 0;
	}
	return n;
}
