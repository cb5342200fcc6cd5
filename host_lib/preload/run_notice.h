/*
 * Lines about a program that is about to be started. A server's child may have replaced its standard error by then, as
 * those of Dovecot and Postfix have. The line is then written to that of its parent, or of the first process of the run
 * (XTS_ROOT_PID), if that still is the file with which this process began. Both are asked: a parent may have replaced
 * its own, and a server that has given up capabilities may not look into `xts dev`. A process that has confined itself
 * by seccomp makes no system calls for it that it might not survive: it is not heard.
 */
#ifndef XTS_PRELOAD_RUN_NOTICE_H
#define XTS_PRELOAD_RUN_NOTICE_H

/* As xts_notice(). */
__attribute__((format(printf, 1, 2))) void run_notice(const char *format, ...);

#endif
