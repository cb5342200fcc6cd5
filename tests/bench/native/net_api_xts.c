/* libxts: offloaded sockets. Sets gather what is sent between two waits (XTS_EPOLL_BATCH), the library spins by itself. */
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
	.shutdown = xts_shutdown,
	.close = xts_close,
	.setsockopt = xts_setsockopt,
	.getsockopt = xts_getsockopt,
	.set_create = set_create,
	.set_ctl = xts_epoll_ctl,
	.set_wait = xts_epoll_wait,
	.set_destroy = xts_epoll_ctx_destroy,
};
