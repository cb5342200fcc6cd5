/* The device's network interfaces, for hosts that name them (multicast.h). */
#include "worker/interfaces.h"

#include <stdbool.h>
#include <string.h>

#include "worker/worker.h"

void interfaces_tell(const struct xts_worker_config *config, uint32_t option, void *value, uint32_t *bytes)
{
	uint32_t used = 0, after = option & ~XTS_INTERFACE_STAMPS;
	bool stamps = option & XTS_INTERFACE_STAMPS;

	for (uint32_t i = 0; i < config->interface_count; i++) {
		const struct xts_interface *one = &config->interfaces[i];
		const char *text = stamps ? one->stamps : one->text;
		uint32_t length = (uint32_t)strnlen(text, stamps ? sizeof one->stamps : sizeof one->text);

		if (one->index <= after || !length)
			continue;
		if (length > *bytes - used)
			break;
		memcpy((uint8_t *)value + used, text, length);
		used += length;
	}
	*bytes = used;
}
