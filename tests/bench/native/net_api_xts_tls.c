/* libxts with TLS in the proxy: every socket has the protocol pushed as it connects, and every listener. $BENCH_TRUST
 * names the trust roots in the proxy's configuration; $BENCH_IDENTITY, for a server, its identity there. With
 * $BENCH_RESUMES sessions are resumed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measure.h"
#include "net_api.h"
#include "xts.h"

static struct {
	struct ulp_info info;
	uint8_t room[XTS_ULP_INFO_BYTES_MAX];
} tls;

static int setup(uint32_t spin_us)
{
	struct xts_options options = { .size = sizeof(options), .spin_us = spin_us ? spin_us : UINT32_MAX };
	const char *trust = getenv("BENCH_TRUST"), *identity = getenv("BENCH_IDENTITY");

	tls.info.ulp_id = XTS_ULP_TLS;
	if (identity)
		return xts_ulp_put(&tls.info, sizeof(tls), XTS_TLS_IDENTITY, identity, strlen(identity), 0) ?
			       -1 :
			       xts_configure(&options);
	if (!trust) {
		errno = EINVAL;
		return -1;
	}
	if (xts_ulp_put(&tls.info, sizeof(tls), XTS_TLS_SERVER_NAME, TLS_NAME, strlen(TLS_NAME), 0) ||
	    xts_ulp_put(&tls.info, sizeof(tls), XTS_TLS_TRUST, trust, strlen(trust), 0))
		return -1;
	if (!getenv("BENCH_RESUMES") && xts_ulp_put(&tls.info, sizeof(tls), XTS_TLS_NO_RESUMPTION, NULL, 0, 0))
		return -1;
	return xts_configure(&options);
}

static int tls_connect(int s, const struct sockaddr *address, socklen_t length)
{
	const struct xts_ulp_push push = { .request = SIOC_PUSH_ULP, .info = &tls.info };
	int result = xts_ulp_connect(s, address, length, &push, 1), error = errno;
	char reason[200];

	if (result && error != EINPROGRESS && xts_ulp_error(s, NULL, reason, sizeof(reason)) > 0)
		fprintf(stderr, "TLS: %s\n", reason);
	errno = error;
	return result;
}

static int tls_listen(int s, int backlog)
{
	return xts_ioctl(s, SIOC_PUSH_ULP, &tls.info) ? -1 : xts_listen(s, backlog);
}

static void *set_create(void)
{
	return xts_epoll_ctx_create_flags(XTS_EPOLL_BATCH);
}

const struct net_api net_api = {
	.name = "xts with TLS",
	.setup = setup,
	.socket = xts_socket,
	.bind = xts_bind,
	.connect = tls_connect,
	.listen = tls_listen,
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
