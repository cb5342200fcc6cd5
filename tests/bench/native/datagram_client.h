/* What the workloads of datagrams share: workloads_datagrams.c, workloads_groups.c. */
#ifndef BENCH_DATAGRAM_CLIENT_H
#define BENCH_DATAGRAM_CLIENT_H

#include "datagrams.h"
#include "measure.h"
#include "net_api.h"

#define SOCKETS_MAX 64u
#define ANSWER_MS 100

/* What one socket has received. */
struct received {
	uint64_t count, next;
};

/* A socket that is connected to a service of the peer. */
int datagrams_open(const struct options *o, enum datagram_service service, int flags);
void datagrams_timeout(int s, int ms); /* SO_RCVTIMEO */
/* The peer's answer to a command: its count. Data that comes meanwhile is passed over. The socket waits ANSWER_MS. */
uint64_t datagrams_ask(int s, struct datagram_command m);
uint32_t datagrams_round(void); /* another than before */
/* A datagram or a train has come; false: it is none of the source's. */
bool datagrams_account(struct received *r, const uint8_t *at, size_t bytes);

#endif
