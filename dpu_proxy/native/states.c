/* The table of a connection's states, and what a build with XTS_DEBUG makes of it. states.h says what it is for. */
#include "channel.h"

#ifdef XTS_DEBUG
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#endif

/* A flag's mask. */
#define F(bit) (1u << FLAG_##bit##_NUMBER)

/* What an option call may set at any time, what epoll may say at any time, and protocols, which may be pushed at any
 * time. */
#define ALWAYS (F(IN_EPOLL) | F(READABLE) | F(SEND_BUFFER_SET) | F(RECEIVE_TUNED) | F(PUSHED))
/* The host has closed it, and the answer is still to be sent. The socket is closed already. */
#define CLOSED (F(CLOSE_REPLY) | F(UNWAITED) | F(NO_SOCKET))
/* There is, or was, a TCP connection. */
#define CARRIES (F(READ_TO_END) | F(WRITABLE) | F(ACCEPTED))
#define CARRIED (CARRIES | F(EOS_SENT) | F(FIN_WANTED) | F(FIN_DONE) | F(MORE) | F(SPILLED))

/* clang-format off */
static const struct xts_state_rule states[CONNECTION_STATES] = {
	[CONNECTION_IDLE] = { "idle", "A socket that is not connected: made by BIND or an option, or its connect has failed.",
		.may = ALWAYS | CLOSED | F(CONNECT_REPLY) },
	[CONNECTION_CONNECTING] = { "connecting", "TCP connects, or protocols do their handshakes before CONNECT_ACK or NEWCONN.",
		.may = ALWAYS | CLOSED | CARRIES },
	[CONNECTION_ESTABLISHED] = { "established", "Bytes go both ways.",
		.may = ALWAYS | CLOSED | CARRIED | F(CONNECT_REPLY) | F(ANNOUNCED) },
	[CONNECTION_LISTENER] = { "listener", "It accepts connections.",
		.may = ALWAYS | CLOSED | F(LOOK_DUE) },
	[CONNECTION_CLOSING] = { "closing", "The host has closed it: it is answered, lingers, or is an orphan whose bytes are delivered.",
		.may = ALWAYS | CARRIED | F(CLOSE_REPLY) | F(UNWAITED) | F(LINGERING) | F(ORPHAN) | F(LOOK_DUE),
		.must = F(FIN_WANTED), .one = F(CLOSE_REPLY) | F(LINGERING) | F(ORPHAN) },
	[CONNECTION_FAILED] = { "failed", "The host knows of its failure, and has to close it or to connect it again.",
		.may = ALWAYS | CLOSED | CARRIED | F(CONNECT_REPLY) | F(RESET_SENT) | F(SPENT), .must = F(RESET_SENT) },
	[CONNECTION_FREED] = { "freed", "Only its memory is there, until events that were fetched before have been handled.",
		.may = UINT32_MAX, .must = F(NO_SOCKET) },
};
/* clang-format on */

static const struct xts_state_flag flags[CONNECTION_FLAG_COUNT] = {
#define FLAG_TEXT(field, bit, meaning) { #field, meaning },
	CONNECTION_FLAGS(FLAG_TEXT)
#undef FLAG_TEXT
	{ "fin_wanted", "The host sends no more: FIN follows what waits." },
	{ "fin_done", "FIN has been sent, or close(2) sends it." },
	{ "more", "The last message said MORE." },
	{ "no socket", "Its TCP socket is closed." },
	{ "pushed", "It has protocols, or has had, or is in peek mode." },
};

static const struct xts_flag_rule rules[] = {
	{ FLAG_IN_EPOLL_NUMBER, .excludes = F(NO_SOCKET) },
	{ FLAG_CONNECT_REPLY_NUMBER, .excludes = F(CLOSE_REPLY) | F(ANNOUNCED) },
	{ FLAG_FIN_DONE_NUMBER, .needs = F(FIN_WANTED) },
	{ FLAG_UNWAITED_NUMBER, .needs = F(CLOSE_REPLY) },
	{ FLAG_SPENT_NUMBER, .needs = F(RESET_SENT) },
	{ FLAG_ANNOUNCED_NUMBER, .needs = F(ACCEPTED), .excludes = F(CLOSE_REPLY) },
};

static const struct xts_state_change changes[] = {
	{ CONNECTION_IDLE, CONNECTION_CONNECTING, "CONNECT, or a listener with protocols has accepted it" },
	{ CONNECTION_IDLE, CONNECTION_ESTABLISHED, "a listener has accepted and announced it, or it was parked and is claimed" },
	{ CONNECTION_IDLE, CONNECTION_LISTENER, "LISTEN, or it joins a shared listener" },
	{ CONNECTION_IDLE, CONNECTION_FAILED, "CONNECT has failed, and its protocols cannot be pushed again" },
	{ CONNECTION_CONNECTING, CONNECTION_IDLE, "TCP could not connect" },
	{ CONNECTION_CONNECTING, CONNECTION_ESTABLISHED, "TCP is connected, and handshakes are done" },
	{ CONNECTION_CONNECTING, CONNECTION_FAILED, "a handshake has failed" },
	{ CONNECTION_ESTABLISHED, CONNECTION_IDLE, "it connected at once, and epoll has no room to watch it" },
	{ CONNECTION_ESTABLISHED, CONNECTION_CLOSING, "CLOSE, or its host has gone, and nothing has come that nobody read" },
	{ CONNECTION_ESTABLISHED, CONNECTION_FAILED, "RESET has been sent" },
	{ CONNECTION_FAILED, CONNECTION_IDLE, "CONNECT again" },
	{ CONNECTION_IDLE, CONNECTION_FREED, "CLOSED has been sent, or its host has gone" },
	{ CONNECTION_CONNECTING, CONNECTION_FREED, "CLOSED has been sent, its host has gone, or what was accepted is not announced" },
	{ CONNECTION_ESTABLISHED, CONNECTION_FREED, "it ends by reset, or goes to another process" },
	{ CONNECTION_LISTENER, CONNECTION_FREED, "CLOSED has been sent, or its host has gone" },
	{ CONNECTION_CLOSING, CONNECTION_FREED, "everything has been delivered, or cannot be" },
	{ CONNECTION_FAILED, CONNECTION_FREED, "CLOSED has been sent, or its host has gone" },
};

uint32_t xts_states(const struct xts_state_rule **out)
{
	*out = states;
	return CONNECTION_STATES;
}

uint32_t xts_state_flags(const struct xts_state_flag **out)
{
	*out = flags;
	return CONNECTION_FLAG_COUNT;
}

uint32_t xts_flag_rules(const struct xts_flag_rule **out)
{
	*out = rules;
	return sizeof rules / sizeof *rules;
}

uint32_t xts_state_changes(const struct xts_state_change **out)
{
	*out = changes;
	return sizeof changes / sizeof *changes;
}

#ifdef XTS_DEBUG

_Static_assert(CONNECTION_STATES <= 8 && CONNECTION_FLAG_COUNT <= 32, "struct xts_states_visited");

static struct xts_states_visited here, *visited = &here;

#ifdef XTS_VISITED_STATES
/* When the module is loaded: a worker may open nothing later. */
__attribute__((constructor)) static void visited_open(void)
{
	int fd = open(XTS_VISITED_STATES, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	void *at;

	if (fd < 0)
		return;
	at = ftruncate(fd, sizeof here) ? MAP_FAILED : mmap(NULL, sizeof here, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (at != MAP_FAILED)
		visited = at;
	close(fd);
}
#endif

static void note(uint32_t *mask, uint32_t bits)
{
	if (bits & ~__atomic_load_n(mask, __ATOMIC_RELAXED))
		__atomic_fetch_or(mask, bits, __ATOMIC_RELAXED);
}

static uint32_t flags_of(const struct connection *c)
{
	uint32_t set = (c->out.fin_wanted ? F(FIN_WANTED) : 0) | (c->out.fin_done ? F(FIN_DONE) : 0) | (c->out.more ? F(MORE) : 0) |
		       (c->fd < 0 ? F(NO_SOCKET) : 0) | (c->pushed ? F(PUSHED) : 0);

#define FLAG_BIT(field, bit, meaning) set |= c->field ? F(bit) : 0;
	CONNECTION_FLAGS(FLAG_BIT)
#undef FLAG_BIT
	return set;
}

static void broken(const struct connection *c, const char *what, uint32_t set)
{
	fprintf(stderr, "connection p%08x, state %s, %s:", c->proxy_id, states[c->state].name, what);
	for (uint32_t i = 0; i < CONNECTION_FLAG_COUNT; i++) {
		if (set & 1u << i)
			fprintf(stderr, " %s", flags[i].name);
	}
	fputs("\n", stderr);
	abort();
}

void connection_enter(struct connection *c, enum connection_state state)
{
	bool known = c->state == state;

	for (uint32_t i = 0; i < sizeof changes / sizeof *changes; i++)
		known |= changes[i].before == c->state && changes[i].after == state;
	if (!known)
		broken(c, states[state].name, 0);
	if (c->state != state)
		note(&visited->changes[c->state], 1u << state);
	c->state = (uint8_t)state;
}

void connection_check(const struct connection *c)
{
	const struct xts_state_rule *rule = &states[c->state];
	uint32_t set = flags_of(c), one = set & rule->one;

	if (set & ~rule->may)
		broken(c, "may not have", set & ~rule->may);
	if (rule->must & ~set)
		broken(c, "must have", rule->must & ~set);
	if (rule->one && (!one || one & (one - 1)))
		broken(c, "must have exactly one of some, but has", one);
	if (c->state == CONNECTION_FREED)
		return;
	for (uint32_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		if (!(set & 1u << rules[i].flag))
			continue;
		if (rules[i].needs & ~set || rules[i].excludes & set)
			broken(c, flags[rules[i].flag].name, (rules[i].needs & ~set) | (rules[i].excludes & set));
	}
	note(&visited->flags[c->state], set);
	note(&visited->states, 1u << c->state);
}

void channel_check(struct channel *ch, uint32_t proxy_id)
{
	const struct connection *c = connection_find(ch, proxy_id);

	if (c)
		connection_check(c);
}

#endif
