/* LD_PRELOAD in the environment of a program that this one starts: kept_preload.c. */
#ifndef XTS_PRELOAD_KEPT_PRELOAD_H
#define XTS_PRELOAD_KEPT_PRELOAD_H

#include <stddef.h>

/* The bytes of text that kept_preload() needs for this environment; 0: it is as it should be, or it is meant so. */
size_t kept_preload_bytes(char *const environment[]);
/* Copies the environment to list, with the interposer in LD_PRELOAD; list has room for as many entries. */
void kept_preload(char *list[], char *text, size_t bytes, char *const environment[]);
/* Says under `xts run -v` if a program starts without the interposer in this environment. */
void kept_preload_tell(const char *program, char *const environment[]);

#endif
