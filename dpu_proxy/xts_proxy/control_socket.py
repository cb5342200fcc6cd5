"""The control socket: the question is one JSON object, the answer another, each on one line. `xts-proxy status` is its
client.

    {"ask": "status", "connections": true}   ->   {"proxy": {...}, "workers": [...], "channels": [...], ...}

Only the proxy's own user and root can connect: the socket's mode is 0600.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
from collections.abc import Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct

_ANSWER_BYTES_MAX = 1 << 30
_TIMEOUT_S = 5.0


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """What can be asked."""

    ask: Literal["status"]
    connections: bool = False


def workers_pid(path: str) -> int:
    """The process number of a running proxy's workers. OSError: as ask()."""
    return int(ask(path, Question("status"))["proxy"]["processes"]["xts-workers"])


def handler(
    answer: Callable[[Question], dict[str, Any]],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], object]:
    """Returns the function that serves a connection of the control socket."""

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
    """Asks a running proxy. OSError: it cannot be reached (ENOENT, ECONNREFUSED, EACCES), or closed the connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_S)
        try:
            connection.connect(path)
            connection.sendall(msgspec.json.encode(question) + b"\n")
            with connection.makefile("rb") as answer:
                line = answer.readline(_ANSWER_BYTES_MAX)
        except OSError as error:
            none = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
            advice = ": is it running? --control or XTS_CONTROL names another socket" if none else ""
            raise OSError(error.errno, f"asking the proxy at {path}: {error.strerror or error}{advice}") from error
    if not line.endswith(b"\n"):
        raise OSError(errno.EPROTO, f"asking the proxy at {path}: it broke off")
    result = json.loads(line)
    if "error" in result:
        raise OSError(errno.EINVAL, f"asking the proxy at {path}: {result['error']}")
    return dict(result)
