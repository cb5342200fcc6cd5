/*
 * Filters of datagram sockets: a classic BPF program (SO_ATTACH_FILTER) of a host, or an eBPF program of the operator
 * that the host names (XTS_OPTION_FILTER). The device's kernel runs it for each datagram that arrives for the socket. A
 * datagram that the filter drops never crosses the queue.
 *
 * A host's program has no loops and no memory that outlives a run, and sees only the packet that it runs for. The
 * kernel checks that its jumps stay inside it and that it ends. What remains to be refused here are loads of data of
 * the device: marks, receive queues, processors, VLANs; and of the frame that it came in, whose head is the device's
 * (SKF_LL_OFF). An offset that the program computes could lead there, too. So a program with such loads (BPF_IND) may
 * make its index only of the length of a header, the length of the packet, and small constants, as compilers of filters
 * do. Each run costs the device's kernel at most as many instructions
 * as the program has, in the context that receives packets. So the length of a program is limited
 * (XTS_FILTER_BYTES_MAX), and all instructions of a tenant together are counted.
 *
 * An operator's program was loaded by the supervisor, and the kernel's verifier has checked it. For the host it counts
 * as one instruction; the operator has to know what each run costs.
 *
 * A socket of several processes has one filter, whichever process has set it. It is charged until the last of them has
 * closed the socket; the count is in struct shared, under the registry's lock.
 *
 * The kernel counts datagrams dropped by the filter together with those that it had no room for (SO_RXQ_OVFL,
 * SO_MEMINFO). The totals of an operator's filter are the sum of this count while sockets had the filter. They are
 * updated with the next datagram that passes, and when the socket gets another filter or is closed.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/sock_diag.h>
#include <stdatomic.h>
#include <string.h>

#include "datagrams/datagram_socket.h"
#include "datagrams/filter_totals.h"
#include "processes/share.h"
#include "ulp/config.h"

/* Estimated memory of an instruction in the device's kernel: as received, as the kernel runs it, and compiled. */
#define INSTRUCTION_BYTES 64u
#define ANCILLARY ((uint32_t)SKF_AD_OFF)
#define NETWORK ((uint32_t)SKF_NET_OFF)
#define INDEX_MAX 0x10000u /* more than a packet has */

_Static_assert(XTS_FILTER_NAME_BYTES == XTS_FILTER_NAME_BYTES_MAX + 1, "with its end");

struct filter {
	struct sock_filter instruction[XTS_FILTER_BYTES_MAX / sizeof(struct sock_filter)];
	uint32_t count;
};

bool filter_is_option(int level, int option)
{
	return (level == SOL_SOCKET && (option == SO_ATTACH_FILTER || option == SO_DETACH_FILTER)) ||
	       (level == XTS_SOL_XTS && option == XTS_OPTION_FILTER);
}

/* Makes a private copy, so that the host's memory is read only once. 0 or an errno. */
static int copy(struct filter *f, const void *value, uint32_t bytes)
{
	if (!bytes || bytes > sizeof f->instruction || bytes % sizeof f->instruction[0])
		return EINVAL;
	memcpy(f->instruction, value, bytes);
	f->count = bytes / (uint32_t)sizeof f->instruction[0];
	return 0;
}

/* May a program load this, of what the kernel knows about a packet besides its bytes? */
static bool may_load(uint32_t what)
{
	return what == SKF_AD_PROTOCOL || what == SKF_AD_PKTTYPE || what == SKF_AD_IFINDEX ||
	       what == SKF_AD_ALU_XOR_X || what == SKF_AD_PAY_OFFSET || what == SKF_AD_RANDOM;
}

/* May a program load from here? The packet, its network header, and some of what the kernel knows. */
static bool is_harmless(uint32_t at)
{
	if (at >= ANCILLARY)
		return may_load(at - ANCILLARY);
	return at <= INT32_MAX || at >= NETWORK;
}

static bool loads_from(const struct sock_filter *one, uint16_t mode)
{
	return (BPF_CLASS(one->code) == BPF_LD || BPF_CLASS(one->code) == BPF_LDX) && BPF_MODE(one->code) == mode;
}

/* Can the index be so large after this that it, and an offset, wrap around? */
static bool index_is_open(const struct sock_filter *one)
{
	if (BPF_CLASS(one->code) == BPF_MISC)
		return BPF_MISCOP(one->code) == BPF_TAX;
	return BPF_CLASS(one->code) == BPF_LDX &&
	       (BPF_MODE(one->code) == BPF_MEM || (BPF_MODE(one->code) == BPF_IMM && one->k > INDEX_MAX));
}

static bool loads_are_harmless(const struct filter *f)
{
	bool indexed = false, open = false;

	for (uint32_t i = 0; i < f->count; i++) {
		const struct sock_filter *one = &f->instruction[i];

		if ((loads_from(one, BPF_ABS) || loads_from(one, BPF_MSH)) && !is_harmless(one->k))
			return false;
		if (loads_from(one, BPF_IND) && one->k > INT32_MAX - INDEX_MAX)
			return false;
		indexed |= loads_from(one, BPF_IND);
		open |= index_is_open(one);
	}
	return !indexed || !open;
}

static bool is_common(const struct connection *c)
{
	return c->shared && !c->shared->ended;
}

static struct filter_use *use_of(const struct connection *c)
{
	return is_common(c) ? &c->shared->filter : &c->datagrams->filter;
}

static void give_back(struct xts_tenant *t, uint32_t count)
{
	tenant_give(t, XTS_USE_FILTERS, count);
	tenant_give(t, XTS_USE_SOCKET_BYTES, (uint64_t)count * INSTRUCTION_BYTES);
}

/* Charges the tenant for this many instructions instead of the former ones. False: over the tenant's limit. */
static bool charge(struct connection *c, uint32_t count)
{
	uint32_t *charged = &use_of(c)->instructions;
	uint32_t before = *charged, more = count > before ? count - before : 0;
	uint64_t bytes = (uint64_t)more * INSTRUCTION_BYTES;

	if (more && !tenant_take(c->tenant, XTS_USE_FILTERS, more))
		return false;
	if (more && !tenant_take(c->tenant, XTS_USE_SOCKET_BYTES, bytes)) {
		tenant_give(c->tenant, XTS_USE_FILTERS, more);
		return false;
	}
	if (before > count)
		give_back(c->tenant, before - count);
	*charged = count;
	return true;
}

/* How many datagrams the kernel has dropped at this socket so far; `known` if it does not say. */
static uint32_t kernel_drops(int fd, uint32_t known)
{
	uint32_t info[SK_MEMINFO_VARS] = { 0 };
	socklen_t length = sizeof info;

	if (getsockopt(fd, SOL_SOCKET, SO_MEMINFO, info, &length) || length <= SK_MEMINFO_DROPS * sizeof info[0])
		return known;
	return info[SK_MEMINFO_DROPS];
}

/* Adds new drops to the totals. Each is counted once, whichever worker of a shared socket's members sees it first. */
static void count_drops(struct filter_use *use, uint32_t dropped)
{
	struct filter_totals *totals = use->totals;
	uint32_t before = use->dropped;

	do {
		if (!totals || (int32_t)(dropped - before) <= 0)
			return;
	} while (!atomic_compare_exchange_weak(&use->dropped, &before, dropped));
	filter_totals_dropped(totals, dropped - before);
}

static void leave_totals(struct filter_use *use, int fd)
{
	if (!use->totals)
		return;
	count_drops(use, kernel_drops(fd, use->dropped));
	filter_totals_leave(use->totals);
	use->totals = NULL;
}

/* The socket now has the operator's filter of these totals, or (NULL) a filter of the host, or none. */
static void change_totals(struct filter_use *use, int fd, struct filter_totals *totals)
{
	leave_totals(use, fd);
	if (!totals)
		return;
	use->dropped = kernel_drops(fd, 0);
	use->totals = totals;
}

void filter_drops_known(struct connection *c, uint32_t dropped)
{
	count_drops(use_of(c), dropped); /* this runs between two messages, so it must not take the registry's lock */
}

/* Sets an option that is a filter of this many instructions; name: the operator's name for
 * it, or NULL. 0 or an errno. */
static int attach_charged(struct connection *c, uint32_t count, const char *name, int option, const void *value,
			  socklen_t bytes)
{
	uint32_t before = use_of(c)->instructions;
	struct filter_totals *totals = NULL;
	int error;

	if (count > before && !charge(c, count))
		return command_refuse(c->channel, XTS_REFUSED_FILTERS);
	if (name[0]) {
		totals = filter_totals_join(name);
		if (!totals) {
			(void)charge(c, before);
			return ENOBUFS;
		}
	}
	error = setsockopt(c->tcp.fd, SOL_SOCKET, option, value, bytes) ? errno : 0;
	(void)charge(c, error ? before : count); /* this only gives back */
	if (!error)
		change_totals(use_of(c), c->tcp.fd, totals);
	else if (totals)
		filter_totals_leave(totals);
	return error;
}

static int attach(struct connection *c, const void *value, uint32_t bytes)
{
	struct filter f;
	struct sock_fprog program = { .filter = f.instruction };
	int error = copy(&f, value, bytes);

	if (error)
		return error;
	if (!loads_are_harmless(&f))
		return command_refuse(c->channel, XTS_REFUSED_FILTER_LOADS);
	program.len = (unsigned short)f.count;
	return attach_charged(c, f.count, "", SO_ATTACH_FILTER, &program, sizeof program);
}

static int detach(struct connection *c)
{
	const int unused = 0;

	if (setsockopt(c->tcp.fd, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof unused))
		return errno;
	(void)charge(c, 0);
	change_totals(use_of(c), c->tcp.fd, NULL);
	return 0;
}

/* The operator's program of this name, for this host's tenant. */
static int attach_named(struct connection *c, const void *value, uint32_t bytes)
{
	char name[XTS_FILTER_NAME_BYTES_MAX + 1];
	int fd;

	if (bytes > XTS_FILTER_NAME_BYTES_MAX)
		return EINVAL;
	memcpy(name, value, bytes);
	name[bytes] = 0;
	if (!name[0])
		return detach(c);
	fd = xts_ulp_config_filter(c->worker->config.ulp, name, c->tenant->id);
	if (fd < 0)
		return command_refuse(c->channel, XTS_REFUSED_FILTER_NAME);
	return attach_charged(c, 1, name, SO_ATTACH_BPF, &fd, sizeof fd);
}

int filter_set(struct connection *c, int option, const void *value, uint32_t bytes)
{
	bool shared = c->shared;
	int error;

	if (shared)
		registry_lock();
	error = option == SO_ATTACH_FILTER  ? attach(c, value, bytes) :
		option == XTS_OPTION_FILTER ? attach_named(c, value, bytes) :
					      detach(c);
	if (shared)
		registry_unlock();
	return error;
}

struct filter_use filter_of(const struct connection *c)
{
	bool shared = c->shared;
	struct filter_use use;

	if (shared)
		registry_lock();
	use = *use_of(c);
	if (shared)
		registry_unlock();
	return use;
}

int filter_arrives(struct connection *c, const struct datagram_side *s)
{
	struct filter_use *use = &c->datagrams->filter;
	char name[XTS_FILTER_NAME_BYTES_MAX + 1] = { 0 };

	if (s->filter_name.bytes) {
		memcpy(name, s->filter_name.data, s->filter_name.bytes);
		use->totals = filter_totals_join(name);
		if (!use->totals)
			return -ENOMEM;
	}
	use->dropped = s->filter_dropped;
	use->instructions = s->filter_instructions;
	tenant_take_anyway(c->tenant, XTS_USE_FILTERS, use->instructions);
	tenant_take_anyway(c->tenant, XTS_USE_SOCKET_BYTES, (uint64_t)use->instructions * INSTRUCTION_BYTES);
	return 0;
}

void filter_joins(struct connection *c)
{
	struct filter_use *use = &c->datagrams->filter;

	if (use->totals)
		filter_totals_leave(use->totals); /* what was dropped, the socket's own one counts */
	give_back(c->tenant, use->instructions);
	*use = (struct filter_use){ 0 };
}

void filter_free(struct connection *c)
{
	if (is_common(c))
		return;
	(void)charge(c, 0);
	leave_totals(&c->datagrams->filter, c->tcp.fd);
}

void filter_share(struct connection *c, struct shared *s)
{
	s->filter = c->datagrams->filter;
	c->datagrams->filter = (struct filter_use){ 0 };
}

void filter_unshare(struct connection *c, struct shared *s)
{
	c->datagrams->filter = s->filter;
	s->filter = (struct filter_use){ 0 };
}

void filter_end(struct shared *s)
{
	leave_totals(&s->filter, s->fd);
	if (s->filter.instructions)
		give_back(s->keyed.tenant, s->filter.instructions);
	s->filter = (struct filter_use){ 0 };
}
