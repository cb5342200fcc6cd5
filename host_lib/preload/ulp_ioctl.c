/*
 * Pushing protocols with ioctl() (SIOC_PUSH_ULP and the others of xts.h), for programs that know only descriptors.
 *
 * A push on an offloaded socket goes to the proxy. A push on an undecided socket is recorded, and repeated when the
 * rules offload it. If the rules leave it to the kernel, or the proxy refuses, its bind, connect or listen fails: the
 * data must not be sent without the protocol (for example TLS). For the same reason a listener with protocols does not
 * serve this host's own loopback through the kernel.
 */
#include "preload.h"

#include <string.h>

#include "undecided_options.h"
#include "ulp_wire.h"

bool push_is_request(unsigned long request)
{
	return request >= SIOC_PUSH_ULP_RX && request <= SIOC_END_PEEK_MODE;
}

int push_refuse(int fd, enum xts_reason reason)
{
	preload_refused();
	preload_log("descriptor %d: stays with the kernel (%s): nothing can be pushed onto it", fd,
		    xts_reason_name(reason));
	errno = EOPNOTSUPP;
	return -1;
}

/* The size of the argument in bytes; -1 and errno. */
static int argument_bytes(unsigned long request, const void *argument)
{
	struct ulp_info info;

	if (!argument) {
		errno = EFAULT;
		return -1;
	}
	if (request == SIOC_PEEK_MODE)
		return sizeof(int);
	if (request == SIOC_END_PEEK_MODE) {
		errno = EINVAL; /* a socket that is not offloaded is never in peek mode */
		return -1;
	}
	memcpy(&info, argument, sizeof info);
	if (info.ulp_id && info.ulp_bytes <= XTS_ULP_INFO_BYTES_MAX)
		return (int)(sizeof info + info.ulp_bytes);
	errno = EINVAL;
	return -1;
}

static int push_undecided(int fd, struct descriptor d, unsigned long request, void *argument)
{
	int bytes = argument_bytes(request, argument), noted;
	uint32_t number = 0;

	if (bytes < 0)
		return -1;
	noted = option_note(fd, d, &number);
	if (noted <= 0)
		return noted < 0 ? -1 : ioctl(fd, request, argument);
	if (note_push(number, request, argument, (uint32_t)bytes))
		return 0;
	errno = ENOBUFS;
	return -1;
}

static int push_offloaded(int fd, struct descriptor d, unsigned long request, void *argument)
{
	struct descriptor pushed = d;
	int r;

	if (d.flags & DESCRIPTOR_ALSO_LOCAL && d.flags & DESCRIPTOR_LISTENS)
		return push_refuse(fd, XTS_REASON_LOCAL);
	r = XTS(xts_ioctl((int)d.number, request, argument));
	pushed.flags |= DESCRIPTOR_PUSHED;
	if (r == 0 && d.flags & DESCRIPTOR_BOUND)
		descriptor_become(fd, d, pushed);
	return r;
}

static int route(int fd, struct descriptor d, unsigned long request, void *argument)
{
	switch (d.kind) {
	case DESCRIPTOR_OFFLOADED:
		return push_offloaded(fd, d, request, argument);
	case DESCRIPTOR_UNDECIDED:
		return push_undecided(fd, d, request, argument);
	case DESCRIPTOR_STAYED:
		return push_refuse(fd, (enum xts_reason)d.reason);
	default: /* not a TCP socket: another protocol may use these numbers */
		return real()->ioctl(fd, request, argument);
	}
}

int push_request(int fd, struct descriptor d, unsigned long request, void *argument)
{
	return d.kind == DESCRIPTOR_KERNEL && decide_unknown(fd).kind == DESCRIPTOR_KERNEL ?
		       real()->ioctl(fd, request, argument) :
		       CALL_AGAIN(route(fd, descriptor_get(fd), request, argument));
}
