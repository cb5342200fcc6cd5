/* Generated from messages/xts_messages/wire/record_table.py by `python -m xts_messages.generate`. Do not edit. */
#include "ulp/tls/tls_resumption.h"

#include <stddef.h>

static const struct xts_record_field tls_resumption_fields[] = {
	{ .name = "kind",
	  .number = 1,
	  .since = 1,
	  .form = XTS_RECORD_NUMBER,
	  .at = offsetof(struct tls_resumption, kind),
	  .bytes = sizeof(((struct tls_resumption *)0)->kind),
	  .required = true,
	  .most = UINT64_C(2),
	},
	{ .name = "key",
	  .number = 2,
	  .since = 1,
	  .form = XTS_RECORD_OCTETS,
	  .at = offsetof(struct tls_resumption, key),
	  .bytes = sizeof(((struct tls_resumption *)0)->key),
	  .required = true,
	},
	{ .name = "made_s",
	  .number = 3,
	  .since = 1,
	  .form = XTS_RECORD_NUMBER,
	  .at = offsetof(struct tls_resumption, made_s),
	  .bytes = sizeof(((struct tls_resumption *)0)->made_s),
	  .most = UINT64_C(18446744073709551615),
	},
	{ .name = "bare",
	  .number = 4,
	  .since = 1,
	  .form = XTS_RECORD_FLAG,
	  .at = offsetof(struct tls_resumption, bare),
	  .bytes = sizeof(((struct tls_resumption *)0)->bare),
	  .most = UINT64_C(1),
	},
	{ .name = "secret",
	  .number = 5,
	  .since = 1,
	  .form = XTS_RECORD_STREAM,
	  .at = offsetof(struct tls_resumption, secret),
	  .bytes = sizeof(((struct tls_resumption *)0)->secret),
	  .most = UINT64_C(16384),
	  .stream = &xts_record_bytes_stream,
	},
};
_Static_assert(sizeof(((struct tls_resumption *)0)->kind) == 1, "tls_resumption.kind");
_Static_assert(sizeof(((struct tls_resumption *)0)->key) == 32, "tls_resumption.key");
_Static_assert(sizeof(((struct tls_resumption *)0)->made_s) == 8, "tls_resumption.made_s");
_Static_assert(sizeof(((struct tls_resumption *)0)->bare) == 1, "tls_resumption.bare");

const struct xts_record tls_resumption_record = {
	.name = "tls_resumption",
	.fields = tls_resumption_fields,
	.field_count = 5,
	.version = 2,
	.compatible = 1,
	.oldest = 1,
};
