"""Names to addresses without blocking the loop; literal addresses need no lookup."""

from __future__ import annotations

import asyncio
from socket import AF_INET, AF_INET6, AF_UNSPEC, IPPROTO_TCP, IPPROTO_UDP, SOCK_DGRAM, SOCK_STREAM, inet_pton
from typing import Any

#: In the form of getaddrinfo(): family, type, protocol, canonical name, address.
Info = tuple[int, int, int, str, Any]


async def resolve(
    loop: asyncio.AbstractEventLoop, address: Any, *, family: int = 0, kind: int = SOCK_STREAM, proto: int = 0,
    flags: int = 0,
) -> list[Info]:  # fmt: skip
    """The addresses of `(host, port, …)`. Raises OSError (socket.gaierror) if there is none."""
    host, port = address[:2]
    literal = _literal(address, family, kind, proto)
    if literal is not None:
        return [literal]
    infos = await loop.getaddrinfo(host, port, family=family, type=kind, proto=proto, flags=flags)
    if not infos:
        raise OSError(f"getaddrinfo({host!r}) returned empty list")
    return [(int(info[0]), int(info[1]), *info[2:]) for info in infos]


def _literal(address: Any, family: int, kind: int, proto: int) -> Info | None:
    host, port, flowinfo, scope_id = (*address, 0, 0)[:4]
    protocol = IPPROTO_UDP if kind == SOCK_DGRAM else IPPROTO_TCP
    if proto not in (0, protocol) or host is None:
        return None
    if port is None or port in (b"", ""):
        number = 0
    else:
        try:
            number = int(port)  # the name of a service has to be looked up
        except (TypeError, ValueError):
            return None
    if isinstance(host, bytes):
        host = host.decode("idna")
    if not isinstance(host, str) or "%" in host:  # a scope: only getaddrinfo() knows the interfaces
        return None
    for af in (AF_INET, AF_INET6) if family == AF_UNSPEC else (family,):
        try:
            inet_pton(af, host)
        except OSError:
            continue
        sockaddr: Any = (host, number) if af == AF_INET else (host, number, flowinfo, scope_id)
        return int(af), int(kind), protocol, "", sockaddr
    return None


def interleave(infos: list[Info], first_count: int) -> list[Info]:
    """RFC 8305, section 4: families take turns, after `first_count` addresses of the first."""
    families: dict[int, list[Info]] = {}
    for info in infos:
        families.setdefault(info[0], []).append(info)
    lists = list(families.values())
    ordered = lists[0][: first_count - 1]
    lists[0] = lists[0][first_count - 1 :]
    while any(lists):
        ordered += [each.pop(0) for each in lists if each]
    return ordered
