/*
 * Attach tokens: who a HELLO over an interface comes from (PROTOCOL.md, "Attach tokens").
 *
 * On an interface the proxy sees queues and no processes. Where it shares a key with the agent of the host, a HELLO
 * opens an epoch only with a token from that agent: for this queue and this epoch, not expired, and newer than the
 * token that last opened the queue. So a process that keeps the descriptors of a queue beyond its attachment cannot
 * open the link again. The user and cgroup in the token decide which tenant is charged. They are as trustworthy as root
 * on that host.
 *
 * Which of two tokens is newer, no clock can say: a clock that was ahead for a moment would make all later tokens old.
 * The agent numbers its tokens, and names its life by a random number. A token of a new life ends the lives before it,
 * on this queue. The clock only decides whether a token has expired, each time again.
 */
#ifndef XTS_TOKEN_H
#define XTS_TOKEN_H

#include "worker/worker.h"

struct channel;
struct worker_state;

/* What a worker checks tokens against. */
struct trust {
	uint8_t key[XTS_TOKEN_KEY_BYTES_MAX];
	uint32_t key_bytes;              /* 0: tokens are not required */
	struct xts_identity_rule *rules; /* each holds a reference to its tenant */
	uint32_t rule_count;
};

/* Lives of the agent that a queue remembers as ended. One that is forgotten has tokens that expired, unless the agent
 * was started this often in ten minutes, and each time gave the same queue to the same process. */
#define TOKEN_LIVES_ENDED 16u

/* The process named by the token of the current epoch, and which tokens are old. */
struct identity {
	uint64_t life, number; /* ORDER of the last token that had it; life 0: there was none yet */
	uint64_t lives_ended[TOKEN_LIVES_ENDED];
	uint32_t lives_ended_count; /* all of them, also those that are forgotten */
	uint64_t expires_ms;        /* the latest of all tokens: those of older agents have no ORDER */
	int refused;                /* why the last HELLO was refused, so that it is logged once */
	uint32_t uid;
	uint32_t cgroup_bytes;
	uint8_t cgroup[XTS_TOKEN_PAYLOAD_BYTES_MAX];
};

/* The link's callback (link.h) that decides about a HELLO; its context is the channel. */
int token_admit(void *channel, const struct xts_hello *hello, const struct xts_token *token, const uint8_t *payload);
/* The tenant of the process that the token names, or NULL: no rule matches it. */
struct xts_tenant *token_tenant(const struct channel *ch);
void trust_free(struct trust *t);

#endif
