/* The configuration of ULPs; see config.h. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config_inside.h"
#include "ulp/tls/tls.h"
#include "ulp_wire.h"

_Static_assert(XTS_ULP_COUNT <= 32, "a bit for each protocol");

struct xts_ulp_config *xts_ulp_config_new(const struct xts_ulp_limits *limits)
{
	static const struct xts_ulp_limits defaults = {
		.handshake_timeout_ms = 10000,
		.first_byte_timeout_ms = 2000,
		.pdu_bytes_max = 64u << 20,
		.buffered_bytes_max = 4u << 20,
	};
	struct xts_ulp_config *config = calloc(1, sizeof *config);

	if (!config)
		return NULL;
	config->tls = tls_config_new();
	if (!config->tls) {
		free(config);
		return NULL;
	}
	atomic_init(&config->references, 1);
	config->offered = ~(uint32_t)(XTS_ULP_OPTIONAL);
	config->limits = limits ? *limits : defaults;
	return config;
}

void xts_ulp_config_hold(struct xts_ulp_config *config)
{
	atomic_fetch_add_explicit(&config->references, 1, memory_order_relaxed);
}

void xts_ulp_config_release(struct xts_ulp_config *config)
{
	if (!config || atomic_fetch_sub_explicit(&config->references, 1, memory_order_acq_rel) != 1)
		return;
	while (config->parsers) {
		struct ulp_parser *parser = config->parsers;

		config->parsers = parser->next;
		close(parser->program_fd);
		free(parser);
	}
	while (config->filters) {
		struct ulp_filter *filter = config->filters;

		config->filters = filter->next;
		close(filter->program_fd);
		free(filter);
	}
	tls_config_free(config->tls);
	free(config);
}

int xts_ulp_config_add_parser(struct xts_ulp_config *config, const char *name, int program_fd)
{
	size_t bytes = strlen(name) + 1;
	struct ulp_parser *parser;

	if (xts_ulp_config_parser(config, name) >= 0)
		return -EEXIST;
	parser = malloc(sizeof *parser + bytes);
	if (!parser)
		return -ENOMEM;
	memcpy(parser->name, name, bytes);
	parser->program_fd = program_fd;
	parser->next = config->parsers;
	config->parsers = parser;
	return 0;
}

int xts_ulp_config_add_filter(struct xts_ulp_config *config, const char *name, uint32_t tenant, int program_fd)
{
	size_t bytes = strlen(name) + 1;
	struct ulp_filter *filter;

	if (xts_ulp_config_filter(config, name, tenant) >= 0)
		return -EEXIST;
	filter = malloc(sizeof *filter + bytes);
	if (!filter)
		return -ENOMEM;
	memcpy(filter->name, name, bytes);
	filter->program_fd = program_fd;
	filter->tenant = tenant;
	filter->next = config->filters;
	config->filters = filter;
	return 0;
}

int xts_ulp_config_filter(const struct xts_ulp_config *config, const char *name, uint32_t tenant)
{
	for (const struct ulp_filter *filter = config->filters; filter; filter = filter->next) {
		if ((filter->tenant == UINT32_MAX || filter->tenant == tenant) && !strcmp(filter->name, name))
			return filter->program_fd;
	}
	return -ENOENT;
}

void xts_ulp_config_offer(struct xts_ulp_config *config, uint16_t ulp_id)
{
	if (ulp_id < XTS_ULP_COUNT)
		config->offered |= 1u << ulp_id;
}

bool xts_ulp_config_offers(const struct xts_ulp_config *config, uint16_t ulp_id)
{
	return ulp_id < XTS_ULP_COUNT && config->offered >> ulp_id & 1u;
}

const struct xts_ulp_limits *xts_ulp_config_limits(const struct xts_ulp_config *config)
{
	return &config->limits;
}

int xts_ulp_config_parser(const struct xts_ulp_config *config, const char *name)
{
	for (const struct ulp_parser *parser = config->parsers; parser; parser = parser->next) {
		if (!strcmp(parser->name, name))
			return parser->program_fd;
	}
	return -ENOENT;
}
