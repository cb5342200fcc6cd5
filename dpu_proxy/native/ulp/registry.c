/* The protocols this proxy offers. */
#include <stddef.h>

#include "protocols.h"

static const struct ulp_protocol *const protocols[XTS_ULP_COUNT] = {
	NULL,
};

const struct ulp_protocol *ulp_protocol(uint16_t id)
{
	return id < XTS_ULP_COUNT ? protocols[id] : NULL;
}
