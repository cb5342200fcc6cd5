"""The device's network interfaces, as the proxy tells them: what a socket may name to join a group, and what time
stamps they make."""

from __future__ import annotations

import errno
import ipaddress
from dataclasses import dataclass, replace
from socket import AF_INET, SOCK_DGRAM

from xts_messages.wire_table import INTERFACE_STAMPS, SOL_XTS

from ._socket import socket

_ANSWER_BYTES = 512


#: linux/net_tstamp.h: what `flags` has of transmitting and receiving, and which types and filters are none.
_SOFTWARE, _HARDWARE = 1 << 1 | 1 << 3, 1 << 0 | 1 << 2
_FILTER_ALL = 1


@dataclass(frozen=True, slots=True)
class Stamping:
    """Time stamps of an interface, as `ethtool -T` has them. `clock`: the number of its card's clock; -1: none.
    `flags`: SOF_TIMESTAMPING_*; `tx_types`, `rx_filters`: what the card can be switched to, as bits. `tx_type`,
    `rx_filter`: what the device's operator has switched it to; 0: the card stamps nothing."""

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
    `stamping`: None where the proxy does not say."""

    index: int
    name: str
    multicast: bool
    addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]
    stamping: Stamping | None = None


def interfaces() -> list[Interface]:
    """Of the device, without loopback, as they are now or were a second ago. Attaches; OSError (ENETDOWN) without a
    proxy, EOPNOTSUPP: it does not tell them."""
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
