/* LD_PRELOAD in the environment of a program that this one starts: kept_preload.c. */
#ifndef XTS_PRELOAD_KEPT_PRELOAD_H
#define XTS_PRELOAD_KEPT_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>

/* Can the environment of a call be read? If not, the kernel's call says EFAULT. */
bool environment_is_readable(char *const environment[]);

/* The bytes of text that kept_preload() needs for this environment; 0: it is as it should be, or it is meant so. */
size_t kept_preload_bytes(char *const environment[]);
/* Copies the environment to list, with the interposer in LD_PRELOAD; list has room for as many entries. */
void kept_preload(char *list[], char *text, size_t bytes, char *const environment[]);
/* Why neither this program, started in this environment, nor what it starts will be under the interposer; NULL: one of
 * them may be. */
const char *kept_preload_never(const char *program, char *const environment[]);
/* Says under `xts run -v` if a program starts without the interposer in this environment. */
void kept_preload_tell(const char *program, char *const environment[]);

#endif
