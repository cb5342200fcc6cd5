/* The socket that a call of the host is about: found, or made. */
#include <errno.h>

#include "channel/channel.h"

struct connection *command_target(struct channel *ch, uint32_t id, uint32_t xts_socket, uint32_t domain, int *error)
{
	struct connection *c;

	*error = 0;
	if (!id) {
		c = unnamed_find(ch, xts_socket);
		if (c && c->tcp.fd >= 0 && !c->close_reply)
			return c;
		if (domain != 4 && domain != 6) {
			*error = EAFNOSUPPORT;
			return NULL;
		}
		if (ch->worker->draining) {
			*error = command_refuse(ch, XTS_REFUSED_STOPPING);
			return NULL;
		}
		c = connection_new(ch, -1, (uint8_t)domain, error);
		if (!c)
			return NULL;
		c->xts_socket = xts_socket;
		if (!unnamed_add(ch, c)) {
			connection_free(c, false);
			*error = command_refuse(ch, XTS_REFUSED_DEVICE_MEMORY);
			return NULL;
		}
		return c;
	}
	c = connection_find(ch, id);
	if (!c || c->announced || c->xts_socket != xts_socket || c->tcp.fd < 0 || c->close_reply) {
		ch->worker->stats.bad_identifiers++;
		*error = EBADF;
		return NULL;
	}
	return c;
}
