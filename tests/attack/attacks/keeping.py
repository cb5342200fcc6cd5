"""What a host makes the device keep: sockets without end, and connections that outlive their process."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from xts_messages.wire import codec

from .attack import Attack, Part, deaf_peer, hostile_host

if TYPE_CHECKING:
    from ..part import Script

PORT = 7301
_OF_A_PROCESS = 64
_AT_ONCE = 2000
_SENT = b"x" * 16384
_MESSAGES = 8  # more than the device's kernel takes in


def _processes_that_end(script: Script) -> None:
    """Each leaves connections with bytes for a peer that takes none of them: orphans, as the kernel would have them."""
    while not script.stopped:
        with hostile_host(script) as host:
            for _ in range(script.size(_OF_A_PROCESS)):
                _, ack = host.connect(script.place.peer_address, PORT)
                if ack.error:
                    script.done[f"connects_refused_{errno.errorcode[ack.error]}"] += 1
                    continue
                for _ in range(_MESSAGES):
                    host.send("XTS_CMD_SEND", _SENT, id=ack.fields["proxy_id"])
                script.done["connections_left"] += 1
        script.under_way()


def _sockets(script: Script) -> None:
    """Connections that are kept, and asked for again as long as they are refused."""
    kept = 0
    with hostile_host(script) as host:
        while not script.stopped:
            if kept == script.size(_AT_ONCE):
                host.pump(20)
                continue
            _, ack = host.connect(script.place.peer_address, PORT)
            kept += not ack.error
            script.done["refused" if ack.error else "kept"] += 1
            script.under_way()


#: Addresses that mean the device itself, in every form there is.
OF_THE_DEVICE = (
    "127.0.0.1",
    "127.255.0.1",
    "0.0.0.0",
    "169.254.169.254",
    "::1",
    "::",
    "::ffff:127.0.0.1",
    "64:ff9b::7f00:1",
    "fe80::1",
)


def _device_itself(script: Script) -> None:
    """Connects to the device's own services: none may succeed, nor learn whether somebody listens."""
    with hostile_host(script) as host:
        while not script.stopped:
            for address in OF_THE_DEVICE:
                _, ack = host.connect(address, 22)
                script.done[errno.errorcode.get(ack.error, "REACHED")] += 1
                if ack.fields["proxy_id"]:
                    host.send("XTS_CMD_SEND", id=ack.fields["proxy_id"], flags=codec.flags("CLOSE"))
                    host.expect("XTS_REPLY_RECV")
            script.under_way()


ATTACKS = [
    Attack(
        "orphans",
        f"processes that end and leave {_OF_A_PROCESS} connections each to a peer that never reads",
        (deaf_peer(PORT), Part("host", _processes_that_end)),
    ),
    Attack(
        "kept-sockets",
        f"{_AT_ONCE:,} connections that are kept, and more asked for",
        (deaf_peer(PORT), Part("host", _sockets)),
    ),
    Attack(
        "device-itself",
        "connects to the device's own addresses, in every form",
        (Part("host", _device_itself),),
        queues=frozenset({"afxdp", "shm"}),
    ),
]
