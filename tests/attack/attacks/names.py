"""Name lookups: floods of queries, to name servers that answer, that are silent, and that send what is no answer."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from beds.name_server import query

from .attack import Attack, Part, hostile_host

if TYPE_CHECKING:
    from ..part import Script

PORT = 7701
_AT_ONCE = 64
_WRONG = 64  # datagrams that are no answer, for each query
_PIECE = b"\xff\xff" + bytes(512)  # of an answer over TCP that is said to be large

#: What a server sends upon a query: datagrams.
Answer = Callable[[bytes], list[bytes]]


def _names(folder: Path, peer_address: str) -> str:
    del folder
    return f'[names]\nresolvers = ["{peer_address}:{PORT}"]\ntimeout_ms = 100\nattempts = 2\ndefault = "allow"\n'


def _asks(script: Script) -> None:
    """As many queries at once as may be, and the next when one has been answered."""
    with hostile_host(script, "NAMES", "REFUSAL") as host:
        wire = query("host.example.test")
        while not script.stopped:
            for _ in range(_AT_ONCE):
                host.tokens += 1
                host.send("XTS_CMD_QUERY_NAME", wire, token=host.tokens)
                script.done["queries"] += 1
            host.pump(1)
            for frame in host.backlog:
                script.done["refused" if frame.error else "answers"] += 1
            host.backlog.clear()
            script.under_way()


def _answer(wire: bytes) -> list[bytes]:
    """There is no such name."""
    return [wire[:2] + b"\x81\x83" + wire[4:]]


def _silence(wire: bytes) -> list[bytes]:
    del wire
    return []


def _garbage(wire: bytes) -> list[bytes]:
    """Other identifiers than that of the query, until it is asked over TCP."""
    first = struct.unpack(">H", wire[:2])[0]
    return [struct.pack(">H", (first + 1 + i) % 65536) + b"\x81\x83" + wire[4:] for i in range(_WRONG)]


def _serves(answer: Answer) -> Callable[[Script], None]:
    def run(script: Script) -> None:
        with ExitStack() as stack:
            udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            udp.bind((script.place.peer_address, PORT))
            udp.setblocking(False)
            tcp = stack.enter_context(socket.create_server((script.place.peer_address, PORT)))
            kept: list[socket.socket] = []
            script.under_way()
            while not script.stopped:
                ready = select.select([udp, tcp], [], [], 0.05)[0]
                if udp in ready:
                    _serve(script, udp, answer)
                if tcp in ready:
                    kept.append(_keep(tcp))
                    script.done["over_tcp"] += 1
                for connection in kept[:-_AT_ONCE]:
                    connection.close()
                del kept[:-_AT_ONCE]
            for connection in kept:
                connection.close()

    return run


def _serve(script: Script, udp: socket.socket, answer: Answer) -> None:
    for _ in range(_AT_ONCE):
        try:
            wire, peer = udp.recvfrom(4096)
        except BlockingIOError:
            return
        for one in answer(wire):
            try:
                udp.sendto(one, peer)
            except OSError:  # it has gone already
                break
            script.done["sent"] += 1


def _keep(tcp: socket.socket) -> socket.socket:
    """The beginning of an answer that never comes whole."""
    connection, _ = tcp.accept()
    connection.setblocking(False)
    connection.send(_PIECE)
    return connection


def _attack(name: str, tries: str, answer: Answer) -> Attack:
    return Attack(name, tries, (Part("net", _serves(answer)), Part("host", _asks)), _names)


ATTACKS = [
    _attack("name-queries", "a flood of name lookups that are answered", _answer),
    _attack("name-silence", "a flood of name lookups at a server that is silent", _silence),
    _attack("name-garbage", f"{_WRONG} datagrams that are no answer to each lookup, and half answers", _garbage),
]
