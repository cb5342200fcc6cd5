/* Chooses parts of the range of ports (local_ports.h). */
#include "local_ports.h"

#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>

#include "channel.h"

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51 /* linux/in.h */
#endif

#define PART 512u

bool local_ports_choose(const struct worker_state *w, int fd)
{
	uint32_t first = w->config.port_first, ports = w->config.port_last - first + 1u, chosen, range;

	if (!first || w->config.port_last < first || ports <= PART ||
	    getrandom(&chosen, sizeof chosen, GRND_NONBLOCK) != (ssize_t)sizeof chosen)
		return false;
	first += chosen % (ports - PART + 1u);
	range = (first + PART - 1u) << 16 | first;
	return setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof range) == 0;
}
