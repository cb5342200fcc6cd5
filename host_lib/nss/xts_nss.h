/*
 * The interface of libnss_xts.so.2 for the interposer and the Python package: order.c. It is for users of the very same
 * build, who load the library by its path; glibc then finds it by its SONAME.
 */
#ifndef XTS_NSS_H
#define XTS_NSS_H

/* Whether the service answers lookups. Off: it is not available (UNAVAIL), and the next service is asked. Strict: it is
 * never unavailable: without a proxy that looks up names, a lookup fails (TRYAGAIN). */
enum xts_nss_mode { XTS_NSS_OFF, XTS_NSS_ON, XTS_NSS_STRICT };

/* Puts the service into the order of this process, in the place of `dns` or `resolve` in the machine's nsswitch.conf,
 * with `dns` after it. 0 or -errno. A second call does nothing. */
int xts_nss_configure(void);
/* Sets the mode of all threads that have none of their own; off at first. */
void xts_nss_of_process(enum xts_nss_mode mode);
/* Sets the mode of this thread; off: the process's mode holds again. Returns the one before. */
enum xts_nss_mode xts_nss_of_thread(enum xts_nss_mode mode);

#endif
