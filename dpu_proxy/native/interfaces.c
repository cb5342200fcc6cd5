/* The device's network interfaces, for hosts that name them (multicast.h). */
#include "interfaces.h"

#include <string.h>

#include "worker.h"

void interfaces_tell(const struct xts_worker_config *config, uint32_t after, void *value, uint32_t *bytes)
{
	uint32_t used = 0;

	for (uint32_t i = 0; i < config->interface_count; i++) {
		const struct xts_interface *one = &config->interfaces[i];
		uint32_t length = (uint32_t)strnlen(one->text, sizeof one->text);

		if (one->index <= after || !length)
			continue;
		if (length > *bytes - used)
			break;
		memcpy((uint8_t *)value + used, one->text, length);
		used += length;
	}
	*bytes = used;
}
