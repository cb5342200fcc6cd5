/*
 * Why a socket is a kernel socket, or not this process's: every socket that is not offloaded, or that was not kept over
 * fork or exec, has a numbered reason, counted per process and shown by `xts status`. The numbers are stable;
 * REASONS.md is made from this list.
 */
#ifndef XTS_REASON_H
#define XTS_REASON_H

/* number, name, meaning and remedy */
#define XTS_REASONS(X) \
	X(1, RULE, \
	  "a rule says os, or the default rules leave loopback to the kernel: `xts rules explain` names the line") \
	X(2, PROTOCOL, \
	  "not TCP: raw, MPTCP and other protocols are not offloaded, nor is UDP where no rule does it or the proxy has none") \
	X(3, FAMILY, "an address family other than AF_INET and AF_INET6") \
	X(4, NO_ENDPOINT, "no agent or proxy listens at the endpoint: is it running, is XTS_ENDPOINT right?") \
	X(5, PROXY_DOWN, "the endpoint answered, the proxy behind it did not") \
	X(6, LIMIT, "the proxy's or this process's limit of sockets is reached") \
	X(7, OPTION, "an option was set before that the proxy does not take") \
	X(8, ADDRESS, "bound to an address that only this host's kernel has") \
	X(9, LOCAL, "accepted on the host's own side of an offloaded wildcard listener (loopback)") \
	X(10, RAW, \
	  "the program uses it by calls the interposer cannot see (stdio inside the C library, another process)") \
	X(11, INHERITED, "came over exec, fork or a Unix socket from a program that was not under xts run") \
	X(12, REFUSED, "the attach was refused: version, permission") \
	X(13, FASTOPEN, "data before the connection is established (TCP Fast Open) is left to the kernel") \
	X(14, ELSEWHERE, \
	  "over fork or exec: another process has the connection and does not give it up (ETIMEDOUT, ENOTCONN)") \
	X(15, LOST, \
	  "over fork, exec or a Unix socket: the socket could not be kept (not connected yet, peek mode, no proxy)") \
	X(16, NO_QUEUE, \
	  "the endpoint has no queue for this process: all are in use, or a limit of its user or of all is reached")

enum xts_reason {
	XTS_REASON_NONE, /* offloaded */
#define XTS_REASON_AS_ENUM(number, name, text) XTS_REASON_##name = (number),
	XTS_REASONS(XTS_REASON_AS_ENUM)
#undef XTS_REASON_AS_ENUM
		XTS_REASON_COUNT
};

/* Is the reason about a socket that this process does not have at all, not even in the kernel? */
#define XTS_REASON_IS_GONE(reason) ((reason) == XTS_REASON_ELSEWHERE || (reason) == XTS_REASON_LOST)

#pragma GCC visibility push(default)

/* The name and text of a reason, whose numbers begin at 1; NULL: no such number. */
const char *xts_reason_name(unsigned number);
const char *xts_reason_text(unsigned number);

#pragma GCC visibility pop

#endif
