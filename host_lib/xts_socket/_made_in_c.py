"""Modules that make their sockets in C, where install() cannot see them: once one has been loaded while install() or
offload() is in force, there is a warning with advice, instead of a bare "Network is unreachable" later. A program may
look for such a module that is not there, and do without."""

from __future__ import annotations

from functools import partial
from typing import Any

from ._warning import warn
from ._when_imported import when_imported

_RUN = "start the program with `xts run`"

#: Module -> advice for its user.
ADVICE = {
    "uvloop": f"{_RUN}, or use asyncio's own event loop (xts_socket.aio)",
    "grpc": f"{_RUN}, or speak gRPC over a socket with the protocol Grpc() pushed",
    "gevent": _RUN,
    "psycopg": f"{_RUN}, or use asyncpg",
    "psycopg2": f"{_RUN}, or use asyncpg",
    "MySQLdb": f"{_RUN}, or use PyMySQL",
    "pycurl": f"{_RUN}, or use requests or httpx",
    "zmq": _RUN,
    "confluent_kafka": _RUN,
}

_warned: set[str] = set()


def _warn(name: str, _module: Any) -> None:
    if name in _warned:
        return
    _warned.add(name)
    warn(
        f"{name} makes its sockets in C, past xts_socket.install(): they stay with this host's kernel. "
        f"To have them offloaded, {ADVICE[name]}."
    )


def look_out() -> None:
    """Warns from now on, until _when_imported.stop(); also about modules that are imported already."""
    for name in ADVICE:
        when_imported(name, partial(_warn, name))
