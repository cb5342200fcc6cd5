/* What hosts are told of the device's network interfaces: as the supervisor has listed them. */
#ifndef XTS_INTERFACES_H
#define XTS_INTERFACES_H

#include <stdint.h>

struct xts_worker_config;

/* Writes the lines of the interfaces above the index in `option`; with XTS_INTERFACE_STAMPS, the lines about their time
 * stamps. *bytes is the room, and then the length of the answer. */
void interfaces_tell(const struct xts_worker_config *config, uint32_t option, void *value, uint32_t *bytes);

#endif
