/* Readiness of connections whose data has not come yet, for lack of frame credits: catch_up.c. */
#ifndef XTS_CATCH_UP_H
#define XTS_CATCH_UP_H

#include <stdbool.h>
#include <stdint.h>

struct channel;
struct stack;

/* What channel_pump() notes. */
struct catch_up {
	bool emptied;      /* the last look found the queue empty */
	unsigned burst;    /* frames that have come since it was empty */
	unsigned allowed;  /* so many could come, by the credits that the proxy had then */
	bool behind;       /* all of them have come: more may wait at the proxy */
	bool interest;     /* interest was shown in a socket that others have: what it was not sent before may come */
	uint64_t asked_ns; /* when it was asked last */
};

/* For channel_pump(): it begins; it found the queue empty; the answer may have come. */
static inline void catch_up_begins(struct catch_up *u, unsigned peer_credits)
{
	if (!u->emptied)
		return;
	u->emptied = false;
	u->burst = 0;
	u->allowed = peer_credits;
}
static inline void catch_up_empty(struct catch_up *u)
{
	u->emptied = true;
	if (u->burst >= u->allowed)
		u->behind = true;
}

/* To be called before a call that does not wait answers that something is not there. Takes all frames that have come
 * and, if the proxy may have more, asks for it; waits for the answer, some ten microseconds, and a few milliseconds if
 * the proxy does not answer. True: something has come, look again. Releases the lock meanwhile, as a wait does. */
bool channel_catch_up(struct stack *st);

/* This process takes what comes to a socket that others have, too, and did not before: the next call that does not wait
 * has to ask. */
void channel_shows_interest(struct stack *st);

#endif
