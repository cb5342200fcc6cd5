/*
 * Least privilege: giving up capabilities for good. For processes that open what needs privilege and then serve others.
 *
 * Capabilities belong to threads, and threads inherit them: call these before there are any.
 */
#ifndef XTS_PRIVILEGE_H
#define XTS_PRIVILEGE_H

#include <stdint.h>

/* Takes all but these (bits 1 << CAP_…) out of the bounding set, so that no program run from here gains any other.
 * Without CAP_SETPCAP nothing is done: there is then little to gain. 0 or -errno. */
int xts_privilege_bound(uint64_t keep);

/* Keeps of what is held the capabilities in keep, none inheritable or ambient; forbids to gain any again
 * (no_new_privs); and lets no other process of the same user look into this one's memory. 0 or -errno; EPERM: the
 * kernel kept some. */
int xts_privilege_keep(uint64_t keep);

#endif
