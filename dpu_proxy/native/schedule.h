/*
 * Whose turn it is, and for how long: deficit round robin by measured time.
 *
 * Theory of operation
 *
 * Everything a worker does is done in somebody's turn: an account's, one for each channel and one for what no channel has any
 * more. In each round an account has one turn, of a measured time at most: its quantum. What has begun is carried
 * out, so that a turn may take longer; then the account owes the rest, and has no turn until rounds that go by have paid for it. A
 * round in which nobody else has anything to do takes next to no time, so nothing is lost by waiting for them: who is alone
 * has the whole worker. Of accounts whose turns have taken longer than a quantum of late, only so many have one in the same round as a
 * round has time for, one at least; the others follow in the next ones. So many of them make nobody wait longer than one does.
 *
 * Those that have been active of late share SCHEDULE_ROUND_NS, by the weights of their groups (tenants), a group's part going to
 * its accounts equally. So a round takes about as long however many there are, which is what a newcomer waits; below SCHEDULE_LEAST_NS
 * a turn would spend more on beginning than on work. Who is alone makes nobody wait but who comes next.
 *
 * Time is an argument, and nothing here looks at a clock.
 */
#ifndef XTS_SCHEDULE_H
#define XTS_SCHEDULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "list.h"

#define SCHEDULE_ROUND_NS 100000u
#define SCHEDULE_LEAST_NS 25000u
#define SCHEDULE_ALONE_NS 500000u
#define SCHEDULE_ACTIVE_NS 100000000u /* after its last work an account is active for so long */
#define SCHEDULE_SURVEY_NS 1000000u   /* how often quanta are worked out */

struct account_group {
	struct list member;       /* of the schedule */
	const _Atomic uint32_t *weight; /* by which it is found, too; at least 1, and may change */
	uint32_t accounts;
	uint32_t active;          /* of them, at the last survey */
};

struct account {
	struct list member;       /* of the schedule */
	struct account_group *group;
	uint64_t active_until_ns;
	uint64_t used_ns;         /* since it was opened */
	uint32_t quantum_ns;
	int64_t left_ns;          /* of this turn; negative: what it owes */
	bool has_turn;            /* in this round */
	uint64_t round_ns;        /* used in this round */
	uint64_t expected_ns;     /* what a turn has taken of late */
	uint32_t frame_ns;        /* what a frame from its host has cost of late */
};

struct schedule {
	struct list accounts, groups;
	uint64_t survey_ns;       /* the next one */
	bool alone;               /* nobody but one, at most, is active */
};

void schedule_init(struct schedule *s);
/* Accounts with the same weight, the very same one, are of one group. 0 or -ENOMEM. */
int account_open(struct schedule *s, struct account *a, const _Atomic uint32_t *weight);
void account_close(struct account *a);
/* It is of that group from now on; without memory for a new one it stays where it is. */
void account_move(struct schedule *s, struct account *a, const _Atomic uint32_t *weight);
/* Begins a round: says of all accounts whether they have a turn in it, and for how long. */
void schedule_round(struct schedule *s, uint64_t now_ns);
/* It has worked for so long. */
void account_charge(struct schedule *s, struct account *a, uint64_t now_ns, uint64_t took_ns);
/* How many frames of its host may be taken in a turn of so long, and what some have cost. */
uint32_t account_frames(const struct account *a, uint64_t left_ns, uint32_t max);
void account_note_frames(struct account *a, uint32_t frames, uint64_t took_ns);

#endif
