"""`create_datagram_endpoint`: loop.create_datagram_endpoint() over an offloaded socket, and its transport, which
behaves as asyncio's own.

Events are edges (_poller.py): `_unread` remembers that there may be something to read. A turn of the loop reads a
limited number of datagrams; the rest is read in the next turn.
"""

from __future__ import annotations

import asyncio
from asyncio import constants, transports
from collections import deque
from collections.abc import Callable
from socket import AF_INET, AF_INET6, AF_UNSPEC, SO_BROADCAST, SO_REUSEPORT, SOCK_DGRAM, SOL_SOCKET
from typing import Any, TypeVar

from .._socket import socket
from ._resolve import resolve
from ._socket_transport import SocketTransport, logger, until_begun

P = TypeVar("P", bound=asyncio.BaseProtocol)

_DATAGRAM_BYTES = 65_536
_READ_IN_A_TURN = 32


class DatagramTransport(SocketTransport, transports.DatagramTransport):
    """Made by `create_datagram_endpoint`. The transport owns the socket, and closes it."""

    _kind = "datagram"

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket,
        protocol: asyncio.DatagramProtocol,
        address: Any = None,
        waiter: asyncio.Future[None] | None = None,
    ) -> None:
        super().__init__(loop, sock)
        self._address = address
        self._buffer: deque[tuple[bytes, Any]] = deque()
        self._buffer_bytes = 0
        self.set_protocol(protocol)
        self._begin(sock, waiter)

    def __repr__(self) -> str:
        state = "closed" if self._sock is None else "closing" if self._closing else "open"
        name = "" if self._sock is None else f" xts={self._sock.number} bufsize={self._buffer_bytes}"
        return f"<{self.__class__.__name__} {state}{name}>"

    def _drop_buffer(self) -> None:
        super()._drop_buffer()
        self._buffer_bytes = 0

    # --- receiving ------------------------------------------------------------------------------------------

    def _edge(self, events: int) -> None:
        """Any event may mean that an error is pending."""
        self._unread = True
        if self._buffer:
            self._send_rest()
        self._read()

    def _read(self) -> None:
        try:
            for _ in range(_READ_IN_A_TURN):
                if not self._unread or self._closing or self._sock is None:
                    return
                self._read_one(self._sock)
        finally:  # needed even after an exception of the protocol, which the loop reports
            if self._unread and not self._closing:
                self._read_later()

    def _read_one(self, sock: socket) -> None:
        try:
            data, address = sock.recvfrom(_DATAGRAM_BYTES)
        except BlockingIOError:
            self._unread = False
        except InterruptedError:
            pass
        except OSError as failure:
            self._protocol.error_received(failure)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._fatal_error(exc, "Fatal read error on datagram transport")
        else:
            self._protocol.datagram_received(data, address)

    # --- sending --------------------------------------------------------------------------------------------

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def sendto(self, data: bytes | bytearray | memoryview, addr: Any = None) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
        if self._address:
            if addr not in (None, self._address):
                raise ValueError(f"Invalid address: must be None or {self._address}")
            addr = self._address
        if self._conn_lost and self._address:
            if self._conn_lost >= constants.LOG_THRESHOLD_FOR_CONNLOST_WRITES:
                logger.warning("socket.send() raised exception.")
            self._conn_lost += 1
            return
        if not self._buffer and self._send(data, addr):
            return
        self._buffer.append((bytes(data), addr))  # copied, since the caller may change it
        self._buffer_bytes += len(data)
        self._maybe_pause_protocol()  # type: ignore[attr-defined]

    def _send(self, data: Any, addr: Any) -> bool:
        """False: there is no room for it now."""
        if self._sock is None:
            return True
        self._poller.sent = True
        try:
            if self._extra["peername"]:
                self._sock.send(data)
            else:
                self._sock.sendto(data, addr)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as failure:
            self._protocol.error_received(failure)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as exc:
            self._fatal_error(exc, "Fatal write error on datagram transport")
        return True

    def _send_rest(self) -> None:
        """There may be room again."""
        while self._buffer:
            data, addr = self._buffer[0]
            if not self._send(data, addr):
                break
            if not self._buffer:
                return  # it has ended meanwhile
            self._buffer.popleft()
            self._buffer_bytes -= len(data)
        self._maybe_resume_protocol()  # type: ignore[attr-defined]  # may send
        if not self._buffer and self._closing and not self._conn_lost:
            self._conn_lost += 1
            self._call_connection_lost(None)


# --- making one -----------------------------------------------------------------------------------------------


async def create_datagram_endpoint(
    protocol_factory: Callable[[], P],
    local_addr: tuple[str, int] | None = None,
    remote_addr: tuple[str, int] | None = None,
    *,
    family: int = 0,
    proto: int = 0,
    flags: int = 0,
    reuse_port: bool | None = None,
    allow_broadcast: bool | None = None,
    sock: socket | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> tuple[DatagramTransport, P]:
    """A UDP socket, bound and connected as requested; returns (transport, protocol). `sock` is an XTS socket."""
    loop = loop or asyncio.get_running_loop()
    if sock is not None:
        given = {"local_addr": local_addr, "remote_addr": remote_addr, "family": family, "proto": proto,
                 "flags": flags, "reuse_port": reuse_port, "allow_broadcast": allow_broadcast}  # fmt: skip
        if problems := ", ".join(f"{name}={value}" for name, value in given.items() if value):
            raise ValueError(f"socket modifier keyword arguments can not be used when sock is specified. ({problems})")
        if not isinstance(sock, socket):
            raise TypeError(f"an xts_socket.socket is required, not {type(sock).__name__!r}")
        if sock.type != SOCK_DGRAM:
            raise ValueError(f"A datagram socket was expected, got {sock!r}")
        made, peer = sock, None
    else:
        made, peer = await _open(loop, local_addr, remote_addr, (family, proto, flags), (reuse_port, allow_broadcast))
    try:
        made.setblocking(False)
        protocol = protocol_factory()
        waiter: asyncio.Future[None] = loop.create_future()
        transport = DatagramTransport(loop, made, protocol, peer, waiter)  # type: ignore[arg-type]
    except BaseException:
        if made is not sock:
            made.close()
        raise
    await until_begun(transport, waiter)
    return transport, protocol


async def _open(
    loop: asyncio.AbstractEventLoop,
    local_addr: Any,
    remote_addr: Any,
    lookup: tuple[int, int, int],
    options: tuple[bool | None, bool | None],
) -> tuple[socket, Any]:
    """Opens a socket with the first pair of addresses, of one family, that is available: (socket, peer)."""
    family, proto, flags = lookup
    if not (local_addr or remote_addr) and family == AF_UNSPEC:
        raise ValueError("unexpected address family")
    if family not in (AF_UNSPEC, AF_INET, AF_INET6):
        raise ValueError(f"family {family} has no UDP")
    pairs: dict[tuple[int, int], list[Any]] = {}
    for place, address in enumerate((local_addr, remote_addr)):
        if address is None:
            continue
        if not (isinstance(address, tuple) and len(address) == 2):
            raise TypeError("2-tuple is expected")
        infos = await resolve(loop, address, family=family, kind=SOCK_DGRAM, proto=proto, flags=flags)
        for found_family, _, found_proto, _, found in infos:
            pairs.setdefault((found_family, found_proto), [None, None])[place] = found
    complete = [
        (key, local, remote)
        for key, (local, remote) in pairs.items()
        if not ((local_addr and local is None) or (remote_addr and remote is None))
    ]
    if local_addr or remote_addr:
        if not complete:
            raise ValueError("can not get address information")
    else:
        complete = [((family, proto), None, None)]
    failures: list[OSError] = []
    for (found_family, found_proto), local, remote in complete:
        try:
            return _open_one(found_family, found_proto, local, remote, options), remote
        except OSError as failure:
            failures.append(failure)
    raise failures[0]


def _open_one(family: int, proto: int, local: Any, remote: Any, options: tuple[bool | None, bool | None]) -> socket:
    reuse_port, allow_broadcast = options
    made = socket(family, SOCK_DGRAM, proto)
    try:
        if reuse_port:
            made.setsockopt(SOL_SOCKET, SO_REUSEPORT, 1)
        if allow_broadcast:
            made.setsockopt(SOL_SOCKET, SO_BROADCAST, 1)
        if local is not None:
            made.bind(local)
        if remote is not None and not allow_broadcast:
            made.connect(remote)
    except BaseException:
        made.close()
        raise
    return made
