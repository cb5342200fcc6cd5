"""Connections that change hands: floods of requests for them, bytes that are given back one by one, keys that are
chosen so that they look alike, and thousands that are kept for a while."""

from __future__ import annotations

import itertools
import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from beds.share import share
from xts_messages.wire.codec import flags

from .attack import Attack, Part, hostile_host

if TYPE_CHECKING:
    from beds.scripted_host import ScriptedHost

    from ..part import Script

PORT = 7801
_FEATURES = ("SHARE", "TAKE", "ULP")
_WINDOW = 1 << 20
_KEPT = 2000
_AT_ONCE = 32
_KEEP_MS, _LONG_MS = 50, 10_000
_RETURNED = 1 << 14
_CHUNK = 1 << 16
_STREAM, _USE = 1, 3
#: Keys are random numbers where nobody means harm. These are equal in their low bits.
_KEYS = itertools.count(1 << 32, 1 << 20)


def _server(script: Script, sends: bool = True) -> None:
    """Accepts, sends as much as is taken (or nothing), and reads nothing."""
    with socket.create_server((script.place.peer_address, PORT), backlog=4096) as listener:
        listener.settimeout(0.1)
        accepted: list[socket.socket] = []
        script.under_way()
        while not script.stopped:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            accepted.append(connection)
            if not sends:
                continue
            connection.setblocking(False)
            with suppress(BlockingIOError):
                while connection.send(bytes(_CHUNK)) == _CHUNK:
                    pass
        for connection in accepted:
            connection.close()


_quiet_server = partial(_server, sends=False)


def _connect(script: Script, host: ScriptedHost, window: int = _WINDOW) -> tuple[int, int]:
    """A connection's number and identifier."""
    number, ack = host.connect(script.place.peer_address, PORT, window)
    assert not ack.error, ack
    return number, ack.fields["proxy_id"]


def _take(host: ScriptedHost, key: int) -> None:
    fields: dict[str, Any] = {"xts_socket": host.new_socket(), "token": 9, "key": key, "post_credits": _WINDOW}
    host.send("XTS_CMD_TAKE", purpose=_USE, **fields)


def _takes(script: Script) -> None:
    """Thousands of connections whose keys look alike; another process asks for the first one, again and again, and
    the one that has it says each time that it needs it. They end with their process, so the next run has room."""
    with hostile_host(script, *_FEATURES) as holder, hostile_host(script, *_FEATURES) as asker:
        keys = [next(_KEYS) for _ in range(script.size(_KEPT))]
        held: list[tuple[int, int]] = []
        for key in keys:
            number, id = _connect(script, holder)
            assert not share(holder, key, id, number, _KEEP_MS).error
            held.append((number, id))
        while not script.stopped:
            for _ in range(_AT_ONCE):
                _take(asker, keys[0])
            for _ in range(_AT_ONCE):
                asker.expect("XTS_REPLY_TAKE_ACK")
            script.done["takes"] += _AT_ONCE
            number, id = held[0]
            holder.send("XTS_CMD_SHARE", id=id, xts_socket=number, token=1, key=keys[0], keep_ms=_KEEP_MS)
            holder.pump(0)
            holder.backlog.clear()
            script.under_way()


def _returns(script: Script) -> None:
    """Parks a connection of which much was received, gives that back byte by byte, and never ends it: what was given
    back is freed when the process ends."""
    while not script.stopped:
        with hostile_host(script, *_FEATURES) as host:
            number, id = _connect(script, host, script.size(_RETURNED))
            got, wanted = 0, script.size(_RETURNED)
            while got < wanted:
                got += len(host.expect("XTS_REPLY_RECV").payload)
            host.send("XTS_CMD_PARK", id=id, xts_socket=number, token=7, key=(key := next(_KEYS)), keep_ms=_LONG_MS)
            while host.receive().name != "XTS_REPLY_PARK_ACK":
                pass
            for first in range(0, got, _AT_ONCE):
                if script.stopped:
                    break
                for _ in range(min(_AT_ONCE, got - first)):
                    host.send("XTS_CMD_RETURN", b"x", key=key, kind=_STREAM, record_bytes=0)
                script.done["bytes_returned"] += _AT_ONCE
            script.under_way()
        script.done["ends"] += 1


def _kept(script: Script) -> None:
    """Parks connections for a while, whoever may want them; ever new ones, so that there are thousands."""
    with hostile_host(script, *_FEATURES) as host:
        while not script.stopped:
            for _ in range(_AT_ONCE):
                number, id = _connect(script, host)
                fields = {"xts_socket": number, "token": 7, "key": next(_KEYS), "keep_ms": _KEEP_MS * script.size(40)}
                host.send("XTS_CMD_PARK", id=id, **fields)
                while (answer := host.receive()).name != "XTS_REPLY_PARK_ACK":
                    pass
                script.done["refused" if answer.error else "parked"] += 1
                if answer.error:
                    host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE"))
            script.under_way()


ATTACKS = [
    Attack(
        "takes",
        f"{_KEPT:,} connections with keys that look alike, and requests for one of them",
        (Part("net", _quiet_server), Part("host", _takes)),
    ),
    Attack(
        "returns",
        f"{_RETURNED:,} bytes of a parked connection, given back one by one by a process that ends then",
        (Part("net", _server), Part("host", _returns)),
    ),
    Attack(
        "parked",
        "connections that are parked for two seconds, without end",
        (Part("net", _quiet_server), Part("host", _kept)),
    ),
]
