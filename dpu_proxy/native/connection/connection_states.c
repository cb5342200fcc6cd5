/* The table of a connection's states, and the checks of a build with XTS_DEBUG. connection_states.h says what it is
 * for. */
#include "channel/channel.h"
#include "channel/tickets.h"

/* A flag's mask. */
#define F(bit) (1u << FLAG_##bit##_NUMBER)

/* Flags that an option call may set, or epoll may report, at any time, and protocols, which
 * may be pushed at any time. */
#define ALWAYS (F(IN_EPOLL) | F(READABLE) | F(SEND_BUFFER_SET) | F(RECEIVE_TUNED) | F(PUSHED))
/* The host has closed it, and CLOSED has to be sent. The socket is closed already. */
#define CLOSED (F(CLOSE_REPLY) | F(UNWAITED) | F(NO_SOCKET))
/* There is, or was, a TCP connection. */
#define CARRIES (F(READ_TO_END) | F(URGENT) | F(WRITABLE) | F(ACCEPTED))
#define CARRIED (CARRIES | F(EOS_SENT) | F(FIN_WANTED) | F(FIN_DONE) | F(MORE) | F(SPILLED))

/* clang-format off */
static const struct xts_state_rule states[CONNECTION_STATES] = {
	[CONNECTION_IDLE] = { "idle",
		"A socket that is not connected: made by BIND or an option, or its connect has failed.",
		.may = ALWAYS | CLOSED | F(CONNECT_REPLY) },
	[CONNECTION_CONNECTING] = { "connecting",
		"TCP connects, or protocols do their handshakes before CONNECT_ACK or NEWCONN.",
		.may = ALWAYS | CLOSED | CARRIES },
	[CONNECTION_ESTABLISHED] = { "established", "Bytes go both ways.",
		.may = ALWAYS | CLOSED | CARRIED | F(CONNECT_REPLY) | F(ANNOUNCED) },
	[CONNECTION_LISTENER] = { "listener", "It accepts connections.",
		.may = ALWAYS | CLOSED | F(LOOK_DUE) },
	[CONNECTION_CLOSING] = { "closing",
		"The host has closed it: it is answered, lingers, or is an orphan with bytes.",
		.may = ALWAYS | CARRIED | F(CLOSE_REPLY) | F(UNWAITED) | F(LINGERING) | F(ORPHAN) | F(LOOK_DUE),
		.must = F(FIN_WANTED), .one = F(CLOSE_REPLY) | F(LINGERING) | F(ORPHAN) },
	[CONNECTION_FAILED] = { "failed", "The host knows of its failure, and has to close it or to connect it again.",
		.may = ALWAYS | CLOSED | CARRIED | F(CONNECT_REPLY) | F(RESET_SENT) | F(SPENT), .must = F(RESET_SENT) },
	[CONNECTION_DATAGRAM] = { "datagram", "A datagram socket, from its opening to its close.",
		.may = F(IN_EPOLL) | F(READABLE) | F(WRITABLE) | F(SEND_BUFFER_SET) | F(RECEIVE_TUNED) | F(LOOK_DUE) |
		       CLOSED },
	[CONNECTION_FREED] = { "freed",
		"Only its memory is there, until events that were fetched before have been handled.",
		.may = UINT32_MAX, .must = F(NO_SOCKET) },
};
/* clang-format on */

static const struct xts_state_flag flags[CONNECTION_FLAG_COUNT] = {
#define FLAG_TEXT(field, bit, meaning) { #field, meaning },
	CONNECTION_FLAGS(FLAG_TEXT)
#undef FLAG_TEXT
		{ "accepted", "The peer has connected to us." },
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
	{ CONNECTION_IDLE, CONNECTION_ESTABLISHED,
	  "a listener has accepted and announced it, or it was parked and is claimed" },
	{ CONNECTION_IDLE, CONNECTION_LISTENER, "LISTEN, or it joins a shared listener" },
	{ CONNECTION_IDLE, CONNECTION_FAILED, "CONNECT has failed, and its protocols cannot be pushed again" },
	{ CONNECTION_IDLE, CONNECTION_DATAGRAM, "OPEN_DATAGRAM" },
	{ CONNECTION_CONNECTING, CONNECTION_IDLE, "TCP could not connect" },
	{ CONNECTION_CONNECTING, CONNECTION_ESTABLISHED, "TCP is connected, and handshakes are done" },
	{ CONNECTION_CONNECTING, CONNECTION_FAILED, "a handshake has failed" },
	{ CONNECTION_ESTABLISHED, CONNECTION_IDLE, "it connected at once, and epoll has no room to watch it" },
	{ CONNECTION_ESTABLISHED, CONNECTION_CLOSING,
	  "CLOSE, or its host has gone, and nothing has come that nobody read" },
	{ CONNECTION_ESTABLISHED, CONNECTION_FAILED, "RESET has been sent" },
	{ CONNECTION_FAILED, CONNECTION_IDLE, "CONNECT again" },
	{ CONNECTION_IDLE, CONNECTION_FREED, "CLOSED has been sent, or its host has gone" },
	{ CONNECTION_CONNECTING, CONNECTION_FREED,
	  "CLOSED has been sent, its host has gone, or what was accepted is not announced" },
	{ CONNECTION_ESTABLISHED, CONNECTION_FREED, "it ends by reset, or goes to another process" },
	{ CONNECTION_LISTENER, CONNECTION_IDLE, "SHUT_LISTENER, by its host or by that of another member" },
	{ CONNECTION_LISTENER, CONNECTION_FREED, "CLOSED has been sent, or its host has gone" },
	{ CONNECTION_CLOSING, CONNECTION_FREED, "everything has been delivered, or cannot be" },
	{ CONNECTION_DATAGRAM, CONNECTION_FREED, "CLOSED has been sent, its host has gone, or it could not be opened" },
	{ CONNECTION_FAILED, CONNECTION_FREED, "CLOSED has been sent, or its host has gone" },
};

const struct xts_state_table xts_connection_states = {
	.what = "connection",
	.states = states,
	.flags = flags,
	.rules = rules,
	.changes = changes,
	.state_count = CONNECTION_STATES,
	.flag_count = CONNECTION_FLAG_COUNT,
	.rule_count = sizeof rules / sizeof *rules,
	.change_count = sizeof changes / sizeof *changes,
};

#ifdef XTS_DEBUG

_Static_assert(CONNECTION_STATES <= STATES_MAX && CONNECTION_FLAG_COUNT <= 32, "struct xts_states_visited");

static struct xts_states_visited here, *visited = &here;

#ifdef XTS_VISITED_STATES
/* Runs when the module is loaded, because a worker may not open files later. */
__attribute__((constructor)) static void visited_open(void)
{
	visited = xts_states_visited_open(XTS_VISITED_STATES, &here);
}
#endif

static uint32_t flags_of(const struct connection *c)
{
	uint32_t set = (c->tcp.accepted ? F(ACCEPTED) : 0) | (c->tcp.fin_wanted ? F(FIN_WANTED) : 0) |
		       (c->tcp.fin_done ? F(FIN_DONE) : 0) | (c->tcp.more ? F(MORE) : 0) |
		       (c->tcp.fd < 0 ? F(NO_SOCKET) : 0) | (c->tcp.pushed ? F(PUSHED) : 0);

#define FLAG_BIT(field, bit, meaning) set |= c->field ? F(bit) : 0;
	CONNECTION_FLAGS(FLAG_BIT)
#undef FLAG_BIT
	return set;
}

void connection_enter(struct connection *c, enum connection_state state)
{
	xts_state_entered(&xts_connection_states, visited, c->proxy_id, c->state, state);
	c->state = (uint8_t)state;
	ledger_entered(c);
}

void connection_check(const struct connection *c)
{
	xts_state_rests(&xts_connection_states, visited, c->proxy_id, c->state, flags_of(c));
	ticket_check(c);
}

void channel_check(struct channel *ch, uint32_t proxy_id)
{
	const struct connection *c = connection_find(ch, proxy_id);

	if (c)
		connection_check(c);
}

#endif
