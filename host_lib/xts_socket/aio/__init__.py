"""asyncio over offloaded sockets, on asyncio's own event loop and on uvloop's.

`open_connection`, `start_server`, `create_connection`, `create_server`, `create_datagram_endpoint`, `start_tls`,
`connect_accepted_socket` and the `sock_*` functions are those of asyncio and of its loops, with their arguments and
results, and run on the running loop; a socket passed to them is an `xts_socket.socket`. `EventLoop`, `UvloopEventLoop`
and `offloading(loop)` are for programs that call the loop's own methods. `EventLoop` is also the fastest to run on,
most of all with few connections:

    with asyncio.Runner(loop_factory=xts_socket.aio.EventLoop) as runner:
        runner.run(main())

It waits for XTS sockets and kernel descriptors in one call of the library. While a single connection awaits an answer,
that call spins for a short time before it sleeps (four times XTS_SPIN_US). Other loops are woken through a descriptor.

TLS is done in the proxy with `tls=True` or `tls=Tls(...)` instead of `ssl`; `ssl` takes Tls() too, and so does
start_tls(). `sock_push`, `sock_recv_pdu` and `sock_send_pdu` are for protocols that make PDUs.

Differences from asyncio over the kernel:
- A server that is closed here is closed in the proxy some microseconds later: a client that connects in between is
  reset, not refused.
- pause_reading() in connection_made() takes effect, as in asyncio since Python 3.12.
- There is no sendfile(2): sock_sendfile() and loop.sendfile() read the file in the loop's executor.
- Data sent in answer to an event leaves with one doorbell at the end of the loop's turn; a callback that then blocks
  the loop may delay it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _loop
from ._connect import create_connection
from ._datagrams import DatagramTransport, create_datagram_endpoint
from ._loop import EventLoop, offloading
from ._server import Server, connect_accepted_socket, create_server
from ._sock import (
    sock_accept,
    sock_connect,
    sock_push,
    sock_recv,
    sock_recv_into,
    sock_recv_pdu,
    sock_recvfrom,
    sock_recvfrom_into,
    sock_send_pdu,
    sock_sendall,
    sock_sendfile,
    sock_sendto,
)
from ._streams import open_connection, start_server
from ._tls import start_tls
from ._transport import Transport

if TYPE_CHECKING:
    from ._loop import EventLoopPolicy, UvloopEventLoop

__all__ = [
    "DatagramTransport",
    "EventLoop",
    "EventLoopPolicy",
    "Server",
    "Transport",
    "UvloopEventLoop",
    "connect_accepted_socket",
    "create_connection",
    "create_datagram_endpoint",
    "create_server",
    "offloading",
    "open_connection",
    "sock_accept",
    "sock_connect",
    "sock_push",
    "sock_recv",
    "sock_recv_into",
    "sock_recv_pdu",
    "sock_recvfrom",
    "sock_recvfrom_into",
    "sock_send_pdu",
    "sock_sendall",
    "sock_sendfile",
    "sock_sendto",
    "start_server",
    "start_tls",
]


def __getattr__(name: str) -> Any:
    if name in ("EventLoopPolicy", "UvloopEventLoop"):
        return getattr(_loop, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
