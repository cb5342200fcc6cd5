/*
 * An operation: a call that may have to wait, as an object. operation.c drives it.
 *
 * send, recv, accept, connect and what sends PDUs differ in what they try, and in when they are done. Everything else
 * is the same for all of them, and is written once:
 *
 *     if another process uses the connection, get it from there         turn_take()
 *     try                                                               step()
 *     handle the frames that have come, and try once more               channel_pump()
 *     a call that may not wait: EAGAIN; else sleep until the socket     wait_to_send(), wait_to_receive()
 *     has changed, see that it is still the call's, and begin again
 *
 * So each call has a step, which does what can be done now and does not wait for the peer. operation_run() drives it,
 * for calls that wait and for those that do not. What a call knows between its steps is behind its struct operation,
 * which is the first member.
 */
#ifndef XTS_OPERATION_H
#define XTS_OPERATION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/clock.h"
#include "core/socket.h"
#include "processes/take_over.h"

/* What a step returns; or -errno, with which the call ends. */
enum step_result {
	STEP_WAITS, /* nothing (more) can be done before the socket changes */
	STEP_DONE,
	STEP_AGAIN, /* something was done, and more may be possible */
};

struct operation {
	struct xts_sock *s;
	int (*step)(struct operation *op);
	uint64_t deadline_ns;
	uint8_t purpose; /* for which it gets the connection from another process; PURPOSE_NOBODY: it does not */
	bool sends;      /* it waits for room; otherwise for data, or a connection */
	bool blocking;
	bool spins;  /* it may spin before it sleeps */
	bool pumped; /* the frames that have come are handled: a step that finds nothing now may say what that means */
	bool stays;  /* it has done a part, and ends if another process uses the connection now */
};

/* An operation on s that waits for room, or for data, until the socket's own time is over. */
static inline struct operation operation_to_send(struct xts_sock *s, int (*step)(struct operation *op), bool blocking)
{
	return (struct operation){ .s = s,
				   .step = step,
				   .sends = true,
				   .blocking = blocking,
				   .deadline_ns = deadline_after(s->send_timeout_ns) };
}

static inline struct operation operation_to_receive(struct xts_sock *s, int (*step)(struct operation *op), bool blocking)
{
	return (struct operation){
		.s = s, .step = step, .blocking = blocking, .deadline_ns = deadline_after(s->receive_timeout_ns)
	};
}

/* After its first step, which has returned r. */
int operation_goes_on(struct operation *op, int r);

/* Drives it to its end: 0, or -errno. -EAGAIN: it may not wait, or its time is over. -EBADF: the socket was closed, and
 * must not be touched (core/socket.h). -ERESTART, -EINTR: interrupted(). Most calls are one step, which the compiler
 * puts here: through two functions recv() of what is there took a tenth more (105 ns and 96). */
static inline int operation_run(struct operation *op)
{
	int r = op->purpose != PURPOSE_NOBODY && turn_is_elsewhere(op->s) ? STEP_AGAIN : op->step(op);

	return r == STEP_DONE ? 0 : operation_goes_on(op, r);
}

#endif
