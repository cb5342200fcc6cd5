"""`create_udp_socket` and `create_connected_udp_socket`: anyio's functions of these names, over offloaded sockets."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from socket import AF_UNSPEC, AI_PASSIVE, SO_REUSEPORT, SOCK_DGRAM, SOL_SOCKET, AddressFamily
from typing import Any

import anyio
import anyio.abc
from anyio.lowlevel import checkpoint

from .._readiness import READABLE, WRITABLE
from .._socket import socket
from ._stream import Attributes, resource_errors
from ._waits import close, until

IPAddressType = str | IPv4Address | IPv6Address

_DATAGRAM_BYTES = 65_536


class _Sockets(Attributes):
    """The common part of both kinds."""

    def __init__(self, sock: socket) -> None:
        super().__init__(sock)
        self._receiving = anyio.ResourceGuard("reading from")
        self._sending = anyio.ResourceGuard("writing to")


class UDPSocket(_Sockets, anyio.abc.UDPSocket):
    """Takes over the `xts_socket.socket`."""

    async def receive(self) -> tuple[bytes, Any]:
        with self._receiving, resource_errors():
            data, address = await until(self._sock, READABLE, self._sock.recvfrom, _DATAGRAM_BYTES)
        return data, address and address[:2]

    async def send(self, item: tuple[bytes, Any]) -> None:
        with self._sending, resource_errors():
            await until(self._sock, WRITABLE, self._sock.sendto, *item)


class ConnectedUDPSocket(_Sockets, anyio.abc.ConnectedUDPSocket):
    """Takes over the `xts_socket.socket`."""

    async def receive(self) -> bytes:
        with self._receiving, resource_errors():
            return await until(self._sock, READABLE, self._sock.recv, _DATAGRAM_BYTES)

    async def send(self, item: bytes) -> None:
        with self._sending, resource_errors():
            await until(self._sock, WRITABLE, self._sock.send, item)


async def _address(host: IPAddressType | None, port: int, family: int, flags: int) -> tuple[int, Any]:
    """Returns family and address."""
    found = await anyio.getaddrinfo(str(host) if host else None, port, family=family, type=SOCK_DGRAM, flags=flags)
    return int(found[0][0]), found[0][4]


async def _open(family: int, local: Any, remote: Any, reuse_port: bool) -> socket:
    await checkpoint()
    sock = socket(family, SOCK_DGRAM)
    try:
        if reuse_port:
            sock.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        if local is not None:
            sock.bind(local)
        if remote is not None:
            sock.connect(remote)
    except BaseException:
        close(sock)
        raise
    return sock


async def create_udp_socket(
    family: AddressFamily = AF_UNSPEC,
    *,
    local_host: IPAddressType | None = None,
    local_port: int = 0,
    reuse_port: bool = False,
) -> UDPSocket:
    """A socket for datagrams to and from any peer, bound to the local address, or without one to any."""
    if family is AF_UNSPEC and not local_host:
        raise ValueError('Either "family" or "local_host" must be given')
    found, local = await _address(local_host, local_port, family, AI_PASSIVE)
    return UDPSocket(await _open(found, local, None, reuse_port))


async def create_connected_udp_socket(
    remote_host: IPAddressType,
    remote_port: int,
    *,
    family: AddressFamily = AF_UNSPEC,
    local_host: IPAddressType | None = None,
    local_port: int = 0,
    reuse_port: bool = False,
) -> ConnectedUDPSocket:
    """A socket for datagrams to and from one peer."""
    found, remote = await _address(remote_host, remote_port, family, 0)
    local = None
    if local_host or local_port:
        _, local = await _address(local_host, local_port, found, AI_PASSIVE)
    return ConnectedUDPSocket(await _open(found, local, remote, reuse_port))
