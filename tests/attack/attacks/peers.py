"""Peers in the network that send onto connections a host has made: session tickets of TLS and frames of HTTP/2 that
carry nothing, without end."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from beds.authority import Authority
from beds.grpc import DATA, PING, SETTINGS, frame, window_update
from beds.scripted_host import ScriptedHost
from beds.ulp_tls import server_context
from xts_messages.wire.codec import Frame, flags

from .attack import Attack, Part, hostile_host

if TYPE_CHECKING:
    from ..part import Script

TICKETS_PORT, FRAMES_PORT = 7501, 7502
_TICKETS = 1000
_WINDOW = 1 << 16
_QUIET_MS = 100
_CHUNK = 1 << 16

Pushes = tuple[tuple[str, dict[str, Any]], ...]


# --- the host's side -----------------------------------------------------------------------------------------


def _caller(port: int, pushes: Pushes, message: bool) -> Part:
    """Connects with these protocols, reads everything, and connects again when the connection has ended."""

    def run(script: Script) -> None:
        with hostile_host(script, "ULP") as host:
            while not script.stopped:
                number, id = host.new_socket(), 0
                for ulp, parameters in pushes:
                    ack: Any = host.push(ulp, id, number, message=message, **parameters)
                    id = ack.fields["proxy_id"]
                _, made = host.connect(script.place.peer_address, port, _WINDOW, id, number)
                script.done["failed_handshakes" if made.error else "connections"] += 1
                script.under_way()
                if not made.error:
                    _read(script, host, id)
                host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE", "ABORT"))
                while not _is_the_end(host.receive()):
                    pass

    return Part("host", run)


def _is_the_end(frame: Frame) -> bool:
    """Data that was on its way comes before it, as PDUs on a message socket."""
    return frame.name == "XTS_REPLY_RECV" and bool(frame.flags & flags("CLOSED"))


def _read(script: Script, host: ScriptedHost, id: int) -> None:
    """Until the connection has ended, or says nothing any more."""
    ended = flags("RESET") | flags("EOS")
    with suppress(TimeoutError):
        while not script.stopped:
            got = host.receive(_QUIET_MS)
            if got.flags & ended:
                return
            if got.payload:
                host.send("XTS_CMD_SEND", id=id, post_credits=len(got.payload))


# --- the peer's ----------------------------------------------------------------------------------------------


def _server(port: int, serve: Callable[[Script, socket.socket], None]) -> Part:
    def run(script: Script) -> None:
        with socket.create_server((script.place.peer_address, port), backlog=64) as listener:
            script.under_way()
            while not script.stopped:
                if not select.select([listener], [], [], 0.1)[0]:
                    continue
                connection, _ = listener.accept()
                connection.settimeout(1.0)
                with connection, suppress(OSError):
                    serve(script, connection)

    return Part("net", run)


def _tickets(script: Script, connection: socket.socket) -> None:
    """A whole handshake, and then nothing but tickets."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = server_context(_AUTHORITY.issue("localhost"), num_tickets=script.size(_TICKETS))
    server = context.wrap_bio(incoming, outgoing, True)
    done = False
    while not done:
        with suppress(ssl.SSLWantReadError):
            server.do_handshake()
            done = True
        connection.sendall(outgoing.read())
        if not done and not incoming.write(connection.recv(_CHUNK)):
            return
    script.done["floods_of_tickets"] += 1
    while connection.recv(_CHUNK):
        pass


def _frames(script: Script, connection: socket.socket) -> None:
    """What gRPC keeps or passes on without a message in it."""
    some = window_update(0, 1) + frame(PING, bytes(8)) + frame(SETTINGS) + frame(DATA, stream=1)
    many = some * (_CHUNK // len(some))
    connection.sendall(frame(SETTINGS))
    while not script.stopped:
        connection.sendall(many)
        script.done["frames"] += 4 * (_CHUNK // len(some))


_AUTHORITY = Authority()
_TLS: Pushes = (("TLS", {"role": 1, "verify": 0}),)
_GRPC: Pushes = (("HTTP2", {}), ("GRPC", {}))
ATTACKS = [
    Attack(
        "tls-tickets",
        f"servers whose handshakes are followed by {_TICKETS:,} session tickets",
        (_server(TICKETS_PORT, _tickets), _caller(TICKETS_PORT, _TLS, message=False)),
    ),
    Attack(
        "http2-frames",
        "gRPC servers that send frames of HTTP/2 without a message",
        (_server(FRAMES_PORT, _frames), _caller(FRAMES_PORT, _GRPC, message=True)),
    ),
]
