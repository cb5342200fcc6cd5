"""The device's network interfaces, as the proxy tells them: what a socket may name to join a group."""

from __future__ import annotations

import errno
import ipaddress
from dataclasses import dataclass
from socket import AF_INET, SOCK_DGRAM

from xts_messages.table import SOL_XTS

from ._socket import socket

_ANSWER_BYTES = 512


@dataclass(frozen=True, slots=True)
class Interface:
    """`index`: for IPV6_JOIN_GROUP, `ip_mreqn`, the scope of an address. `multicast`: groups can be joined there."""

    index: int
    name: str
    multicast: bool
    addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]


def interfaces() -> list[Interface]:
    """Of the device, without loopback, as of the proxy's start or last reload. Attaches; OSError (ENETDOWN) without a
    proxy, EOPNOTSUPP: it does not tell them."""
    found: list[Interface] = []
    with socket(AF_INET, SOCK_DGRAM) as asks:
        while lines := _ask(asks, found[-1].index if found else 0):
            found += [_parse(line) for line in lines]
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
