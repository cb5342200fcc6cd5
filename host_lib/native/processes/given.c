/* A listener for programs that are started with its mirror. given.h has the theory of operation. */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include "core/socket.h"
#include "common/own_descriptors.h"
#include "processes/given.h"
#include "processes/record_label.h"
#include "processes/socket_record.h"
#include "processes/wipe.h"
#include "core/wait.h"
#include "xts_private.h"

static int write_label(const struct xts_sock *s)
{
	struct socket_record b;
	int r;

	record_for_label(&b, s);
	b.key_is_apart = KEY_IS_HERE;
	r = record_label(s->cold->sharing.given_fd, &b);
	wipe(&b, sizeof b);
	return r;
}

int given_begin(struct xts_sock *s, int mirror)
{
	int fd = (int)kernel_calls.syscall(SYS_fcntl, mirror, F_DUPFD_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	given_end(s);
	s->cold->sharing.given_fd = xts_own(fd);
	s->cold->sharing.is_given = true;
	return write_label(s);
}

void given_tell(struct xts_sock *s)
{
	if (s->cold->sharing.is_given)
		(void)write_label(s);
}

void given_end(struct xts_sock *s)
{
	if (!s->cold->sharing.is_given)
		return;
	s->cold->sharing.is_given = false;
	xts_own_close(s->cold->sharing.given_fd);
}
