/* The protocols this proxy offers. */
#include <stddef.h>

#include "protocols.h"

static const struct ulp_protocol *const protocols[XTS_ULP_COUNT] = {
	[XTS_ULP_STREAM_PARSER] = &ulp_stream_parser,
	[XTS_ULP_BPF_PARSER] = &ulp_bpf_parser,
	[XTS_ULP_LINES] = &ulp_lines,
	[XTS_ULP_LENGTH_PREFIXED] = &ulp_length_prefixed,
	[XTS_ULP_TLS] = &ulp_tls,
	[XTS_ULP_TLS_KEYS] = &ulp_tls_keys,
	[XTS_ULP_TLS_RECORDS] = &ulp_tls_records,
	[XTS_ULP_HTTP2] = &ulp_http2,
	[XTS_ULP_GRPC] = &ulp_grpc,
	[XTS_ULP_DNS] = &ulp_dns,
	[XTS_ULP_NVME_TCP] = &ulp_nvme_tcp,
	[XTS_ULP_MPA] = &ulp_mpa,
};

const struct ulp_protocol *ulp_protocol(uint16_t id)
{
	return id < XTS_ULP_COUNT ? protocols[id] : NULL;
}
