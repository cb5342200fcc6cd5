"""`connect_tcp` and `create_tcp_listener`: anyio's functions of these names, over offloaded sockets."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address
from socket import AF_INET, AF_INET6, AF_UNSPEC, AI_PASSIVE, SO_ERROR, SOCK_STREAM, SOL_SOCKET, AddressFamily
from typing import TYPE_CHECKING, Any, Literal, overload

import anyio
from anyio.abc import SocketStream as AnySocketStream
from anyio.streams.stapled import MultiListener
from anyio.streams.tls import TLSStream

from .._create import client_stack, create_server, has_dualstack_ipv6
from .._misuse import named
from .._readiness import WRITABLE
from .._socket import socket
from ..aio._tls import in_proxy
from ._stream import SocketListener, SocketStream
from ._waits import close, wait

if TYPE_CHECKING:
    from ..layers import Layer, Tls

IPAddressType = str | IPv4Address | IPv6Address

_BACKLOG_MAX = 65536
_PORT_TRIES = 10


@overload
async def connect_tcp(
    remote_host: IPAddressType,
    remote_port: int,
    *,
    local_host: IPAddressType | None = ...,
    local_port: int | None = ...,
    tls: Literal[False] | Tls = ...,
    ssl_context: None = ...,
    tls_standard_compatible: bool = ...,
    tls_hostname: None = ...,
    happy_eyeballs_delay: float = ...,
) -> SocketStream: ...


@overload
async def connect_tcp(
    remote_host: IPAddressType,
    remote_port: int,
    *,
    local_host: IPAddressType | None = ...,
    local_port: int | None = ...,
    tls: bool = ...,
    ssl_context: ssl.SSLContext | None = ...,
    tls_standard_compatible: bool = ...,
    tls_hostname: str | None = ...,
    happy_eyeballs_delay: float = ...,
) -> SocketStream | TLSStream: ...


@named
async def connect_tcp(
    remote_host: IPAddressType,
    remote_port: int,
    *,
    local_host: IPAddressType | None = None,
    local_port: int | None = None,
    tls: bool | Tls = False,
    ssl_context: ssl.SSLContext | None = None,
    tls_standard_compatible: bool = True,
    tls_hostname: str | None = None,
    happy_eyeballs_delay: float = 0.25,
) -> SocketStream | TLSStream:
    """Connects, trying the host's addresses in turn, and the next one also if one has not answered for
    `happy_eyeballs_delay` seconds; then, with any of the TLS arguments, does the handshake.

    With `tls=Tls(...)` the proxy does TLS, and checks the server's certificate for `tls_hostname` or the host: the
    result is a SocketStream, with the attributes of TLS (anyio.streams.tls.TLSAttribute).

    `local_host` and `local_port` are the device's. Returns a TLSStream if a handshake was done. Raises OSError,
    with the attempts' errors as its cause.
    """
    host = str(remote_host)
    local = None if local_host is None else (str(local_host), local_port or 0)
    offloaded = in_proxy(ssl_context, None if isinstance(tls, bool) else tls)
    layers = client_stack(offloaded, (), tls_hostname or host)
    stream = SocketStream(await _first_to_connect(host, remote_port, local, layers, happy_eyeballs_delay))
    if offloaded is not None or not (tls or tls_hostname or ssl_context):
        return stream
    try:
        return await TLSStream.wrap(
            stream,
            server_side=False,
            hostname=tls_hostname or host,
            ssl_context=ssl_context,
            standard_compatible=tls_standard_compatible,
        )
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


@named
async def create_tcp_listener(
    *,
    local_host: IPAddressType | None = None,
    local_port: int = 0,
    family: AddressFamily = AF_UNSPEC,
    backlog: int = _BACKLOG_MAX,
    reuse_port: bool = False,
    tls: Tls | None = None,
) -> MultiListener[AnySocketStream]:
    """Listens, on the device, at each address of `local_host`; None: at all its addresses.

    Port 0 takes a free port, the same one for all addresses. tls: the proxy does TLS, with the identity that the
    parameters name. Raises OSError.
    """
    backlog = min(backlog, _BACKLOG_MAX)
    if local_host is None and family == AF_UNSPEC and has_dualstack_ipv6():
        sock = create_server(
            ("::", local_port), family=AF_INET6, backlog=backlog, reuse_port=reuse_port, dualstack_ipv6=True, tls=tls
        )
        return MultiListener([SocketListener(sock)])
    host = None if local_host is None else str(local_host)
    found = await anyio.getaddrinfo(host, local_port, family=family, type=SOCK_STREAM, flags=AI_PASSIVE)
    addresses = list(dict.fromkeys((each[0], each[4]) for each in found))  # glibc may return one twice
    for last in (*[False] * (_PORT_TRIES - 1), True):
        try:
            return MultiListener(
                [SocketListener(each) for each in _listening(addresses, local_port, backlog, reuse_port, tls)]
            )
        except OSError as failure:
            # A port that is free at one address may be in use at another.
            if failure.errno != errno.EADDRINUSE or local_port or len(addresses) == 1 or last:
                raise
    raise AssertionError("unreachable")


def _listening(addresses: list[Any], port: int, backlog: int, reuse_port: bool, tls: Tls | None) -> list[socket]:
    socks: list[socket] = []
    try:
        for family, (host, _, *rest) in addresses:
            sock = create_server((host, port, *rest), family=family, backlog=backlog, reuse_port=reuse_port, tls=tls)
            socks.append(sock)
            port = port or sock.getsockname()[1]
    except BaseException:
        for sock in socks:
            sock.close()
        raise
    return socks


async def _first_to_connect(host: str, port: int, local: Any, layers: Sequence[Layer], delay_s: float) -> socket:
    failures: list[OSError] = []
    connected: list[socket] = []  # two attempts may succeed at the same moment: the first one is used

    async def attempt(target: Any, over: anyio.Event) -> None:
        try:
            connected.append(await _connected(target, local, layers))
            tasks.cancel_scope.cancel()
        except OSError as failure:
            failures.append(failure)
        finally:
            over.set()

    kept = 0
    try:
        found = await anyio.getaddrinfo(host, port, type=SOCK_STREAM)
        async with anyio.create_task_group() as tasks:
            for target in _ipv6_first(found):
                over = anyio.Event()
                tasks.start_soon(attempt, target, over)
                with anyio.move_on_after(delay_s):
                    await over.wait()
        if not connected:
            cause = failures[0] if len(failures) == 1 else ExceptionGroup("all connection attempts failed", failures)
            raise OSError(f"all attempts to connect to {host} port {port} failed") from cause
        kept = 1
        return connected[0]
    finally:
        for sock in connected[kept:]:
            close(sock)
        failures.clear()  # breaks the cycle of exception, traceback and this frame


def _ipv6_first(found: list[Any]) -> list[Any]:
    """An IPv6 address first and an IPv4 address second, if there are both (RFC 6555), the rest as found."""
    first = [target for target in found if target[0] == AF_INET6][:1] + [t for t in found if t[0] == AF_INET][:1]
    return first + [target for target in found if target not in first]


async def _connected(target: Any, local: Any, layers: Sequence[Layer]) -> socket:
    family, kind, proto, _, address = target
    sock = socket(family, kind, proto)
    try:
        sock.setblocking(False)
        if local is not None:
            found = await anyio.getaddrinfo(local[0], local[1], family=family, type=SOCK_STREAM)
            sock.bind(found[0][4])
        with suppress(BlockingIOError):
            sock.connect_with(address, *layers)
        await wait(sock, WRITABLE)
        code = sock.getsockopt(SOL_SOCKET, SO_ERROR)
        if code:
            raise sock._failure(code, True)
    except BaseException:
        close(sock)
        raise
    return sock
