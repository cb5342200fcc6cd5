/* Rules of a single thread: xts_rules_thread(). Only that thread asks them, so it can free them. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "settings/environment.h"
#include "common/own_descriptors.h"
#include "rules/rules.h"
#include "xts.h"
#include "xts_private.h"

static __thread struct xts_rules *rules_of_thread;
static __thread const struct xts_rule_group *group_of_thread;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_thread_end;

static void free_rules(void *rules)
{
	xts_rules_free(rules);
}

static void make_key(void)
{
	pthread_key_create(&at_thread_end, free_rules);
}

static int read_rules(const char *path, struct xts_rules **out)
{
	struct xts_rules_errors *errors = calloc(1, sizeof *errors);
	int r = errors ? xts_rules_read(out, path, errors) : -ENOMEM;

	if (r == -EINVAL)
		last_error_note(EINVAL, "%s:%u:%u: %s", path, errors->error[0].line, errors->error[0].column,
				errors->error[0].text);
	else if (r)
		last_error_note(-r, "%s: %s", path, strerror(-r));
	free(errors);
	return r;
}

int xts_rules_thread(const char *path)
{
	struct xts_rules *before = rules_of_thread, *read = NULL;
	int r = 0;

	if (!xts_own_hooks.own) {
		last_error_note(EOPNOTSUPP, "the program does not run under the interposer, so no rules decide about it");
		return finish(-EOPNOTSUPP);
	}
	pthread_once(&once, make_key);
	if (path)
		r = read_rules(path, &read);
	if (!r)
		r = -pthread_setspecific(at_thread_end, read);
	if (r) {
		xts_rules_free(read);
		return finish(r);
	}
	group_of_thread = read ? xts_rules_group_here(read, program_invocation_short_name,
						      xts_environment(XTS_ENV_APPLICATION_ID)) :
				 NULL;
	rules_of_thread = read;
	xts_rules_free(before);
	return 0;
}

const struct xts_rule_group *xts_rules_of_thread(void)
{
	return group_of_thread;
}
