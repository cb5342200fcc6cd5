/*
 * A connection keeps the rate of its tenant, and a datagram socket its own too, in what it hands to the kernel.
 *
 * A connection has a permit: so many bytes, from a time on. With it used up, it asks for the next one (pacer.h). Until
 * its time has come, it leaves what it has in its spill buffer, where the window bounds it, and a timer notes it as if
 * the kernel had room again. What a program sends counts, without the headers of TCP; of datagrams, those of IP and UDP
 * count too, for a datagram may have next to no data.
 *
 * SO_MAX_PACING_RATE of a stream is kept by the kernel's TCP. Of a datagram socket the kernel keeps it only where the
 * interface has the queueing discipline fq, so the worker does.
 */
#ifndef XTS_PACED_H
#define XTS_PACED_H

#include <stdbool.h>
#include <stdint.h>

struct connection;

/* Is there a rate to keep? */
bool paced_is(const struct connection *c);
/* May it hand over at least `least` bytes? *bytes: how many it would like to, not fewer, and then how many it may.
 * False: it will be noted when it may. */
bool paced_may(struct connection *c, uint32_t least, uint32_t *bytes);
/* It has handed over so many. */
void paced_sent(struct connection *c, uint32_t bytes);
/* The rate that a socket's program asks for, in bytes a second, as the kernel knows it; 0: none. */
uint64_t paced_asked(int fd);
/* The socket's own rate may have changed: reads it from the kernel. */
void paced_learn(struct connection *c);
void paced_free(struct connection *c);

#endif
