/*
 * Attach tokens: who a HELLO over an interface comes from (PROTOCOL.md, "Attach tokens").
 *
 * On an interface the proxy sees queues and no processes. Where it shares a key with the agent of the host, a HELLO
 * opens an epoch only with a token of that agent's: for this queue, for this epoch, not expired, and newer than the one
 * that opened the queue last. So a process that keeps the descriptors of a queue beyond its attachment cannot open the
 * link again. User and cgroup in the token decide which tenant is charged. They are as trustworthy as root of that
 * host.
 */
#ifndef XTS_TOKEN_H
#define XTS_TOKEN_H

#include "worker.h"

struct channel;
struct worker_state;

/* What a worker goes by. */
struct trust {
	uint8_t key[XTS_TOKEN_KEY_BYTES_MAX];
	uint32_t key_bytes;              /* 0: tokens are not asked for */
	struct xts_identity_rule *rules; /* each holds its tenant */
	uint32_t rule_count;
};

/* Whom the token of the epoch in force names. */
struct identity {
	uint64_t expires_ms; /* of that token; 0: there was none yet */
	int refused;         /* why the last HELLO was refused: logged once */
	uint32_t uid;
	uint32_t cgroup_bytes;
	uint8_t cgroup[255];
};

/* The link's question (link.h) about a HELLO of the channel that is its context. */
int token_admit(void *channel, const struct xts_hello *hello, const struct xts_token *token, const uint8_t *cgroup);
/* The tenant of whom the token named, or NULL: no rule is about it. */
struct xts_tenant *token_tenant(const struct channel *ch);
void trust_free(struct trust *t);

#endif
