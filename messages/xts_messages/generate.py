"""Regenerates every file made from the wire table and the declaration of the environment.

`python -m xts_messages.generate [--check]`.
With --check nothing is written; the exit status is 1 when a committed file differs from what they say.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from . import (
    generate_c,
    generate_dispatch,
    generate_doc,
    generate_environment,
    generate_lua,
    generate_requests,
    generate_ulps,
    generate_vectors,
    generated,
)

#: Path below the top of the checkout -> the function that returns its text.
OUTPUTS: dict[str, Callable[[], str]] = {
    "messages/native/wire.h": generate_c.header,
    "dpu_proxy/native/channel/command_dispatch.h": generate_dispatch.commands,
    "host_lib/native/core/message_dispatch.h": generate_dispatch.replies,
    "host_lib/native/core/request_encode.h": generate_requests.header,
    "messages/native/ulp_wire.h": generate_ulps.header,
    "messages/native/environment_names.h": generate_environment.header,
    "messages/native/environment_table.c": generate_environment.table,
    "deploy/xts.toml": generate_environment.example_file,
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
