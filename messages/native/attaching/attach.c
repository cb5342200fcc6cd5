/*
 * The client's side of attaching: one request, one reply with descriptors. See attach.h.
 *
 * The server is trusted no more than any peer: sizes are checked before anything is mapped (shm.c, afxdp.c), strings
 * are terminated here, and unexpected descriptors are closed.
 */
#include "attaching/attach.h"
#include "settings/environment.h"
#include "decorators/arq.h"
#include "decorators/headed.h"
#include "common/own_descriptors.h"
#include "queues/queue_kinds.h"
#include "queues/sealed_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ATTACH_DESCRIPTORS_MAX 16
#define ENTRIES_BYTES (sizeof(struct xts_status_page) + XTS_STATUS_ENTRIES * sizeof(struct xts_status_entry))
#define FIGURES_BYTES (ENTRIES_BYTES + sizeof(struct xts_status_figures))
#define CLOCK_BYTES (FIGURES_BYTES + sizeof(struct xts_status_clock))
#define WAITS_BYTES (CLOCK_BYTES + XTS_STATUS_ENTRIES * sizeof(struct xts_status_waits))
#define POLLING_BYTES (WAITS_BYTES + sizeof(struct xts_status_polling))
#define STATUS_BYTES (POLLING_BYTES + XTS_STATUS_ENTRIES * sizeof(struct xts_status_filter))

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void close_all(int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			xts_own_close(fds[i]);
}

/* $XTS_QUEUE is "shm:PATH". "afxdp:..." names a queue that only the process that opened it can use, so it needs an
 * endpoint. */
static int endpoint_path(const char **path)
{
	const char *queue = xts_environment(XTS_ENV_QUEUE);

	if (*path)
		return 0;
	if (queue) {
		if (strncmp(queue, "shm:", 4) != 0)
			return -EOPNOTSUPP;
		*path = queue + 4;
		return 0;
	}
	*path = xts_environment(XTS_ENV_ENDPOINT);
	if (!*path)
		*path = XTS_ENV_DEFAULT_ENDPOINT;
	return 0;
}

static int endpoint_connect(const char *path, int timeout_ms)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct timeval limit = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 };
	int fd, error;

	if (strlen(path) >= sizeof address.sun_path)
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = xts_own(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
	if (fd < 0)
		return -errno;
	/* connect() waits while the server's backlog is full: this limits the wait. */
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) == 0) {
		while (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
			if (errno == EINTR)
				continue;
			error = errno == EAGAIN ? -ETIMEDOUT : -errno;
			xts_own_close(fd);
			return error;
		}
		return fd;
	}
	error = -errno;
	xts_own_close(fd);
	return error;
}

static int wait_readable(int fd, int64_t deadline_ms)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (;;) {
		int64_t left = deadline_ms - now_ms();
		int ready = poll(&p, 1, left > 0 ? (int)left : 0);

		if (ready > 0)
			return 0;
		if (ready == 0 && left <= 0)
			return -ETIMEDOUT;
		if (ready < 0 && errno != EINTR)
			return -errno;
	}
}

/* Receives a message: the reply, or that the request waits, and at most ATTACH_DESCRIPTORS_MAX descriptors. Returns the
 * number of descriptors or -errno. */
static int reply_receive(int fd, struct xts_attach_reply *reply, int *fds)
{
	union {
		char bytes[CMSG_SPACE(sizeof(int) * ATTACH_DESCRIPTORS_MAX)];
		struct cmsghdr alignment;
	} control;
	struct iovec piece = { .iov_base = reply, .iov_len = sizeof *reply };
	struct msghdr m = {
		.msg_iov = &piece, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
	};
	ssize_t got;
	int count = 0;

	do
		got = recvmsg(fd, &m, MSG_CMSG_CLOEXEC);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
		size_t bytes = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(fds + count, CMSG_DATA(c), bytes);
		for (int end = count + (int)(bytes / sizeof(int)); count < end; count++)
			fds[count] = xts_own(fds[count]);
	}
	if (got == sizeof *reply && !(m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)))
		return count;
	if (got == sizeof(struct xts_attach_waiting) && reply->magic == XTS_ATTACH_WAITING_MAGIC && !count)
		return 0;
	close_all(fds, (size_t)count);
	if (got == sizeof *reply && (m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == MSG_CTRUNC &&
	    count < ATTACH_DESCRIPTORS_MAX)
		return -EMFILE; /* there was room for their numbers: the kernel had none for this process */
	return got == 0 ? -ECONNREFUSED : -EPROTO;
}

/* Waits for the reply and receives it, while the server says often enough that the request waits. Returns as
 * reply_receive(). */
static int reply_await(struct xts_attachment *out, int *fds, int timeout_ms)
{
	int64_t begin_ms = now_ms(), until_ms = begin_ms + timeout_ms;
	int count;

	for (;;) {
		count = wait_readable(out->connection, until_ms);
		if (!count)
			count = reply_receive(out->connection, &out->reply, fds);
		if (count || out->reply.magic != XTS_ATTACH_WAITING_MAGIC)
			return count;
		memset(&out->reply, 0, sizeof out->reply);
		out->waited = true;
		until_ms = now_ms() + timeout_ms;
		if (until_ms > begin_ms + XTS_ATTACH_WAIT_MAX_MS)
			until_ms = begin_ms + XTS_ATTACH_WAIT_MAX_MS;
		if (now_ms() > until_ms)
			return -ETIMEDOUT;
	}
}

/* The descriptors are those of the queue, and the status page's. */
static int reply_check(struct xts_attach_reply *reply, int descriptors)
{
	const struct xts_queue_kind *kind;

	reply->reason[sizeof reply->reason - 1] = 0;
	reply->interface[sizeof reply->interface - 1] = 0;
	if (reply->magic != XTS_ATTACH_MAGIC || reply->version != XTS_ATTACH_VERSION)
		return -EPROTO;
	if (reply->error)
		return reply->error > 0 && reply->error < 4096 ? -reply->error : -EPROTO;
	kind = xts_queue_kind(reply->kind);
	if (!kind || reply->token_bytes > sizeof reply->token)
		return -EPROTO;
	return descriptors == (int)kind->descriptors + 1 && reply->epoch ? 0 : -EPROTO;
}

static void status_unmap(struct xts_attachment *attachment)
{
	if (attachment->status)
		munmap(attachment->status, attachment->status_bytes);
	attachment->status = NULL;
	attachment->figures = NULL;
	attachment->clock = NULL;
	attachment->waits = NULL;
	attachment->polling = NULL;
	attachment->filters = NULL;
}

/* How much of a status page of this size is used: the page of an older server has no room for filters, waits, the
 * clock, or figures. */
static size_t status_size(uint64_t bytes)
{
	return bytes >= STATUS_BYTES  ? STATUS_BYTES :
	       bytes >= POLLING_BYTES ? POLLING_BYTES :
	       bytes >= CLOCK_BYTES   ? CLOCK_BYTES :
	       bytes >= FIGURES_BYTES ? FIGURES_BYTES :
					ENTRIES_BYTES;
}

static int status_map(struct xts_attachment *out, int fd)
{
	uint64_t there = xts_sealed_bytes(fd);
	size_t bytes = status_size(there);
	void *page;

	if (there < ENTRIES_BYTES)
		return -EPROTO;
	page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		return -errno;
	if (madvise(page, bytes, MADV_DONTFORK) < 0) {
		munmap(page, bytes);
		return -errno;
	}
	out->status = page;
	out->status_bytes = bytes;
	if (bytes >= FIGURES_BYTES)
		out->figures = (struct xts_status_figures *)((char *)page + ENTRIES_BYTES);
	if (bytes >= CLOCK_BYTES)
		out->clock = (struct xts_status_clock *)((char *)page + FIGURES_BYTES);
	if (bytes >= POLLING_BYTES) {
		out->waits = (struct xts_status_waits *)((char *)page + CLOCK_BYTES);
		out->polling = (struct xts_status_polling *)((char *)page + WAITS_BYTES);
	}
	if (bytes == STATUS_BYTES)
		out->filters = (struct xts_status_filter *)((char *)page + POLLING_BYTES);
	return 0;
}

/* Puts heads with the secret of the attachment on the frames of its queue, if it has one. */
static int heads_put_on(struct xts_attachment *out)
{
	struct xts_headed_config config = {
		.secret = (uint64_t)out->reply.secret_high << 32 | out->reply.secret_low,
		.number = out->reply.queue_id,
		.secrets_fd = -1,
	};

	return config.secret ? xts_headed_wrap(&out->queue, out->queue, &config) : 0;
}

/* Has lost frames repeated, if the operator wants it. */
static int repeat_lost(struct xts_attachment *out)
{
	struct xts_arq_config config = { .role = XTS_ARQ_HOST, .epoch = out->reply.epoch };

	return out->reply.reliable ? xts_arq_wrap(&out->queue, out->queue, &config) : 0;
}

/* Takes over the descriptors, also on failure. */
static int queue_open(struct xts_attachment *out, int *fds, uint32_t count)
{
	int error = xts_queue_adopt(&out->queue, XTS_QUEUE_HOST, fds, &out->reply);

	if (error) {
		close_all(fds, count);
		return error;
	}
	if (out->reply.relayed) /* the connection is to the agent, which the relay outlives; its bell tells of its end */
		out->queue->traits &= ~(uint32_t)XTS_QUEUE_DEATH_SHOWS;
	error = heads_put_on(out);
	if (!error)
		error = repeat_lost(out);
	if (error)
		xts_queue_close(out->queue); /* with its descriptors */
	return error;
}

/* Takes over the descriptors, also on failure. */
static int attachment_open(struct xts_attachment *out, int *fds)
{
	uint32_t of_queue = xts_queue_kind(out->reply.kind)->descriptors;
	int error = status_map(out, fds[of_queue]);

	xts_own_close(fds[of_queue]);
	if (error)
		close_all(fds, of_queue);
	else
		error = queue_open(out, fds, of_queue);
	if (!error)
		return 0;
	status_unmap(out);
	return error == -EINVAL || error == -EBADF ? -EPROTO : error;
}

int xts_attach(struct xts_attachment *out, const char *endpoint, const struct xts_attach_request *request, int timeout_ms)
{
	struct xts_attach_request mine = { 0 };
	int fds[ATTACH_DESCRIPTORS_MAX];
	int count, error;

	memset(out, 0, sizeof *out);
	memset(fds, -1, sizeof fds);
	out->connection = -1;
	error = endpoint_path(&endpoint);
	if (error)
		return error;
	if (request)
		mine = *request;
	mine.magic = XTS_ATTACH_MAGIC;
	mine.version = XTS_ATTACH_VERSION;
	if (!mine.program[0])
		strncpy(mine.program, program_invocation_short_name, sizeof mine.program - 1);
	mine.program[sizeof mine.program - 1] = 0;
	mine.waits = XTS_ATTACH_WAITS;
	mine.knows = XTS_ATTACH_KNOWS | XTS_ATTACH_SMALL_CHUNKS;
	out->connection = endpoint_connect(endpoint, timeout_ms > 0 ? timeout_ms : 1);
	if (out->connection < 0)
		return out->connection;
	/* EPIPE: the server refused before it had read the request. */
	if (send(out->connection, &mine, sizeof mine, MSG_NOSIGNAL) != (ssize_t)sizeof mine && errno != EPIPE)
		error = errno == EAGAIN ? -ETIMEDOUT : -errno;
	if (!error) {
		count = reply_await(out, fds, timeout_ms);
		error = count < 0 ? count : reply_check(&out->reply, count);
		if (error && count > 0)
			close_all(fds, (size_t)count);
		else if (!error)
			error = attachment_open(out, fds);
	}
	if (error) {
		xts_own_close(out->connection);
		out->connection = -1;
	}
	return error;
}

void xts_detach(struct xts_attachment *attachment)
{
	xts_queue_close(attachment->queue);
	if (attachment->figures)
		attachment->figures->closed = 1;
	status_unmap(attachment);
	if (attachment->connection >= 0)
		xts_own_close(attachment->connection);
	memset(attachment, 0, sizeof *attachment);
	attachment->connection = -1;
}
