/* The rules that decide about new sockets: rules_in_force.c. */
#ifndef XTS_PRELOAD_RULES_IN_FORCE_H
#define XTS_PRELOAD_RULES_IN_FORCE_H

#include <stdbool.h>

#include "rules/rules.h"

/* At the start: reads the file of XTS_RULES (NULL: there is none) into preload.rules. 0, or an error of
 * xts_rules_read(). */
int rules_begin(const char **file, const struct xts_rules_errors **mistakes);

/* From now on all sockets of this process stay with the kernel, whatever the rules say. */
void rules_leave_all(void);

/* The rules for a socket that this thread makes or decides now. */
const struct xts_rule_group *rules_now(void);
/* Could they offload any TCP socket? */
bool rules_may_offload_streams(void);

#endif
