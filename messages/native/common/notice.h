/* Lines on standard error for the person who runs the program. */
#ifndef XTS_NOTICE_H
#define XTS_NOTICE_H

#include <stdbool.h>
#include <stdint.h>

/* Each level includes those before it (XTS_LOG, XTS_QUIET). */
enum xts_log_level {
	XTS_LOG_NONE,
	XTS_LOG_WARNING, /* faults that would otherwise go unnoticed */
	XTS_LOG_INFO,    /* decisions about sockets */
	XTS_LOG_DEBUG,   /* events of the queue */
	XTS_LOG_LEVELS
};

#pragma GCC visibility push(default)

/* Are lines of this level written? Cheap. */
bool xts_logs(enum xts_log_level level);

/* Writes "libxts: " and the text, made printable, in one write that neither waits nor raises SIGPIPE. Writes nothing
 * below the level in force, or if descriptor 2 is not the file that it was when the library was loaded: then it belongs
 * to the program. errno is kept. */
__attribute__((format(printf, 2, 3))) void xts_log(enum xts_log_level level, const char *format, ...);

/* xts_log() at the level of a warning. */
__attribute__((format(printf, 1, 2))) void xts_notice(const char *format, ...);

/* The same on another descriptor. False, and nothing is written: it is not the file that standard error was when the
 * library was loaded, or takes nothing now. */
bool xts_notice_on(int fd, const char *text);

#pragma GCC visibility pop

/* The level with this name in XTS_LOG; XTS_LOG_LEVELS: there is none. */
enum xts_log_level xts_log_level_of(const char *word);

/* From now on another process may set a level in this word, as 1 + the level; 0: the level of the settings. NULL: no
 * longer. */
void xts_log_follow(const uint32_t *asked);

/* The level of the settings, or the one set there. */
enum xts_log_level xts_log_level_now(void);

#endif
