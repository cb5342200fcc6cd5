"""The device's network interfaces, as reported by the proxy: names that a socket can use to join a group, and the time
stamps that they make."""

from __future__ import annotations

import errno
import ipaddress
from dataclasses import dataclass, replace
from socket import AF_INET, SOCK_DGRAM

from xts_messages.wire.wire_table import INTERFACE_STAMPS, SOL_XTS

from ._socket import socket

_ANSWER_BYTES = 512


#: linux/net_tstamp.h: the bits of `flags` for transmitting and receiving, and the types and filters that mean none.
_SOFTWARE, _HARDWARE = 1 << 1 | 1 << 3, 1 << 0 | 1 << 2
_FILTER_ALL = 1


@dataclass(frozen=True, slots=True)
class Stamping:
    """Time stamps of an interface, as in `ethtool -T`. `clock`: the number of its card's clock; -1: none. `flags`:
    SOF_TIMESTAMPING_*; `tx_types`, `rx_filters`: modes that the card supports, as bits. `tx_type`, `rx_filter`: modes
    that the device's operator has selected; 0: the card makes no stamps."""

    clock: int
    flags: int
    tx_types: int
    rx_filters: int
    tx_type: int
    rx_filter: int

    def text(self) -> str:
        """In a few words."""
        words = ["software"] if self.flags & _SOFTWARE else []
        if self.flags & _HARDWARE:
            on = (["sent"] if self.tx_type else []) + (
                ["received" if self.rx_filter == _FILTER_ALL else "some received"] if self.rx_filter else []
            )
            words.append(f"card ({', '.join(on) or 'switched off'})")
        return ", ".join(words) or "none"


@dataclass(frozen=True, slots=True)
class Interface:
    """`index`: for IPV6_JOIN_GROUP, `ip_mreqn`, the scope of an address. `multicast`: groups can be joined there.
    `stamping`: None if the proxy does not report it."""

    index: int
    name: str
    multicast: bool
    addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]
    stamping: Stamping | None = None


def interfaces() -> list[Interface]:
    """The device's interfaces, except loopback, in a state that is at most a second old. Attaches; OSError: ENETDOWN:
    no proxy; EOPNOTSUPP: it does not report them."""
    found: list[Interface] = []
    with socket(AF_INET, SOCK_DGRAM) as asks:
        while lines := _ask(asks, found[-1].index if found else 0):
            found += [_parse(line) for line in lines]
        stamping = _stamping(asks)
    return [replace(one, stamping=stamping.get(one.index)) for one in found]


def _stamping(asks: socket) -> dict[int, Stamping]:
    """By index."""
    found: dict[int, Stamping] = {}
    after = 0
    while lines := _ask(asks, after | INTERFACE_STAMPS):
        for line in lines:
            after, *numbers = map(int, line.split())
            found[after] = Stamping(*numbers)
    return found


def _ask(asks: socket, after: int) -> list[str]:
    try:
        answer = asks.getsockopt(SOL_XTS, after, _ANSWER_BYTES)
    except OSError as failure:
        if failure.errno not in (errno.ENOPROTOOPT, errno.EOPNOTSUPP):
            raise
        raise OSError(errno.EOPNOTSUPP, "this proxy does not tell its interfaces") from None
    assert isinstance(answer, bytes)
    return answer.decode(errors="replace").splitlines()


def _parse(line: str) -> Interface:
    index, name, multicast, *addresses = line.split()
    return Interface(int(index), name, multicast == "multicast", tuple(map(ipaddress.ip_address, addresses)))
