/* IOCTL requests about pushed protocols (xts_messages/wire/ulps.py has their layout), and GIVE_BACK. */
#include <errno.h>
#include <string.h>

#include "processes/share.h"
#include "pushed/pushed_kept.h"

#define FLAG_MESSAGE_SOCKET 0x0001u
#define POSITION_MASK (XTS_CREDITS_MAX - 1)

bool push_is_request(uint32_t request)
{
	return request >= SIOC_PUSH_ULP_RX && request <= SIOC_ULP_ERROR;
}

/* --- pushing ------------------------------------------------------------------------------------------------------ */

static bool is_connected(const struct connection *c)
{
	return c->state == CONNECTION_ESTABLISHED;
}

/* Are there waiting bytes that have to pass through protocols pushed earlier? */
static bool send_busy(const struct connection *c)
{
	return outgoing_waits(&c->tcp.out) && (c->tcp.pushed->started || !outgoing_last_is_raw(&c->tcp.out));
}

/* Does the state of the connection allow a push? */
static int check_state(const struct connection *c, enum ulp_direction direction)
{
	uint32_t window = c->window ? c->window : c->tenant->window_bytes;
	struct ulp_stack *stack = c->tcp.pushed->stack;

	if (c->state == CONNECTION_CLOSING || c->state == CONNECTION_FAILED || c->tcp.error)
		return ulp_stack_refuse(stack, ENOTCONN, "the connection has ended");
	if (window < XTS_ULP_WINDOW_MIN) {
		return ulp_stack_refuse(stack, ENOBUFS, "the window is %u bytes, and pushed protocols need %u", window,
					XTS_ULP_WINDOW_MIN);
	}
	if (c->tcp.pushed->give_back_left)
		return ulp_stack_refuse(stack, EBUSY, "%u bytes still have to be given back for the push before",
					c->tcp.pushed->give_back_left);
	if (c->tcp.pushed->pdu_open)
		return ulp_stack_refuse(stack, EBUSY, "the host is in the middle of a PDU");
	if (direction & ULP_SEND && c->tcp.fin_wanted)
		return ulp_stack_refuse(stack, EBUSY, "the send side has been shut down");
	if (direction & ULP_SEND && send_busy(c))
		return ulp_stack_refuse(stack, EAGAIN,
					"%u bytes sent earlier still wait for the protocols pushed before",
					c->tcp.out.spill.bytes);
	return 0;
}

/*
 * How many bytes the host has to give back: those sent to it that its application has not read. It cannot be more than
 * was sent, nor more than a window. Bytes come back as a stream: those of PDUs would have lost their boundaries and
 * control data.
 */
static int count_unread(const struct connection *c, uint32_t read_bytes, uint32_t *unread)
{
	uint32_t window_max = c->tenant->window_bytes_max,
		 most = window_max > GIVE_BACK_MIN ? window_max : GIVE_BACK_MIN;
	struct ulp_stack *stack = c->tcp.pushed->stack;

	*unread = ((uint32_t)(c->tcp.received_bytes & POSITION_MASK) - read_bytes) & POSITION_MASK;
	if (read_bytes > POSITION_MASK || *unread > c->tcp.received_bytes)
		return ulp_stack_refuse(stack, EINVAL, "the host has not received up to the position it has read to");
	if (*unread > c->tcp.pushed->since_pdu)
		return ulp_stack_refuse(stack, EBUSY,
					"PDUs are unread, and would lose their boundaries: read them first");
	if (*unread > most)
		return ulp_stack_refuse(stack, ENOBUFS, "%u bytes are unread, and at most %u can be given back",
					*unread, most);
	return 0;
}

static int expect_give_back(struct connection *c, uint32_t unread)
{
	struct ulp_stack *stack = c->tcp.pushed->stack;
	int r = ulp_stack_expect(stack, unread);

	if (r == -ENOBUFS)
		return ulp_stack_refuse(stack, ENOBUFS, "no room for %u bytes given back: %s", unread, ULP_MEMORY_LIMIT);
	return r ? ulp_stack_refuse(stack, ENOMEM, "no memory for %u bytes given back", unread) : 0;
}

/* Continues after a push onto a connection that the host has. */
static void goes_on(struct connection *c, enum ulp_direction direction, uint32_t unread)
{
	struct pushed *p = c->tcp.pushed;

	pushed_tears(p); /* until the turn that follows has ended */
	p->give_back_left = unread;
	c->tcp.received_bytes -= unread;
	p->since_pdu -= unread;
	if (direction & ULP_RECEIVE)
		c->eos_sent = false;
	p->ready = false;
	pushed_start(c); /* unless it has started, or cannot yet */
	if (p->started && ulp_stack_ready(p->stack)) {
		p->ready = true;
		pushed_note_tls(c);
	}
	p->event_wanted = !p->ready;
	pushed_advance(c);
	c->readable = true;
	connection_wake(c);
}

static int push_onto(struct connection *c, enum ulp_direction direction, uint16_t ulp_id, uint32_t read_bytes,
		     const uint8_t *attributes, uint32_t bytes)
{
	struct pushed *p = c->tcp.pushed;
	uint32_t unread = 0;
	int r = 0;

	if (is_connected(c) && direction & ULP_RECEIVE && !p->peeking)
		r = count_unread(c, read_bytes, &unread);
	if (!r)
		r = expect_give_back(c, unread);
	if (r)
		return r;
	/* Layers pushed onto a started stack start at once, except one half of a duplex protocol. So start the stack
	 * first, where nothing has to leave before. */
	if (is_connected(c) && !(direction & ULP_SEND && outgoing_waits(&c->tcp.out)))
		pushed_start(c);
	r = ulp_stack_push(p->stack, direction, ulp_id, attributes, bytes);
	if (r) {
		(void)ulp_stack_expect(p->stack, 0);
		return r;
	}
	pushed_count(c, ulp_id);
	ledger_count(c); /* or what can be told of it is no more all */
	if (is_connected(c))
		goes_on(c, direction, unread);
	else if (p->started) {
		p->ready = false;
		pushed_advance(c);
	}
	return 0;
}

/* Makes c->pushed, which also keeps the reason of a refusal. */
static int may_have(struct connection *c)
{
	/* no other process has the socket: it will be shared again when it listens */
	if (!c->shared || (c->state == CONNECTION_IDLE && !share_part(c)))
		return pushed_make(c);
	/* The other members have copies of the stack, which cannot change any more. */
	return c->tcp.pushed ?
		       ulp_stack_refuse(c->tcp.pushed->stack, EBUSY, "the listener is shared already: push before that") :
		       -EBUSY;
}

static int push(struct connection *c, enum ulp_direction direction, uint8_t *value, uint32_t *bytes)
{
	uint16_t flags;
	int r;

	if (*bytes < PUSH_BYTES)
		return -EINVAL;
	flags = xts_get16(value + 4);
	if (flags & ~FLAG_MESSAGE_SOCKET)
		return -EINVAL;
	r = may_have(c);
	if (!r)
		r = check_state(c, direction);
	if (!r)
		r = pushed_set_type(c, flags & FLAG_MESSAGE_SOCKET);
	if (!r)
		r = push_onto(c, direction, xts_get16(value + 6), xts_get32(value), value + PUSH_BYTES,
			      *bytes - PUSH_BYTES);
	if (r)
		return r;
	value[0] = c->tcp.pushed->event_wanted;
	*bytes = 1;
	return 0;
}

/* --- questions ---------------------------------------------------------------------------------------------------- */

static int answered(ssize_t n, uint32_t *bytes)
{
	if (n < 0)
		return (int)n;
	*bytes = (uint32_t)n;
	return 0;
}

static int answer_info(const struct connection *c, uint8_t *value, uint32_t *bytes)
{
	if (*bytes < 8 || value[0] > 1)
		return -EINVAL;
	if (!c->tcp.pushed)
		return -ENOENT;
	return answered(ulp_stack_info(c->tcp.pushed->stack, !value[0], value[1], xts_get16(value + 2),
				       xts_get32(value + 4), value, SOCKET_CALL_BYTES_MAX),
			bytes);
}

static int answer_error(const struct connection *c, uint8_t *value, uint32_t *bytes)
{
	bool whose = c->channel->link.features & XTS_FEATURE_FAULT_OF;

	if (c->tcp.pushed)
		return answered(ulp_stack_error(c->tcp.pushed->stack, whose, value, SOCKET_CALL_BYTES_MAX), bytes);
	memset(value, 0, 4);
	*bytes = 4;
	return 0;
}

int push_request(struct connection *c, uint32_t request, uint8_t *value, uint32_t *bytes)
{
	uint32_t given = *bytes;

	*bytes = 0;
	if (c->tcp.returned.last && request != SIOC_ULP_LIST && request != SIOC_ULP_INFO && request != SIOC_ULP_ERROR)
		return -EBUSY; /* bytes that another process had received would bypass the protocol */
	switch (request) {
	case SIOC_PUSH_ULP_RX:
	case SIOC_PUSH_ULP_TX:
	case SIOC_PUSH_ULP:
		*bytes = given;
		return push(c,
			    request == SIOC_PUSH_ULP_RX ? ULP_RECEIVE :
			    request == SIOC_PUSH_ULP_TX ? ULP_SEND :
							  ULP_BOTH,
			    value, bytes);
	case SIOC_PEEK_MODE:
		return given == 1 && value[0] <= 1 ? peek_begin(c, value[0]) : -EINVAL;
	case SIOC_END_PEEK_MODE:
		return given == 4 ? peek_end(c, xts_get32(value)) : -EINVAL;
	case SIOC_ULP_LIST:
		return answered(ulp_list(c->worker->config.ulp, value, SOCKET_CALL_BYTES_MAX), bytes);
	case SIOC_ULP_INFO:
		*bytes = given;
		return answer_info(c, value, bytes);
	default:
		return answer_error(c, value, bytes);
	}
}

/* --- pushes in CONNECT ------------------------------------------------------------------------------------------- */

/* Makes the first push in these bytes. Returns how many bytes it took, or -errno. */
static int push_first(struct connection *c, uint8_t *at, uint32_t left)
{
	uint32_t request, bytes;
	int r;

	if (left < CONNECT_PUSH_HEAD_BYTES)
		return -EINVAL;
	request = xts_get32(at);
	bytes = xts_get32(at + 4);
	if (bytes > left - CONNECT_PUSH_HEAD_BYTES || request < SIOC_PUSH_ULP_RX || request > SIOC_PUSH_ULP)
		return -EINVAL;
	left = CONNECT_PUSH_HEAD_BYTES + bytes;
	r = push_request(c, request, at + CONNECT_PUSH_HEAD_BYTES, &bytes);
	return r ? r : (int)left;
}

int push_with_connect(struct connection *c, const void *pushes, uint32_t bytes)
{
	uint8_t copy[XTS_CONNECT_PUSH_BYTES];
	uint32_t at = 0;
	int r = 0;

	if (bytes > sizeof copy)
		return -EMSGSIZE;
	memcpy(copy, pushes, bytes);
	for (; at < bytes && r >= 0; at += r > 0 ? (uint32_t)r : 0)
		r = push_first(c, copy + at, bytes - at);
	explicit_bzero(copy, sizeof copy); /* the copy may have held keys */
	if (r < 0)
		return r;
	c->tcp.pushed->with_connect = true;
	return 0;
}

void push_with_connect_failed(struct connection *c)
{
	connection_enter(c, CONNECTION_FAILED);
	c->reset_sent = c->spent = true;
	if (c->tcp.pushed)
		c->tcp.pushed->failed = true; /* its protocols never start */
}

/* --- GIVE_BACK ---------------------------------------------------------------------------------------------------- */

/* All announced bytes have been given back. */
static void give_back_ends(struct connection *c)
{
	struct pushed *p = c->tcp.pushed;

	if (p->started && !p->ready && ulp_stack_ready(p->stack)) {
		p->ready = true;
		pushed_note_tls(c);
	}
	pushed_advance(c);
	c->readable = true;
	connection_wake(c);
}

/* Gives some of these bytes to the stack. */
static int give_back(struct pushed *p, const struct batch_entry *e)
{
	struct iovec iov[XTS_SEGMENTS_MAX];
	int pieces = batch_pieces(e, iov, XTS_SEGMENTS_MAX), r = 0;

	for (int i = 0; i < pieces && !r; i++)
		r = ulp_stack_give_back(p->stack, iov[i].iov_base, (uint32_t)iov[i].iov_len);
	return r;
}

enum command_result command_give_back(struct channel *ch, const struct xts_head *head, const struct xts_give_back *m,
				      struct batch_entry *e)
{
	struct batch_entry given = { .frame = e->frame, .skip = XTS_GIVE_BACK_BYTES, .bytes = m->length };
	struct connection *c = connection_find(ch, head->id);
	struct pushed *p;
	int r;

	if (!c || c->announced) {
		ch->worker->stats.bad_identifiers++;
		return COMMAND_DONE;
	}
	p = c->tcp.pushed;
	if (!p || !m->length || m->length > p->give_back_left) {
		channel_violation(ch, "bytes given back that nobody asked for", head->id);
		return COMMAND_DONE;
	}
	r = give_back(p, &given);
	p->give_back_left -= m->length;
	if (r)
		connection_fail(c, -r);
	else if (!p->give_back_left)
		give_back_ends(c);
	return COMMAND_DONE;
}
