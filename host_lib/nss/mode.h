/* The mode in force for the calling thread: order.c. */
#ifndef XTS_NSS_MODE_H
#define XTS_NSS_MODE_H

#include "xts_nss.h"

enum xts_nss_mode nss_mode(void);

#endif
