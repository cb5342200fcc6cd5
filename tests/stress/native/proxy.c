/*
 * The proxy's worker without its supervisor: attaches processes over shared memory and serves them until standard input
 * ends. It exists so that both ends of the link can be built with checks at every step (XTS_DEBUG) and with sanitizers,
 * which the Python process around the real one does not allow.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attaching/attach.h"
#include "queues/queue_kinds.h"
#include "worker/worker.h"

#define STATUS_BYTES (sizeof(struct xts_status_page) + XTS_STATUS_ENTRIES * sizeof(struct xts_status_entry))
#define DESCRIPTORS 3
#define ASK_MS 20

static _Noreturn void die(const char *what, int error)
{
	fprintf(stderr, "%s: %s\n", what, strerror(error));
	exit(1);
}

static int listen_at(const char *path)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(at.sun_path))
		die(path, ENAMETOOLONG);
	strcpy(at.sun_path, path);
	if (s < 0 || bind(s, (struct sockaddr *)&at, sizeof(at)) || listen(s, 16))
		die(path, errno);
	return s;
}

static int status_page(void)
{
	int fd = memfd_create("xts-status", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW;

	if (fd < 0 || ftruncate(fd, (off_t)STATUS_BYTES) || fcntl(fd, F_ADD_SEALS, seals))
		die("status page", errno);
	return fd;
}

static void send_reply(int connection, const struct xts_attach_reply *reply, const int *fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(DESCRIPTORS * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)reply, .iov_len = sizeof(*reply) };
	struct msghdr m = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(DESCRIPTORS * sizeof(int));
	memcpy(CMSG_DATA(c), fds, DESCRIPTORS * sizeof(int));
	if (sendmsg(connection, &m, MSG_NOSIGNAL) < 0)
		die("sending an attach reply", errno);
}

static void attach(struct xts_worker *worker, struct xts_tenant *tenant, int connection, uint16_t frame_window,
		   uint32_t queue_id)
{
	struct xts_attach_request request;
	struct xts_queue_options options = { .frame_window = frame_window };
	struct xts_queue_opened area;
	struct xts_queue *queue;
	int r;

	if (recv(connection, &request, sizeof(request), 0) != (ssize_t)sizeof(request) ||
	    request.magic != XTS_ATTACH_MAGIC) {
		close(connection);
		return;
	}
	if (request.frame_window_max && request.frame_window_max < frame_window)
		options.frame_window = (uint16_t)request.frame_window_max;
	r = xts_queue_open(&area, XTS_QUEUE_SHM, &options);
	if (r)
		die("xts_queue_open", -r);
	area.geometry.queue_id = queue_id;
	if (getrandom(&area.geometry.epoch, sizeof(area.geometry.epoch), 0) < 0)
		die("getrandom", errno);
	int fds[DESCRIPTORS] = { area.fds[XTS_QUEUE_HOST][0], area.fds[XTS_QUEUE_HOST][1], status_page() };
	int ours[] = { dup(area.fds[XTS_QUEUE_PROXY][0]), area.fds[XTS_QUEUE_PROXY][1] };

	r = xts_queue_adopt(&queue, XTS_QUEUE_PROXY, ours, &area.geometry);
	if (r)
		die("xts_queue_adopt", -r);
	r = xts_worker_add_channel(worker, queue, dup(connection), queue_id, tenant, NULL);
	if (r)
		die("xts_worker_add_channel", -r);
	send_reply(connection, &area.geometry, fds);
	for (int i = 0; i < DESCRIPTORS; i++)
		close(fds[i]);
	close(connection);
}

static void print_log(struct xts_worker *worker)
{
	char line[512];

	while (xts_worker_log_next(worker, line, sizeof(line)) > 0)
		fprintf(stderr, "%s\n", line);
}

int main(int argc, char **argv)
{
	const struct xts_policy_rule own = { .allow = true,
					     .action = XTS_POLICY_BOTH,
					     .own = true,
					     .port_last = 65535,
					     .queue_last = UINT32_MAX,
					     .tenant = XTS_TENANT_ANY };
	struct xts_worker_config config = { .cpu = -1,
					    .spin_us = 30,
					    .ethertype = XTS_ETHERTYPE,
					    .policy_default_allow = true,
					    .policy_listen_allow = true,
					    .rules = &own,
					    .rule_count = 1 };
	struct xts_tenant_config bounds = {
		.name = "default", .window_bytes = 65536, .window_bytes_max = 4u << 20, .orphan_timeout_ms = 205000
	};
	struct xts_tenant *tenant;
	struct xts_worker_stats figures;
	struct xts_worker *worker;
	uint32_t queue_id = 0;
	int listener, r;

	if (argc != 5) {
		fprintf(stderr, "usage: proxy ENDPOINT FRAME_WINDOW WINDOW_KIB SPILL_MIB\n"
				"example: proxy /tmp/endpoint.sock 64 0 1024\n");
		return 2;
	}
	if (atoi(argv[3]))
		bounds.window_bytes = bounds.window_bytes_max = (uint32_t)atoi(argv[3]) << 10;
	for (int i = 0; i < XTS_RESOURCES; i++)
		bounds.limit[i] = 1u << 30;
	bounds.limit[XTS_USE_SPILL_BYTES] = (uint64_t)atoi(argv[4]) << 20;
	tenant = xts_tenant_new(&bounds);
	if (!tenant)
		die("xts_tenant_new", ENOMEM);
	r = xts_worker_start(&worker, &config);
	if (r)
		die("xts_worker_start", -r);
	listener = listen_at(argv[1]);
	printf("ready\n");
	fflush(stdout);
	for (;;) {
		struct pollfd fds[3] = { { .fd = listener, .events = POLLIN },
					 { .fd = STDIN_FILENO, .events = POLLIN },
					 { .fd = xts_worker_log_fd(worker), .events = POLLIN } };

		if (poll(fds, 3, ASK_MS) < 0 && errno != EINTR)
			die("poll", errno);
		if (xts_worker_stats(worker, &figures)) /* as a supervisor does, from a thread of its own */
			die("xts_worker_stats", EIO);
		if (fds[2].revents)
			print_log(worker);
		if (fds[1].revents)
			break;
		if (fds[0].revents)
			attach(worker, tenant, accept4(listener, NULL, NULL, SOCK_CLOEXEC), (uint16_t)atoi(argv[2]),
			       queue_id++);
	}
	xts_worker_stop(worker, 0);
	xts_tenant_release(tenant);
	return 0;
}
