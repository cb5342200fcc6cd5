"""The control socket: the question is one JSON object, the answer another, each on one line. `xts-proxy status` is its
client.

    {"ask": "status", "connections": true}          ->   {"proxy": {...}, "workers": [...], "channels": [...], ...}
    {"ask": "route", "local": ..., "peer": ...}     ->   {"route": {"interface": "p0", "gateway": ..., ...}}
    {"ask": "reload"}                               ->   {"reload": []}, or the lines that say why the file that was
                                                         read is not in force
    {"ask": "upgrade"}                              ->   {"upgrade": "granted"}, and then what handover.py says; with a
                                                         key, more is said before (shown_key.py)

Only the proxy's own user and root can connect: the socket's mode is 0600.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from msgspec import Struct
from xts_messages.terminal.printable import printable

from xts_proxy.supervisor.log import LOG
from xts_proxy.upgrade.shown_key import Demand

_ANSWER_BYTES_MAX = 256 << 20
_PIECE_BYTES = 1 << 20
_LINE_CHARACTERS = 1000  # of a reason
_TIMEOUT_S = 5.0
#: For a reload: thousands of certificates take a while. systemd waits longer for ExecReload.
_RELOAD_S = 80.0


class Question(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What can be asked. `local`, `peer`: the endpoints of a connection whose route is asked for. `nonce`: of who shows
    a key (shown_key.py)."""

    ask: Literal["status", "route", "reload", "upgrade"]
    connections: bool = False
    local: str = ""
    peer: str = ""
    nonce: bytes = b""


def workers_pid(path: str) -> int:
    """The process number of a running proxy's workers. OSError: as ask()."""
    return int(ask(path, Question("status"))["proxy"]["processes"]["xts-workers"])


def reload(path: str) -> list[str]:
    """Has a running proxy read its file again. Returns the lines that say why the file is not in force; none: it is.
    OSError: as ask()."""
    return [printable(str(line)[:_LINE_CHARACTERS]) for line in ask(path, Question("reload"), _RELOAD_S)["reload"]]


def handler(
    answer: Callable[[Question], dict[str, Any]],
    reload: Callable[[], asyncio.Future[list[str]]],
    upgrade: Callable[[socket.socket], Callable[[], None]],
    key: Callable[[], bytes] = bytes,
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Returns the function that serves a connection of the control socket. `reload` begins one, and returns its outcome
    (reload.py). `upgrade` is given the socket of a new proxy, and returns what begins the hand-over. OSError: it may
    not, or not now. `key`: that a new proxy has to show; b"": none."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = await asyncio.wait_for(reader.readline(), _TIMEOUT_S)
            begin: list[Callable[[], None]] = []
            outcomes: list[asyncio.Future[list[str]]] = []

            def respond(question: Question) -> dict[str, Any]:
                if question.ask == "reload":
                    outcomes.append(reload())
                    return {}
                if question.ask != "upgrade":
                    return answer(question)
                begin.append(upgrade(_duplicate(writer)))
                return {"upgrade": "granted"}

            told = await _unshown(line, key(), reader, writer) or _respond(line, respond)
            for outcome in outcomes:
                told = msgspec.json.encode({"reload": await outcome})
            writer.write(told + b"\n")
            await asyncio.wait_for(writer.drain(), _TIMEOUT_S)
            for start in begin:
                start()
        except (ValueError, TimeoutError, ConnectionError):
            pass  # too long a line, or the client has closed
        finally:
            writer.close()

    return serve


async def _unshown(line: bytes, key: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Why who asks for the proxy's place has not shown that it may; b"": it has, or asks for something else."""
    try:
        question = msgspec.json.decode(line, type=Question)
        if question.ask != "upgrade" or not (key or question.nonce):
            return b""
        demand = Demand(key, question.nonce)
        writer.write(demand.challenge())
        demand.check(await asyncio.wait_for(reader.readline(), _TIMEOUT_S))
    except (msgspec.DecodeError, RecursionError):
        return b""  # _respond() says so
    except OSError as error:
        why = error.strerror or "the new proxy does not show its key in time"
        LOG.warning("upgrade: refused: %s", why)
        return msgspec.json.encode({"error": why})
    return b""


def _duplicate(writer: asyncio.StreamWriter) -> socket.socket:
    """The connection, which is ours alone when the loop's is closed. Until then the other end says nothing more."""
    return socket.socket(fileno=os.dup(writer.get_extra_info("socket").fileno()))


def _respond(line: bytes, answer: Callable[[Question], dict[str, Any]]) -> bytes:
    try:
        return msgspec.json.encode(answer(msgspec.json.decode(line, type=Question)))
    except (msgspec.DecodeError, RecursionError) as error:
        return msgspec.json.encode({"error": f"not a question: {error}"})
    except OSError as error:  # a worker does not answer
        return msgspec.json.encode({"error": error.strerror or str(error)})


def ask(path: str, question: Question, timeout_s: float | None = None) -> dict[str, Any]:
    """Asks a running proxy. OSError: it cannot be reached (ENOENT, ECONNREFUSED, EACCES), closed the connection, does
    not answer in time (ETIMEDOUT), or is something else (EPROTO)."""
    timeout_s = _TIMEOUT_S if timeout_s is None else timeout_s
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_s)
        try:
            connection.connect(path)
            connection.sendall(msgspec.json.encode(question) + b"\n")
            line = _received(connection, timeout_s)
        except OSError as error:
            none = error.errno in (errno.ENOENT, errno.ECONNREFUSED)
            advice = ": is it running? --control or XTS_CONTROL names another socket" if none else ""
            raise OSError(error.errno, f"asking the proxy at {path}: {error.strerror or error}{advice}") from error
    if not line.endswith(b"\n"):
        raise OSError(errno.EPROTO, f"asking the proxy at {path}: it broke off")
    try:
        result = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise OSError(errno.EPROTO, f"who listens at {path} is no xts-proxy: {error}") from None
    if "error" in result:
        raise OSError(errno.EINVAL, f"asking the proxy at {path}: {printable(str(result['error'])[:200])}")
    return result


def _received(connection: socket.socket, timeout_s: float) -> bytes:
    """What comes up to the end of a line, or of the connection."""
    line, deadline = bytearray(), time.monotonic() + timeout_s
    while not line.endswith(b"\n"):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(errno.ETIMEDOUT, f"no answer within {timeout_s:.0f} s")
        connection.settimeout(left_s)
        try:
            piece = connection.recv(_PIECE_BYTES)
        except TimeoutError:
            continue
        if not piece:
            break
        line += piece
        if len(line) > _ANSWER_BYTES_MAX:
            raise OSError(errno.EMSGSIZE, "the answer is larger than any of an xts-proxy")
    return bytes(line)
