/*
 * The sentence about the last call of this thread that failed (xts_last_error() in xts.h).
 *
 * Theory of operation. A call that fails stores only its errno and its socket's number here, since most failures are
 * EAGAIN. Code that knows more than the errno tells notes a sentence before it fails. xts_last_error() returns that
 * sentence; without one, what follows from the socket's state and the proxy's last refusal; else the usual meaning of
 * that errno here; else the C library's text.
 */
#include <stdarg.h>
#include <stdio.h>

#include "core/channel.h"
#include "core/error.h"
#include "core/process.h"
#include "core/reason.h"
#include "core/socket.h"
#include "core/stack.h"
#include "ulps/pushed.h"
#include "xts.h"
#include "xts_private.h"

#define TEXT_BYTES ATTACH_ERROR_BYTES

static __thread struct {
	int error;  /* errno of the last call that failed; 0: none has */
	int number; /* its socket; -1: none */
	int noted;  /* the errno that text is about; 0: none */
	char text[TEXT_BYTES];
} last = { .number = -1 };

void last_error_note(int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(last.text, sizeof last.text, format, arguments);
	va_end(arguments);
	last.noted = error;
}

void last_error_failed(int error, int number)
{
	if (last.noted != error)
		last.text[0] = 0;
	last.noted = 0;
	last.error = error;
	last.number = number;
}

int last_error_of_number(int number)
{
	return process_inherits() && table_was_parents(number) ? ENOTCONN : EBADF;
}

/* What an errno means in this library beyond its usual text. */
static const char *meaning_of(int error)
{
	switch (error) {
	case ENETDOWN:
		return "the offload proxy, or the way to it, has gone: see `xts doctor`, and the logs of xts-agent and xts-proxy";
	case EUSERS:
		return "the endpoint has no queue for one process more: see `xts doctor`";
	case EMFILE: /* of a call of the kernel's: who refuses an XTS socket has noted that */
		return "this process has no descriptor left: close some, or raise its limit (`ulimit -n`)";
	case ENFILE:
		return "this machine has no descriptor left (the setting fs.file-max)";
	default:
		return NULL;
	}
}

/* What an errno may mean if the proxy does not send the reason of its refusals. */
static const char *untold_refusal(int error)
{
	switch (error) {
	case ESHUTDOWN:
		return xts_refusal_text(XTS_REFUSED_STOPPING);
	case EACCES:
		return "the device refuses it, by the policy of its proxy (`xts-proxy --explain` names the rule) or by a firewall: "
		       "this version of the proxy does not say which";
	case EPERM:
		return "the offload proxy refuses this socket option to hosts";
	case ENOBUFS:
		return "a limit of the offload proxy or of its device is reached, of sockets or of memory: this version of the "
		       "proxy does not say which, and `xts-proxy status` shows what this host uses";
	default:
		return NULL;
	}
}

static bool is_of_waiting(int error)
{
	return error == EAGAIN || error == EINTR || error == EINPROGRESS || error == EALREADY || error == EBADF;
}

/* What the state of the socket explains; NULL: nothing. */
static const char *state_of(int number, int error, bool *pushed)
{
	struct stack *st;
	const char *text = NULL;
	struct xts_sock *s;

	st = stack_enter_of(number);
	s = table_open(st, number);
	if (s && s->own.why_gone)
		text = xts_reason_text(s->own.why_gone);
	else if (s && s->away && error == ENETDOWN)
		text = "the offload proxy, or the way to it, has gone: this socket works again when it is back";
	else if (s && s->lost)
		text = "the connection to the offload proxy was lost, and this socket with it: make a new socket";
	else if (s && xts_refusal_errno(s->refusal) == error)
		text = xts_refusal_text(s->refusal);
	*pushed = s && !text &&
		  (s->cold->ulps.depth[ULPS_RECEIVE] || s->cold->ulps.depth[ULPS_SEND] || s->cold->ulps.with_connect ||
		   s->seqpacket);
	stack_leave(st);
	return text;
}

/* Is there a proxy that does not send reasons of refusals? Else an error without a reason is not a refusal. */
static bool refusals_are_untold(int number)
{
	struct stack *st = stack_enter_of(number);
	bool untold = st->channel && !(st->channel->link.features & XTS_FEATURE_REFUSAL);

	stack_leave(st);
	return untold;
}

/* Is it a socket of the parent process that this forked child does not have? */
static bool is_of_parent(int number)
{
	struct stack *st = stack_enter_of(number);
	bool is = table_was_parents(number);

	stack_leave(st);
	return is;
}

const char *xts_reason_of(int error, bool ask)
{
	const char *text = NULL;
	bool pushed = false;

	if (last.error == error && last.text[0])
		return last.text;
	if (error == EBADF && last.error == error && last.number >= 0 && is_of_parent(last.number))
		return "this socket belongs to the parent process: a forked child has none of its parent's sockets, "
		       "unless the program runs under `xts run`";
	if (is_of_waiting(error))
		return NULL;
	if (last.error == error && last.number >= 0) {
		int number = last.number;

		text = state_of(number, error, &pushed);
		if (!text && ask && xts_ulp_error(number, NULL, last.text, sizeof last.text) == error && last.text[0])
			text = last.text;
		else if (!text)
			last.text[0] = 0;
		last.error = error; /* the program did not call what xts_ulp_error() calls */
		last.number = number;
	}
	if (!text)
		text = meaning_of(error);
	if (!text && untold_refusal(error) && refusals_are_untold(last.number))
		text = untold_refusal(error);
	return text;
}

unsigned xts_last_refusal(void)
{
	const struct xts_sock *s;
	unsigned refusal = 0;
	struct stack *st;

	if (last.number < 0)
		return 0;
	st = stack_enter_of(last.number);
	s = table_open(st, last.number);
	if (s && xts_refusal_errno(s->refusal) == last.error)
		refusal = s->refusal;
	stack_leave(st);
	return refusal;
}

const char *xts_last_error(void)
{
	int before = errno;
	const char *text = last.error ? xts_reason_of(last.error, true) : "";

	if (!text) {
		snprintf(last.text, sizeof last.text, "%s", strerror(last.error));
		text = last.text;
	}
	errno = before;
	return text;
}
