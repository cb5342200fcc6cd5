/*
 * Multicast: which groups the datagram sockets of hosts have joined.
 *
 * Theory of operation
 *
 * A host joins and leaves groups by the options of Linux, which SETSOCKOPT carries unchanged. The device's kernel does
 * the work (IGMP, MLD, source filters) on the socket that represents the host's, and the host gets the kernel's
 * answers. Interfaces are those of the device: by index, by address, or 0, where the device's routes decide.
 *
 * The proxy adds what the kernel cannot know:
 *
 * - Policy. To join is to listen on the group's address at the socket's port. A socket without a port may join what it
 *   may listen on at some port, and bind() asks again. Groups on the device's loopback interface are its own.
 * - Limits. Each membership, and each source of a filter, is one of XTS_USE_GROUPS of the tenant.
 * - IP_MULTICAST_ALL, the default on Linux: a socket that is bound to the port receives whatever any socket of the
 *   machine has joined. Here "the machine" is the tenant. So the option is off in the kernel from the socket's
 *   beginning. When the first socket of a tenant joins a group it is switched on for all sockets of the tenant that
 *   want it, and for later ones, together with IP_PKTINFO; from then on multicast_passes() drops the datagrams of
 *   groups that no socket of the tenant has joined on that interface. A tenant that never joins anything pays nothing.
 *
 * After each change the memberships are read back from the kernel (MCAST_MSFILTER tells whether a socket is a member on
 * an interface, and with how many sources), so the kernel's rules are not modelled a second time here. If a join does
 * not name its interface by index, the interface is found in the same way, among those that the supervisor has listed.
 * The supervisor lists them at most once a second, so a new interface may not be found. Such a membership has no
 * interface, and the tenant gets what the kernel delivers to the group on any interface.
 *
 * There is one table of groups for the process (multicast_groups.c), under a mutex, since several workers may have
 * sockets of one tenant.
 *
 * A socket shared by several channels (share.h) is one socket of the kernel. So its members, which may be on several
 * workers, have one struct multicast.
 */
#ifndef XTS_MULTICAST_H
#define XTS_MULTICAST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "wire/datagram.h"
#include "tenants/tenant.h"
#include "wire/wire.h"
#include "worker/list.h"
#include "worker/worker.h"

struct connection;
struct group;

#define LOOPBACK_INTERFACE 1u /* the kernel's LOOPBACK_IFINDEX: in every network namespace */

#define MEMBERSHIP_BYTES 1024u /* estimated memory of a membership, here and in the kernel */

/* A group that a socket is a member of. */
struct membership {
	struct list of_socket;
	struct xts_endpoint address; /* scope_id: the interface; 0: one that the supervisor has not listed */
	uint32_t sources;
	struct group *group; /* of the tenant */
};

/* Of a datagram socket, or of all members of a shared one. */
struct multicast {
	pthread_mutex_t mutex; /* of the memberships; the one of multicast_groups.c is taken after it */
	atomic_uint users;     /* the members, and struct shared */
	struct list memberships;
	/* list of the tenant's sockets, under the mutex of multicast_groups.c, as are the options: */
	struct list of_tenant;
	struct xts_tenant *tenant;
	int fd;
	bool ipv6;
	atomic_bool all, all6;         /* IP_MULTICAST_ALL, IPV6_MULTICAST_ALL, as the host has set them */
	atomic_bool pktinfo, pktinfo6; /* IP_PKTINFO, IPV6_RECVPKTINFO */
	atomic_bool filters; /* the kernel delivers all groups to sockets that want them: multicast_passes() decides */
};

/* --- multicast.c -------------------------------------------------------------------------------------------------- */

/* Begins a new socket. 0 or an errno. */
int multicast_begin(struct connection *c);
/* To another process of the proxy, and from one: which groups it has joined, which the kernel knows, and what its host
 * has set. 0 or -ENOMEM. */
struct datagram_side;
int multicast_describe(struct multicast *m, struct datagram_side *s);
int multicast_arrives(struct connection *c, const struct datagram_side *s);
/* Two members of a socket have come so, one after the other: returns what both have from now on. */
struct multicast *multicast_join(struct multicast *own, struct multicast *common);
/* The socket has one more member, or struct shared. */
struct multicast *multicast_hold(struct multicast *m);
/* The socket has one member less, the last of which is about to close it. NULL: does nothing. */
void multicast_release(struct multicast *m);
/* May the socket be bound to this port, with the groups that it has joined? */
bool multicast_may_bind(struct connection *c, uint16_t port);
/* May the socket join the group on the interface (0: not known yet), at its port? */
bool multicast_may_join(struct connection *c, const struct xts_endpoint *group, uint32_t interface);
/* May the socket use the interface, to receive (LISTEN) or to send (CONNECT)? Port 0: at some port. */
bool multicast_may_use(struct connection *c, enum xts_policy_action action, uint32_t interface, uint8_t ip_version,
		       uint16_t port);
/* The kernel's socket is not a member any more: removes the membership. */
void multicast_forget(struct multicast *of, struct membership *m);
/* May the socket send to this address, out of this interface (0: the device chooses)? Checks only the interface. */
bool multicast_may_send(struct connection *c, const struct xts_endpoint *to, uint32_t interface);
/* Is a datagram that has come for this socket? Removes PKTINFO if the host does not want it. */
bool multicast_passes(struct connection *c, struct xts_datagram *d);

/* --- multicast_option.c: setsockopt(2) and getsockopt(2) ---------------------------------------------------------- */

bool multicast_is_option(int level, int option);
/* As xts_sockopt_set() and xts_sockopt_get(): 0 or -errno. */
int multicast_set(struct connection *c, int level, int option, const void *value, uint32_t bytes);
int multicast_get(struct connection *c, int level, int option, void *value, uint32_t *bytes);

/* The socket has come with this membership (scope_id: the interface; 0: not known), if the kernel says so, too. 0 or
 * -ENOMEM. */
int multicast_recall(struct connection *c, const struct xts_endpoint *group);

/* --- multicast_groups.c: the groups of tenants -------------------------------------------------------------------- */

/* Adds the socket to those of its tenant. 0 or an errno. */
int groups_enter(struct multicast *m);
/* Names a descriptor that stays open as long as the socket. */
void groups_use(struct multicast *m, int fd);
void groups_leave(struct multicast *m);
/* A socket of the tenant has joined the group on the interface (scope_id; 0: unknown). NULL: no memory. */
struct group *group_take(struct xts_tenant *t, const struct xts_endpoint *address);
void group_release(struct group *g);
bool group_is_taken(const struct xts_tenant *t, const struct xts_endpoint *address);
/* Sets one of the options of struct multicast. 0 or -errno. */
int groups_set_option(struct multicast *m, atomic_bool *option, bool value);

#endif
