/* Settings: xts_configure(), else the environment as it was when the library was loaded, else defaults. */
#include "library.h"

#include <stdlib.h>

#include "environment.h"

static int copy_text(char *out, size_t room, const char *text)
{
	if (!text)
		return 0;
	if (strlen(text) >= room)
		return -ENAMETOOLONG;
	strcpy(out, text);
	return 0;
}

static int number_from(const char *name, uint32_t *out)
{
	const char *text = xts_environment(name);
	unsigned long value;
	char *end;

	if (*out || !text || !*text)
		return 0;
	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || *end || *text == '-' || value > UINT32_MAX) {
		fprintf(stderr, "libxts: %s=%s: not a number from 0 to %u\n", name, text, UINT32_MAX);
		return -EINVAL;
	}
	*out = (uint32_t)value;
	return 0;
}

static int text_from(const char *name, char *out, size_t room)
{
	const char *text = xts_environment(name);
	int r = out[0] || !text ? 0 : copy_text(out, room, text);

	if (r)
		fprintf(stderr, "libxts: %s: longer than %zu bytes\n", name, room - 1);
	return r;
}

static int check(struct settings *s)
{
	if (!s->window_bytes)
		s->window_bytes = WINDOW_BYTES_DEFAULT;
	if (!s->window_bytes_max)
		s->window_bytes_max = WINDOW_BYTES_MAX_DEFAULT;
	if (s->window_bytes_max < s->window_bytes)
		s->window_bytes_max = s->window_bytes;
	if (s->window_bytes < WINDOW_BYTES_MIN || s->window_bytes_max > XTS_CREDITS_MAX) {
		fprintf(stderr, "libxts: receive window of %u to %u bytes: must be %u to %u\n", s->window_bytes,
			s->window_bytes_max, WINDOW_BYTES_MIN, XTS_CREDITS_MAX);
		return -EINVAL;
	}
	if (s->frame_window && (s->frame_window < XTS_FRAME_WINDOW_MIN || s->frame_window > XTS_FRAME_WINDOW_MAX)) {
		fprintf(stderr, "libxts: frame window of %u: must be %u to %u\n", s->frame_window, XTS_FRAME_WINDOW_MIN,
			XTS_FRAME_WINDOW_MAX);
		return -EINVAL;
	}
	if (!s->dead_ms)
		s->dead_ms = DEAD_MS_DEFAULT;
	if (s->dead_ms < DEAD_MS_MIN) {
		fprintf(stderr, "libxts: XTS_DEAD_MS=%u: a silent device is given up after %u ms at the earliest\n", s->dead_ms,
			DEAD_MS_MIN);
		return -EINVAL;
	}
	if (s->queue[0] && strncmp(s->queue, "shm:", 4) != 0) {
		fprintf(stderr, "libxts: XTS_QUEUE=%s: only shm:PATH can be opened from here; an AF_XDP queue needs "
			"xts-agent (XTS_ENDPOINT)\n", s->queue);
		return -EINVAL;
	}
	return 0;
}

int settings_complete(struct settings *s)
{
	const char *spin = xts_environment("XTS_SPIN_US");
	int r = 0;

	if (!s->endpoint[0]) {
		r = text_from("XTS_QUEUE", s->queue, sizeof s->queue);
		if (!r)
			r = text_from("XTS_ENDPOINT", s->endpoint, sizeof s->endpoint);
	}
	if (!s->endpoint[0])
		strcpy(s->endpoint, XTS_ENDPOINT_DEFAULT);
	if (!r)
		r = text_from("XTS_PCAP", s->pcap, sizeof s->pcap);
	if (!r)
		r = text_from("XTS_FAULTS", s->faults, sizeof s->faults);
	if (!r)
		r = number_from("XTS_WINDOW_BYTES", &s->window_bytes);
	if (!r)
		r = number_from("XTS_WINDOW_BYTES_MAX", &s->window_bytes_max);
	if (!r)
		r = number_from("XTS_FRAME_WINDOW", &s->frame_window);
	if (!r)
		r = number_from("XTS_DEAD_MS", &s->dead_ms);
	if (!r && !s->spin_us) {
		r = number_from("XTS_SPIN_US", &s->spin_us);
		if (!r && !s->spin_us)
			s->spin_us = spin && *spin ? SPIN_NEVER : SPIN_US_DEFAULT; /* "0" says never */
	}
	return r ? r : check(s);
}

int xts_configure(const struct xts_options *options)
{
	struct xts_options o = {0};
	struct settings s = {0};
	int r;

	if (!options || options->size < sizeof options->size || options->size > sizeof o)
		return finish(-EINVAL);
	memcpy(&o, options, options->size);
	s.spin_us = o.spin_us;
	s.window_bytes = o.window_bytes;
	s.window_bytes_max = o.window_bytes_max;
	s.frame_window = o.frame_window;
	s.dead_ms = o.dead_ms;
	r = copy_text(s.endpoint, sizeof s.endpoint, o.endpoint);
	if (!r)
		r = copy_text(s.pcap, sizeof s.pcap, o.pcap);
	library_enter();
	if (!r && xts.started)
		r = -EBUSY;
	if (!r)
		xts.settings = s;
	library_leave();
	return finish(r);
}

/* --- XTS_FAULTS ----------------------------------------------------------------------------------------------------------- */

static uint32_t *fault_field(struct xts_faults *f, const char *name)
{
	if (!strcmp(name, "drop_ppm"))
		return &f->drop_ppm;
	if (!strcmp(name, "duplicate_ppm"))
		return &f->duplicate_ppm;
	if (!strcmp(name, "reorder_ppm"))
		return &f->reorder_ppm;
	if (!strcmp(name, "corrupt_ppm"))
		return &f->corrupt_ppm;
	if (!strcmp(name, "truncate_ppm"))
		return &f->truncate_ppm;
	if (!strcmp(name, "skip_frames"))
		return &f->skip_frames;
	return NULL;
}

/* "seed=1,drop_ppm=1000,…": both ways; "tx.drop_ppm" or "rx.drop_ppm": one way. */
int faults_parse(const char *text, struct xts_faults *transmit, struct xts_faults *receive)
{
	char copy[256], *save = NULL;

	memset(transmit, 0, sizeof *transmit);
	memset(receive, 0, sizeof *receive);
	if (strlen(text) >= sizeof copy)
		return -EINVAL;
	strcpy(copy, text);
	for (char *word = strtok_r(copy, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		bool tx = strncmp(word, "rx.", 3) != 0, rx = strncmp(word, "tx.", 3) != 0;
		char *name = tx && rx ? word : word + 3, *value = strchr(name, '='), *end;
		uint64_t number;

		if (!value)
			return -EINVAL;
		*value++ = 0;
		number = strtoull(value, &end, 10);
		if (end == value || *end)
			return -EINVAL;
		if (!strcmp(name, "seed")) {
			transmit->seed = number;
			receive->seed = number + 1;
			continue;
		}
		if (!fault_field(transmit, name) || number > UINT32_MAX)
			return -EINVAL;
		if (tx)
			*fault_field(transmit, name) = (uint32_t)number;
		if (rx)
			*fault_field(receive, name) = (uint32_t)number;
	}
	return 0;
}
