/* Looks for a port in parts of the range. local_ports.h has the theory of operation. */
#include "addresses/local_ports.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/random.h>

#include "channel/channel.h"
#include "tenants/tenant.h"

#ifndef IP_LOCAL_PORT_RANGE
#define IP_LOCAL_PORT_RANGE 51 /* linux/in.h */
#endif

#define PIECE 64u  /* ports */
#define PIECES 16u /* that are looked through, of all parts together */
#define PARTS 2u

bool local_ports_are_divided(const struct xts_tenant *t)
{
	return atomic_load_explicit(&t->ports, memory_order_relaxed) != 0;
}

/* A random number. The kernel gives many at a time: a system call for each connect() was 1 % of it. */
static bool choose(struct local_port_choices *c, uint32_t *chosen)
{
	if (!c->left) {
		if (getrandom(c->numbers, sizeof c->numbers, GRND_NONBLOCK) != (ssize_t)sizeof c->numbers)
			return false;
		c->left = LOCAL_PORT_CHOICES;
	}
	*chosen = c->numbers[--c->left];
	return true;
}

/* Lets the kernel look in a piece of the range, or in all of a small one. False: it has no such option. */
static bool look_in_piece(struct local_port_choices *choices, int fd, uint32_t range)
{
	uint32_t first = range & UINT16_MAX, ports = local_ports_count(range), chosen;

	if (ports > PIECE) {
		if (!choose(choices, &chosen))
			return false;
		first += chosen % (ports - PIECE + 1u);
		ports = PIECE;
	}
	range = (first + ports - 1u) << 16 | first;
	return setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &range, sizeof range) == 0;
}

struct attempt {
	bool connects; /* or binds */
	int fd;
	const struct sockaddr *address;
	socklen_t length;
};

static int try_once(const struct attempt *a)
{
	int result = a->connects ? connect(a->fd, a->address, a->length) : bind(a->fd, a->address, a->length);

	return result ? errno : 0;
}

/* How many of it are tried. */
static uint32_t pieces_of(uint32_t range, uint32_t most)
{
	if (local_ports_count(range) > PIECE)
		return most;
	return range ? 1 : 0;
}

static int look(struct worker_state *w, struct xts_tenant *t, const struct attempt *a, uint32_t *tried)
{
	const uint32_t part[PARTS] = { atomic_load_explicit(&t->ports, memory_order_relaxed),
				       local_ports_range(w->config.port_first, w->config.port_last) };
	const int none_free = a->connects ? EADDRNOTAVAIL : EADDRINUSE;
	const uint32_t most = part[0] && part[1] ? PIECES / PARTS : PIECES;
	uint32_t piece = 0;

	for (uint32_t i = 0; i < PARTS; i++) {
		for (uint32_t left = pieces_of(part[i], most); left; left--) {
			bool in_piece;
			int error;

			if (tried && piece++ < *tried)
				continue; /* in an earlier turn */
			in_piece = look_in_piece(&w->port_choices, a->fd, part[i]);
			error = try_once(a);
			if (error != none_free || !in_piece)
				return error;
			if (!tried)
				continue;
			++*tried;
			if (worker_turn_is_over(w))
				return LOCAL_PORTS_LATER;
		}
	}
	if (!part[0] && !part[1])
		return try_once(a); /* which ports there are is not known: the kernel knows */
	atomic_fetch_add_explicit(&t->ports_refused, 1, memory_order_relaxed);
	return none_free;
}

int local_ports_connect(struct worker_state *w, struct xts_tenant *t, int fd, const struct sockaddr *address,
			socklen_t length, uint32_t *tried)
{
	return look(w, t, &(struct attempt){ true, fd, address, length }, tried);
}

int local_ports_bind(struct worker_state *w, struct xts_tenant *t, int fd, const struct sockaddr *address,
		     socklen_t length, uint32_t *tried)
{
	return look(w, t, &(struct attempt){ false, fd, address, length }, tried);
}
