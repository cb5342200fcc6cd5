/* The rules that decide about new sockets: those of the process, read again when `xts rules reload` asks for it, or
 * those of the calling thread (xts_rules_thread()). Sockets that have been decided stay as they are. */
#include "rules_in_force.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "core/control_page.h"
#include "settings/environment.h"
#include "preload.h"
#include "process_page.h"

static char path[PATH_MAX];            /* empty: there is no file to read again */
static struct xts_rules_errors errors; /* too large for the stack of an arbitrary thread; under the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Makes the path absolute, since the program may change its directory before the rules are read again. */
static void keep_path(const char *given)
{
	char here[PATH_MAX] = "";

	if (given[0] != '/' && getcwd(here, sizeof here - 1))
		strcat(here, "/");
	if ((size_t)snprintf(path, sizeof path, "%s%s", here, given) >= sizeof path)
		path[0] = 0;
}

static void choose_group(const struct xts_rules *rules)
{
	preload.rules = xts_rules_group_here(rules, report_program(), xts_environment(XTS_ENV_APPLICATION_ID));
}

/* Also those that no rule of its group uses: the file is the operator's. */
static bool names_endpoint(const char *of)
{
	const struct xts_rule_group *rules = preload.rules;

	return rules && xts_rules_name_endpoint(rules, of);
}

int rules_begin(const char **file, const struct xts_rules_errors **mistakes)
{
	const struct xts_rules *rules = xts_rules_default();
	struct xts_rules *read = NULL;
	uint32_t loopback = 0;
	int r = 0;

	xts_environment_number(XTS_ENV_LOOPBACK, &loopback);
	xts_rules_loopback(loopback);
	xts_on_endpoints(names_endpoint);
	*file = xts_environment(XTS_ENV_RULES);
	*mistakes = &errors;
	if (*file) {
		keep_path(*file);
		r = xts_rules_read(&read, *file, &errors);
		rules = read;
	}
	report_begin(program_invocation_short_name, *file);
	if (!r)
		choose_group(rules);
	return r;
}

void rules_leave_all(void)
{
	static const char text[] = "default os\n";
	struct xts_rules *made = NULL;

	path[0] = 0; /* the rules cannot be read again */
	if (!xts_rules_parse(&made, text, sizeof text - 1, &errors))
		choose_group(made);
}

/* The earlier rules are never freed, since sockets and other threads refer to them. Operators rarely ask for this. */
static void read_again(uint32_t number)
{
	struct xts_rules *read = NULL;
	char why[300] = "the process has no file of rules";
	int r = path[0] ? xts_rules_read(&read, path, &errors) : -ENOENT;

	if (r == -EINVAL)
		snprintf(why, sizeof why, "%u:%u: %s%s", errors.error[0].line, errors.error[0].column,
			 errors.error[0].text, errors.count > 1 ? ", and more" : "");
	else if (r && path[0])
		snprintf(why, sizeof why, "%s", strerror(-r));
	if (r) {
		xts_notice("%s: rules not read again, those before hold: %s", path, why);
	} else {
		choose_group(read);
		xts_log(XTS_LOG_INFO, "%s: rules read again", path);
	}
	xts_control_rules_done(number, -r, r ? why : "");
}

const struct xts_rule_group *rules_now(void)
{
	const struct xts_rule_group *of_thread = xts_rules_of_thread();
	uint32_t number = xts_control_rules_asked();

	/* While another thread reads them, the earlier rules hold. */
	if (number && pthread_mutex_trylock(&lock) == 0) {
		number = xts_control_rules_asked();
		if (number)
			read_again(number);
		pthread_mutex_unlock(&lock);
	}
	return of_thread ? of_thread : preload.rules;
}

bool rules_may_offload_streams(void)
{
	const struct xts_rule_group *rules = rules_now();

	return rules &&
	       (xts_rules_may_offload(rules, XTS_ROLE_TCP_CLIENT) || xts_rules_may_offload(rules, XTS_ROLE_TCP_SERVER));
}

static void in_child(void)
{
	pthread_mutex_init(&lock, NULL);
}

__attribute__((constructor)) static void keep_over_fork(void)
{
	static const struct xts_fork_part at_fork = { .in_child = in_child, .orphaned = in_child };

	xts_at_fork(&at_fork);
}
