/* The table of who has a socket, and its checks in builds with XTS_DEBUG; see socket_states.h. */
#include "core/socket.h"
#include "core/socket_states.h"
#include "common/state_table.h"
#include "xts_private.h"

enum owner_state {
	OWNER_HERE,
	OWNER_PARKING,
	OWNER_RETURNING,
	OWNER_ELSEWHERE,
	OWNER_TAKING,
	OWNER_FREE,
	OWNER_STATES,
};

/* X(constant, name, condition on struct xts_sock, meaning) */
#define OWNER_FLAGS(X) \
	X(OPEN, "open", s->open, "The program has it open.") \
	X(LOST, "lost", s->lost, "Its channel has died, or the proxy's socket is not this one's any more.") \
	X(KEY, "key", s->cold->sharing.key, "It has a key, by which other processes get it.") \
	X(COMMON, "common", s->own.common, "A connection: other processes may have it, too.") \
	X(SHARED, "shared", s->own.shared, "A listener, bound or datagram socket: its key is known to the proxy.") \
	X(OTHERS, "others_may_have", s->cold->sharing.others_may_have, "The same: other processes may have it.") \
	X(OFFERED, "offered", s->own.offered, "NEWCONN is not answered yet: it may go back.") \
	X(ENDING, "ending", s->own.ending, "Kept for others after close(), or taken over in order to end it.") \
	X(STAYS, "stays", s->cold->sharing.stays, "Closed by the program, and other processes have it.") \
	X(CLOSE_WAITS, "close_waits", s->cold->sharing.close_waits, \
	  "A thread that closes it waits until it is given up.") \
	X(ASKED_FOR, "asked_for", s->cold->sharing.asked_for, "Another process asks for it.") \
	X(DEED, "has_deed", s->cold->sharing.has_deed, "An open file says which programs have it.") \
	X(UNREPORTED, "gone_unreported", s->own.gone_unreported, "It has gone, and no call has found that out.")

enum owner_flag {
#define FLAG_NUMBER(bit, name, is, meaning) FLAG_##bit,
	OWNER_FLAGS(FLAG_NUMBER)
#undef FLAG_NUMBER
		OWNER_FLAG_COUNT,
};

/* A flag's mask. */
#define F(bit) (1u << FLAG_##bit)

/* A socket may be closed at any time, its channel may die, and programs leave and come. */
#define ANY (F(OPEN) | F(LOST) | F(KEY) | F(ENDING) | F(CLOSE_WAITS) | F(ASKED_FOR) | F(DEED) | F(UNREPORTED))

static const struct xts_state_rule states[OWNER_STATES] = {
	[OWNER_HERE] = { "here", "This process has it, alone or as the one that uses it now; or no process.",
			 .may = ANY | F(COMMON) | F(SHARED) | F(OTHERS) | F(OFFERED) | F(STAYS) },
	[OWNER_PARKING] = { "parking", "PARK has been sent, or will be: another process, or the next program, gets it.",
			    .may = ANY | F(COMMON) },
	[OWNER_RETURNING] = { "returning", "It is parked, and what was received and not read goes back.",
			      .may = ANY | F(COMMON), .must = F(KEY) },
	[OWNER_ELSEWHERE] = { "elsewhere", "Another process has it, or the proxy keeps it for whoever asks first.",
			      .may = ANY | F(COMMON) | F(OTHERS) },
	[OWNER_TAKING] = { "taking", "A thread takes it over.", .may = ANY | F(COMMON) | F(SHARED) | F(OTHERS) },
	[OWNER_FREE] = { "free", "The entry of the table waits for another socket.", .may = UINT32_MAX },
};

static const struct xts_state_flag flags[OWNER_FLAG_COUNT] = {
#define FLAG_TEXT(bit, name, is, meaning) { name, meaning },
	OWNER_FLAGS(FLAG_TEXT)
#undef FLAG_TEXT
};

static const struct xts_flag_rule rules[] = {
	{ FLAG_COMMON, .excludes = F(OFFERED) | F(SHARED) },
	{ FLAG_SHARED, .needs = F(KEY), .excludes = F(OFFERED) },
	{ FLAG_OFFERED, .excludes = F(OPEN) },
	{ FLAG_STAYS, .excludes = F(OPEN) },
	{ FLAG_CLOSE_WAITS, .excludes = F(OPEN) },
};

static const struct xts_state_change changes[] = {
	{ OWNER_FREE, OWNER_HERE, "it is made" },
	{ OWNER_HERE, OWNER_PARKING, "another process asks for it, or it passes to the next program" },
	{ OWNER_HERE, OWNER_ELSEWHERE, "it comes from another process, or stays with it after a fork" },
	{ OWNER_HERE, OWNER_TAKING, "it comes from another process, and is needed at once" },
	{ OWNER_HERE, OWNER_FREE, "it is closed" },
	{ OWNER_PARKING, OWNER_RETURNING, "the proxy has it" },
	{ OWNER_PARKING, OWNER_HERE, "the proxy has refused, or its channel has died" },
	{ OWNER_PARKING, OWNER_ELSEWHERE, "a forked child has it, too" },
	{ OWNER_PARKING, OWNER_TAKING, "there was no next program, after all" },
	{ OWNER_PARKING, OWNER_FREE, "it is closed" },
	{ OWNER_RETURNING, OWNER_ELSEWHERE, "everything has gone back" },
	{ OWNER_RETURNING, OWNER_FREE, "everything has gone back, and it is closed" },
	{ OWNER_ELSEWHERE, OWNER_TAKING, "a call needs it, or whoever kept it has ended" },
	{ OWNER_ELSEWHERE, OWNER_HERE, "it cannot be had, or is closed" },
	{ OWNER_ELSEWHERE, OWNER_FREE, "it is closed, and others have it" },
	{ OWNER_TAKING, OWNER_HERE, "the proxy has given it to this process, or it is lost" },
	{ OWNER_TAKING, OWNER_ELSEWHERE, "who has it does not give it up" },
	{ OWNER_TAKING, OWNER_PARKING, "it has come, and another process needs it more" },
	{ OWNER_TAKING, OWNER_FREE, "it is closed meanwhile" },
};

const struct xts_state_table *xts_owner_states(void)
{
	static const struct xts_state_table table = {
		.what = "owner of socket",
		.states = states,
		.flags = flags,
		.rules = rules,
		.changes = changes,
		.state_count = OWNER_STATES,
		.flag_count = OWNER_FLAG_COUNT,
		.rule_count = sizeof rules / sizeof *rules,
		.change_count = sizeof changes / sizeof *changes,
	};

	return &table;
}

#ifdef XTS_DEBUG

_Static_assert(OWNER_STATES <= STATES_MAX && OWNER_FLAG_COUNT <= 32, "struct xts_states_visited");

static struct xts_states_visited here, *visited = &here;
static uint8_t last_seen[SOCKETS_MAX]; /* OWNER_FREE less the state, so that they begin as free */

#ifdef XTS_VISITED_STATES
__attribute__((constructor)) static void visited_open(void)
{
	visited = xts_states_visited_open(XTS_VISITED_STATES "-owners", &here);
}
#endif

static enum owner_state state_of(const struct xts_sock *s)
{
	if (!s->in_use)
		return OWNER_FREE;
	if (s->own.moved != NOT_MOVED)
		return s->own.moved == PARKING ? OWNER_PARKING : OWNER_RETURNING;
	if (s->own.taking)
		return OWNER_TAKING;
	return s->own.inherited == NOT_INHERITED ? OWNER_HERE : OWNER_ELSEWHERE;
}

static uint32_t flags_of(const struct xts_sock *s)
{
	uint32_t set = 0;

#define FLAG_BIT(bit, name, is, meaning) set |= (is) ? F(bit) : 0;
	OWNER_FLAGS(FLAG_BIT)
#undef FLAG_BIT
	return set;
}

void owner_check(const struct xts_sock *s)
{
	uint8_t *seen = &last_seen[SOCKET_INDEX(s->id)];
	enum owner_state state = state_of(s), before = OWNER_FREE - *seen;

	xts_state_entered(xts_owner_states(), visited, s->id, before, state);
	*seen = (uint8_t)(OWNER_FREE - state);
	xts_state_rests(xts_owner_states(), visited, s->id, state, flags_of(s));
}

#endif
