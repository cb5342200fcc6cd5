"""Who asks for a connection at an RDMA service of this machine: the addresses, which pyverbs does not tell.

The kernel lists the identifiers of its RDMA connection manager (`rdma resource show cm_id`), over netlink. One by which
a peer asks has the addresses of both ends, and no queue pair until it is accepted. An address is what the peer says:
the kernel looks only whether its answer would take the same way.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import struct
from collections.abc import Iterator

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: rdma/rdma_netlink.h
_NETLINK_RDMA, _CLIENT = 20, 5
_GET, _CM_IDS = 1, 11
_DEVICE_INDEX, _QUEUE_PAIR, _TABLE, _ENTRY, _SOURCE, _DESTINATION = 1, 21, 30, 31, 33, 34
_TYPE = 0x3FFF  # of an attribute, without its flags
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE = 2, 3
_HEAD, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=HH")
_BYTES_MAX = 1 << 16
_PATIENCE_S = 2.0


def askers(service: int) -> set[Address]:
    """The addresses of all who ask at this service at the moment, and are not accepted yet. OSError: the kernel does
    not say."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_RDMA) as link:
        link.settimeout(_PATIENCE_S)
        found: set[Address] = set()
        for device in [_number(one[_DEVICE_INDEX]) for one in _dump(link, _GET) if _DEVICE_INDEX in one]:
            asked = _ATTRIBUTE.pack(_ATTRIBUTE.size + 4, _DEVICE_INDEX) + struct.pack("=I", device)
            for answer in _dump(link, _CM_IDS, asked):
                found |= set(of_answer(answer, service))
        return found


def of_answer(answer: dict[int, bytes], service: int) -> Iterator[Address]:
    """Of one answer about identifiers, by its attributes."""
    for kind, entry in attributes(answer.get(_TABLE, b"")):
        if kind != _ENTRY:
            continue
        one = dict(attributes(entry))
        source, destination = (_ends(one.get(which, b"")) for which in (_SOURCE, _DESTINATION))
        if _QUEUE_PAIR not in one and source and destination and source[1] == service and destination[1]:
            yield destination[0]


def attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and contents of each attribute. What is cut off is left out."""
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        size, kind = _ATTRIBUTE.unpack_from(data, at)
        if size < _ATTRIBUTE.size or at + size > len(data):
            return
        yield kind & _TYPE, data[at + _ATTRIBUTE.size : at + size]
        at += (size + 3) & ~3


def _dump(link: socket.socket, operation: int, asked: bytes = b"") -> Iterator[dict[int, bytes]]:
    kind = _CLIENT << 10 | operation
    link.send(_HEAD.pack(_HEAD.size + len(asked), kind, _REQUEST | _DUMP, 0, 0) + asked)
    while True:
        data, at = link.recv(_BYTES_MAX), 0
        while at + _HEAD.size <= len(data):
            size, said, _, _, _ = _HEAD.unpack_from(data, at)
            if said == _DONE or size < _HEAD.size:
                return
            body = data[at + _HEAD.size : at + size]
            if said == _ERROR:
                number = -struct.unpack_from("=i", body)[0]
                raise OSError(number, f"asking the kernel for connections of RDMA: {os.strerror(number)}")
            yield dict(attributes(body))
            at += (size + 3) & ~3


def _number(data: bytes) -> int:
    return int(struct.unpack_from("=I", data)[0])


def _ends(sockaddr: bytes) -> tuple[Address, int] | None:
    """Address and port."""
    if len(sockaddr) < 28:
        return None
    family, port = struct.unpack_from("=H", sockaddr)[0], struct.unpack_from("!H", sockaddr, 2)[0]
    if family == socket.AF_INET:
        return ipaddress.IPv4Address(sockaddr[4:8]), port
    if family == socket.AF_INET6:
        found = ipaddress.IPv6Address(sockaddr[8:24])
        return found.ipv4_mapped or found, port
    return None
