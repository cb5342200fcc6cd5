/*
 * A decorator that writes every frame, in both directions, to a capture file (libpcap format, nanoseconds, Ethernet),
 * for Wireshark and tshark with the dissector of deploy/wireshark. Frames are written when they are submitted and
 * received, not when they cross the queue; after each kick the file is complete up to the last frame.
 *
 * The file is always a new one, which only its owner can read. If a file of that name exists already, from another run
 * or process, it is left alone, and the capture's name gets ".1", ".2" … appended. In the name, %p is the process's id
 * and %e the program's name, as in core(5): who reads the file later knows whose it is, though the process has ended.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/notice.h"
#include "common/own_descriptors.h"
#include "queues/queue.h"
#include "wire/secrets.h"
#include "wire/wire.h"

#define PCAP_MAGIC_NS 0xa1b23c4du
#define PCAP_SNAPLEN 65535u
#define PCAP_LINKTYPE_ETHERNET 1u
#define PCAP_NAMES_MAX 1000u /* captures of one name */
#define PCAP_NAME_BYTES 4096u
#define PCAP_PROGRAM_BYTES 64u

struct pcap_queue {
	struct xts_queue base;
	FILE *file;
	bool ended; /* a write has failed */
};

static struct pcap_queue *pcap_of(struct xts_queue *q)
{
	return (struct pcap_queue *)q;
}

/* Writes a frame without its secrets. What is behind XTS_SECRETS_WITHIN is written as zeros. */
static void write_blanked(FILE *file, const struct iovec *first, uint32_t bytes)
{
	uint8_t copy[XTS_SECRETS_WITHIN];
	uint32_t n = first->iov_len < sizeof copy ? (uint32_t)first->iov_len : (uint32_t)sizeof copy;

	memcpy(copy, first->iov_base, n);
	xts_blank_secrets(copy, n);
	(void)fwrite(copy, 1, n, file);
	explicit_bzero(copy, n);
	for (; n < bytes; n++)
		putc(0, file);
}

static bool is_secret(const struct iovec *first)
{
	struct xts_head head;

	return xts_head_decode(&head, first->iov_base, first->iov_len) == 0 && xts_has_secrets(head.type);
}

static void pcap_write(struct pcap_queue *q, const struct iovec *piece, uint32_t pieces, uint32_t bytes)
{
	struct timespec t;
	uint32_t head[4];

	clock_gettime(CLOCK_REALTIME, &t);
	head[0] = (uint32_t)t.tv_sec;
	head[1] = (uint32_t)t.tv_nsec;
	head[2] = head[3] = bytes;
	if (q->ended)
		return;
	(void)fwrite(head, sizeof head, 1, q->file);
	if (is_secret(piece)) {
		write_blanked(q->file, piece, bytes);
		return;
	}
	for (uint32_t i = 0; i < pieces; i++)
		(void)fwrite(piece[i].iov_base, 1, piece[i].iov_len, q->file);
}

/* A full disk must not stop the traffic: the capture then ends early, with a notice. */
static void pcap_flush(struct pcap_queue *q)
{
	if (q->ended || (fflush(q->file) == 0 && !ferror(q->file)))
		return;
	q->ended = true;
	xts_notice("the capture of this process's frames ends here: %s", strerror(errno));
}

/* The figures are those of the inner queue. */
static void pcap_sync(struct pcap_queue *q)
{
	q->base.stats = q->base.inner->stats;
}

static int pcap_acquire(struct xts_queue *base, struct xts_tx_slot *slot)
{
	int error = xts_queue_acquire(pcap_of(base)->base.inner, slot);

	if (error)
		pcap_sync(pcap_of(base));
	return error;
}

static void pcap_submit(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct iovec piece = { .iov_base = slot->data, .iov_len = bytes };

	pcap_write(pcap_of(base), &piece, 1, bytes);
	xts_queue_submit(pcap_of(base)->base.inner, slot, bytes);
}

static void pcap_abandon(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	xts_queue_abandon(pcap_of(base)->base.inner, slot);
}

static int pcap_kick(struct xts_queue *base)
{
	int error = xts_queue_kick(pcap_of(base)->base.inner);

	pcap_flush(pcap_of(base));
	pcap_sync(pcap_of(base));
	return error;
}

static int pcap_receive(struct xts_queue *base, struct xts_rx_frame *frame)
{
	int got = xts_queue_receive(pcap_of(base)->base.inner, frame);

	if (got == 1)
		pcap_write(pcap_of(base), frame->segment, frame->segments, frame->bytes);
	pcap_sync(pcap_of(base));
	return got;
}

static void pcap_recycle(struct xts_queue *base, const struct xts_rx_frame *frame)
{
	xts_queue_recycle(pcap_of(base)->base.inner, frame);
}

static int pcap_arm(struct xts_queue *base)
{
	int ready = xts_queue_arm(pcap_of(base)->base.inner);

	pcap_flush(pcap_of(base));
	pcap_sync(pcap_of(base));
	return ready;
}

static void pcap_disarm(struct xts_queue *base)
{
	xts_queue_disarm(pcap_of(base)->base.inner);
	pcap_sync(pcap_of(base));
}

/* What %c stands for; NULL: nothing. A program names itself: its name adds no folder to the path. */
static const char *stands_for(char c, char text[PCAP_PROGRAM_BYTES])
{
	switch (c) {
	case '%':
		return "%";
	case 'p':
		snprintf(text, PCAP_PROGRAM_BYTES, "%d", (int)getpid());
		return text;
	case 'e':
		snprintf(text, PCAP_PROGRAM_BYTES, "%s", program_invocation_short_name);
		for (char *at = text; (at = strchr(at, '/'));)
			*at = '!';
		return text;
	default:
		return NULL;
	}
}

/* Bytes of the name. -EINVAL: there is another letter behind a %; -ENAMETOOLONG. */
static int fill_in(char name[PCAP_NAME_BYTES], const char *path)
{
	char text[PCAP_PROGRAM_BYTES];
	size_t used = 0;

	for (; *path; path++) {
		const char *part = *path == '%' ? stands_for(*++path, text) : path;
		size_t bytes = part == path ? 1 : part ? strlen(part) : 0;

		if (!part)
			return -EINVAL;
		if (used + bytes >= PCAP_NAME_BYTES)
			return -ENAMETOOLONG;
		memcpy(name + used, part, bytes);
		used += bytes;
	}
	name[used] = 0;
	return (int)used;
}

/* Opens a new file of that name, or of the name with the first free number appended. NULL and errno. */
static FILE *open_file(const char *path, char name[PCAP_NAME_BYTES])
{
	FILE *file;
	int fd = -1, bytes = fill_in(name, path);

	if (bytes < 0) {
		errno = -bytes;
		return NULL;
	}
	for (unsigned i = 0; fd < 0 && i < PCAP_NAMES_MAX; i++) {
		size_t room = PCAP_NAME_BYTES - (size_t)bytes;

		if (i && (size_t)snprintf(name + bytes, room, ".%u", i) >= room) {
			errno = ENAMETOOLONG;
			return NULL;
		}
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 && errno != EEXIST)
			return NULL;
	}
	fd = xts_own(fd);
	file = fd < 0 ? NULL : fdopen(fd, "wb");
	if (fd >= 0 && !file)
		xts_own_close(fd);
	return file;
}

static void close_file(FILE *file)
{
	if (xts_own_hooks.disown)
		xts_own_hooks.disown(fileno(file));
	fclose(file);
}

static void pcap_close(struct xts_queue *base)
{
	struct pcap_queue *q = pcap_of(base);

	xts_queue_close(q->base.inner);
	close_file(q->file);
	free(q);
}

static void pcap_retain(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	xts_queue_retain(pcap_of(base)->base.inner, slot);
}

static int pcap_submit_retained(struct xts_queue *base, const struct xts_tx_slot *slot, uint32_t bytes)
{
	struct iovec piece = { .iov_base = slot->data, .iov_len = bytes };
	int error = xts_queue_submit_retained(pcap_of(base)->base.inner, slot, bytes);

	if (!error)
		pcap_write(pcap_of(base), &piece, 1, bytes);
	return error;
}

static void pcap_release(struct xts_queue *base, const struct xts_tx_slot *slot)
{
	xts_queue_release(pcap_of(base)->base.inner, slot);
}

static const struct xts_queue_ops pcap_ops = {
	.kind = "pcap",
	.acquire = pcap_acquire,
	.submit = pcap_submit,
	.abandon = pcap_abandon,
	.kick = pcap_kick,
	.receive = pcap_receive,
	.recycle = pcap_recycle,
	.arm = pcap_arm,
	.disarm = pcap_disarm,
	.close = pcap_close,
	.retain = pcap_retain,
	.submit_retained = pcap_submit_retained,
	.release = pcap_release,
};

int xts_pcap_wrap(struct xts_queue **out, struct xts_queue *inner, const char *path)
{
	static const struct {
		uint32_t magic;
		uint16_t major, minor;
		uint32_t zone, accuracy, snaplen, linktype;
	} head = { PCAP_MAGIC_NS, 2, 4, 0, 0, PCAP_SNAPLEN, PCAP_LINKTYPE_ETHERNET };
	struct pcap_queue *q = calloc(1, sizeof *q);
	char name[PCAP_NAME_BYTES];
	int error;

	if (!q)
		return -ENOMEM;
	q->base = *inner;
	q->base.ops = &pcap_ops;
	q->base.inner = inner;
	q->file = open_file(path, name);
	if (q->file && fwrite(&head, sizeof head, 1, q->file) == 1 && fflush(q->file) == 0) {
		*out = &q->base;
		return 0;
	}
	error = -errno;
	if (q->file) {
		close_file(q->file);
		unlink(name); /* it was made just now, and is empty */
	}
	free(q);
	return error;
}
