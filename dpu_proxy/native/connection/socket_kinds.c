/* Which kind a socket is, by its state; and the entries of kinds that have nothing to do. */
#include "connection/socket_kind.h"
#include "connection/tcp_record.h"

#include <errno.h>

const struct socket_kind *socket_kinds[CONNECTION_STATES];

void socket_kind_add(const struct socket_kind *kind, enum connection_state state)
{
	socket_kinds[state] = kind;
}

void kind_does_nothing(struct connection *c)
{
	(void)c;
}

bool kind_has_nothing(struct connection *c)
{
	(void)c;
	return true;
}

struct connection *kind_ends_itself(struct connection *c)
{
	return c;
}

void kind_tells_nothing(const struct connection *c, struct xts_connection_stats *out)
{
	(void)c;
	(void)out;
}

void kind_shares_nothing(struct shared *s, struct connection *c)
{
	(void)s;
	(void)c;
}

bool kind_share_has_nothing(struct shared *s)
{
	(void)s;
	return false;
}

int kind_cannot_be_saved(struct connection *c, struct tcp_side *side)
{
	(void)c;
	(void)side;
	return EINVAL;
}

int kind_arrives_as_tcp_side(struct handed *to, const uint8_t *record, uint32_t bytes, int fd, bool protocols)
{
	struct xts_record_attached attached = { .fds = { fd }, .fd_count = 1, .object_count = protocols };

	to->own = NULL;
	return xts_record_decode(&tcp_side_record, record, bytes, &attached, &to->side);
}

void kind_share_ends(struct shared *s)
{
	(void)s;
}
