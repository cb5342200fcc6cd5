/*
 * Options and control items of time stamps that the headers of older systems lack (linux/socket.h), for both ends.
 * Those called NEW have 64-bit times everywhere; on 64-bit systems they are the same structures.
 */
#ifndef XTS_TIMESTAMP_OPTIONS_H
#define XTS_TIMESTAMP_OPTIONS_H

#include <sys/socket.h>

#ifndef SO_TIMESTAMP_NEW
#define SO_TIMESTAMP_NEW 63
#define SO_TIMESTAMPNS_NEW 64
#define SO_TIMESTAMPING_NEW 65
#endif
#ifndef SCM_TIMESTAMPING_PKTINFO
#define SCM_TIMESTAMPING_PKTINFO 58
#endif
#ifndef SCM_TS_OPT_ID
#define SCM_TS_OPT_ID 81
#endif

#endif
