/*
 * Tables of states: which states something has, which flags each allows, and how one follows another.
 *
 * The proxy has one of its connections (dpu_proxy/native/states.c), libxts one of its sockets
 * (host_lib/native/core/socket_states.c). Builds with XTS_DEBUG assert them, and note what they have seen, so that the
 * tests can say which legal states they never visit. The documentation's pages about states are made from the same
 * tables (deploy/xts_docs/states.py).
 */
#ifndef XTS_STATE_TABLE_H
#define XTS_STATE_TABLE_H

#include <stdint.h>

/* What a state allows. Sets of flags are masks of 1 << the flag's number. */
struct xts_state_rule {
	const char *name, *meaning;
	uint32_t may;  /* flags that it may have */
	uint32_t must; /* flags that it always has */
	uint32_t one;  /* exactly one of these; 0: no such rule */
};

struct xts_state_flag {
	const char *name, *meaning;
};

/* A flag that is only possible with others, or without others. */
struct xts_flag_rule {
	uint32_t flag;
	uint32_t needs;    /* it has all of these */
	uint32_t excludes; /* and none of these */
};

struct xts_state_change {
	uint32_t before, after; /* numbers of states */
	const char *when;
};

struct xts_state_table {
	const char *what;                    /* that has these states */
	const struct xts_state_rule *states; /* the last: only its memory is there, and it is not checked */
	const struct xts_state_flag *flags;
	const struct xts_flag_rule *rules;
	const struct xts_state_change *changes;
	uint32_t state_count, flag_count, rule_count, change_count;
};

#define STATES_MAX 16

/* What a build with XTS_DEBUG has seen. Where XTS_VISITED_STATES was defined for the build, this is the content of a
 * file, which all processes of such builds share. */
struct xts_states_visited {
	uint32_t flags[STATES_MAX];   /* by state: all flags it has had */
	uint32_t changes[STATES_MAX]; /* by state: the states that have followed */
	uint32_t states;              /* those that something has rested in */
};

#ifdef XTS_DEBUG
/* For whoever has a table: its struct xts_states_visited, in that file where it can be had. */
struct xts_states_visited *xts_states_visited_open(const char *path, struct xts_states_visited *otherwise);
/* These say what is wrong and abort. id: what the message names it by. */
void xts_state_entered(const struct xts_state_table *table, struct xts_states_visited *visited, uint32_t id,
		       uint32_t before, uint32_t after);
void xts_state_rests(const struct xts_state_table *table, struct xts_states_visited *visited, uint32_t id,
		     uint32_t state, uint32_t flags);
#endif

#endif
