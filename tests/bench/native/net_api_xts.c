/* libxts: offloaded sockets. Sets gather what is sent between two waits (XTS_EPOLL_BATCH), the library spins by
 * itself. */
#include "net_api.h"
#include "xts.h"

static int setup(uint32_t spin_us)
{
	struct xts_options options = { .size = sizeof(options), .spin_us = spin_us ? spin_us : UINT32_MAX };

	return xts_configure(&options);
}

static void *set_create(void)
{
	return xts_epoll_ctx_create_flags(XTS_EPOLL_BATCH);
}

static int nvme_connect(const struct sockaddr *address, socklen_t length, bool digests)
{
	struct {
		struct ulp_info info;
		uint8_t room[64];
	} push = { .info.ulp_id = XTS_ULP_NVME_TCP };
	int s = xts_socket(address->sa_family, SOCK_SEQPACKET, 0);

	if (digests && (xts_ulp_put(&push.info, sizeof(push), XTS_NVME_TCP_HEADER_DIGEST, NULL, 0, 0) ||
			xts_ulp_put(&push.info, sizeof(push), XTS_NVME_TCP_DATA_DIGEST, NULL, 0, 0)))
		return -1;
	if (s < 0 || xts_ioctl(s, SIOC_PUSH_ULP_RX, &push.info) || xts_connect(s, address, length))
		return -1;
	return s;
}

static ssize_t nvme_recv(int s, void *data, size_t bytes)
{
	return xts_recv(s, data, bytes, 0);
}

static int recv_messages(int s, struct mmsghdr *messages, unsigned count, int flags)
{
	return xts_recvmmsg(s, messages, count, flags, NULL);
}

static uint64_t lock_waits(uint32_t *stack)
{
	struct xts_info info = { .size = sizeof(info) };

	(void)xts_get_info(&info);
	*stack = info.stack;
	return info.lock_waits;
}

static const char *queue_kind(void)
{
	static struct xts_info info = { .size = sizeof(info) };

	(void)xts_get_info(&info);
	return info.queue_kind;
}

const struct net_api net_api = {
	.name = "xts",
	.setup = setup,
	.socket = xts_socket,
	.bind = xts_bind,
	.connect = xts_connect,
	.listen = xts_listen,
	.accept4 = xts_accept4,
	.send = xts_send,
	.recv = xts_recv,
	.sendmmsg = xts_sendmmsg,
	.recvmmsg = recv_messages,
	.query_name = xts_query_name,
	.shutdown = xts_shutdown,
	.close = xts_close,
	.setsockopt = xts_setsockopt,
	.getsockopt = xts_getsockopt,
	.set_create = set_create,
	.set_ctl = xts_epoll_ctl,
	.set_wait = xts_epoll_wait,
	.set_destroy = xts_epoll_ctx_destroy,
	.lock_waits = lock_waits,
	.queue_kind = queue_kind,
	.nvme_connect = nvme_connect,
	.nvme_recv = nvme_recv,
};
