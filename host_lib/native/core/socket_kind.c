/* What several kinds of sockets have in their tables (socket_kind.h). */
#include "core/socket_kind.h"
#include "core/stack.h"
#include "link/credit.h"

void kind_does_nothing(struct xts_sock *s)
{
	(void)s;
}

int kind_has_nothing_to_do(struct xts_sock *s)
{
	(void)s;
	return 0;
}

void kind_has_none(struct stack *st)
{
	(void)st;
}

bool kind_has_nothing_away(const struct xts_sock *s, uint64_t now, uint64_t *deadline_ns)
{
	(void)s;
	(void)now;
	(void)deadline_ns;
	return false;
}

void kind_is_told(struct xts_sock *s, bool refused)
{
	(void)s;
	(void)refused;
}

uint32_t kind_advertises(struct xts_sock *s)
{
	return xts_credit_advertise(&s->grant);
}
