/*
 * Where the kernel looks for a port of the device.
 *
 * For connect(), and for bind() to port 0, the kernel tries the ports of its range (net.ipv4.ip_local_port_range) one
 * after the other, from a random one on, until it finds one that is free towards that peer. Ports of connections that
 * were closed here stay taken for a minute. So a tenant that connects to one address again and again makes the kernel
 * try all of them: a connect() then took up to 8 ms, in which no tenant of the worker was served.
 *
 * So a socket is given a part of the range (IP_LOCAL_PORT_RANGE), which is chosen at random, and another one if no port
 * of that is free. Where 99 of 100 ports are taken, both are full once in 30,000 times. Then, and where no port is left
 * at all, the host gets the kernel's errno. Kernels before Linux 6.3 have no such option, and try all ports.
 */
#ifndef XTS_LOCAL_PORTS_H
#define XTS_LOCAL_PORTS_H

#include <stdbool.h>
#include <stdint.h>

struct worker_state;

#define LOCAL_PORTS_TRIES 2u

/* Gives the socket a part of the range. False: the socket has all of it, because the range is no larger than a part or
 * the kernel has no such option. */
bool local_ports_choose(const struct worker_state *w, int fd);

#endif
