/* Lines on standard error for who runs the program. */
#ifndef XTS_NOTICE_H
#define XTS_NOTICE_H

#include <stdbool.h>
#include <stdint.h>

/* Each has what those before it have (XTS_LOG, XTS_QUIET). */
enum xts_log_level {
	XTS_LOG_NONE,
	XTS_LOG_WARNING, /* what nobody asked for and nobody would notice */
	XTS_LOG_INFO,    /* what becomes of a socket */
	XTS_LOG_DEBUG,   /* what becomes of the queue */
	XTS_LOG_LEVELS
};

#pragma GCC visibility push(default)

/* Are lines of this level written? Cheap. */
bool xts_logs(enum xts_log_level level);

/* "libxts: " and the text, made printable, in one write that neither waits nor raises SIGPIPE. Writes nothing below the
 * level, or when descriptor 2 is not what it was when the library was loaded: then it is the program's. errno is
 * kept. */
__attribute__((format(printf, 2, 3))) void xts_log(enum xts_log_level level, const char *format, ...);

/* A warning. */
__attribute__((format(printf, 1, 2))) void xts_notice(const char *format, ...);

#pragma GCC visibility pop

/* The level by a word of XTS_LOG; XTS_LOG_LEVELS: there is none such. */
enum xts_log_level xts_log_level_of(const char *word);

/* From now on another may ask for a level, 1 more than it, in this word; 0: that of the settings. NULL: nobody may. */
void xts_log_follow(const uint32_t *asked);

/* That of the settings or, if it is asked for, another. */
enum xts_log_level xts_log_level_now(void);

#endif
