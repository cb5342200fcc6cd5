"""The control socket: one JSON object asks, one answers, both a line. `xts-proxy status` is its client.

    {"ask": "status", "connections": true}   ->   {"proxy": {...}, "workers": [...], "channels": [...], ...}

Only the proxy's own user and root can connect: the socket's mode is 0600.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

_ANSWER_BYTES_MAX = 1 << 30
_TIMEOUT_S = 5.0


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be asked."""

    ask: Literal["status"]
    connections: bool = False


def listen_unix(path: str, mode: int) -> socket.socket:
    """A listening stream socket at path. A file left by a dead process is replaced; OSError EADDRINUSE: a living one
    serves it; ENOTSOCK: it is something else."""
    target = Path(path)
    if target.is_symlink() or target.exists():
        if not stat.S_ISSOCK(target.lstat().st_mode):
            raise OSError(errno.ENOTSOCK, f"{path} exists and is not a socket: remove it or choose another path")
        if _is_served(path):
            raise OSError(errno.EADDRINUSE, f"{path} is served by another process: stop it or choose another path")
    if not target.parent.is_dir():
        raise OSError(errno.ENOENT, f"{path}: there is no directory {target.parent}: make it, or choose another path")
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        temporary.unlink(missing_ok=True)
        listener.bind(str(temporary))
        temporary.chmod(mode)
        listener.listen(16)
        temporary.rename(target)  # with its mode, or not at all
    except OSError as error:
        listener.close()
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, f"{path}: {error.strerror}") from error
    return listener


def _is_served(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:  # its backlog is full
            return True
        except OSError:
            return False
        return True


def workers_pid(path: str) -> int:
    """The process of a running proxy that carries data. OSError: as ask()."""
    return int(ask(path, Question("status"))["proxy"]["processes"]["xts-workers"])


def handler(
    answer: Callable[[Question], dict[str, Any]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
    """What serves a connection of the control socket."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), _TIMEOUT_S)
            writer.write(json.dumps(_respond(line, answer)).encode() + b"\n")
            await asyncio.wait_for(writer.drain(), _TIMEOUT_S)
        except (ValueError, TimeoutError, ConnectionError):
            pass  # too long a line, or the client has closed
        finally:
            writer.close()

    return serve


def _respond(line: bytes, answer: Callable[[Question], dict[str, Any]]) -> dict[str, Any]:
    try:
        question = msgspec.json.decode(line, type=Question)
    except (msgspec.DecodeError, RecursionError) as error:
        return {"error": f"not a question: {error}"}
    return answer(question)


def ask(path: str, question: Question) -> dict[str, Any]:
    """Asks a running proxy. OSError: it cannot be reached (ENOENT, ECONNREFUSED, EACCES), or broke off."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(path)
            connection.sendall(msgspec.json.encode(question) + b"\n")
            with connection.makefile("rb") as answer:
                line = answer.readline(_ANSWER_BYTES_MAX)
        except OSError as error:
            raise OSError(error.errno, f"asking the proxy at {path}: {error.strerror or error}") from error
    if not line.endswith(b"\n"):
        raise OSError(errno.EPROTO, f"asking the proxy at {path}: it broke off")
    result = json.loads(line)
    if "error" in result:
        raise OSError(errno.EINVAL, f"asking the proxy at {path}: {result['error']}")
    return dict(result)
