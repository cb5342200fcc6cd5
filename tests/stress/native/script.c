/* Scripts and stream patterns: functions of their arguments alone. */
#include <string.h>

#include "stress.h"

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9u;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

uint64_t random_next(uint64_t *state)
{
	return mix(*state += 0x9e3779b97f4a7c15u);
}

uint64_t random_size(uint64_t *state, uint64_t low, uint64_t high)
{
	unsigned low_bits, high_bits, bits;
	uint64_t size;

	if (low >= high)
		return low;
	low_bits = low ? 63 - (unsigned)__builtin_clzll(low) : 0;
	high_bits = 63 - (unsigned)__builtin_clzll(high);
	bits = low_bits + (unsigned)(random_next(state) % (high_bits - low_bits + 1));
	size = (1ull << bits) + (random_next(state) & ((1ull << bits) - 1));
	return size < low ? low : size > high ? high : size;
}

static bool share(uint64_t *state, uint32_t per_thousand)
{
	return random_next(state) % 1000 < per_thousand;
}

static void derive_side(struct side_script *out, const struct config *config, uint64_t *r, enum end end)
{
	out->key = random_next(r);
	out->sizes = random_next(r);
	out->bytes = share(r, 60) ? 0 : random_size(r, 1, config->stream_max);
	out->abort_at = NEVER;
	out->read_max = (uint32_t)random_size(r, config->message_min, config->message_max);
	out->pause_us = share(r, config->slow_share[end]) ? (uint32_t)random_size(r, 1, config->slow_pause_us) : 0;
	out->abort_plainly = random_next(r) & 1;
	out->close_without_shutdown = random_next(r) & 1;
	out->peeks = share(r, 100);
	out->corks = share(r, 150);
	out->no_delay = random_next(r) & 1;
	if (config->buffer_max && random_next(r) & 1) {
		out->send_buffer = (int)random_size(r, config->buffer_min, config->buffer_max);
		out->receive_buffer = (int)random_size(r, config->buffer_min, config->buffer_max);
	}
}

static void at_most(uint64_t *value, uint64_t limit)
{
	if (*value > limit)
		*value = limit;
}

/* Tiny reads, windows, pauses and socket buffers (whose TCP windows move by timers) make a stream slow: it is cut to
 * what takes about a second, or the run would not end. */
static void limit_stream(struct side_script *sender, const struct side_script *reader, uint32_t window)
{
	uint64_t read = window && window < reader->read_max ? window : reader->read_max;

	at_most(&sender->bytes, read * 20000);
	if (reader->pause_us)
		at_most(&sender->bytes, read * (1000000ull / (reader->pause_us + 1000) + 1));
	if (sender->send_buffer)
		at_most(&sender->bytes, 20ull * (uint32_t)sender->send_buffer);
	if (reader->receive_buffer)
		at_most(&sender->bytes, 20ull * (uint32_t)reader->receive_buffer);
}

void script_derive(struct script *out, const struct config *config, enum end opener, uint32_t slot, uint32_t generation)
{
	uint64_t r = mix(config->seed ^ mix(((uint64_t)opener << 62) ^ ((uint64_t)slot << 31) ^ generation));

	memset(out, 0, sizeof(*out));
	derive_side(&out->side[OPENER], config, &r, opener);
	derive_side(&out->side[ACCEPTOR], config, &r, opener == HOST ? PEER : HOST);
	for (int side = 0; side < 2; side++) {
		enum end reader = side == OPENER ? !opener : opener;

		limit_stream(&out->side[side], &out->side[!side], reader == HOST ? config->host_window : 0);
	}
	if (share(&r, config->abort_share)) {
		uint64_t sum = out->side[OPENER].bytes + out->side[ACCEPTOR].bytes;

		out->side[random_next(&r) & 1].abort_at = random_next(&r) % (sum + 1);
	}
}

void stream_fill(uint64_t key, uint64_t position, uint8_t *data, size_t bytes)
{
	while (bytes && position % 8) {
		*data++ = (uint8_t)(mix(key + position / 8) >> (8 * (position % 8)));
		position++;
		bytes--;
	}
	for (; bytes >= 8; bytes -= 8, data += 8, position += 8) {
		uint64_t word = mix(key + position / 8);

		memcpy(data, &word, 8);
	}
	while (bytes--) {
		*data++ = (uint8_t)(mix(key + position / 8) >> (8 * (position % 8)));
		position++;
	}
}

uint64_t stream_check(uint64_t key, uint64_t position, const uint8_t *data, size_t bytes)
{
	uint8_t right[4096];

	while (bytes) {
		size_t n = bytes < sizeof(right) ? bytes : sizeof(right);

		stream_fill(key, position, right, n);
		if (memcmp(right, data, n)) {
			size_t i = 0;

			while (right[i] == data[i])
				i++;
			return position + i;
		}
		position += n;
		data += n;
		bytes -= n;
	}
	return NEVER;
}

uint64_t stream_find(uint64_t key, uint64_t position, const uint8_t *data, size_t bytes)
{
	uint64_t reach = 16u << 20, from = position > reach ? position - reach : 0;
	uint8_t right[16];

	if (bytes < sizeof(right))
		return NEVER;
	for (uint64_t at = from; at < position + reach; at++) {
		stream_fill(key, at, right, sizeof(right));
		if (!memcmp(right, data, sizeof(right)))
			return at;
	}
	return NEVER;
}
