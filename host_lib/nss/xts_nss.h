/*
 * What libnss_xts.so.2 offers the interposer and the Python package: order.c. For users of the very same build, who
 * load it by its path; glibc then finds it by its SONAME.
 */
#ifndef XTS_NSS_H
#define XTS_NSS_H

/* Whether lookups are the service's business: off, it is not available (UNAVAIL) and the next service is asked. Strict,
 * it is never unavailable: without a proxy that looks up names a lookup fails (TRYAGAIN). */
enum xts_nss_mode { XTS_NSS_OFF, XTS_NSS_ON, XTS_NSS_STRICT };

/* Puts the service into the order of this process, where the machine's nsswitch.conf has `dns` or `resolve`, and `dns`
 * behind it. 0 or -errno. Again: nothing happens. */
int xts_nss_configure(void);
/* The mode of all threads that have none of their own; off at first. */
void xts_nss_of_process(enum xts_nss_mode mode);
/* The mode of this thread, until it is off: then the process's holds again. Returns the one before. */
enum xts_nss_mode xts_nss_of_thread(enum xts_nss_mode mode);

#endif
