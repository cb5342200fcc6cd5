/*
 * Multicast: which groups the datagram sockets of hosts have joined.
 *
 * Theory of operation
 *
 * A host joins and leaves groups by the options of Linux, carried by SETSOCKOPT as they are. The device's kernel does
 * the work (IGMP, MLD, filters of sources) on the socket that stands for the host's, and its answers are the host's.
 * Interfaces are the device's: by index, by address, or 0, where the device's routes decide.
 *
 * What the proxy adds is what the kernel cannot know:
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
 * Who has joined what is read back from the kernel after each change (MCAST_MSFILTER says whether a socket is a member
 * on an interface, and with how many sources). So there is no second model of its rules here. The interface of a join
 * that does not name one by its index is found in this way, too, among those that the supervisor has listed. It lists
 * them at most once a second, so one that has just come is not found: such a membership has no interface, and the
 * tenant then gets what the kernel delivers to the group on any.
 *
 * The table of groups (multicast_groups.c) is one for the process, under a mutex, since the sockets of a tenant may be
 * with several workers.
 *
 * A socket that several channels have (share.h) is one socket of the kernel. So its members, which may be with several
 * workers, have one struct multicast.
 */
#ifndef XTS_MULTICAST_H
#define XTS_MULTICAST_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "datagram.h"
#include "list.h"
#include "tenant.h"
#include "wire.h"
#include "worker.h"

struct connection;
struct group;

#define LOOPBACK_INTERFACE 1u /* the kernel's LOOPBACK_IFINDEX: in every network namespace */

#define MEMBERSHIP_BYTES 1024u /* what a membership takes here and in the kernel, estimated */

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
	atomic_uint users;     /* those members, and struct shared */
	struct list memberships;
	struct list of_tenant; /* its sockets, under the mutex of multicast_groups.c, as are the options: */
	struct xts_tenant *tenant;
	int fd;
	bool ipv6;
	atomic_bool all, all6;         /* IP_MULTICAST_ALL, IPV6_MULTICAST_ALL, as the host has set them */
	atomic_bool pktinfo, pktinfo6; /* IP_PKTINFO, IPV6_RECVPKTINFO */
	atomic_bool filters; /* those that want all groups get them of the kernel: multicast_passes() decides */
};

/* --- multicast.c -------------------------------------------------------------------------------------------------- */

/* A new socket: 0 or an errno. */
int multicast_begin(struct connection *c);
/* The socket has one more member, or struct shared. */
struct multicast *multicast_hold(struct multicast *m);
/* One less. The last is about to close the socket. NULL: nothing. */
void multicast_release(struct multicast *m);
/* May it be bound to this port, with the groups it has joined? */
bool multicast_may_bind(struct connection *c, uint16_t port);
/* May it join the group on the interface (0: not known yet), at its port? */
bool multicast_may_join(struct connection *c, const struct xts_endpoint *group, uint32_t interface);
/* May it use the interface, to receive (LISTEN) or to send (CONNECT)? Port 0: at some port. */
bool multicast_may_use(struct connection *c, enum xts_policy_action action, uint32_t interface, uint8_t ip_version,
		       uint16_t port);
/* The kernel's socket is no member any more. */
void multicast_forget(struct multicast *of, struct membership *m);
/* May it send to this address, out of this interface (0: the device's choice)? Asks only about the interface. */
bool multicast_may_send(struct connection *c, const struct xts_endpoint *to, uint32_t interface);
/* A datagram has come: is it for this socket? Takes off PKTINFO where the host does not want it. */
bool multicast_passes(struct connection *c, struct xts_datagram *d);

/* --- multicast_option.c: setsockopt(2) and getsockopt(2) ---------------------------------------------------------- */

bool multicast_is_option(int level, int option);
/* As xts_sockopt_set() and xts_sockopt_get(): 0 or -errno. */
int multicast_set(struct connection *c, int level, int option, const void *value, uint32_t bytes);
int multicast_get(struct connection *c, int level, int option, void *value, uint32_t *bytes);

/* --- multicast_groups.c: of tenants ------------------------------------------------------------------------------- */

/* The socket is one of the tenant's. 0 or an errno. */
int groups_enter(struct multicast *m);
/* This descriptor is open as long as the socket is. */
void groups_use(struct multicast *m, int fd);
void groups_leave(struct multicast *m);
/* A socket of the tenant has joined the group on the interface (scope_id; 0: which is not known). NULL: no memory. */
struct group *group_take(struct xts_tenant *t, const struct xts_endpoint *address);
void group_release(struct group *g);
bool group_is_taken(const struct xts_tenant *t, const struct xts_endpoint *address);
/* Sets one of the options of struct multicast. 0 or -errno. */
int groups_set_option(struct multicast *m, atomic_bool *option, bool value);

#endif
