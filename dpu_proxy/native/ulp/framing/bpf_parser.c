/*
 * BPF_PARSER: delineates PDUs with an eBPF program of the operator's (the paper, "strparser").
 *
 * The contract is that of the kernel's strparser (Documentation/networking/strparser.rst): the program sees the first
 * bytes of a PDU as its skb and returns the length of the PDU, 0 when it needs more bytes, or a negative errno. The
 * supervisor has loaded the program, so the kernel has verified it. The kernel also runs it, by BPF_PROG_TEST_RUN,
 * which needs no privilege beyond the program's descriptor. That call takes an Ethernet frame and pulls its header
 * before the program runs. So 14 bytes are put in front, and offset 0 is the first byte of the PDU.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "framing.h"
#include "framing_move.h"
#include "ulp/config.h"
#include "ulp/protocols.h"

/* --- running ------------------------------------------------------------------------------------------------------ */

/* Returns what the program returned, or -errno with *ran false. */
static int run(const struct bpf_parser *p, const uint8_t *data, uint32_t bytes, bool *ran)
{
	uint8_t frame[ETH_HLEN + ULP_FRAMING_HEAD_MAX] = { 0 };
	union bpf_attr attr;
	long r;

	memcpy(frame + ETH_HLEN, data, bytes);
	memset(&attr, 0, sizeof attr);
	attr.test.prog_fd = (uint32_t)p->program_fd;
	attr.test.data_in = (uintptr_t)frame;
	attr.test.data_size_in = ETH_HLEN + bytes;
	attr.test.repeat = 1;
	do {
		r = syscall(SYS_bpf, BPF_PROG_TEST_RUN, &attr, sizeof attr);
	} while (r < 0 && errno == EINTR);
	*ran = r >= 0;
	return r < 0 ? -errno : (int)attr.test.retval;
}

static int parse_head(struct ulp_layer *l, const uint8_t *data, uint32_t bytes, struct ulp_framing_head *head)
{
	const struct bpf_parser *p = l->state;
	uint32_t seen = bytes < ULP_FRAMING_HEAD_MAX ? bytes : ULP_FRAMING_HEAD_MAX;
	bool ran;
	int r = run(p, data, seen, &ran);

	if (!ran)
		return ulp_fail(l, XTS_FAULT_PARSER, "bpf_parser: the kernel did not run %s: %s", p->name, strerror(-r));
	if (r == -ESTRPIPE)
		return ulp_fail(l, XTS_FAULT_PARSER, "bpf_parser: %s gave the stream up (ESTRPIPE)", p->name);
	if (r < 0)
		return ulp_fail(l, XTS_FAULT_PARSER, "bpf_parser: %s returned %d (%s)", p->name, r, strerror(-r));
	if (!r && seen == ULP_FRAMING_HEAD_MAX)
		return ulp_fail(l, XTS_FAULT_PARSER, "bpf_parser: %s found no length in the first %u bytes", p->name,
				seen);
	head->length = (uint64_t)r;
	return r > 0;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

static int set_program(struct ulp_layer *l, struct bpf_parser *p, const struct ulp_attribute *a)
{
	int r = ulp_attribute_string(l, a, "PROGRAM", p->name, sizeof p->name);

	if (r)
		return r;
	p->program_fd = xts_ulp_config_parser(ulp_config(l), p->name);
	if (p->program_fd < 0)
		return ulp_refuse(l, ENOENT, "bpf_parser: the proxy's configuration has no program %s", p->name);
	return 0;
}

static int set_attribute(struct ulp_layer *l, const struct ulp_attribute *a)
{
	struct bpf_parser *p = l->state;

	switch (a->type) {
	case XTS_BPF_PARSER_MAX_BYTES:
		return ulp_max_bytes(l, a, &p->framing.max_bytes);
	case XTS_BPF_PARSER_PROGRAM:
		return set_program(l, p, a);
	case XTS_BPF_PARSER_TIMEOUT_MS:
		return ulp_attribute_u32(l, a, "TIMEOUT_MS", &p->framing.timeout_ms);
	default:
		return ulp_attribute_unknown(l, a);
	}
}

static int bpf_parser_open(struct ulp_layer *l, const uint8_t *attributes, uint32_t bytes)
{
	struct bpf_parser *p = calloc(1, sizeof *p);
	int r;

	if (!p)
		return ulp_refuse(l, ENOMEM, "no memory for bpf_parser");
	l->state = p;
	p->program_fd = -1;
	p->framing.parse = parse_head;
	p->framing.max_bytes = ulp_max_bytes_default(l);
	r = ulp_attributes(l, attributes, bytes, set_attribute);
	if (!r && p->program_fd < 0)
		r = ulp_refuse(l, EINVAL, "bpf_parser: PROGRAM is required");
	return r;
}

/* --- to another process, and from it ------------------------------------------------------------------------------ */

static ssize_t bpf_parser_save(const struct ulp_layer *l, void *out, size_t room)
{
	return ulp_state_save(&bpf_parser_record, l, out, room);
}

/* By the program that the operator has there under this name. */
static int bpf_parser_restore(struct ulp_layer *l, const void *state, size_t bytes)
{
	int r = ulp_state_restore(&bpf_parser_record, l, sizeof(struct bpf_parser), state, bytes);
	struct bpf_parser *p = l->state;

	if (r)
		return r;
	p->framing.parse = parse_head;
	if (!memchr(p->name, 0, sizeof p->name))
		return -EBADMSG;
	p->program_fd = xts_ulp_config_parser(ulp_config(l), p->name);
	return p->program_fd < 0 ? -ENOENT : 0;
}

const struct ulp_protocol ulp_bpf_parser = {
	.id = XTS_ULP_BPF_PARSER,
	.version = XTS_ULP_BPF_PARSER_VERSION,
	.name = "bpf_parser",
	.receive = true,
	.boundaries = true,
	.transparent = true,
	.open = bpf_parser_open,
	.read = ulp_framed_read,
	.pending = ulp_framed_pending,
	.save = bpf_parser_save,
	.restore = bpf_parser_restore,
	.moves_since = 2,
	.rests = ulp_framed_rests,
	.close = ulp_framed_close,
};
