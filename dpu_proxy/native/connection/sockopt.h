/*
 * Socket options and ioctls that are carried out on a socket of the device for a host: an allow-list. The list in
 * sockopt.c gives the reason for each entry.
 *
 * The proxy may run with capabilities and all hosts share its user, so the kernel's own checks are not enough: what the
 * kernel grants only to CAP_NET_ADMIN or CAP_NET_RAW is refused here, whatever capabilities the proxy has. So are
 * options that would block the worker (SO_LINGER, FIONBIO) or bypass policy (source routes, SO_BINDTODEVICE). Options
 * that only the host's side of a socket can honour (timeouts, SO_RCVLOWAT, SO_LINGER, SO_ERROR) belong to the host
 * library and are refused here too.
 */
#ifndef XTS_SOCKOPT_H
#define XTS_SOCKOPT_H

#include <stdbool.h>
#include <stdint.h>

/* As setsockopt(2). Does not block, and opens nothing. congestion_controls: the names that TCP_CONGESTION may give, as
 * in tcp_allowed_congestion_control of ip-sysctl; NULL: none. Names behind a semicolon exist, and hosts may not use
 * them. 0 or -errno: -ENOPROTOOPT, not on the list; -EPERM, refused on purpose; else what the kernel says. */
int xts_sockopt_set(int fd, int level, int option, const void *value, uint32_t bytes, const char *congestion_controls);

/* As getsockopt(2): *bytes is the room at value, and then the length of the answer. The same errors. */
int xts_sockopt_get(int fd, int level, int option, void *value, uint32_t *bytes);

/* Is it an option for time stamps or the error queue? These are useful only to a host whose library delivers the
 * results. Such a library has XTS_FEATURE_STAMPS; the error queue has no feature of its own, since it is older. */
bool xts_sockopt_needs_stamps(int level, int option);

/* As ioctl(2), for requests that answer with an int: *bytes is the room at value, and then the length of the answer.
 * -EINVAL: no room for it; -ENOTTY: not on the list. */
int xts_ioctl_do(int fd, uint32_t request, void *value, uint32_t *bytes);

#endif
