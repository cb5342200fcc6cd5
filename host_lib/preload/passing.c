/*
 * Descriptors that pass over Unix sockets (SCM_RIGHTS).
 *
 * An offloaded socket's carrier (xts_pass()) is sent in place of its descriptor, and closed here after it has been
 * sent. The receiver of a carrier takes over the socket, and replaces the carrier by a placeholder, as for an accepted
 * connection. The carrier of a listener that also listens on this host stays, since it is the kernel half of that
 * listener.
 */
#include "preload.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "decide.h"
#include "once_per_run.h"
#include "passing.h"
#include "process_page.h"

#define CONTROL_MAX 8192u /* for a message with offloaded sockets */
#define CARRIERS_MAX 253  /* the kernel passes no more descriptors (SCM_MAX_FD) */
/* For the outcome of a connect: a round trip to the peer, which is 1 to 150 ms in the Internet. Who may not wait waits
 * no longer than for an answer of the proxy (core/catch_up.c). */
#define WAITING_MS 1000
#define NOT_WAITING_MS 50

/* Descriptor i of a control message. Returns 0 if there is one. */
static int descriptor_at(const struct cmsghdr *c, size_t i, int *fd)
{
	size_t at = CMSG_LEN(i * sizeof *fd);

	if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || at + sizeof *fd > c->cmsg_len)
		return -1;
	memcpy(fd, (const uint8_t *)c + at, sizeof *fd);
	return 0;
}

static void put_descriptor_at(struct cmsghdr *c, size_t i, int fd)
{
	memcpy((uint8_t *)c + CMSG_LEN(i * sizeof fd), &fd, sizeof fd);
}

static struct cmsghdr *next_control(const struct msghdr *message, struct cmsghdr *c)
{
	return CMSG_NXTHDR((struct msghdr *)message, c);
}

bool passing_any(const struct msghdr *message)
{
	int fd;

	if (!message->msg_control || !message->msg_controllen)
		return false;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = next_control(message, c))
		if (descriptor_at(c, 0, &fd) == 0)
			return true;
	return false;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* An undecided socket that is passed stays with the kernel for good: otherwise two processes would decide about it. */
static int count_offloaded(const struct msghdr *message)
{
	int count = 0, fd;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = next_control(message, c)) {
		for (size_t i = 0; descriptor_at(c, i, &fd) == 0; i++) {
			struct descriptor d = descriptor_get(fd);

			if (d.kind == DESCRIPTOR_UNDECIDED && decide_stay(fd, XTS_REASON_RAW) < 0)
				return -1;
			count += d.kind == DESCRIPTOR_OFFLOADED;
		}
	}
	return count;
}

/* A connection that is being made belongs to nobody else yet. Its outcome is a round trip away, mostly: a call that
 * may wait does so for a moment. */
static int pass_or_wait(struct descriptor d, int kernel_fd, int patience_ms)
{
	struct pollfd outcome = { .fd = (int)d.number, .events = POLLOUT };
	int carrier = XTS(xts_pass((int)d.number, kernel_fd));

	if (carrier >= 0 || errno != EOPNOTSUPP)
		return carrier;
	if (XTS(xts_poll(&outcome, 1, patience_ms)) == 1)
		return XTS(xts_pass((int)d.number, kernel_fd));
	errno = EOPNOTSUPP;
	return -1;
}

/* 0: *carrier is sent in its place; 1: the descriptor is sent unchanged; -1 and errno. */
static int carrier_of(int fd, int patience_ms, int *carrier)
{
	struct descriptor d = descriptor_get(fd);

	if (d.kind != DESCRIPTOR_OFFLOADED)
		return 1;
	*carrier = pass_or_wait(d, d.flags & DESCRIPTOR_ALSO_LOCAL ? fd : -1, patience_ms);
	if (*carrier >= 0)
		return 0;
	if (errno == ENOTCONN)
		return 1; /* it has ended: the placeholder gives the same error */
	preload_refused();
	preload_log("descriptor %d: cannot be passed over a Unix socket: %s", fd, strerror(errno));
	return -1;
}

static void close_carriers(const int *carriers, int count)
{
	int before = errno;

	while (count > 0)
		real()->close(carriers[--count]);
	errno = before;
}

/* Puts the carriers into the message's private copy of its control data. Returns how many; -1 and errno: none. */
static int put_carriers(struct msghdr *message, int patience_ms, int *carriers)
{
	int count = 0, fd, r;
	INSIDE;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = next_control(message, c)) {
		for (size_t i = 0; descriptor_at(c, i, &fd) == 0; i++) {
			r = count < CARRIERS_MAX ? carrier_of(fd, patience_ms, &carriers[count]) : -1;
			if (r < 0) {
				if (count == CARRIERS_MAX)
					errno = ETOOMANYREFS;
				close_carriers(carriers, count);
				return -1;
			}
			if (r == 0)
				put_descriptor_at(c, i, carriers[count++]);
		}
	}
	return count;
}

static bool may_wait(int fd, int flags)
{
	return !(flags & MSG_DONTWAIT) && !(real()->fcntl(fd, F_GETFL) & O_NONBLOCK);
}

static ssize_t send_carriers(int fd, const struct msghdr *message, int flags, int *carriers)
{
	struct msghdr copy = *message;
	int count, before;
	ssize_t sent;

	copy.msg_control = malloc(message->msg_controllen); /* much for a stack */
	if (!copy.msg_control) {
		errno = ENOMEM;
		return -1;
	}
	memcpy(copy.msg_control, message->msg_control, message->msg_controllen);
	count = put_carriers(&copy, may_wait(fd, flags) ? WAITING_MS : NOT_WAITING_MS, carriers);
	sent = count < 0 ? -1 : real()->sendmsg(fd, &copy, flags);
	close_carriers(carriers, count);
	before = errno;
	free(copy.msg_control);
	errno = before;
	return sent;
}

ssize_t passing_send(int fd, const struct msghdr *message, int flags)
{
	int count = count_offloaded(message);

	if (count < 0)
		return -1;
	if (count == 0)
		return real()->sendmsg(fd, message, flags);
	if (message->msg_controllen > CONTROL_MAX) {
		errno = ETOOMANYREFS;
		return -1;
	}
	int carriers[CARRIERS_MAX];

	return send_carriers(fd, message, flags, carriers);
}

int passing_send_all(int fd, struct mmsghdr *messages, unsigned count, int flags)
{
	unsigned sent = 0;

	for (; sent < count; sent++) {
		ssize_t r = sendmsg(fd, &messages[sent].msg_hdr, flags);

		if (r < 0)
			break;
		messages[sent].msg_len = (unsigned)r;
	}
	return sent || !count ? (int)sent : -1;
}

/* --- receiving ---------------------------------------------------------------------------------------------------- */

static void put_placeholder(int fd)
{
	int placeholder = decide_placeholder(), flags = real()->fcntl(fd, F_GETFD);

	if (placeholder < 0)
		/* no descriptor is left: the carrier serves as well, but holds its place in the name for longer */
		return;
	real()->dup3(placeholder, fd, flags >= 0 && flags & FD_CLOEXEC ? O_CLOEXEC : 0);
	real()->close(placeholder);
}

bool passing_receive(int fd, bool at_once)
{
	struct xts_exec_socket got;
	struct descriptor d;
	int r;

	if ((unsigned)fd >= DESCRIPTORS_MAX || decide_number_option(fd, SO_TYPE) < 0)
		return false; /* it is not a socket */
	r = XTS(xts_take_passed(fd, at_once, &got));
	if (r == 0)
		return false;
	report_start();
	if (r < 0) {
		preload_log("descriptor %d: was passed, and cannot be had: %s", fd, strerror(errno));
		(void)decide_stay(fd, errno == EPROTONOSUPPORT ? XTS_REASON_VERSION : XTS_REASON_LOST);
		return false;
	}
	d = (struct descriptor){ .kind = DESCRIPTOR_OFFLOADED, .number = (uint32_t)got.number };
	if (got.listens)
		d.flags |= DESCRIPTOR_LISTENS;
	if (got.datagrams)
		d.flags |= DESCRIPTOR_DATAGRAM;
	if (decide_number_option(fd, SO_DOMAIN) == AF_UNIX)
		put_placeholder(fd);
	else if (!got.listens || decide_number_option(fd, SO_ACCEPTCONN) == 1)
		d.flags |= DESCRIPTOR_ALSO_LOCAL;
	descriptor_set(fd, d);
	stream_follow(fd);
	if (got.again)
		descriptor_share(d);
	else
		atomic_fetch_add_explicit(&preload.offloaded, 1, memory_order_relaxed);
	run_count_offloaded();
	report_counters();
	preload_log("descriptor %d: offloaded, passed by another program", fd);
	return true;
}

void passing_received(const struct msghdr *message)
{
	int before = errno, fd;

	if (!preload.rules || xts_inside.locked || !message->msg_control)
		return;
	INSIDE;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = next_control(message, c))
		for (size_t i = 0; descriptor_at(c, i, &fd) == 0; i++) {
			descriptor_forget_stale(fd);
			(void)passing_receive(fd, true);
		}
	errno = before;
}
