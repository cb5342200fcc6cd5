/* A TCP side goes to another owner; see tcp_move.h. */
#include "connection/tcp_move.h"

#include <sys/socket.h>
#include <unistd.h>

#include "connection/connection.h"
#include "pushed/pushed.h"

#ifdef XTS_DEBUG

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "connection/tcp_record.h"

#define RUBBISH 0xA5

struct written {
	uint8_t *data;
	ssize_t bytes;
	struct xts_record_attached attached;
};

static void complain(const char *what)
{
	fprintf(stderr, "a TCP side is not what its record says: %s\n", what);
	abort();
}

/* False: there is no memory for it. */
static bool write_record(const struct tcp_side *s, struct written *w)
{
	w->data = NULL;
	w->bytes = xts_record_encode(&tcp_side_record, tcp_side_record.version, s, NULL, 0, &w->attached);
	if (w->bytes < 0)
		complain("it cannot be written");
	w->data = malloc((size_t)w->bytes);
	if (w->data && xts_record_encode(&tcp_side_record, tcp_side_record.version, s, w->data, (size_t)w->bytes,
					 &w->attached) != w->bytes)
		complain("its length changes");
	return w->data;
}

static void wipe(struct written *w)
{
	if (w->data)
		explicit_bzero(w->data, (size_t)w->bytes);
	free(w->data);
}

static void compare(const struct written *before, const struct written *after)
{
	if (before->bytes != after->bytes || memcmp(before->data, after->data, (size_t)before->bytes) != 0)
		complain("something was lost");
	if (memcmp(&before->attached, &after->attached, sizeof after->attached) != 0)
		complain("a descriptor or an object was lost");
}

/* s becomes what its record says. If there is no memory for that, it stays. */
static void go_through_record(struct tcp_side *s)
{
	struct written before, after = { 0 };
	struct tcp_side made;
	int error;

	if (!write_record(s, &before))
		return;
	memset(&made, RUBBISH, sizeof made);
	error = xts_record_decode(&tcp_side_record, before.data, (size_t)before.bytes, &before.attached, &made);
	if (error && error != -ENOMEM)
		complain("it cannot be read");
	if (!error && write_record(&made, &after))
		compare(&before, &after);
	if (!error) {
		xts_record_drop(&tcp_side_record, s);
		*s = made;
	}
	wipe(&before);
	wipe(&after);
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
