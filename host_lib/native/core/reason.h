/*
 * The reasons why a socket is not offloaded, or was not kept over fork or exec. Each such socket has one of them. They
 * are counted per process, and `xts status` shows the counts. The numbers are stable. REASONS.md is made from this list.
 */
#ifndef XTS_REASON_H
#define XTS_REASON_H

/* number, name, meaning and remedy */
#define XTS_REASONS(X) \
	X(1, RULE, \
	  "a rule says os, or the default rules leave loopback to the kernel: `xts rules explain` names the rule") \
	X(2, PROTOCOL, \
	  "not TCP: raw sockets and other protocols are not offloaded; UDP only if a rule and the proxy offload it") \
	X(3, FAMILY, "an address family other than AF_INET and AF_INET6") \
	X(4, NO_ENDPOINT, "no agent or proxy listens at the endpoint: check that it runs, and XTS_ENDPOINT") \
	X(5, PROXY_DOWN, "the endpoint answered, but the proxy behind it did not, or the interface between them is out") \
	X(6, LIMIT, "a limit of sockets, descriptors or memory is reached, of this process or of the proxy") \
	X(7, OPTION, "the program had set an option that offloaded sockets lack, or that failed on one") \
	X(8, ADDRESS, "the socket is bound to an address that only this host's kernel has") \
	X(9, LOCAL, "accepted by the host's kernel (loopback), on a wildcard listener that is offloaded as well") \
	X(10, RAW, \
	  "the program uses it with calls that the interposer does not see (stdio of the C library, another process)") \
	X(11, INHERITED, "it came over exec, fork or a Unix socket from a program that was not under xts run") \
	X(12, REFUSED, "the agent or proxy refused this process: wrong version, or no permission") \
	X(13, FASTOPEN, "the program has set TCP_FASTOPEN_CONNECT (TCP Fast Open), which is left to the kernel") \
	X(14, ELSEWHERE, \
	  "after fork or exec: another process has the connection and does not give it up (ETIMEDOUT, ENOTCONN)") \
	X(15, LOST, \
	  "the socket could not be kept over fork, exec or a Unix socket (not connected yet, peek mode, no proxy)") \
	X(16, NO_QUEUE, \
	  "no queue is free for this process: all are in use, or a limit of its user or of all users is reached") \
	X(17, VERSION, \
	  "it came over exec or a Unix socket from a program with another version of libxts, which this one cannot read")

enum xts_reason {
	XTS_REASON_NONE, /* offloaded */
#define XTS_REASON_AS_ENUM(number, name, text) XTS_REASON_##name = (number),
	XTS_REASONS(XTS_REASON_AS_ENUM)
#undef XTS_REASON_AS_ENUM
		XTS_REASON_COUNT
};

/* Is the reason about a socket that this process does not have at all, not even in the kernel? */
#define XTS_REASON_IS_GONE(reason) \
	((reason) == XTS_REASON_ELSEWHERE || (reason) == XTS_REASON_LOST || (reason) == XTS_REASON_VERSION)

#pragma GCC visibility push(default)

/* The name and text of a reason, whose numbers begin at 1; NULL: no such number. */
const char *xts_reason_name(unsigned number);
const char *xts_reason_text(unsigned number);

#pragma GCC visibility pop

#endif
