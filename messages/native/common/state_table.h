/*
 * Tables of states: the states that an object can have, the flags that each state allows, and which state may follow
 * which.
 *
 * The proxy has such a table for its connections (dpu_proxy/native/connection/connection_states.c), libxts one for its
 * sockets (host_lib/native/core/socket_states.c) and one for who has each (owner_states.c, next to it). Builds with
 * XTS_DEBUG assert them, and record what they have seen, so that the tests can list the legal states that they never
 * visit. The documentation's pages about states are made from the same tables (deploy/xts_docs/states.py).
 */
#ifndef XTS_STATE_TABLE_H
#define XTS_STATE_TABLE_H

#include <stdint.h>

/* What a state allows. A set of flags is a mask of 1 << the number of each flag. */
struct xts_state_rule {
	const char *name, *meaning;
	uint32_t may;  /* flags that are allowed */
	uint32_t must; /* flags that must be set */
	uint32_t one;  /* exactly one of these must be set; 0: no such rule */
};

struct xts_state_flag {
	const char *name, *meaning;
};

/* A flag that is only possible with some flags, or without some. */
struct xts_flag_rule {
	uint32_t flag;
	uint32_t needs;    /* requires all of these */
	uint32_t excludes; /* and excludes all of these */
};

struct xts_state_change {
	uint32_t before, after; /* numbers of states */
	const char *when;
};

struct xts_state_table {
	const char *what; /* the kind of object */
	/* the last state means that only the object's memory exists, and is not checked */
	const struct xts_state_rule *states;
	const struct xts_state_flag *flags;
	const struct xts_flag_rule *rules;
	const struct xts_state_change *changes;
	uint32_t state_count, flag_count, rule_count, change_count;
};

#define STATES_MAX 16

/* What a build with XTS_DEBUG has seen. If XTS_VISITED_STATES was defined for the build, this is the content of a file,
 * which all processes of such builds share. */
struct xts_states_visited {
	uint32_t flags[STATES_MAX];   /* by state: all flags that have occurred in it */
	uint32_t changes[STATES_MAX]; /* by state: the states that have followed */
	uint32_t states;              /* the states in which an object has been at rest */
};

#ifdef XTS_DEBUG
/* Returns the struct xts_states_visited of a table: in that file if it can be opened, else the other one. */
struct xts_states_visited *xts_states_visited_open(const char *path, struct xts_states_visited *otherwise);
/* These abort with a message if something is wrong. id: the object's number in the message. */
void xts_state_entered(const struct xts_state_table *table, struct xts_states_visited *visited, uint32_t id,
		       uint32_t before, uint32_t after);
void xts_state_rests(const struct xts_state_table *table, struct xts_states_visited *visited, uint32_t id,
		     uint32_t state, uint32_t flags);
#endif

#endif
