"""`create_connection`: loop.create_connection() over an offloaded socket."""

from __future__ import annotations

import asyncio
import ssl as standard_ssl
from asyncio import staggered
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from socket import IPPROTO_TCP, SOCK_STREAM, TCP_NODELAY
from typing import TYPE_CHECKING, TypeVar

from .._create import as_client, client_stack
from .._misuse import named
from .._native import lib
from .._socket import socket
from ._resolve import Info, interleave, resolve
from ._server import check_socket, check_tls
from ._sock import connect
from ._socket_transport import logger, until_begun
from ._tls import in_proxy, make_transport, push_tls

if TYPE_CHECKING:
    from ..layers import Layer, Tls

P = TypeVar("P", bound=asyncio.BaseProtocol)


@named
async def create_connection(
    protocol_factory: Callable[[], P],
    host: str | None = None,
    port: int | str | None = None,
    *,
    ssl: standard_ssl.SSLContext | Tls | bool | None = None,
    tls: Tls | bool | None = None,
    family: int = 0,
    proto: int = 0,
    flags: int = 0,
    sock: socket | None = None,
    local_addr: tuple[str, int] | None = None,
    server_hostname: str | None = None,
    ssl_handshake_timeout: float | None = None,
    ssl_shutdown_timeout: float | None = None,
    happy_eyeballs_delay: float | None = None,
    interleave: int | None = None,
    all_errors: bool = False,
    loop: asyncio.AbstractEventLoop | None = None,
) -> tuple[asyncio.Transport, P]:
    """Connects; returns (transport, protocol). `sock` is an XTS socket. Names are resolved here, on the host; addresses
    are those of the device's network.

    tls, or `ssl` with Tls(): the proxy does TLS, with these parameters, or (True) those of a client that checks the
    server's certificate for `server_hostname`, or `host`. Raises UlpError (TlsError, CertificateError) if that fails.
    """
    loop = loop or asyncio.get_running_loop()
    offloaded = in_proxy(ssl, tls)
    if server_hostname is not None and not ssl and not tls:
        raise ValueError("server_hostname is only meaningful with ssl")
    if server_hostname is None and (ssl or tls):
        if not host and offloaded is None:
            raise ValueError("You must set server_hostname when using ssl without a host")
        server_hostname = host
    check_tls(ssl or tls, ssl_handshake_timeout, ssl_shutdown_timeout)
    if sock is not None:
        check_socket(sock)
    passed = sock
    if host is not None or port is not None:
        if sock is not None:
            raise ValueError("host/port and sock can not be specified at the same time")
        found = partial(resolve, loop, family=family, kind=SOCK_STREAM, proto=proto, flags=flags)
        infos = await found((host, port))
        local = await found(local_addr) if local_addr is not None else None
        async with asyncio.timeout(ssl_handshake_timeout if offloaded else None):  # connecting includes the handshake
            sock = await _connect_any(
                loop, infos, local, client_stack(offloaded, (), server_hostname), delay_s=happy_eyeballs_delay,
                first_count=interleave, all_errors=all_errors,
            )  # fmt: skip
    elif sock is None:
        raise ValueError("host and port was not specified and no sock specified")
    try:
        sock.setblocking(False)
        _set_nodelay(sock)
        if offloaded is not None and sock is passed:
            await push_tls(sock, as_client(offloaded, server_hostname), ssl_handshake_timeout)
        protocol = protocol_factory()
        waiter: asyncio.Future[None] = loop.create_future()
        transport = make_transport(
            loop, sock, protocol, ssl if isinstance(ssl, standard_ssl.SSLContext) else None, waiter,
            tls=bool(ssl) and offloaded is None, server_hostname=server_hostname,
            handshake_timeout_s=ssl_handshake_timeout, shutdown_timeout_s=ssl_shutdown_timeout,
        )  # fmt: skip
    except BaseException:
        if sock is not passed or offloaded is not None:
            sock.close()
        raise
    await until_begun(transport, waiter)
    if loop.get_debug():
        logger.debug("%r connected to %s:%r: (%r, %r)", sock, host, port, transport, protocol)
    return transport, protocol


def _set_nodelay(sock: socket) -> None:
    """Does not wait for the proxy, if that is possible."""
    if lib.xts_py_set_nodelay(sock.number) < 0:
        with suppress(OSError):  # the connection may be over already
            sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)


async def _connect_any(
    loop: asyncio.AbstractEventLoop,
    infos: list[Info],
    local: list[Info] | None,
    layers: Sequence[Layer],
    *,
    delay_s: float | None,
    first_count: int | None,
    all_errors: bool,
) -> socket:
    """The first address that answers: in turn, or (RFC 8305) starting the next one after `delay_s`."""
    if delay_s is not None and first_count is None:
        first_count = 1
    if first_count:
        infos = interleave(infos, first_count)
    failures: list[Exception] = []
    sock: socket | None = None
    try:
        if delay_s is None:
            for info in infos:
                with suppress(OSError):
                    sock = await _connect_one(loop, failures, info, local, layers)
                    break
        else:
            attempts = (partial(_connect_one, loop, failures, info, local, layers) for info in infos)
            sock = (await staggered.staggered_race(attempts, delay_s, loop=loop))[0]
        if sock is not None:
            return sock
        if all_errors:
            raise ExceptionGroup("create_connection failed", failures)
        if not failures:
            raise TimeoutError("create_connection failed")
        if all(str(failure) == str(failures[0]) for failure in failures):
            raise failures[0]
        raise OSError(f"Multiple exceptions: {', '.join(str(failure) for failure in failures)}")
    finally:
        failures.clear()  # breaks the cycle of exception, traceback and this frame


async def _connect_one(
    loop: asyncio.AbstractEventLoop,
    failures: list[Exception],
    info: Info,
    local: list[Info] | None,
    layers: Sequence[Layer],
) -> socket:
    family, kind, proto, _, address = info
    sock: socket | None = None
    try:
        sock = socket(family, kind, proto)
        sock.setblocking(False)
        if local is not None:
            _bind_any(sock, local)
        await connect(loop, sock, address, layers)
        return sock
    except BaseException as failure:
        if isinstance(failure, OSError):
            failures.append(failure)
        if sock is not None:
            sock.close()
        raise


def _bind_any(sock: socket, local: list[Info]) -> None:
    """Binds to the first local address of the socket's family that is available."""
    last: OSError | None = None
    for family, _, _, _, address in local:
        if family != sock.family:
            continue
        try:
            sock.bind(address)
            return
        except OSError as failure:
            reason = (failure.strerror or str(failure)).lower()
            last = OSError(failure.errno, f"error while attempting to bind on address {address!r}: {reason}")
    raise last or OSError(f"no matching local address with family={sock.family!r} found")
