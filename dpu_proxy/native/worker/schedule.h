/*
 * Deficit round robin by measured time: whose turn it is, and for how long.
 *
 * Theory of operation
 *
 * All work of a worker is done in the turn of an account. There is one account for each channel, and one per tenant for
 * work that belongs to no channel any more. In each round an account has one turn, whose measured time is limited by
 * its quantum. Work that has begun is finished, so a turn may take longer. The account then has a deficit, and no turn
 * until later rounds have made up for it. Rounds in which no other account has work take next to no time, so an account
 * that is alone has the whole worker. Accounts whose turns have recently taken longer than a quantum share rounds only
 * as far as a round has time for them, at least one in each; the others get their turns in the next rounds. So many
 * such accounts delay the others no more than one does.
 *
 * Accounts that were active recently share SCHEDULE_ROUND_NS by the weights of their groups (tenants); the accounts of
 * a group share equally. So a round, which a newly active account has to wait for, takes about the same time however
 * many accounts there are. A quantum is at least SCHEDULE_LEAST_NS: with less, a turn would spend more time on starting
 * than on work.
 *
 * Within its turn a channel serves its connections in order; how many messages each may send before the next one is
 * a constant of turns/channel_send.c. loop/round.c takes the turns.
 *
 * Time is an argument; nothing here reads a clock.
 */
#ifndef XTS_SCHEDULE_H
#define XTS_SCHEDULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "worker/list.h"

#define SCHEDULE_ROUND_NS 100000u
#define SCHEDULE_LEAST_NS 25000u
#define SCHEDULE_ALONE_NS 500000u
#define SCHEDULE_ACTIVE_NS 100000000u /* how long an account stays active after its last work */
#define SCHEDULE_SURVEY_NS 1000000u   /* how often quanta are computed */

struct account_group {
	struct list member;             /* of the schedule */
	const _Atomic uint32_t *weight; /* also identifies the group; at least 1, may change */
	uint32_t accounts;
	uint32_t active; /* active accounts, at the last survey */
};

struct account {
	struct list member; /* of the schedule */
	struct account_group *group;
	uint64_t active_until_ns;
	uint64_t used_ns; /* since the account was opened */
	uint32_t quantum_ns;
	int64_t left_ns;      /* what is left of this turn; negative: a deficit */
	bool has_turn;        /* in this round */
	uint64_t round_ns;    /* used in this round */
	uint64_t expected_ns; /* what a turn has taken recently */
	uint32_t frame_ns;    /* what a frame from its host has cost recently */
};

struct schedule {
	struct list accounts, groups;
	uint64_t survey_ns; /* when the next survey is due */
	bool alone;         /* at most one account is active */
};

void schedule_init(struct schedule *s);
/* Accounts with the same pointer to a weight form a group. 0 or -ENOMEM. */
int account_open(struct schedule *s, struct account *a, const _Atomic uint32_t *weight);
void account_close(struct account *a);
/* Moves the account to the group of that weight; if there is no memory for a new group, it stays in its old one. */
void account_move(struct schedule *s, struct account *a, const _Atomic uint32_t *weight);
/* Begins a round: decides for all accounts whether they have a turn in it, and for how long. */
void schedule_round(struct schedule *s, uint64_t now_ns);
/* The account has worked for this long. */
void account_charge(struct schedule *s, struct account *a, uint64_t now_ns, uint64_t took_ns);
/* How many things that lately cost each_ns each (0: unknown) fit into left_ns: 1 to max. */
uint32_t schedule_fits(uint32_t each_ns, uint64_t left_ns, uint32_t max);
/* Learns from `count` things that took took_ns together. */
void schedule_learn(uint32_t *each_ns, uint32_t count, uint64_t took_ns);

#endif
