/* A TCP side goes to another owner; see tcp_move.h. */
#include "connection/tcp_move.h"

#include <sys/socket.h>
#include <unistd.h>

#include "connection/connection.h"
#include "pushed/pushed.h"

#ifdef XTS_DEBUG

#include "connection/tcp_record.h"

/* s becomes what its record says. If there is no memory for that, it stays. */
static void go_through_record(struct tcp_side *s)
{
	struct tcp_side made;

	if (xts_record_trip(&tcp_side_record, s, &made, sizeof made))
		return;
	xts_record_drop(&tcp_side_record, s);
	*s = made;
}

#else

static void go_through_record(struct tcp_side *s)
{
	(void)s;
}

#endif

void tcp_side_move(struct tcp_side *to, struct tcp_side *from)
{
	go_through_record(from);
	*to = *from;
	*from = TCP_SIDE_NONE;
}

void reset_and_close(int fd)
{
	struct linger abort_now = { .l_onoff = 1 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort_now, sizeof abort_now);
	close(fd);
}

void tcp_side_uncharge_buffers(struct tcp_side *s, struct xts_tenant *t)
{
	tenant_give(t, XTS_USE_SOCKET_BYTES, (uint64_t)s->kernel_send + s->kernel_receive);
	s->kernel_send = s->kernel_receive = 0;
}

void tcp_side_end(struct tcp_side *s, struct xts_tenant *t)
{
	int fd = s->fd;

	pushed_free(s->pushed);
	outgoing_free(&s->out);
	returned_free(&s->returned, t);
	tcp_side_uncharge_buffers(s, t);
	*s = TCP_SIDE_NONE;
	if (fd >= 0)
		reset_and_close(fd);
}
