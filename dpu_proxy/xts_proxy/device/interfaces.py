"""The device's network interfaces, which hosts may name to join groups and to send to groups.

Read by the supervisor when it starts, with each reload, and when they change (device_watch.py), since workers open no
files.
"""

from __future__ import annotations

import array
import fcntl
import ipaddress
import socket
import struct
from collections import defaultdict
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xts_proxy.device.time_stamping import Stamping

_IF_INET6 = Path("/proc/net/if_inet6")
#: linux/sockios.h; an entry of the answer of SIOCGIFCONF is a struct ifreq.
_SIOCGIFCONF, _SIOCGIFFLAGS = 0x8912, 0x8913
_IFREQ_BYTES = 40
_IFREQS = 1024
_IPV4 = 32  # XTS_INTERFACE_IPV4 of native/worker/worker.h
#: XTS_INTERFACE_TEXT_BYTES; the index of lo in each network namespace.
_TEXT_BYTES, _LOOPBACK_INDEX = 220, 1
#: linux/if.h
_IFF_UP, _IFF_LOOPBACK, _IFF_MULTICAST = 0x1, 0x8, 0x1000

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Interface:
    """`multicast`: it is up, and carries datagrams to groups. The loopback interface does so without the flag."""

    index: int
    name: str
    multicast: bool
    addresses: tuple[Address, ...]
    stamping: Stamping | None = None
    up: bool = True


def read_interfaces() -> tuple[Interface, ...]:
    """All interfaces of this network namespace, by index."""
    addresses = defaultdict(list)
    for name, address in [*_ipv4(), *_ipv6()]:
        addresses[name].append(address)
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for index, name in sorted(socket.if_nameindex()):
            flags = 0
            with suppress(OSError):  # it is gone meanwhile
                request = fcntl.ioctl(sock, _SIOCGIFFLAGS, struct.pack("16sH22x", name.encode(), 0))
                flags = struct.unpack("16sH22x", request)[1]
            multicast = bool(flags & _IFF_UP and flags & (_IFF_MULTICAST | _IFF_LOOPBACK))
            stamping = Stamping.read(sock, name)
            found.append(Interface(index, name, multicast, tuple(addresses[name]), stamping, bool(flags & _IFF_UP)))
    return tuple(found)


def to_native(ffi: Any, interfaces: Iterable[Interface], of_queues: Collection[str] = ()) -> Any:
    """`struct xts_interface[]`; the caller keeps it alive while C reads it. `of_queues`: names of interfaces that carry
    messages of hosts."""
    return ffi.new(
        "struct xts_interface[]",
        [
            {
                "index": one.index,
                "text": _text(one) if _is_told(one, of_queues) else b"",
                "stamps": one.stamping.line(one.index) if one.stamping and _is_told(one, of_queues) else b"",
                "ipv4": [address.packed for address in one.addresses if address.version == 4][:_IPV4],
            }
            for one in interfaces
        ],
    )


def _is_told(interface: Interface, of_queues: Collection[str]) -> bool:
    """Hosts have no use for the name and the addresses of an interface that is down, or that carries their messages:
    which there are of these says how many hosts the device has."""
    return interface.up and interface.index != _LOOPBACK_INDEX and interface.name not in of_queues


def _text(interface: Interface) -> bytes:
    """What hosts are told about it. Addresses for which there is no room are left out."""
    line = f"{interface.index} {interface.name} {'multicast' if interface.multicast else '-'}"
    for address in interface.addresses:
        if len(f"{line} {address}\n") >= _TEXT_BYTES:
            break
        line += f" {address}"
    return f"{line}\n".encode()


def _ipv4() -> list[tuple[str, Address]]:
    memory = array.array("B", bytes(_IFREQS * _IFREQ_BYTES))
    where, _ = memory.buffer_info()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iP", len(memory), where))
    used = struct.unpack("iP", answer)[0]
    data = memory.tobytes()
    return [
        (data[at : at + 16].partition(b"\0")[0].decode(errors="replace").partition(":")[0],
         ipaddress.IPv4Address(data[at + 20 : at + 24]))
        for at in range(0, used, _IFREQ_BYTES)
    ]  # fmt: skip


def _ipv6() -> list[tuple[str, Address]]:
    try:
        text = _IF_INET6.read_text(errors="replace")
    except OSError:
        return []
    words = [line.split() for line in text.splitlines()]
    return [(line[5], ipaddress.IPv6Address(bytes.fromhex(line[0]))) for line in words if len(line) > 5]
