"""`create_connection`, `create_server`, `fromfd`, `has_dualstack_ipv6` of the socket module, for offloaded sockets."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from socket import (
    AF_INET,
    AF_INET6,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SO_REUSEADDR,
    SO_REUSEPORT,
    SOCK_SEQPACKET,
    SOCK_STREAM,
    SOL_SOCKET,
)
from typing import Any

from ._descriptor import adopt, duplicate
from ._errors import explained
from ._misuse import named, wanted
from ._names import getaddrinfo
from ._socket import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .layers import Layer, Tls

_DEFAULT = object()


def client_stack(tls: Tls | bool | None, push: Sequence[Layer], host: str | None) -> tuple[Layer, ...]:
    """The protocols to push for a connection to a host, TLS first. TypeError if an argument is of a wrong type."""
    _check_push(push)
    if not tls:
        return tuple(push)
    from .layers import Tls

    if tls is True:
        tls = Tls()
    if not isinstance(tls, Tls):
        raise wanted("tls", "Tls() or a bool", tls)
    return (as_client(tls, host), *push)


def _check_push(push: Sequence[Layer]) -> None:
    if not hasattr(push, "__iter__"):
        raise wanted("push", "a list of protocols, as [Lines()],", push)


def server_stack(tls: Tls | None, push: Sequence[Layer] = ()) -> tuple[Layer, ...]:
    """The protocols to push on a listener, TLS first. TypeError if an argument is of a wrong type."""
    _check_push(push)
    if not tls:
        return tuple(push)
    from .layers import Tls

    if not isinstance(tls, Tls):
        raise wanted("tls", "Tls(identity=…)", tls)
    return (as_server(tls), *push)


def as_client(tls: Tls, server_hostname: str | None) -> Tls:
    """The parameters for a connection to this host, unless they have a name or a role of their own."""
    from dataclasses import replace

    if tls.role == "server":
        return tls
    return replace(tls, role="client", server_hostname=tls.server_hostname or server_hostname or None)


def as_server(tls: Tls) -> Tls:
    """The parameters of a server, which the proxy can check before any client connects."""
    from dataclasses import replace

    return tls if tls.role else replace(tls, role="server")


def type_for(layers: Sequence[Layer]) -> int:
    """SOCK_SEQPACKET if the output of these layers are PDUs, else SOCK_STREAM."""
    return SOCK_SEQPACKET if layers and layers[-1].ulp().boundaries else SOCK_STREAM


@named
def create_connection(
    address: tuple[str | None, int],
    timeout: Any = _DEFAULT,
    source_address: Any = None,
    *,
    all_errors: bool = False,
    tls: Tls | bool | None = None,
    push: Sequence[Layer] = (),
) -> socket:
    """Connects to `(host, port)`, trying each address of the host in turn.

    `timeout` in seconds is for each attempt and stays with the socket. Blocks. Raises the last error, or with
    `all_errors` an ExceptionGroup of all.

    tls: the proxy does TLS: True, which checks the server's certificate for `host`, or parameters. push: protocols
    above TCP, and above TLS if that is requested; if their output are PDUs, the socket is of type SOCK_SEQPACKET.
    Returns when the handshakes are done; UlpError (TlsError, CertificateError) if one fails.
    """
    host, port = address
    layers = client_stack(tls, push, host)
    failures: list[OSError] = []
    for family, _, proto, _, sockaddr in getaddrinfo(host, port, 0, SOCK_STREAM):
        sock = None
        try:
            sock = socket(family, type_for(layers), proto)
            if timeout is not _DEFAULT:
                sock.settimeout(timeout)
            if source_address:
                sock.bind(source_address)
            sock.connect_with(sockaddr, *layers)
            return sock
        except OSError as failure:
            failures.append(failure)
            if sock is not None:
                sock.close()
    try:
        if not failures:
            raise OSError("getaddrinfo returns an empty list")
        if all_errors:
            raise ExceptionGroup("create_connection failed", failures)
        raise failures[-1]
    finally:
        failures.clear()  # breaks the cycle of exception, traceback and this frame


def has_dualstack_ipv6() -> bool:
    """Can the proxy's IPv6 sockets accept IPv4 connections too? Attaches to the proxy."""
    try:
        with socket(AF_INET6, SOCK_STREAM) as sock:
            sock.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 0)
    except OSError:
        return False
    return True


@named
def create_server(
    address: tuple[Any, ...],
    *,
    family: int = AF_INET,
    backlog: int | None = None,
    reuse_port: bool = False,
    dualstack_ipv6: bool = False,
    tls: Tls | None = None,
    push: Sequence[Layer] = (),
) -> socket:
    """A listening socket that is bound, on the device, to `(host, port)`; host "" means all its addresses.

    tls: the proxy does TLS, with the identity that the parameters name; push: protocols above it. accept() returns
    connections whose handshakes are done; it never returns connections whose handshake fails.
    """
    layers = server_stack(tls, push)
    if dualstack_ipv6:
        if not has_dualstack_ipv6():
            raise ValueError("dualstack_ipv6 not supported on this platform")
        if family != AF_INET6:
            raise ValueError("dualstack_ipv6 requires AF_INET6 family")
    sock = socket(family, type_for(layers))
    try:
        with suppress(OSError):
            sock.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        if reuse_port:
            sock.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        if family == AF_INET6:
            sock.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, 0 if dualstack_ipv6 else 1)
        try:
            sock.bind(address)
        except OSError as failure:
            text = f"{failure.strerror} (while attempting to bind on address {address!r})"
            raise explained(OSError(failure.errno, text), getattr(failure, "reason", text)) from None
        if layers:
            sock.push(*layers)
        sock.listen(*(() if backlog is None else (backlog,)))
        return sock
    except BaseException:
        sock.close()
        raise


def fromfd(fd: int, family: int, type: int, proto: int = 0) -> socket:
    """Another object for the XTS socket that a descriptor stands for, as with `dup()`. OSError (ENOTSOCK) for a kernel
    socket: the standard module has `fromfd` for those."""
    adopt(fd)  # to raise its errors
    return socket(family, type, proto, duplicate(fd))
