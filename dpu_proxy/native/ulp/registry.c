/* The protocols this proxy offers. */
#include <stddef.h>

#include "protocols.h"

static const struct ulp_protocol *const protocols[XTS_ULP_COUNT] = {
	[XTS_ULP_LENGTH_PREFIXED] = &ulp_length_prefixed,
};

const struct ulp_protocol *ulp_protocol(uint16_t id)
{
	return id < XTS_ULP_COUNT ? protocols[id] : NULL;
}
