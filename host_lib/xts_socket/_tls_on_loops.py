"""Contexts of `ssl_context()` on event loops that are not this package's: asyncio's own, and uvloop's.

Theory of operation. Such a loop gives a context to OpenSSL on memory (`wrap_bio`) when a connection is there. TLS in
the proxy cannot be had that way, and what is raised then is lost in the loop: a server says that it runs, and resets
every client. So the methods of the loops' classes that take a context are replaced, once the first context has been
made. They change nothing for other contexts. With one of ours they do what xts_socket.aio does, on the loop that it
is; or they refuse, with a sentence, before anything listens or connects.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ._create import as_server
from ._interposed_pushing import is_interposed, push_by_descriptor
from ._socket import socket
from ._tls_context import OffloadedContext
from ._when_imported import when_imported


def _refusal(what: str) -> ValueError:
    return ValueError(
        f"ssl: TLS in the proxy (xts_socket.ssl_context()) needs an offloaded socket, and {what} is not one: give host "
        "and port, or a socket of xts_socket; or an ssl.SSLContext with a certificate and key of this program"
    )


def _check_socket(sock: Any) -> None:
    if sock is not None and not isinstance(sock, socket):
        raise _refusal(f"the socket that was passed in ({sock!r})")


# Each: the loop, its own method, the protocol factory, the other positional arguments, and the named ones.


async def _create_connection(loop: Any, _: Any, factory: Any, where: Any, options: Any) -> Any:
    from .aio import create_connection

    _check_socket(options.get("sock"))
    return await create_connection(factory, *where, loop=loop, **options)


async def _create_server(loop: Any, original: Any, factory: Any, where: Any, options: Any) -> Any:
    from .aio import create_server

    sock = options.get("sock")
    if getattr(sock, "may_be_offloaded", False):  # it is one of install()
        sock.push(as_server(options["ssl"].tls))
    elif not is_interposed(sock) or not push_by_descriptor(sock, [as_server(options["ssl"].tls)]):
        _check_socket(sock)
        return await create_server(factory, *where, loop=loop, **options)
    # The rules decide when it listens, and refuse if it is not offloaded.
    for name in ("ssl", "ssl_handshake_timeout", "ssl_shutdown_timeout"):
        options.pop(name, None)
    return await original(loop, factory, *where, **options)


async def _connect_accepted_socket(loop: Any, _: Any, factory: Any, where: Any, options: Any) -> Any:
    from .aio import connect_accepted_socket

    _check_socket(where[0] if where else options.get("sock"))
    return await connect_accepted_socket(factory, *where, loop=loop, **options)


async def _of_unix_sockets(*_: Any) -> Any:
    raise _refusal("a Unix socket")


_METHODS: dict[str, Callable[..., Any]] = {
    "create_connection": _create_connection,
    "create_server": _create_server,
    "connect_accepted_socket": _connect_accepted_socket,
    "create_unix_connection": _of_unix_sockets,
    "create_unix_server": _of_unix_sockets,
}


def _with_our_contexts(original: Any, ours: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    async def method(self: Any, protocol_factory: Any, *where: Any, **options: Any) -> Any:
        if isinstance(options.get("ssl"), OffloadedContext):
            return await ours(self, original, protocol_factory, where, options)
        return await original(self, protocol_factory, *where, **options)

    return method


def _start_tls(original: Any) -> Any:
    @functools.wraps(original)
    async def start_tls(self: Any, transport: Any, protocol: Any, sslcontext: Any, **options: Any) -> Any:
        if not isinstance(sslcontext, OffloadedContext):
            return await original(self, transport, protocol, sslcontext, **options)
        from .aio._tls import start_tls
        from .aio._transport import Transport

        if not isinstance(transport, Transport):
            raise _refusal(f"that of the transport ({transport!r})")
        return await start_tls(transport, protocol, sslcontext, loop=self, **options)

    return start_tls


def _teach(loop_class: Any) -> None:
    """The methods of a loop's class take our contexts from now on."""
    for name, ours in _METHODS.items():
        setattr(loop_class, name, _with_our_contexts(getattr(loop_class, name), ours))
    loop_class.start_tls = _start_tls(loop_class.start_tls)


@functools.cache
def teach_loops() -> None:
    """Once: for the loops that are imported, or will be."""
    when_imported("asyncio.unix_events", lambda module: _teach(module.SelectorEventLoop), always=True)
    when_imported("uvloop", lambda module: _teach(module.Loop), always=True)
