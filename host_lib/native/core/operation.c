/* Driving operations: operation.h. */
#include "core/operation.h"

#include "core/channel.h"
#include "core/wait.h"
#include "processes/next_proxy.h"

static int get_turn(struct operation *op)
{
	struct xts_sock *s = op->s;
	int r;

	if (op->purpose == PURPOSE_NOBODY || !turn_is_elsewhere(s))
		return 0;
	if (op->stays)
		return -EAGAIN;
	r = turn_take(s, op->purpose, op->blocking ? op->deadline_ns : AT_ONCE);
	op->pumped = false;
	return r == -ERESTART ? interrupted(op->sends ? s->send_timeout_ns : s->receive_timeout_ns) : r;
}

/* As far as it goes without a wait: as a step, but not STEP_AGAIN. r: of the step before. */
static int without_wait(struct operation *op, int r)
{
	while (r == STEP_AGAIN || (r == STEP_WAITS && !op->pumped)) {
		if (r == STEP_WAITS) {
			op->pumped = true;
			channel_pump(op->s->stack);
		}
		r = get_turn(op);
		if (!r)
			r = op->step(op);
	}
	return r;
}

int operation_goes_on(struct operation *op, int r)
{
	struct xts_sock *s = op->s;

	for (;;) {
		r = without_wait(op, r);
		if (r != STEP_WAITS)
			return r < 0 ? r : 0;
		if (!op->blocking && !(op->sends && next_proxy.wait_for_room(s)))
			return -EAGAIN;
		if (!s->open)
			return -EBADF;
		op->pumped = false;
		if (!op->blocking) {
			r = STEP_AGAIN;
			continue;
		}
		r = op->sends ? wait_to_send(s, op->deadline_ns, op->spins) :
				wait_to_receive(s, op->deadline_ns, op->spins);
		if (r)
			return r;
		r = STEP_AGAIN;
	}
}
