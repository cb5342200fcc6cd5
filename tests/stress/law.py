"""The conservation law of post credits, over both sides' figures of each connection.

Towards the host, while nothing is in flight and nothing waits to be sent:

    credits the proxy holds + received and unread + unadvertised = window the host has granted

and from the host the same with the proxy's spill buffer for what is unread. Calls have stopped when this is checked,
but messages may still be under way, so figures are read until two readings agree and the law holds, or time is over:
a law that is broken for good stays broken.
"""

from __future__ import annotations

import time
from typing import Any

from beds.patience import SLOWER

from .beds import Bed
from .ends import StressError

_SETTLE_S = 3.0 * SLOWER
_OPEN = ("ESTAB", "CLOSE-WAIT", "FIN-WAIT", "LAST-ACK")

#: Figures that go on while nothing moves: how long it waits, and TCP's own times.
_GO_ON = ("waits", "tcp")

Row = dict[str, Any]


def check(bed: Bed) -> int:
    """How many connections were checked. StressError names those that break the law."""
    deadline = time.monotonic() + _SETTLE_S
    before: list[tuple[Row, Row]] = []
    while True:
        now = _pairs(bed)
        broken = [why for host, proxy in now for why in _broken(host, proxy)]
        if now == before and not broken:
            return len(now)
        if time.monotonic() > deadline:
            if not broken:
                raise StressError(f"figures of {len(now)} connections do not settle in {_SETTLE_S} s without a call")
            raise StressError("conservation law broken at a quiet point:\n" + "\n".join(broken[:20]))
        before = now
        time.sleep(0.05)


def _pairs(bed: Bed) -> list[tuple[Row, Row]]:
    """Both sides of each connection that both know; those being opened or closed are left out."""
    proxy = {row["proxy_id"]: _still(row) for row in bed.proxy_status()["connections"] if row["state"] == "established"}
    return [
        (_still(entry), proxy[entry["proxy_id"]])
        for entry in bed.host_status()
        if entry["state"] in _OPEN and entry["proxy_id"] in proxy
    ]


def _still(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in _GO_ON}


def _broken(host: Row, proxy: Row) -> list[str]:
    out = []
    to_host = proxy["send_credits"] + host["recv_queue"] + host["recv_unadvertised"]
    if to_host != host["recv_window"]:
        out.append(
            f"to the host, socket {host['xts_socket']:08x}: proxy holds {proxy['send_credits']} + unread "
            f"{host['recv_queue']} + unadvertised {host['recv_unadvertised']} = {to_host}, window {host['recv_window']}"
        )
    to_proxy = host["send_credits"] + proxy["spill_bytes"] + proxy["unadvertised"]
    if to_proxy != proxy["window_bytes"]:
        out.append(
            f"to the proxy, socket {host['xts_socket']:08x}: host holds {host['send_credits']} + spilled "
            f"{proxy['spill_bytes']} + unadvertised {proxy['unadvertised']} = {to_proxy}, "
            f"window {proxy['window_bytes']}"
        )
    return out
