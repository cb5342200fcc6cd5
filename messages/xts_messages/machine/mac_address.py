"""The MAC address of one station: the other end of an interface, as agent and proxy are told it."""

from __future__ import annotations

import re

EXPECTED = 'an Ethernet address such as "02:00:00:00:00:01"'


def station(text: str) -> bytes:
    """The six octets. ValueError: it is none that a station can have as its own."""
    if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        raise ValueError("six octets in hexadecimal are needed")
    octets = bytes.fromhex(text.replace(":", ""))
    if octets == b"\xff" * 6:
        raise ValueError("this is the broadcast address; the peer's own is needed")
    if octets[0] & 1:
        raise ValueError("this is a group address; the peer's own is needed")
    if not any(octets):
        raise ValueError("no station has the address zero; the peer's own is needed")
    return octets
