/* What TLS sessions are resumed from goes to the process that takes over, in memory that only workers read
 * (private_bytes.h); ulp/tls/tls_resumption.h says what it is. */
#include <errno.h>

#include "processes/private_bytes.h"
#include "ulp/config_inside.h"
#include "ulp/tls/tls_resumption.h"

_Static_assert(TLS_RESUMPTION_BYTES_MAX <= PRIVATE_BYTES_MAX, "it can be read");

int64_t xts_tls_resumption_give(struct xts_ulp_config *config, int private_fd)
{
	uint8_t *data = NULL;
	ssize_t bytes = tls_resumption_save(config->tls, &data);
	int error = bytes < 0 ? (int)bytes : private_write(private_fd, data, (uint32_t)bytes);

	if (bytes >= 0)
		tls_resumption_drop(data, (size_t)bytes);
	return error ? error : bytes;
}

int xts_tls_resumption_take(struct xts_ulp_config *config, int private_fd, uint32_t bytes)
{
	uint8_t *data;
	int r = private_read(private_fd, &data, bytes);

	if (r)
		return r;
	r = tls_resumption_load(config->tls, data, bytes);
	private_drop(data, bytes);
	return r;
}
