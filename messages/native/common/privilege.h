/*
 * Least privilege: giving up capabilities for good. For processes that open what needs privilege, and then serve
 * others.
 *
 * Capabilities belong to threads, and new threads inherit them: call these before any other thread exists.
 */
#ifndef XTS_PRIVILEGE_H
#define XTS_PRIVILEGE_H

#include <stdint.h>

/* Removes all but these (bits 1 << CAP_…) from the bounding set, so that no program run from here can gain any other.
 * Without CAP_SETPCAP it does nothing: there is little to gain then. 0 or -errno. */
int xts_privilege_bound(uint64_t keep);

/* Of the capabilities held, keeps those in keep, none of them inheritable or ambient; forbids gaining any again
 * (no_new_privs); and prevents other processes of the same user from reading this one's memory. 0 or -errno; EPERM: the
 * kernel kept some. */
int xts_privilege_keep(uint64_t keep);

#endif
