/*
 * Filters of datagram sockets (SO_ATTACH_FILTER): classic BPF programs, which run on the device's socket. The kernel's
 * option has a pointer to the program; the message to the proxy has the program itself.
 */
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>

#include "datagrams/datagram_calls.h"
#include "core/arguments.h"
#include "datagrams/datagrams.h"
#include "core/error.h"
#include "attaching/attach.h"
#include "core/channel.h"
#include "core/socket.h"
#include "core/stack.h"
#include "attaching/status.h"
#include "xts.h"

_Static_assert(SO_XTS_FILTER == XTS_OPTION_FILTER, "the option of the messages");

#ifndef SO_ATTACH_REUSEPORT_CBPF
#define SO_ATTACH_REUSEPORT_CBPF 51
#define SO_ATTACH_REUSEPORT_EBPF 52
#endif

static int program_of(const void **value, socklen_t *length)
{
	struct sock_fprog program;

	if (*length != sizeof program)
		return -EINVAL;
	memcpy(&program, *value, sizeof program);
	if (!program.filter || !program.len || program.len > BPF_MAXINSNS)
		return -EINVAL;
	if (!xts_argument_is_readable(program.filter, program.len * sizeof program.filter[0]))
		return -EFAULT;
	if (program.len * sizeof program.filter[0] > XTS_FILTER_BYTES_MAX) {
		last_error_note(ENOMEM, "a filter on an offloaded socket has at most %zu instructions",
				XTS_FILTER_BYTES_MAX / sizeof program.filter[0]);
		return -ENOMEM;
	}
	*value = program.filter;
	*length = (socklen_t)(program.len * sizeof program.filter[0]);
	return 1;
}

int datagram_filter_value(int option, const void **value, socklen_t *length)
{
	if (option == SO_ATTACH_FILTER)
		return program_of(value, length);
	if (option != SO_ATTACH_BPF && option != SO_ATTACH_REUSEPORT_EBPF)
		return 1;
	if (*length < sizeof(int))
		return -EINVAL;
	last_error_note(EOPNOTSUPP,
			"the descriptor names a BPF program of this host's kernel, and the socket is the "
			"device's: SO_ATTACH_FILTER brings a program with it, and SO_XTS_FILTER names one there");
	return -EOPNOTSUPP;
}

/* For `xts status`. */
static void show(const struct xts_sock *s)
{
	struct xts_status_filter *out = s->stack->channel ? s->stack->channel->attachment.filters : NULL;
	const struct filter *f = s->datagrams->filter;
	uint32_t index = table_place(s);

	_Static_assert(XTS_STATUS_FILTER_NAME > XTS_FILTER_NAME_BYTES_MAX, "with its end");
	if (!out || index >= XTS_STATUS_ENTRIES)
		return;
	out += index;
	out->magic = 0;
	if (!f)
		return;
	memset(out->name, 0, sizeof out->name);
	out->instructions = f->named ? 0 : f->bytes / (uint32_t)sizeof(struct sock_filter);
	if (f->named)
		memcpy(out->name, f->program, f->bytes);
	out->xts_socket = s->id;
	out->magic = XTS_FILTERS_MAGIC;
}

void datagram_filter_was_set(struct xts_sock *s, int option, const void *program, socklen_t bytes)
{
	struct filter *f = NULL;

	if (option != SO_ATTACH_FILTER && option != SO_DETACH_FILTER && option != SO_XTS_FILTER)
		return;
	if (option != SO_DETACH_FILTER && bytes)
		f = malloc(sizeof *f + bytes);
	if (f) { /* without memory the filter is in force, but SO_GET_FILTER does not return it */
		f->bytes = bytes;
		f->named = option == SO_XTS_FILTER;
		memcpy(f->program, program, bytes);
	}
	free(s->datagrams->filter);
	s->datagrams->filter = f;
	show(s);
}

int datagram_filter_get(const struct xts_sock *s, void *value, socklen_t *length)
{
	const struct filter *f = s->datagrams->filter;
	socklen_t count = f ? f->bytes / (socklen_t)sizeof(struct sock_filter) : 0;

	if (f && f->named)
		return -EACCES; /* as for any filter that is not a classic one */
	if (count && *length && *length < count)
		return -EINVAL;
	if (count && *length)
		memcpy(value, f->program, f->bytes);
	*length = count;
	return 0;
}

int datagram_filter_name(const struct xts_sock *s, void *value, socklen_t *length)
{
	const struct filter *f = s->datagrams->filter;
	socklen_t bytes = f && f->named ? f->bytes : 0;

	if (*length > bytes)
		*length = bytes;
	if (*length)
		memcpy(value, f->program, *length);
	return 0;
}
