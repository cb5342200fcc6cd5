"""Do the interfaces of the endpoint's queues lose frames, or might they? What the kernel has counted of each says so,
and the ring of a card that has zero copy."""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from xts_messages.queues.afxdp import SMALL_CHUNK_MTU, SMALL_CHUNKS_SAID
from xts_messages.wire.wire_table import ETH_BYTES, FRAME_BYTES_SINGLE

from . import Check
from .offered import queues

#: Frames that a card had no room for, or found damaged (Documentation/networking/statistics.rst). What an XDP program
#: drops is not in them.
COUNTERS = ("rx_missed_errors", "rx_fifo_errors", "rx_crc_errors", "rx_frame_errors", "rx_length_errors")
INTERFACES = Path("/sys/class/net")
#: Packets that may be on their way to an end whose messages travel in parts (XTS_PARTS_PACKETS_MAX, and the reserve).
PARTS_ON_THEIR_WAY = 192 + 32
_SIOCETHTOOL, _GET_RINGS = 0x8946, 0x10
_RINGS = struct.Struct("=9I")  # struct ethtool_ringparam


def checks() -> Iterator[Check]:
    try:
        offered = list(queues())
    except OSError:  # there is no endpoint, as another check says; or it is older
        return
    for one in offered:
        yield from wire(one.interface, INTERFACES / one.interface / "statistics")
        with suppress(OSError, ValueError):
            mtu = int((INTERFACES / one.interface / "mtu").read_text())
            yield from chunks(one.interface, one.copying, mtu)
            yield from ring(one.interface, one.copying, mtu, buffers_of(one.interface))


def buffers_of(interface: str) -> int:
    """How many buffers the card has for one queue that receives. OSError: its driver does not say."""
    rings = ctypes.create_string_buffer(_RINGS.pack(_GET_RINGS, *(0,) * 8), _RINGS.size)
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(rings))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as any_kind:
        fcntl.ioctl(any_kind, _SIOCETHTOOL, request)
    return int(_RINGS.unpack(rings.raw)[5])


def ring(interface: str, copying: str, mtu: int, buffers: int) -> Iterator[Check]:
    """With zero copy what arrives has to find a buffer of the card. Said of messages in parts, where it is known how
    many packets may come."""
    if not copying.startswith("zero copy") or mtu + ETH_BYTES >= FRAME_BYTES_SINGLE:
        return
    if buffers < PARTS_ON_THEIR_WAY:
        found = f"the card has {buffers} buffers, and {PARTS_ON_THEIR_WAY} packets may come at once: some may be lost"
        remedy = f'ethtool -G {interface} rx 256, or reliable = "on" in xts-agent.toml and in xts-proxy.toml'
        yield Check(f"ring of {interface}", "warn", found, remedy)


def chunks(interface: str, copying: str, mtu: int) -> Iterator[Check]:
    """With zero copy the card puts all frames of a queue into its chunks, also those that are for the kernel."""
    if copying.startswith("zero copy") and SMALL_CHUNKS_SAID in copying and mtu > SMALL_CHUNK_MTU:
        found = (
            f"the MTU is {mtu}, and was {SMALL_CHUNK_MTU} or less when its queues were opened: what is longer is lost"
        )
        yield Check(f"chunks of {interface}", "warn", found, "xts-agent --detach, and start the agent again")


def wire(interface: str, statistics: Path) -> Iterator[Check]:
    """Nothing for an interface that has lost nothing, or that is not visible from here."""
    counted = {}
    for name in COUNTERS:
        with suppress(OSError, ValueError):
            counted[name] = int((statistics / name).read_text())
    lost = {name: count for name, count in counted.items() if count}
    if lost:
        found = "frames were lost: " + ", ".join(f"{name} {count}" for name, count in lost.items())
        remedy = 'reliable = "on" in xts-agent.toml and in xts-proxy.toml, where it is not: lost frames are sent again'
        yield Check(f"wire of {interface}", "warn", found, remedy)
