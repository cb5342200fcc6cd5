/*
 * How many frames may be on their way (arq.h): a window, by delay, and by losses only where they are many.
 *
 * A lossy wire loses without being full: a window that halves with each loss would be some ten frames at 1 %. So
 * losses count when more than an eighth of the frames are lost, or while frames wait for long. What shows that a wire
 * is full is delay: frames of a round trip that take longer than the shortest that was seen lately, by more than a
 * target. Then the window shrinks by how much they are above it, at most by half, once in a round trip. Else it grows
 * by one frame. At first, and after a time-out, it doubles. It is never below one frame.
 *
 * Channels that share a wire see the same delay. Who has a small window has a larger target (as in Swift, SIGCOMM
 * 2020), so it still grows when the others shrink, and all come to about the same share. And three frames of one's own
 * may wait, for a window of two can neither shrink a little nor be half of four.
 *
 * The target is far above what a busy machine's scheduling does, and what 128 frames take at any rate that matters.
 * Where frames are lost though none has to wait for long, it is lower for windows above LOSSY_FRAMES: one that is sent
 * again waits behind all that were sent meanwhile, and until it has arrived the link's credits do not come back. A
 * smaller window would leave processors idle that take some frames at once.
 */
#include "decorators/arq_inside.h"

#include <string.h>

#define BEGIN_FRAMES 16u
#define OWN_FRAMES 3u
#define MOST_PARTS (ARQ_WINDOW * ARQ_PARTS)
#define TARGET_NS 2000000ull
#define TARGET_LOSSY_NS 150000ull
#define LOSSY_FRAMES 32u
#define BASE_NS 10000000000ull /* for so long at least the shortest round trip counts */
#define JUDGED_FRAMES 128u
#define LOSSY_NS 10000000000ull
#define LOST_MANY 20u /* more than an eighth of JUDGED_FRAMES */

/* In parts, within bounds. */
static void set(struct arq_window *w, uint32_t parts)
{
	w->parts = parts < ARQ_PARTS ? ARQ_PARTS : parts > MOST_PARTS ? MOST_PARTS : parts;
	w->frames = w->parts / ARQ_PARTS;
}

void arq_window_begin(struct arq_window *w, uint32_t first)
{
	memset(w, 0, sizeof *w);
	set(w, BEGIN_FRAMES * ARQ_PARTS);
	w->threshold = MOST_PARTS;
	w->round_end = first;
	w->round_rtt_ns = w->base_ns = w->next_base_ns = ARQ_NEVER;
}

static void took(struct arq_window *w, uint64_t rtt_ns, uint64_t now_ns)
{
	if (now_ns >= w->base_until_ns) {
		w->base_ns = w->next_base_ns;
		w->next_base_ns = ARQ_NEVER;
		w->base_until_ns = now_ns + BASE_NS;
	}
	if (rtt_ns < w->next_base_ns)
		w->next_base_ns = rtt_ns;
	if (rtt_ns < w->base_ns)
		w->base_ns = rtt_ns;
	if (rtt_ns < w->round_rtt_ns)
		w->round_rtt_ns = rtt_ns;
}

static void shrink(struct arq_window *w, uint32_t parts)
{
	set(w, parts);
	w->threshold = w->parts;
}

/* Do frames have to wait for long? The queue before a slow port, and not a busy machine. */
static bool waits_long(const struct arq_window *w)
{
	return w->round_rtt_ns >= w->base_ns + w->base_ns / 2 + TARGET_NS / 2;
}

/* Are so many lost that the wire is full? Judged when enough were sent, and then afresh. */
static bool loses_many(struct arq_window *w, uint64_t now_ns)
{
	bool many = w->lost * 8 > w->acked + w->lost;

	if (w->acked + w->lost < JUDGED_FRAMES && w->lost < LOST_MANY)
		return false;
	if (many)
		w->lossy_until_ns = 0;
	else if (w->lost && !waits_long(w))
		w->lossy_until_ns = now_ns + LOSSY_NS;
	w->acked = w->lost = 0;
	return many;
}

/* How long frames may wait on their way. */
static uint64_t target_ns(const struct arq_window *w, uint64_t now_ns)
{
	uint64_t ns = now_ns < w->lossy_until_ns && w->frames > LOSSY_FRAMES ? TARGET_LOSSY_NS : TARGET_NS;
	uint64_t own_ns = w->round_rtt_ns / w->frames * OWN_FRAMES;
	uint32_t root = 1;

	while ((root + 1) * (root + 1) <= w->frames)
		root++;
	ns = ns / 2 + 2 * ns / root;
	if (ns < w->base_ns / 2)
		ns = w->base_ns / 2;
	return ns > own_ns ? ns : own_ns;
}

static void judge(struct arq_window *w, uint64_t now_ns)
{
	bool measured = w->round_rtt_ns != ARQ_NEVER;
	uint64_t most_ns = measured ? w->base_ns + target_ns(w, now_ns) : ARQ_NEVER;

	if (loses_many(w, now_ns) || (measured && w->lost_now && waits_long(w))) {
		shrink(w, w->parts * 7 / 10);
	} else if (measured && w->round_rtt_ns > most_ns) {
		uint64_t less = w->parts * (w->round_rtt_ns - most_ns) / w->round_rtt_ns;

		shrink(w, w->parts - (uint32_t)(less < w->parts / 2 ? less : w->parts / 2));
	} else if (w->limited && w->parts >= w->threshold) {
		set(w, w->parts + ARQ_PARTS);
	}
	w->limited = w->lost_now = false;
	w->round_rtt_ns = ARQ_NEVER;
}

void arq_window_news(struct arq_window *w, const struct arq_news *news)
{
	w->acked += news->acked;
	w->lost += news->lost;
	w->lost_now |= news->lost != 0;
	if (news->rtt_ns)
		took(w, news->rtt_ns, news->now_ns);
	if (w->limited && w->parts < w->threshold) {
		uint32_t more = w->parts + news->acked * ARQ_PARTS;

		set(w, more < w->threshold ? more : w->threshold);
	}
	if ((int32_t)(news->oldest - w->round_end) < 0)
		return;
	w->round_end = news->next;
	judge(w, news->now_ns);
}

void arq_window_timeout(struct arq_window *w)
{
	w->threshold = w->parts / 2 > 2 * ARQ_PARTS ? w->parts / 2 : 2 * ARQ_PARTS;
	set(w, ARQ_PARTS);
	w->acked = w->lost = 0;
}
