/* Datagram sockets of hosts. */
#include "channel.h"
#include "command_dispatch.h"

enum command_result command_open_datagram(struct channel *ch, const struct xts_head *head, const struct xts_open_datagram *m,
					  struct batch_entry *e)
{
	(void)ch;
	(void)head;
	(void)m;
	(void)e;
	return COMMAND_MALFORMED;
}

enum command_result command_connect_datagram(struct channel *ch, const struct xts_head *head,
					     const struct xts_connect_datagram *m, struct batch_entry *e)
{
	(void)ch;
	(void)head;
	(void)m;
	(void)e;
	return COMMAND_MALFORMED;
}

enum command_result command_send_datagrams(struct channel *ch, const struct xts_head *head, const struct xts_send_datagrams *m,
					   struct batch_entry *e)
{
	(void)ch;
	(void)head;
	(void)m;
	(void)e;
	return COMMAND_MALFORMED;
}
