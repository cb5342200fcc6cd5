/* A line on standard error for who runs the program: for what nobody asked for and nobody would notice. */
#ifndef XTS_NOTICE_H
#define XTS_NOTICE_H

/* "libxts: " and the text, made printable, in one write that neither waits nor raises SIGPIPE. Says nothing with
 * XTS_QUIET=1, or when descriptor 2 is not what it was when the library was loaded: then it is the program's. errno is
 * kept. */
#pragma GCC visibility push(default)
__attribute__((format(printf, 1, 2))) void xts_notice(const char *format, ...);
#pragma GCC visibility pop

#endif
