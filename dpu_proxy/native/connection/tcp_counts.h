/*
 * How many bytes have gone through a TCP socket, as its kernel counts them: the only ones who still know when the process
 * that has read and written them has died.
 *
 * Both counts may begin at another number than 0 (SYN is counted, too, on one side). So only differences mean something.
 */
#ifndef XTS_TCP_COUNTS_H
#define XTS_TCP_COUNTS_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_counts {
	uint64_t read, written; /* by processes */
	bool fin_sent;          /* no more can be written */
	bool ended;             /* by reset, or each end has sent FIN: else the counts mean nothing */
};

/* Is there urgent data that was not read past? Not where it is an ordinary part of the stream. */
bool tcp_has_urgent(int fd);

/* Of one that has ended: has each end sent FIN, and this one's is acknowledged? Then the counts are right, with what is
 * unread. Takes the error of a reset, which nobody else is told then. */
bool tcp_closed_by_both(int fd);

/* 0; -EAGAIN: they change all the time, or urgent data waits, behind which SIOCINQ does not count; or another -errno:
 * this kernel does not count. */
int tcp_counts(int fd, struct tcp_counts *out);

#endif
