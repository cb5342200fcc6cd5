"""Closes that cannot finish: each waits for a peer that never reads."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from xts_messages.codec import flags

from .attack import Attack, Part, hostile_host

if TYPE_CHECKING:
    from ..part import Script

PORT = 7101
CLOSES = 6000
_BATCH = 200
_NEVER_READ_BYTES = 2048


def _deaf_peer(script: Script) -> None:
    """Accepts, and never reads: with so small a buffer what was sent stays unacknowledged."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NEVER_READ_BYTES)
        listener.bind((script.place.peer_address, PORT))
        listener.listen(1024)
        listener.settimeout(0.1)
        script.under_way()
        accepted: list[socket.socket] = []
        while not script.stopped:
            with suppress(TimeoutError):
                accepted.append(listener.accept()[0])
        for connection in accepted:
            connection.close()


def _close(script: Script) -> None:
    """Connects, sends more than the peer takes, and closes with LINGER, so that the proxy has to tell the end."""
    with hostile_host(script) as host:
        payload = b"x" * 16384
        for number in range(script.size(CLOSES)):
            if number % _BATCH == 0 and script.stopped:
                break
            _, ack = host.connect(script.place.peer_address, PORT)
            if ack.error:
                script.done["refused"] += 1
                continue
            host.send("XTS_CMD_SEND", payload, id=ack.fields["proxy_id"], flags=flags("CLOSE", "LINGER"))
            script.done["lingering_closes"] += 1
        script.under_way()
        while not script.stopped:
            host.pump(20)


ATTACKS = [
    Attack(
        "lingering-closes",
        f"{CLOSES:,} closes with SO_LINGER that no peer acknowledges",
        (Part("net", _deaf_peer), Part("host", _close)),
    )
]
