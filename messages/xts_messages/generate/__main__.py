"""Regenerates every file made from the wire table, the table of records and the declaration of the environment.

`python -m xts_messages.generate [--check]`.
With --check nothing is written; the exit status is 1 when a committed file differs from what they say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from xts_messages.wire import host_record_table, record_table

from . import (
    generate_c,
    generate_dispatch,
    generate_doc,
    generate_environment,
    generate_lua,
    generate_records,
    generate_requests,
    generate_ulps,
    generate_vectors,
    generated,
)

#: Path below the top of the checkout -> the function that returns its text.
OUTPUTS: dict[str, Callable[[], str]] = {
    "messages/native/wire/wire.h": generate_c.header,
    "dpu_proxy/native/turns/command_dispatch.h": generate_dispatch.commands,
    "host_lib/native/core/message_dispatch.h": generate_dispatch.replies,
    "host_lib/native/core/request_encode.h": generate_requests.header,
    "messages/native/ulp_wire.h": generate_ulps.header,
    "messages/native/settings/environment_names.h": generate_environment.header,
    "messages/native/settings/environment_table.c": generate_environment.table,
    "deploy/xts.toml": generate_environment.example_file,
    **generate_records.files(
        record_table.TABLE,
        "connection/tcp_side_table.c",
        "connection/tcp_record.h",
        "ulp/ulp_mark.h",
        "connection/tcp_side.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "ulp/tls/tls_direction_table.c",
        "ulp/tls/tls_direction.h",
        "ulp/tls/tls_direction_struct.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "ulp/tls/tls_resumption_table.c",
        "ulp/tls/tls_resumption.h",
        "ulp/tls/tls_resumption_struct.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "ulp/ulp_moved_table.c",
        "ulp/ulp_moved.h",
        "ulp/ulp_moved_layer.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "ulp/framing/framing_state_table.c",
        "ulp/framing/framing_move.h",
        "ulp/framing/framing_state.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "ulp/http2/http2_state_table.c",
        "ulp/http2/http2_move.h",
        "ulp/http2/http2_state.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "ulp/grpc/grpc_state_table.c",
        "ulp/grpc/grpc_move.h",
        "ulp/grpc/grpc_state.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "ulp/nvme_tcp/nvme_tcp_state_table.c",
        "ulp/nvme_tcp/nvme_tcp_move.h",
        "ulp/nvme_tcp/nvme_tcp_state.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "ulp/mpa/mpa_state_table.c",
        "ulp/mpa/mpa_move.h",
        "ulp/mpa/mpa_state.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "pushed/pushed_state_table.c",
        "pushed/pushed_move.h",
        "pushed/pushed_state.h",
    ),
    **generate_records.files(
        record_table.TABLE,
        "datagrams/datagram_side_table.c",
        "datagrams/datagram_record.h",
        "datagrams/datagram_side.h",
    ),
    **generate_records.files(
        host_record_table.TABLE,
        "processes/socket_record_table.c",
        "processes/socket_record.h",
        *host_record_table.TABLE.headers,
    ),
    "dpu_proxy/native/worker/tcp_view.h": generate_records.view_header,
    "messages/RECORDS.md": generate_records.document,
    "messages/ULPS.md": generate_ulps.document,
    "messages/MESSAGES.md": generate_doc.document,
    "deploy/wireshark/xts.lua": generate_lua.dissector,
    **generate_vectors.outputs(),
}


def main(argv: list[str] | None = None) -> int:
    """Writes or checks the generated files; returns the exit status."""
    return generated.main("xts_messages.generate", __doc__, OUTPUTS, argv)


if __name__ == "__main__":
    sys.exit(main())
