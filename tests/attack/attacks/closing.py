"""Closes that cannot finish: each waits for a peer that never reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xts_messages.wire.codec import flags

from .attack import Attack, Part, deaf_peer, hostile_host

if TYPE_CHECKING:
    from ..part import Script

PORT = 7101
CLOSES = 6000
_BATCH = 200


def _close(script: Script) -> None:
    """Connects, sends more than the peer takes, and closes with LINGER, so that the proxy has to report the end."""
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
        (deaf_peer(PORT), Part("host", _close)),
    )
]
