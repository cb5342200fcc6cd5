"""`open_tcp_stream`, `open_tcp_listeners`, `serve_tcp`: trio's functions of these names, over offloaded
sockets."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from socket import (
    AI_PASSIVE,
    IPPROTO_IP,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SO_REUSEADDR,
    SOCK_STREAM,
    SOL_SOCKET,
)
from typing import TYPE_CHECKING, Any

import trio

from .._create import client_stack, server_stack
from .._misuse import named
from ._socket import SocketType, socket
from ._stream import SocketListener, SocketStream

if TYPE_CHECKING:
    from ..layers import Layer, Tls

_HAPPY_EYEBALLS_DELAY_S = 0.25
_BACKLOG_MAX = 0xFFFF
_IP_BIND_ADDRESS_NO_PORT = 24  # <linux/in.h>


@named
async def open_tcp_stream(
    host: str | bytes,
    port: int,
    *,
    happy_eyeballs_delay: float | None = _HAPPY_EYEBALLS_DELAY_S,
    local_address: str | None = None,
    tls: Tls | bool | None = None,
) -> SocketStream:
    """Connects to the host, as `trio.open_tcp_stream` does: tries its addresses in turn, and the next one also if one
    has not answered for `happy_eyeballs_delay` seconds.

    `local_address` is one of the device's. tls: the proxy does TLS, with these parameters, or (True) those of a client
    that checks the server's certificate for `host`; `stream.socket.tls` describes it. Raises OSError, with all
    attempts' errors as its cause.
    """
    if not isinstance(host, str | bytes):
        raise ValueError(f"host must be str or bytes, not {host!r}")
    if not isinstance(port, int):
        raise TypeError(f"port must be int, not {port!r}")
    delay = _HAPPY_EYEBALLS_DELAY_S if happy_eyeballs_delay is None else happy_eyeballs_delay
    layers = client_stack(tls, (), host.decode("ascii", "replace") if isinstance(host, bytes) else host)
    targets = _families_alternating(await trio.socket.getaddrinfo(host, port, type=SOCK_STREAM))
    failures: list[OSError] = []
    connected: list[SocketType] = []  # two attempts may succeed at the same moment: the first one is used

    async def attempt(target: Any, over: trio.Event, others: trio.CancelScope) -> None:
        try:
            connected.append(await _connected(target, local_address, layers))
            others.cancel()
        except OSError as failure:
            failures.append(failure)
            over.set()

    with _closing_all_but_the_first(connected):
        async with trio.open_nursery() as nursery:
            for target in targets:
                over = trio.Event()
                nursery.start_soon(attempt, target, over, nursery.cancel_scope)
                with trio.move_on_after(delay):
                    await over.wait()
        if not connected:
            name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
            name = f"[{name}]" if ":" in name else name
            message = f"all attempts to connect to {name}:{port} failed"
            raise OSError(message) from ExceptionGroup(message, failures)
        return SocketStream(connected[0])


@named
async def open_tcp_listeners(
    port: int, *, host: str | bytes | None = None, backlog: int | None = None, tls: Tls | None = None
) -> list[SocketListener]:
    """Listens, on the device, at each address of `host`; None: at all its IPv4 and IPv6 addresses.

    Port 0 takes a free port, another one for each address. `backlog` None: the longest possible. tls: the proxy does
    TLS, with the identity that the parameters name.
    """
    if not isinstance(port, int):
        raise TypeError(f"port must be an int not {port!r}")
    if backlog is not None and not isinstance(backlog, int):
        raise TypeError(f"backlog must be an int or None, not {backlog!r}")
    backlog = _BACKLOG_MAX if backlog is None else min(backlog, _BACKLOG_MAX)
    listeners: list[SocketListener] = []
    unsupported: list[OSError] = []
    try:
        for target in await trio.socket.getaddrinfo(host, port, type=SOCK_STREAM, flags=AI_PASSIVE):
            try:
                listeners.append(await _listener(target, backlog, server_stack(tls)))
            except OSError as failure:
                if failure.errno != errno.EAFNOSUPPORT:
                    raise
                unsupported.append(failure)
        if not listeners:
            message = "the device supports none of the address families of this host"
            raise OSError(errno.EAFNOSUPPORT, message) from ExceptionGroup(message, unsupported)
    except BaseException:
        for listener in listeners:
            listener.socket.close()
        raise
    return listeners


@named
async def serve_tcp(
    handler: Callable[[SocketStream], Awaitable[object]],
    port: int,
    *,
    host: str | bytes | None = None,
    backlog: int | None = None,
    tls: Tls | None = None,
    handler_nursery: trio.Nursery | None = None,
    task_status: trio.TaskStatus[list[SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Listens as `open_tcp_listeners` does, and runs `handler(stream)` in a task for each connection, until it is
    cancelled.

    `nursery.start(serve_tcp, …)` returns the listeners.
    """
    listeners = await open_tcp_listeners(port, host=host, backlog=backlog, tls=tls)
    await trio.serve_listeners(handler, listeners, handler_nursery=handler_nursery, task_status=task_status)


def _families_alternating(targets: list[Any]) -> list[Any]:
    """The first address of another family than the first one's is tried second (RFC 6555, 5.4)."""
    for i, target in enumerate(targets):
        if target[0] != targets[0][0]:
            return [targets[0], target, *targets[1:i], *targets[i + 1 :]]
    return targets


@contextmanager
def _closing_all_but_the_first(connected: list[SocketType]) -> Iterator[None]:
    keep = 0
    try:
        yield
        keep = 1
    finally:
        for sock in connected[keep:]:
            sock.close()


async def _connected(target: Any, local_address: str | None, layers: Sequence[Layer]) -> SocketType:
    family, kind, proto, _, sockaddr = target
    sock = socket(family, kind, proto)
    try:
        if local_address is not None:
            with suppress(OSError):  # so that connections from one address can share its ports
                sock.setsockopt(IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            try:
                await sock.bind((local_address, 0))
            except OSError as failure:
                raise OSError(
                    failure.errno, f"local_address={local_address!r} is incompatible with remote address {sockaddr!r}"
                ) from failure
        await sock.connect_with(sockaddr, *layers)
    except BaseException:
        sock.close()
        raise
    return sock


async def _listener(target: Any, backlog: int, layers: Sequence[Layer]) -> SocketListener:
    family, kind, proto, _, sockaddr = target
    sock = socket(family, kind, proto)
    try:
        sock.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        if family == trio.socket.AF_INET6:
            sock.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 1)
        await sock.bind(sockaddr)
        if layers:
            await sock.push(*layers)
        sock.listen(backlog)
        return SocketListener(sock)
    except BaseException:
        sock.close()
        raise
