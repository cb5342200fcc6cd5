/*
 * How many bytes may wait between an application and its peer. In the kernel, TCP's send and receive buffers hold them.
 * Here a window (post credits) is added to each: one towards the proxy, and one towards the host. Two rules keep the
 * sum near what a program expects from the kernel:
 *
 * - A window towards the proxy grows to a third of TCP's send buffer, which the kernel sizes by the path. A program
 *   that sets SO_SNDBUF sets both: TCP's buffer as the kernel does, and the window to three quarters of it from the
 *   start, because a single write finds room only in the window, and it should find at least half of what the kernel
 *   would take.
 * - TCP's receive buffer is not tuned before the application has begun to read. The proxy reads a window ahead for a
 *   host that does not read at all; TCP would take that for a fast reader, and let the peer send megabytes (measured:
 *   64 KB read at once made 1.5 MB of 128 KB).
 *
 * The tenant is charged for the kernel's buffers by an estimate: a little for every socket (TENANT_SOCKET_BYTES), and,
 * for a socket whose program has set SO_SNDBUF or SO_RCVBUF, everything that it may then hold. If the tenant's limit
 * has no room for that, the buffer goes back to its former size, without an error, as the kernel itself silently stops
 * at wmem_max. What the kernel's own tuning adds is bounded by tcp_mem, for all sockets together.
 */
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "channel/channel.h"
#include "connection/socket_kind.h"

/* Since Linux 5.14, and not in the headers of every distribution that we build on. On older kernels TCP tunes by what
 * the proxy reads. */
#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
#define LOCK_SEND 1
#define LOCK_RECEIVE 2

/* what the application must have read first: TCP does not grow its buffer for less anyway */
#define READ_BYTES_MIN 32768u

static int option(const struct connection *c, int name)
{
	int value = 0;
	socklen_t length = sizeof value;

	return getsockopt(c->tcp.fd, SOL_SOCKET, name, &value, &length) ? -errno : value;
}

/* Charges for a buffer whose size the program has set; *charged: what was charged before. False: over the tenant's
 * limit. */
static bool charge(const struct connection *c, uint32_t *charged, uint32_t bytes)
{
	/* TENANT_SOCKET_BYTES covers this part */
	uint32_t wanted = bytes > TENANT_BUFFER_BYTES ? bytes - TENANT_BUFFER_BYTES : 0;

	if (wanted > *charged && !tenant_take(c->tenant, XTS_USE_SOCKET_BYTES, wanted - *charged))
		return false;
	if (wanted < *charged)
		tenant_give(c->tenant, XTS_USE_SOCKET_BYTES, *charged - wanted);
	*charged = wanted;
	return true;
}

/* The program has set a buffer's size: charges for it, or sets the size back. */
static void settle(const struct connection *c, int name, uint32_t *charged)
{
	int bytes = option(c, name), before = (int)((*charged + TENANT_BUFFER_BYTES) / 2); /* the kernel doubles it */

	if (bytes > 0 && !charge(c, charged, (uint32_t)bytes))
		(void)setsockopt(c->tcp.fd, SOL_SOCKET, name, &before, sizeof before);
}

uint32_t buffers_window_max(const struct connection *c)
{
	const struct xts_tenant *limits = c->tenant;
	int bytes = option(c, SO_SNDBUF);
	uint32_t tcp = bytes > 0 ? (uint32_t)bytes : 0,
		 least = c->send_buffer_set ? XTS_ULP_WINDOW_MIN : limits->window_bytes;
	uint32_t window = c->send_buffer_set ? tcp - tcp / 4 : tcp / 3;

	if (window < least)
		window = least;
	return window < limits->window_bytes_max ? window : limits->window_bytes_max;
}

uint32_t buffers_begin(struct connection *c)
{
	int locks = c->buffers_untouched ? 0 : option(c, SO_BUF_LOCK), locked = locks | LOCK_RECEIVE;

	c->send_buffer_set = locks > 0 && locks & LOCK_SEND;
	/* If the size is locked already, the program has set it by SO_RCVBUF. */
	c->receive_tuned = locks < 0 || locks & LOCK_RECEIVE ||
			   setsockopt(c->tcp.fd, SOL_SOCKET, SO_BUF_LOCK, &locked, sizeof locked);
	c->read_bytes = 0;
	/* also for an accepted socket, which inherits the lock from its listener */
	if (locks > 0 && locks & LOCK_RECEIVE)
		settle(c, SO_RCVBUF, &c->tcp.kernel_receive);
	if (c->send_buffer_set)
		settle(c, SO_SNDBUF, &c->tcp.kernel_send);
	return c->send_buffer_set ? buffers_window_max(c) : c->tenant->window_bytes;
}

void buffers_claimed(struct connection *c)
{
	int locks = option(c, SO_BUF_LOCK);

	c->send_buffer_set = locks > 0 && locks & LOCK_SEND;
	c->receive_tuned = true;
}

void buffers_tune(struct connection *c)
{
	int locks = c->send_buffer_set ? LOCK_SEND : 0;

	if (!c->receive_tuned && c->tcp.fd >= 0)
		(void)setsockopt(c->tcp.fd, SOL_SOCKET, SO_BUF_LOCK, &locks, sizeof locks);
	c->receive_tuned = true;
}

void buffers_read(struct connection *c, uint32_t bytes)
{
	c->read_bytes += bytes;
	if (c->read_bytes >= READ_BYTES_MIN)
		buffers_tune(c);
}

void buffers_option_set(struct connection *c, int level, int name)
{
	if (level == SOL_SOCKET && (name == SO_SNDBUF || name == SO_RCVBUF))
		c->buffers_untouched = false;
	if (level == SOL_SOCKET && name == SO_SNDBUF)
		settle(c, name, &c->tcp.kernel_send);
	if (level == SOL_SOCKET && name == SO_RCVBUF)
		settle(c, name, &c->tcp.kernel_receive);
	ledger_count(c);
	if (level != SOL_SOCKET || !c->window || !kind_of(c)->window_follows_buffers)
		return; /* buffers_begin() will check it later; some windows never change */
	if (name == SO_RCVBUF)
		c->receive_tuned = true; /* the kernel does not tune it any more, which is what the program wants */
	if (name != SO_SNDBUF)
		return;
	c->send_buffer_set = true;
	connection_set_window(c, buffers_window_max(c));
}
