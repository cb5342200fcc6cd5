"""What the verbs share: their options, and the endpoint that they ask."""

from __future__ import annotations

import argparse
import os
import socket
import sys
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
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.add_argument(
        "--endpoint",
        metavar="PATH",
        help=f"socket of the agent or proxy (default: $XTS_ENDPOINT, else {ENDPOINT_DEFAULT})",
    )
    parser.set_defaults(run=run)
    return parser


def add_which(parser: argparse.ArgumentParser, one: str, every: str) -> None:
    """The options that say which processes are meant."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--pid", type=int, metavar="N", help=one)
    which.add_argument("--all", action="store_true", help=every)


def are_named(arguments: argparse.Namespace, command: str) -> bool:
    """Is it said which processes to change? Nobody means those of all users just because the command is root's."""
    if arguments.pid is not None or arguments.all:
        return True
    print(f"{command}: say which process: --pid N, or --all for each that you may access", file=sys.stderr)
    return False


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
