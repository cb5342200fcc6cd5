/* A file of relatives, for the server to which a process is attached (attach.h). */
#include <string.h>
#include <sys/socket.h>

#include "attaching/attach.h"

bool xts_attach_is_proxy(const struct xts_attachment *attachment)
{
	return attachment->reply.kind == XTS_QUEUE_SHM && !attachment->reply.relayed;
}

void xts_attach_tell_relatives(const struct xts_attachment *attachment, int fd, bool over)
{
	union {
		char bytes[CMSG_SPACE(sizeof fd)];
		struct cmsghdr head;
	} control = { .head = { .cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS } };
	bool is_proxy = xts_attach_is_proxy(attachment);
	struct xts_attach_relatives word = { is_proxy ? XTS_ATTACH_RELATIVES_MAGIC : XTS_ATTACH_OVER_MAGIC,
					     XTS_ATTACH_VERSION };
	struct iovec piece = { .iov_base = &word, .iov_len = sizeof word };
	struct msghdr m = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control
	};

	memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
	if (attachment->connection >= 0 && attachment->reply.relatives && (is_proxy || over))
		(void)sendmsg(attachment->connection, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}
