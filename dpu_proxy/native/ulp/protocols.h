/* All protocols: one variable each, defined in the file of the same name. protocols.c lists those that are offered. */
#ifndef XTS_ULP_PROTOCOLS_H
#define XTS_ULP_PROTOCOLS_H

#include "ulp.h"

extern const struct ulp_protocol ulp_stream_parser, ulp_bpf_parser, ulp_lines, ulp_length_prefixed, ulp_tls,
	ulp_tls_keys, ulp_tls_records, ulp_http2, ulp_grpc, ulp_dns, ulp_nvme_tcp, ulp_mpa;

#endif
