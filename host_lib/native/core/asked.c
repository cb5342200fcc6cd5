/*
 * What a program has asked of a socket: options, address, peer, protocols, memberships, filters.
 *
 * Theory of operation. A kernel keeps all this for as long as the socket exists. Here the proxy's socket has it, and
 * that one may end before the program's: with the proxy, or with the way to it. So the requests that the proxy has
 * carried out are kept in a list, and asked_play() makes them again, of the next proxy (again.c) or of this one
 * (shared_listener.c). Nothing else in the library remembers what was asked.
 *
 * The list is in the order of the program's calls, since that order may matter: SO_REUSEADDR does something else before
 * bind() than after it. A request that replaces an earlier one takes that one out, unless a bind() is between them; so
 * the list does not grow with the number of calls. Memberships of groups add to one another, and are taken out when the
 * program leaves the group (asked_groups.c).
 *
 * listen() is not in the list: the backlog is in the socket, and to listen is the last thing that is done. Until then
 * no connection can come, which would come without the protocols or filters that are still to follow. One option has to
 * come after it (asked_play_listening()).
 *
 * Connections have no list: what was asked of one is gone when it is. So a socket's list ends when it connects. What
 * CONNECT carries is kept until it is answered: the next process of the proxy may be sent it (next_proxy.h).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "core/asked.h"
#include "core/asked_part.h"
#include "core/call.h"
#include "core/socket_kind.h"
#include "core/stack.h"
#include "processes/again.h"
#include "xts.h"

/* --- noting ------------------------------------------------------------------------------------------------------- */

static bool is_noted(const struct xts_sock *s)
{
	return s->phase == PHASE_UNCONNECTED;
}

bool asked_is_push(int32_t request)
{
	return (uint32_t)request == SIOC_PUSH_ULP || (uint32_t)request == SIOC_PUSH_ULP_RX ||
	       (uint32_t)request == SIOC_PUSH_ULP_TX;
}

void asked_release(struct asked *e)
{
	explicit_bzero(e->value, e->length); /* parameters of a push may contain keys */
	free(e);
}

/* Where the requests after the last bind() begin. */
static struct asked **after_bind(struct asked **list)
{
	struct asked **from = list;

	for (struct asked **at = list; *at; at = &(*at)->next)
		if ((*at)->type == XTS_CMD_BIND)
			from = &(*at)->next;
	return from;
}

/* Does the request replace this one? */
static bool replaces(const struct call *call, const struct asked *e)
{
	if (e->type != call->type || call->type == XTS_CMD_BIND)
		return false;
	if (call->type == XTS_CMD_CONNECT_DATAGRAM)
		return true;
	if (call->type == XTS_CMD_IOCTL && asked_is_push(call->option))
		return false; /* each push adds a protocol */
	return e->level == call->level && e->option == call->option && !asked_is_of_group(call);
}

static void take_out(struct asked **list, const struct call *call)
{
	struct asked **at = call->type == XTS_CMD_CONNECT_DATAGRAM ? list : after_bind(list), *e;

	while ((e = *at)) {
		if (!replaces(call, e)) {
			at = &e->next;
			continue;
		}
		*at = e->next;
		asked_release(e);
	}
}

static void append(struct asked **list, struct asked *e)
{
	while (*list)
		list = &(*list)->next;
	*list = e;
}

struct asked *asked_make(const struct call *call)
{
	struct asked *e = malloc(sizeof *e + call->length);

	if (!e)
		return NULL;
	*e = (struct asked){ .type = call->type, .level = call->level, .option = call->option, .length = call->length };
	memcpy(e->value, call->value, call->length);
	return e;
}

void asked_note(struct xts_sock *s, struct asked *e, const struct call *asked, const struct call *answered)
{
	struct asked **list = &s->cold->asked;
	bool undone = asked_is_of_group(asked) && asked_group_undoes(list, asked);

	take_out(list, asked);
	e->address = e->type == XTS_CMD_BIND ? answered->local : asked->peer;
	if (undone || (e->type == XTS_CMD_CONNECT_DATAGRAM && !e->address.ip_version))
		asked_release(e); /* connect() to AF_UNSPEC leaves no peer */
	else
		append(list, e);
}

/* The answer to a call overwrites its value. */
static struct call as_asked(const struct asked *e, const struct call *call)
{
	struct call again = { .type = call->type, .level = call->level, .option = call->option, .peer = call->peer };

	again.length = e->length;
	memcpy(again.value, e->value, e->length);
	return again;
}

/* The channel may end because of this very request, or with its proxy: the socket's next channel gets it again. Whether
 * this thread makes the socket there, or another one has done so before this one runs, is chance. */
static int call_here(struct xts_sock *s, struct call *call)
{
	int r = again_now(s);

	call->unanswered = true;
	if (!r)
		r = call_proxy(s, call);
	if (r == -ENETDOWN && call->unanswered && !again_now(s))
		r = call_proxy(s, call);
	return r;
}

int asked_call(struct xts_sock *s, struct call *call)
{
	struct asked *e = is_noted(s) ? asked_make(call) : NULL;
	int r;

	if (!e)
		return is_noted(s) ? -ENOMEM : call_proxy(s, call);
	r = call_here(s, call);
	if (!r && is_noted(s)) {
		struct call asked = as_asked(e, call);

		asked_note(s, e, &asked, call);
		explicit_bzero(asked.value, asked.length);
	} else {
		asked_release(e);
	}
	return r;
}

bool asked_anything(const struct xts_sock *s)
{
	return s->cold->asked;
}

static bool is_of_push(const struct asked *e)
{
	return e->type == XTS_CMD_IOCTL && asked_is_push(e->option);
}

bool asked_pushes(const struct xts_sock *s)
{
	const struct asked *e = s->cold->asked;

	while (e && !is_of_push(e))
		e = e->next;
	return e;
}

bool asked_option(const struct xts_sock *s, int level, int option)
{
	const struct asked *e = s->cold->asked;

	while (e && (e->type != XTS_CMD_SETSOCKOPT || e->level != level || e->option != option))
		e = e->next;
	return e;
}

static void list_drop(void *member)
{
	struct asked **list = member;

	while (*list) {
		struct asked *e = *list;

		*list = e->next;
		asked_release(e);
	}
}

void asked_forget(struct xts_sock *s)
{
	if (s->cold->asked) /* most sockets have none, and writing would make a page exist */
		list_drop(&s->cold->asked);
	asked_connected(s);
}

void asked_connect(struct xts_sock *s, const uint8_t *payload, uint32_t bytes)
{
	struct asked *e = malloc(sizeof *e + bytes);

	asked_connected(s);
	if (!e)
		return; /* the call fails if the proxy's process dies */
	*e = (struct asked){ .type = XTS_CMD_CONNECT, .length = bytes };
	memcpy(e->value, payload, bytes);
	s->cold->asked_connect = e;
}

void asked_connected(struct xts_sock *s)
{
	if (!s->cold->asked_connect)
		return;
	asked_release(s->cold->asked_connect);
	s->cold->asked_connect = NULL;
}

/* --- asking again ------------------------------------------------------------------------------------------------- */

int asked_bind(struct xts_sock *s, struct xts_endpoint local)
{
	struct call call = { .type = XTS_CMD_BIND, .local = local, .makes = true };
	int r = call_proxy(s, &call);

	if (!r)
		s->local = call.local;
	return r;
}

/* The address that the program has bound. The port is the one that it has had since: the device chose it if the program
 * had named none. */
static int bind_again(struct xts_sock *s, const struct asked *e)
{
	struct xts_endpoint local = e->address;

	if (s->local.port)
		local.port = s->local.port;
	return asked_bind(s, local);
}

static int ask_again(struct xts_sock *s, const struct asked *e)
{
	struct call call = { .type = e->type,
			     .level = e->level,
			     .option = e->option,
			     .peer = e->address,
			     .length = e->length,
			     .makes = true };
	int r;

	memcpy(call.value, e->value, e->length);
	r = call_proxy(s, &call); /* -EBADF: e is gone, too */
	explicit_bzero(call.value, sizeof call.value);
	return r;
}

/* With it off, a socket does not begin to listen on a port where others listen. A program that has turned it off did so
 * when it listened already: here, too. */
static bool is_asked_of_listener(const struct xts_sock *s, const struct asked *e)
{
	static const uint8_t off[sizeof(int)];

	return kind_of(s)->accepts && e->type == XTS_CMD_SETSOCKOPT && e->level == SOL_SOCKET &&
	       e->option == SO_REUSEPORT && e->length >= sizeof off && !memcmp(e->value, off, sizeof off);
}

int asked_play(struct xts_sock *s)
{
	int r = kind_of(s)->ask_first(s);
	bool bound = false;

	if (r)
		return r;
	for (const struct asked *e = s->cold->asked; e; e = e->next) {
		if (!bound && e->type == XTS_CMD_CONNECT_DATAGRAM) {
			bound = true;
			r = kind_of(s)->bind_chosen(s);
			if (r)
				return r;
		}
		bound |= e->type == XTS_CMD_BIND;
		if (bound && is_asked_of_listener(s, e))
			continue;
		r = e->type == XTS_CMD_BIND ? bind_again(s, e) : ask_again(s, e);
		if (r)
			return r;
	}
	return bound ? 0 : kind_of(s)->bind_chosen(s);
}

int asked_play_listening(struct xts_sock *s)
{
	for (const struct asked *e = *after_bind(&s->cold->asked); e; e = e->next) {
		int r = is_asked_of_listener(s, e) ? ask_again(s, e) : 0;

		if (r)
			return r;
	}
	return 0;
}

int asked_push_again(struct xts_sock *s)
{
	for (const struct asked *e = s->cold->asked; e; e = e->next) {
		int r = is_of_push(e) ? ask_again(s, e) : 0;

		if (r)
			return r;
	}
	return 0;
}

/* --- for another process (processes/socket_record.h) -------------------------------------------------------------- */

static bool list_next(const void *member, uintptr_t *at, void *element)
{
	const struct asked *const *first = member, *e = *at ? ((const struct asked *)*at)->next : *first;

	*at = (uintptr_t)e;
	if (e)
		*(struct asked_part *)element = (struct asked_part){ .type = e->type,
								     .level = (uint32_t)e->level,
								     .option = (uint32_t)e->option,
								     .address = e->address,
								     .value = { e->value, e->length } };
	return e;
}

static void list_begin(void *member)
{
	*(struct asked **)member = NULL;
}

static int list_append(void *member, const void *element)
{
	const struct asked_part *part = element;
	struct asked *e = malloc(sizeof *e + part->value.bytes);

	if (!e)
		return -ENOMEM;
	*e = (struct asked){ .type = part->type,
			     .level = (int32_t)part->level,
			     .option = (int32_t)part->option,
			     .address = part->address,
			     .length = part->value.bytes };
	memcpy(e->value, part->value.data, e->length);
	append(member, e);
	return 0;
}

const struct xts_record_list asked_list = { list_next, list_begin, list_append, list_drop };

int asked_part_check(const void *made)
{
	const struct asked_part *part = made;

	return part->type == XTS_CMD_SETSOCKOPT || part->type == XTS_CMD_IOCTL || part->type == XTS_CMD_BIND ||
			       part->type == XTS_CMD_CONNECT_DATAGRAM ?
		       0 :
		       -EBADMSG;
}
