"""Modules that make their sockets in C, where install() cannot see them: importing one while install() or offload() is
in force gives a warning with advice, instead of a bare "Network is unreachable" later."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

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


def _warn(name: str, stacklevel: int) -> None:
    if name in _warned:
        return
    _warned.add(name)
    warnings.warn(
        f"{name} makes its sockets in C, past xts_socket.install(): they stay with this host's kernel. "
        f"To have them offloaded, {ADVICE[name]}.",
        RuntimeWarning,
        stacklevel=stacklevel + 1,
    )


class _Finder:
    """An import finder that finds nothing, but is asked first."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is None and name in ADVICE:
            _warn(name, 2)  # does not count the frames of the import system
        return None


_finder = _Finder()


def look_out() -> None:
    """Warns from now on; also about modules that are imported already."""
    for name in ADVICE:
        if name in sys.modules:
            _warn(name, 4)
    sys.meta_path.insert(0, _finder)


def stop() -> None:
    if _finder in sys.meta_path:
        sys.meta_path.remove(_finder)
