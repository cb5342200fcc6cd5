/* The rules by which new sockets are decided: rules_in_force.c. */
#ifndef XTS_PRELOAD_RULES_IN_FORCE_H
#define XTS_PRELOAD_RULES_IN_FORCE_H

#include "rules/rules.h"

/* At the start: reads those of XTS_RULES (NULL: there are none), into preload.rules. 0, or as xts_rules_read(). */
int rules_begin(const char **file, const struct xts_rules_errors **mistakes);

/* All sockets of this process stay with the kernel, whatever the rules say. */
void rules_leave_all(void);

/* For a socket that is made or decided now, by this thread. */
const struct xts_rule_group *rules_now(void);

#endif
