/*
 * What was sent (arq.h): which frames have arrived, which seem lost, and when to send one again.
 *
 * Theory of operation
 *
 * Every transmission has a number of its own, also when it repeats a frame. The peer tells the highest that has come
 * and for how long it has known it, so it is always known which transmission an acknowledgement answers (RFC 6298, with
 * no need for Karn's rule). A frame is lost when a later transmission has arrived and it has not, some time after it
 * would have been due (RACK, RFC 8985). That time is a quarter of the shortest round trip, and more where frames turn
 * out to have come twice: then they were only late.
 *
 * If nothing arrives any more, the newest frame is sent once more after two round trips (tail loss probe). Its
 * acknowledgement shows what is missing. If that does not come either, all are lost (RTO), and each further wait is
 * twice as long, to ten seconds. It never gives up: whether the peer is dead is the link's question, and a peer that
 * was stopped for a minute goes on where it was.
 *
 * A frame that is lost costs a round trip, in which the link's credits run out if they were enough for one. The wire is
 * idle then. So where frames are lost, and there is nothing else to send, each is sent a second time, if the window
 * leaves room and no frame has to wait on its way.
 *
 * What the peer says has bounds: an acknowledgement of what was never sent is a violation. What it can do within them
 * is to have frames sent again, or not, which hurts nobody else: on_their_way never exceeds the window.
 */
#include "decorators/arq_inside.h"

#include <errno.h>
#include <string.h>

#define MS 1000000ull
#define RTO_FIRST_NS (20 * MS)
#define RTO_LEAST_NS (5 * MS)
#define RTO_MOST_NS (10000 * MS)
#define PROBE_LEAST_NS (1 * MS)
#define REORDER_LEAST_NS 50000ull
#define PATIENCE_MOST 64u /* quarters of a round trip */
#define CALM 1000u        /* frames after which patience shrinks again */
#define BACKOFF_MOST 11u
#define COPY_PART \
	8u /* a copy is sent this part of a round trip later, so that one burst of losses does not take both */

void arq_sender_begin(struct arq_sender *s, uint32_t first, uint64_t now_ns)
{
	memset(s, 0, sizeof *s);
	s->first = s->oldest = s->next = s->end = s->released = first;
	s->transmission = 1;
	s->patience = 1;
	s->quiet_ns = now_ns;
	s->reorder_ns = s->again_ns = s->copy_ns = ARQ_NEVER;
	s->copied = first;
	arq_window_begin(&s->window, first);
}

void arq_sender_resume(struct arq_sender *s, uint32_t first, uint32_t oldest, uint32_t transmission)
{
	s->first = first;
	s->oldest = s->next = s->end = s->released = s->copied = oldest;
	s->transmission = transmission;
	arq_window_begin(&s->window, oldest);
}

void arq_sender_lose_all(struct arq_sender *s)
{
	for (; s->next != s->end; s->next++) {
		arq_sender_frame(s, s->next)->lost = true;
		s->lost++;
	}
}

void arq_sender_add(struct arq_sender *s, const struct xts_tx_slot *slot, uint32_t bytes)
{
	*arq_sender_frame(s, s->end) = (struct arq_frame){ .slot = *slot, .bytes = bytes };
	__atomic_signal_fence(__ATOMIC_RELEASE); /* who goes on when this process has died finds the whole frame */
	s->end++;
}

/* --- acknowledgements --------------------------------------------------------------------------------------------- */

static void has_arrived(struct arq_sender *s, uint32_t number)
{
	struct arq_frame *f = arq_sender_frame(s, number);

	if (f->arrived)
		return;
	f->arrived = true;
	if (f->lost)
		s->lost--;
	else
		s->on_their_way--;
	f->lost = false;
	s->acked++;
	s->progress = true;
}

/* How many frames behind `arrived` the bits reach. */
static uint32_t reach(const struct xts_arq *head)
{
	if (head->selective_high)
		return 128u - (uint32_t)__builtin_clzll(head->selective_high);
	return head->selective_low ? 64u - (uint32_t)__builtin_clzll(head->selective_low) : 0;
}

static void take_selective(struct arq_sender *s, uint32_t from, uint64_t bits)
{
	for (uint32_t i = 0; bits; i++, bits >>= 1)
		if (bits & 1)
			has_arrived(s, from + i);
}

static void take_duplicates(struct arq_sender *s, uint16_t duplicates)
{
	uint32_t more = (uint16_t)(duplicates - s->duplicates);

	if (!more || more > INT16_MAX)
		return;
	s->duplicates = duplicates;
	if (s->copies >= more) {
		s->copies -= more;
		return;
	}
	s->copies = 0;
	s->patience = s->patience * 2 < PATIENCE_MOST ? s->patience * 2 : PATIENCE_MOST;
	s->calm = 0;
}

int arq_sender_acknowledged(struct arq_sender *s, const struct xts_arq *head)
{
	uint32_t arrived = head->arrived - s->oldest, sent = s->next - s->oldest;

	if ((int32_t)(head->heard - s->transmission) >= 0)
		return -EPROTO;
	if ((int32_t)arrived < 0)
		return 0; /* overtaken by a later one */
	if (arrived > sent || (reach(head) && reach(head) >= sent - arrived))
		return -EPROTO;
	for (; s->oldest != head->arrived; s->oldest++)
		has_arrived(s, s->oldest);
	take_selective(s, head->arrived + 1, head->selective_low);
	take_selective(s, head->arrived + 65, head->selective_high);
	take_duplicates(s, head->duplicates);
	if (!s->heard_any || (int32_t)(head->heard - s->heard) > 0) {
		s->heard = head->heard;
		s->held_us = head->held_us;
		s->heard_any = s->heard_new = true;
	}
	return 0;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

/* The round trip of the newest transmission that has arrived; 0: it is not known. */
static uint64_t measure(struct arq_sender *s, uint64_t now_ns)
{
	uint64_t sent_ns = s->sent_ns[s->heard % ARQ_TRANSMISSIONS];
	uint64_t rtt_ns = now_ns - sent_ns, held_ns = s->held_us * 1000ull, apart_ns;

	if (!sent_ns) /* by the process before this one */
		return 0;
	if (s->transmission - s->heard > ARQ_TRANSMISSIONS || s->held_us == UINT16_MAX || held_ns >= rtt_ns)
		return 0;
	rtt_ns -= held_ns;
	apart_ns = rtt_ns > s->srtt_ns ? rtt_ns - s->srtt_ns : s->srtt_ns - rtt_ns;
	s->rttvar_ns = s->srtt_ns ? (3 * s->rttvar_ns + apart_ns) / 4 : rtt_ns / 2;
	s->srtt_ns = s->srtt_ns ? (7 * s->srtt_ns + rtt_ns) / 8 : rtt_ns;
	s->rtt_ns = rtt_ns;
	if (!s->min_rtt_ns || rtt_ns < s->min_rtt_ns)
		s->min_rtt_ns = rtt_ns;
	return rtt_ns;
}

static uint64_t reorder_ns(const struct arq_sender *s)
{
	uint64_t quarter_ns = s->min_rtt_ns / 4 > REORDER_LEAST_NS ? s->min_rtt_ns / 4 : REORDER_LEAST_NS;

	return quarter_ns * s->patience;
}

static void lose(struct arq_sender *s, struct arq_frame *f)
{
	f->lost = true;
	s->lost++;
	s->on_their_way--;
}

/* Finds frames that are lost since later transmissions have arrived; returns how many. */
static uint32_t find_lost(struct arq_sender *s, uint64_t now_ns)
{
	uint64_t expected_ns = (s->rtt_ns > s->srtt_ns ? s->rtt_ns : s->srtt_ns) + reorder_ns(s);
	uint32_t found = 0;

	s->reorder_ns = ARQ_NEVER;
	if (!s->heard_any || !s->on_their_way)
		return 0;
	for (uint32_t n = s->oldest; n != s->next; n++) {
		struct arq_frame *f = arq_sender_frame(s, n);

		if (f->arrived || f->lost || (int32_t)(s->heard - f->transmission) <= 0)
			continue;
		if (now_ns >= f->sent_ns + expected_ns) {
			lose(s, f);
			found++;
		} else if (f->sent_ns + expected_ns < s->reorder_ns) {
			s->reorder_ns = f->sent_ns + expected_ns;
		}
	}
	return found;
}

static uint64_t wait_ns(const struct arq_sender *s)
{
	uint64_t ns = s->srtt_ns + 4 * s->rttvar_ns + ARQ_ACK_DELAY_NS;

	if (!s->probed && !s->backoff) {
		ns = 2 * s->srtt_ns + ARQ_ACK_DELAY_NS + reorder_ns(s);
		return !s->srtt_ns ? RTO_FIRST_NS : ns < PROBE_LEAST_NS ? PROBE_LEAST_NS : ns;
	}
	if (!s->srtt_ns)
		ns = RTO_FIRST_NS;
	else if (ns < RTO_LEAST_NS)
		ns = RTO_LEAST_NS;
	ns <<= s->backoff;
	return ns < RTO_MOST_NS ? ns : RTO_MOST_NS;
}

/* Neither an acknowledgement nor a frame that could have brought one. */
static void silence(struct arq_sender *s, uint64_t now_ns)
{
	if (s->oldest == s->next || now_ns < s->quiet_ns + wait_ns(s))
		return;
	s->quiet_ns = now_ns;
	if (!s->probed && !s->backoff) {
		s->probed = s->probe = true;
		return;
	}
	for (uint32_t n = s->oldest; n != s->next; n++) {
		struct arq_frame *f = arq_sender_frame(s, n);

		if (!f->arrived && !f->lost)
			lose(s, f);
	}
	if (!s->backoff)
		arq_window_timeout(&s->window);
	if (s->backoff < BACKOFF_MOST)
		s->backoff++;
}

void arq_sender_tick(struct arq_sender *s, uint64_t now_ns)
{
	struct arq_news news = { .now_ns = now_ns, .acked = s->acked, .oldest = s->oldest, .next = s->next };
	bool heard = s->heard_new;

	if (heard)
		news.rtt_ns = measure(s, now_ns);
	s->heard_new = false;
	if (s->progress) {
		s->quiet_ns = now_ns;
		s->backoff = 0;
		s->probed = s->probe = false;
		s->calm += s->acked;
		if (s->calm >= CALM && s->patience > 1) {
			s->patience /= 2;
			s->calm = 0;
		}
	}
	s->progress = false;
	s->acked = 0;
	if (heard || s->reorder_ns <= now_ns)
		news.lost = find_lost(s, now_ns);
	if (news.acked || news.lost || news.rtt_ns)
		arq_window_news(&s->window, &news);
	silence(s, now_ns);
	if (s->again_ns <= now_ns)
		s->again_ns = ARQ_NEVER;
}

/* --- sending ------------------------------------------------------------------------------------------------------ */

/* The newest frame that is out, for the probe. */
static bool newest(struct arq_sender *s, uint32_t *number)
{
	for (uint32_t n = s->next; n != s->oldest; n--) {
		if (!arq_sender_frame(s, n - 1)->arrived) {
			*number = n - 1;
			return true;
		}
	}
	return false;
}

/* The frame of which a copy is to be sent now. */
static bool copy_due(struct arq_sender *s, uint64_t now_ns, uint32_t *number)
{
	if (!arq_window_spares(&s->window, s->srtt_ns, now_ns))
		return false;
	if ((int32_t)(s->copied - s->oldest) < 0)
		s->copied = s->oldest;
	for (; s->copied != s->next; s->copied++) {
		const struct arq_frame *f = arq_sender_frame(s, s->copied);

		if (f->arrived || f->lost)
			continue;
		*number = s->copied;
		s->copy_ns = f->sent_ns + s->srtt_ns / COPY_PART;
		return s->copy_ns <= now_ns;
	}
	return false;
}

bool arq_sender_due(struct arq_sender *s, uint64_t now_ns, uint32_t *number)
{
	s->copy_ns = ARQ_NEVER;
	if (s->probe && newest(s, number))
		return true;
	s->probe = false;
	if (!s->lost && (s->next == s->end || s->next - s->oldest >= ARQ_WINDOW))
		return copy_due(s, now_ns, number);
	if (s->on_their_way >= s->window.frames) {
		s->window.limited = true;
		return false;
	}
	*number = s->lost ? s->oldest : s->next;
	if (s->lost)
		while (!arq_sender_frame(s, *number)->lost)
			++*number;
	return true;
}

void arq_sender_sent(struct arq_sender *s, uint32_t number, uint64_t now_ns)
{
	struct arq_frame *f = arq_sender_frame(s, number);
	bool first = number == s->next;

	if (!first && !f->lost) {
		s->copies++;
		if (number == s->copied)
			s->copied++;
	}
	if (first)
		s->next++;
	else
		s->repeated++;
	if (first || f->lost)
		s->on_their_way++;
	if (f->lost)
		s->lost--;
	f->lost = false;
	s->probe = false;
	f->sent_ns = s->quiet_ns = now_ns;
	f->transmission = arq_sender_transmission(s, now_ns);
}

uint32_t arq_sender_transmission(struct arq_sender *s, uint64_t now_ns)
{
	s->sent_ns[s->transmission % ARQ_TRANSMISSIONS] = now_ns;
	return s->transmission++;
}

uint64_t arq_sender_deadline_ns(const struct arq_sender *s)
{
	uint64_t deadline_ns = s->reorder_ns < s->again_ns ? s->reorder_ns : s->again_ns;
	uint64_t silent_ns = s->oldest == s->next ? ARQ_NEVER : s->quiet_ns + wait_ns(s);

	if (s->heard_new || s->progress || s->probe)
		return 0;
	if (s->copy_ns < deadline_ns)
		deadline_ns = s->copy_ns;
	return deadline_ns < silent_ns ? deadline_ns : silent_ns;
}
