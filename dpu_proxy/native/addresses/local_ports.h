/*
 * Which ports of the device a tenant gets that names none, for connect() and for bind() to port 0.
 *
 * The kernel picks such a port from its range (net.ipv4.ip_local_port_range). A port stays taken towards a peer as long
 * as there is a connection, and for a minute after it was closed here (TIME-WAIT). Nothing counts them: a tenant that
 * connects to one address again and again could take all of the range, and no other tenant would get there. So each
 * tenant has ports of its own in that range, and only the rest is everybody's (xts_proxy/tenants/guarantees.py divides it). A
 * socket looks for a port in its tenant's first, then in the rest. A tenant that is alone has no ports of its own, and
 * the rest is all of them. Who asks for a port by its number gets it, whosever part it is in: that is for policy.
 *
 * The kernel tries ports one after the other. Where most are taken, a connect() took up to 8 ms, in which no tenant of
 * the worker was served. So a socket is given small pieces of a part, chosen at random: a few, until one has a port
 * that is free. To look through a full one takes 14 us. When the turn is over, the search goes on in the channel's next
 * turn, and its host's later messages wait for it. Where 99 of 100 ports are taken, all pieces are full once in 30,000
 * times; if a tenant has only its own ports left, and one of 100 is free there, it is 6 of 1,000 times.
 *
 * Kernels before Linux 6.3 have no such option (IP_LOCAL_PORT_RANGE). There the range is not divided.
 */
#ifndef XTS_LOCAL_PORTS_H
#define XTS_LOCAL_PORTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define LOCAL_PORTS_LATER (-1) /* not an errno: the turn is over, and there are pieces left to look through */

#define LOCAL_PORT_CHOICES 64u

struct worker_state;
struct xts_tenant;

/* Random numbers of a worker that choose pieces. */
struct local_port_choices {
	uint32_t numbers[LOCAL_PORT_CHOICES];
	uint32_t left; /* the first so many have not been used */
};

/* Ports from the first to the last, in the form of IP_LOCAL_PORT_RANGE; 0: none. */
static inline uint32_t local_ports_range(uint16_t first, uint16_t last)
{
	return first && first <= last ? (uint32_t)last << 16 | first : 0;
}

/* How many these are. */
static inline uint32_t local_ports_count(uint32_t range)
{
	return range ? (range >> 16) - (range & UINT16_MAX) + 1u : 0;
}

/* Has the tenant ports of its own? */
bool local_ports_are_divided(const struct xts_tenant *t);
/* connect() of a socket that has no port yet. 0, or an errno: EADDRNOTAVAIL, counted, if no port is left. *tried:
 * pieces that were looked through, 0 at first; after LOCAL_PORTS_LATER it is for the next call with the same socket.
 * NULL: all of them at once. */
int local_ports_connect(struct worker_state *w, struct xts_tenant *t, int fd, const struct sockaddr *address,
			socklen_t length, uint32_t *tried);
/* bind() to an address with port 0. 0, or an errno: EADDRINUSE, counted, if no port is left. *tried: as above. */
int local_ports_bind(struct worker_state *w, struct xts_tenant *t, int fd, const struct sockaddr *address,
		     socklen_t length, uint32_t *tried);

#endif
