/*
 * Filters of datagram sockets: classic BPF programs (SO_ATTACH_FILTER) of a host, which the device's kernel runs for
 * each datagram that comes for the socket. What a filter drops never crosses the queue.
 *
 * A program has no loops and no memory that outlives a run, and sees the packet that it is asked about. The kernel
 * checks that its jumps stay within it and that it ends. What is left to refuse here are loads of what is the device's:
 * marks, receive queues, processors, VLANs. Each run costs the device's kernel as many instructions as the program has
 * at most, in the time of whatever receives packets: so a program is short (XTS_FILTER_BYTES_MAX), and all of a tenant
 * together are counted.
 *
 * The kernel counts what a filter drops together with what it has no room for (SO_RXQ_OVFL).
 */
#include <errno.h>
#include <linux/filter.h>
#include <string.h>

#include "datagram_socket.h"

/* Of an instruction in the device's kernel: as it came, as the kernel runs it, and compiled; estimated. */
#define INSTRUCTION_BYTES 64u
#define ANCILLARY ((uint32_t)SKF_AD_OFF)

struct filter {
	struct sock_filter instruction[XTS_FILTER_BYTES_MAX / sizeof(struct sock_filter)];
	uint32_t count;
};

bool filter_is_option(int level, int option)
{
	return level == SOL_SOCKET && (option == SO_ATTACH_FILTER || option == SO_DETACH_FILTER);
}

/* A private copy: the host's memory is read once. 0 or an errno. */
static int copy(struct filter *f, const void *value, uint32_t bytes)
{
	if (!bytes || bytes > sizeof f->instruction || bytes % sizeof f->instruction[0])
		return EINVAL;
	memcpy(f->instruction, value, bytes);
	f->count = bytes / (uint32_t)sizeof f->instruction[0];
	return 0;
}

/* Of what the kernel knows about a packet in addition to its bytes. */
static bool may_load(uint32_t what)
{
	return what == SKF_AD_PROTOCOL || what == SKF_AD_PKTTYPE || what == SKF_AD_IFINDEX ||
	       what == SKF_AD_ALU_XOR_X || what == SKF_AD_PAY_OFFSET || what == SKF_AD_RANDOM;
}

static bool loads_are_harmless(const struct filter *f)
{
	for (uint32_t i = 0; i < f->count; i++) {
		const struct sock_filter *one = &f->instruction[i];

		if (BPF_CLASS(one->code) == BPF_LD && BPF_MODE(one->code) == BPF_ABS && one->k >= ANCILLARY &&
		    !may_load(one->k - ANCILLARY))
			return false;
	}
	return true;
}

/* Charges for as many instructions as it now has. False: the tenant has no room for them. */
static bool charge(struct connection *c, uint32_t count)
{
	uint32_t before = c->datagrams->filter_instructions, more = count > before ? count - before : 0;
	uint64_t bytes = (uint64_t)more * INSTRUCTION_BYTES;

	if (more && !tenant_take(c->tenant, XTS_USE_FILTERS, more))
		return false;
	if (more && !tenant_take(c->tenant, XTS_USE_SOCKET_BYTES, bytes)) {
		tenant_give(c->tenant, XTS_USE_FILTERS, more);
		return false;
	}
	if (before > count) {
		tenant_give(c->tenant, XTS_USE_FILTERS, before - count);
		tenant_give(c->tenant, XTS_USE_SOCKET_BYTES, (uint64_t)(before - count) * INSTRUCTION_BYTES);
	}
	c->datagrams->filter_instructions = count;
	return true;
}

static int attach(struct connection *c, const void *value, uint32_t bytes)
{
	struct filter f;
	struct sock_fprog program = { .filter = f.instruction };
	uint32_t before = c->datagrams->filter_instructions;
	int error = copy(&f, value, bytes);

	if (error)
		return error;
	if (!loads_are_harmless(&f))
		return command_refuse(c->channel, XTS_REFUSED_FILTER_LOADS);
	if (f.count > before && !charge(c, f.count))
		return command_refuse(c->channel, XTS_REFUSED_FILTERS);
	program.len = (unsigned short)f.count;
	error = setsockopt(c->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) ? errno : 0;
	(void)charge(c, error ? before : f.count); /* gives back; takes nothing */
	return error;
}

int filter_set(struct connection *c, int option, const void *value, uint32_t bytes)
{
	const int unused = 0;

	if (option == SO_ATTACH_FILTER)
		return attach(c, value, bytes);
	if (setsockopt(c->fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused))
		return errno;
	filter_free(c);
	return 0;
}

void filter_free(struct connection *c)
{
	(void)charge(c, 0);
}
