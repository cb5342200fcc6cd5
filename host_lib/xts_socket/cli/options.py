"""What the verbs share: their options, and the endpoint that they ask."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable
from typing import Any

from .._environment import DEFAULT_ENDPOINT as ENDPOINT_DEFAULT
from .._environment import setting
from .verbs import VERBS


def add_verb(verbs: Any, name: str, example: str, run: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
    """A verb's parser, with the options that every verb has."""
    text = VERBS[name]
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog="example:\n  " + example,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.add_argument(
        "--endpoint",
        metavar="PATH",
        help=f"socket of the agent or proxy (default: $XTS_ENDPOINT, else {ENDPOINT_DEFAULT})",
    )
    parser.set_defaults(run=run)
    return parser


def endpoint_path() -> str:
    """The path of the agent's or proxy's endpoint."""
    queue = os.environ.get("XTS_QUEUE", "")
    return queue.removeprefix("shm:") or os.environ.get("XTS_ENDPOINT") or setting("XTS_ENDPOINT") or ENDPOINT_DEFAULT


def endpoint_text(raw: Any) -> str:
    """A struct xts_endpoint as ss(8) writes it; "*" if there is no address."""
    if raw.ip_version == 4:
        return f"{socket.inet_ntop(socket.AF_INET, bytes(raw.address)[:4])}:{raw.port}"
    if raw.ip_version == 6:
        scope = f"%{raw.scope_id}" if raw.scope_id else ""
        return f"[{socket.inet_ntop(socket.AF_INET6, bytes(raw.address))}{scope}]:{raw.port}"
    return "*"
