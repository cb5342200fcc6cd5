/*
 * What the environment says, read once, when the library is loaded, into copies of its own: a program may clear or replace
 * its environment, or write over it (setproctitle), and its sockets are still where it was told. A privileged program
 * (AT_SECURE: set-uid, file capabilities) believes nothing of it, for it is its caller's.
 *
 * What exec() starts has what its environment then says, as it has with LD_PRELOAD.
 */
#ifndef XTS_ENVIRONMENT_H
#define XTS_ENVIRONMENT_H

/* The value of a variable whose name begins with XTS_, XLIO_ or VMA_, as it was then; NULL: it was not set. Never freed. */
#pragma GCC visibility push(default)
const char *xts_environment(const char *name);
#pragma GCC visibility pop

#endif
