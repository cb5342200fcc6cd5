/* Settings: xts_configure(), else the environment and the file of settings as they were when the library was loaded,
 * else defaults. */
#include <stdlib.h>

#include "core/error.h"
#include "core/process.h"
#include "core/settings.h"
#include "core/socket.h"
#include "settings/environment.h"
#include "settings/environment_names.h"
#include "common/notice.h"
#include "queues/queue.h"
#include "xts.h"

static int copy_text(char *out, size_t room, const char *text)
{
	if (!text)
		return 0;
	if (strlen(text) >= room)
		return -ENAMETOOLONG;
	strcpy(out, text);
	return 0;
}

static int number_from(enum xts_variable variable, uint32_t *out)
{
	return *out ? 0 : xts_environment_number(variable, out);
}

static int text_from(enum xts_variable variable, char *out, size_t room)
{
	int r = out[0] ? 0 : xts_environment_check(variable);

	return r || out[0] ? r : copy_text(out, room, xts_environment(variable));
}

_Static_assert(XTS_ENV_MIN_FRAME_WINDOW == XTS_FRAME_WINDOW_MIN && XTS_ENV_MAX_FRAME_WINDOW == XTS_FRAME_WINDOW_MAX,
	       "the declared range of XTS_FRAME_WINDOW is not the wire's");
_Static_assert(XTS_ENV_MAX_WINDOW_BYTES == XTS_CREDITS_MAX && XTS_ENV_MAX_WINDOW_BYTES_MAX == XTS_CREDITS_MAX,
	       "the declared range of XTS_WINDOW_BYTES is not the wire's");

static void take_defaults(struct settings *s)
{
	if (!s->window_bytes)
		s->window_bytes = XTS_ENV_DEFAULT_WINDOW_BYTES;
	if (!s->window_bytes_max)
		s->window_bytes_max = XTS_ENV_DEFAULT_WINDOW_BYTES_MAX;
	if (s->window_bytes_max < s->window_bytes)
		s->window_bytes_max = s->window_bytes;
	if (!s->dead_ms)
		s->dead_ms = XTS_ENV_DEFAULT_DEAD_MS;
}

static int faults_from(struct settings *s)
{
	struct xts_faults transmit, receive;
	int r = text_from(XTS_ENV_FAULTS, s->faults, sizeof s->faults);

	if (!r && s->faults[0] && faults_parse(s->faults, &transmit, &receive))
		r = xts_environment_refuse(XTS_ENV_FAULTS);
	return r;
}

static int spin_from(struct settings *s)
{
	uint32_t spin_us = XTS_ENV_DEFAULT_SPIN_US;
	int r = s->spin_us ? 0 : xts_environment_number(XTS_ENV_SPIN_US, &spin_us);

	if (!r && !s->spin_us)
		s->spin_us = spin_us ? spin_us : SPIN_NEVER;
	return r;
}

static int polling_from(struct settings *s)
{
	const char *text = xts_environment(XTS_ENV_POLLING);
	int r = xts_environment_check(XTS_ENV_POLLING);

	s->polls_always = !r && text && !strcmp(text, "always");
	return r ? r : xts_environment_number(XTS_ENV_WAKEUP_GAP_US, &s->wakeup_gap_us);
}

int stacks_parse(const char *text, uint32_t *out)
{
	char *end;
	long n;

	if (!strcmp(text, "process") || !strcmp(text, "thread")) {
		*out = text[0] == 'p' ? 1 : STACKS_THREAD;
		return 0;
	}
	n = strtol(text, &end, 10);
	if (end == text || *end || n < 1 || n > (long)STACKS_MAX)
		return -EINVAL;
	*out = (uint32_t)n;
	return 0;
}

static int stacks_from(struct settings *s)
{
	const char *text = xts_environment(XTS_ENV_STACKS);

	if (s->stacks)
		return 0;
	s->stacks = 1;
	return text && stacks_parse(text, &s->stacks) ? xts_environment_refuse(XTS_ENV_STACKS) : 0;
}

static int take_environment(struct settings *s)
{
	int r = 0;

	if (!s->endpoint[0]) {
		r = text_from(XTS_ENV_QUEUE, s->queue, sizeof s->queue);
		if (!r)
			r = text_from(XTS_ENV_ENDPOINT, s->endpoint, sizeof s->endpoint);
	}
	if (!s->endpoint[0])
		strcpy(s->endpoint, XTS_ENV_DEFAULT_ENDPOINT);
	if (!r)
		r = text_from(XTS_ENV_PCAP, s->pcap, sizeof s->pcap);
	if (!r)
		r = faults_from(s);
	if (!r)
		r = stacks_from(s);
	if (!r)
		r = number_from(XTS_ENV_WINDOW_BYTES, &s->window_bytes);
	if (!r)
		r = number_from(XTS_ENV_WINDOW_BYTES_MAX, &s->window_bytes_max);
	if (!r)
		r = number_from(XTS_ENV_FRAME_WINDOW, &s->frame_window);
	if (!r)
		r = number_from(XTS_ENV_DEAD_MS, &s->dead_ms);
	if (!r)
		r = spin_from(s);
	if (!r)
		r = polling_from(s);
	if (!r)
		take_defaults(s);
	return r;
}

/* Wrong settings change nothing, so that the next attempt finds them wrong as well. */
int settings_complete(struct settings *s)
{
	struct settings complete = *s;
	int r = xts_environment_begin();

	if (!r)
		r = take_environment(&complete);

	if (!r)
		*s = complete;
	return r;
}

static int copy_option(char *out, size_t room, const char *text, const char *name)
{
	int r = copy_text(out, room, text);

	if (r)
		last_error_note(-r, "%s has %zu bytes: expected at most %zu", name, strlen(text), room - 1);
	return r;
}

/* Numbers have the ranges of the variables that they override. */
static int check_numbers(const struct xts_options *o)
{
	const struct {
		const char *name;
		uint32_t value, least, most;
	} numbers[] = {
		{ "window_bytes", o->window_bytes, XTS_ENV_MIN_WINDOW_BYTES, XTS_ENV_MAX_WINDOW_BYTES },
		{ "window_bytes_max", o->window_bytes_max, XTS_ENV_MIN_WINDOW_BYTES_MAX, XTS_ENV_MAX_WINDOW_BYTES_MAX },
		{ "frame_window", o->frame_window, XTS_ENV_MIN_FRAME_WINDOW, XTS_ENV_MAX_FRAME_WINDOW },
		{ "dead_ms", o->dead_ms, XTS_ENV_MIN_DEAD_MS, XTS_ENV_MAX_DEAD_MS },
	};

	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		if (!numbers[i].value || (numbers[i].value >= numbers[i].least && numbers[i].value <= numbers[i].most))
			continue;
		last_error_note(EINVAL, "%s is %u: expected %u to %u, or 0 for the default", numbers[i].name,
				numbers[i].value, numbers[i].least, numbers[i].most);
		return -EINVAL;
	}
	return 0;
}

int xts_configure(const struct xts_options *options)
{
	struct xts_options o = { 0 };
	struct settings s = { 0 };
	int r;

	if (!options || options->size < sizeof options->size || options->size > sizeof o)
		return finish(-EINVAL);
	memcpy(&o, options, options->size);
	s.spin_us = o.spin_us;
	s.window_bytes = o.window_bytes;
	s.window_bytes_max = o.window_bytes_max;
	s.frame_window = o.frame_window;
	s.dead_ms = o.dead_ms;
	r = check_numbers(&o);
	if (r)
		return finish(r);
	r = o.stacks ? stacks_parse(o.stacks, &s.stacks) : 0;
	if (r)
		last_error_note(-r, "stacks is \"%.40s\": expected %s", o.stacks, xts_variables[XTS_ENV_STACKS].allowed);
	if (!r)
		r = copy_option(s.endpoint, sizeof s.endpoint, o.endpoint, "endpoint");
	if (!r)
		r = copy_option(s.pcap, sizeof s.pcap, o.pcap, "pcap");
	if (!r) {
		r = process_configure(&s);
		if (r == -EBUSY)
			last_error_note(EBUSY, "this process is attached to an offload proxy already: "
					       "configure before the first XTS socket");
	}
	return finish(r);
}

/* --- XTS_FAULTS --------------------------------------------------------------------------------------------------- */

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
	if (!strcmp(name, "delay_ppm"))
		return &f->delay_ppm;
	if (!strcmp(name, "repeat_ppm"))
		return &f->repeat_ppm;
	if (!strcmp(name, "delay_us"))
		return &f->delay_us;
	return NULL;
}

/* "seed=1,drop_ppm=1000,…" is for both directions; "tx.drop_ppm" or "rx.drop_ppm" for one. */
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
