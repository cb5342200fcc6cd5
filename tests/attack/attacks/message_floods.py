"""Floods of messages that cost the proxy more than they cost the host."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from beds.scripted_host import ScriptedHost
from xts_messages._native import ffi, lib
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags

from .attack import Attack, Part, hostile_host

if TYPE_CHECKING:
    from ..part import Script

NOBODY = 7102  # no port that anybody listens at
_BATCH = 64
_HELLOS = 16

#: Of one socket of the attacker's: its identifier and its number make a message.
Message = Callable[["Script", int, int], codec.Frame]


def _own_socket(host: ScriptedHost) -> tuple[int, int]:
    """A socket that the proxy makes for its first option; identifier and number."""
    number = host.new_socket()
    option = {"level": socket.SOL_SOCKET, "option": socket.SO_KEEPALIVE, "length": 4}
    host.send("XTS_CMD_SETSOCKOPT", bytes(4), xts_socket=number, token=1, domain=4, **option)
    return host.expect("XTS_REPLY_SOCKOPT_ACK").fields["proxy_id"], number


def _flood(message: Message, what: str) -> Callable[[Script], None]:
    """The same call again and again, as many at once as the frame window allows."""

    def run(script: Script) -> None:
        with hostile_host(script) as host:
            frame = bytes(codec.encode(message(script, *_own_socket(host))))
            while not script.stopped:
                for _ in range(_BATCH):
                    while not lib.xts_link_credits(host.link):
                        host.pump(10)
                    sealed = bytearray(frame)
                    lib.xts_link_seal(host.link, ffi.from_buffer(sealed))
                    host.raw(bytes(sealed))
                host.backlog.clear()
                script.done[what] += _BATCH
                script.under_way()

    return run


def _option(script: Script, id: int, number: int) -> codec.Frame:
    fields = {"level": socket.IPPROTO_TCP, "option": socket.TCP_INFO, "length": 232}
    return codec.Frame("XTS_CMD_GETSOCKOPT", _call(number) | fields, bytes(232), id=id)


def _congestion(script: Script, id: int, number: int) -> codec.Frame:
    name = b"reno"
    fields = {"level": socket.IPPROTO_TCP, "option": socket.TCP_CONGESTION, "length": len(name)}
    return codec.Frame("XTS_CMD_SETSOCKOPT", _call(number) | fields, name, id=id)


def _bind(script: Script, id: int, number: int) -> codec.Frame:
    local = Endpoint.of(script.place.device_address, 0)
    return codec.Frame("XTS_CMD_BIND", _call(number) | {"local": local}, id=id)


def _call(number: int) -> dict[str, Any]:
    return {"xts_socket": number, "token": 1, "domain": 4}


def _connects(script: Script) -> None:
    """Connects where nobody listens, and closes."""
    with hostile_host(script) as host:
        while not script.stopped:
            for _ in range(_BATCH):
                _, ack = host.connect(script.place.peer_address, NOBODY)
                if id := ack.fields["proxy_id"]:
                    host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE"))
                    host.expect("XTS_REPLY_RECV")
            script.done["connects"] += _BATCH
            script.under_way()


def _hellos(script: Script) -> None:
    """Each is the beginning of another process, as far as the proxy knows."""
    with hostile_host(script) as host:
        version = table.VERSION
        epoch = host.epoch
        while not script.stopped:
            for _ in range(_HELLOS):
                epoch += 1
                sizes = {"version": version, "frame_window": 64, "largest_message": table.FRAME_BYTES_MAX}
                fields = sizes | {"features": 0, "required": 0, "epoch": epoch, "pid": 1}
                frame = bytearray(codec.encode(codec.Frame("XTS_LINK_HELLO", fields)))
                frame[0:6], frame[6:12] = host.queue.peer_mac, host.queue.local_mac
                with suppress(BlockingIOError):  # the proxy has not taken those before yet
                    host.raw(bytes(frame))
                    script.done["hellos"] += 1
            with suppress(TimeoutError):
                for _ in range(_HELLOS):
                    host.queue.wait(1).recycle()
            script.under_way()


def _attack(name: str, tries: str, run: Callable[[Script], None]) -> Attack:
    return Attack(name, tries, (Part("host", run),))


ATTACKS = [
    _attack("options", "a flood of getsockopt(TCP_INFO)", _flood(_option, "options")),
    _attack("congestion-controls", "a flood of setsockopt(TCP_CONGESTION)", _flood(_congestion, "options")),
    _attack("binds", "a flood of bind()", _flood(_bind, "binds")),
    _attack("refused-connects", "connects where nobody listens, and closes", _connects),
    _attack("hellos", "the first message of a process, again and again", _hellos),
]
