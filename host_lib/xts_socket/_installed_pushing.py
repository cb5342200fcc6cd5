"""Pushed protocols on the sockets of install() and offload(): the methods of `xts_socket.socket` (_pushing.py).

An offloaded socket has them. A socket that is not decided yet records what is pushed, and repeats it when the rules
offload the socket. If it has to stay with the kernel, or the proxy refuses, its bind, connect or listen fails: the
program's data must not be sent without the protocol. For the same reason a listener with protocols does not serve this
host's own loopback through the kernel. On a kernel socket the methods raise OSError (EOPNOTSUPP) with the reason.

Protocols with PDUs need SOCK_SEQPACKET: `socket.socket(AF_INET, SOCK_SEQPACKET, IPPROTO_TCP)`, which the kernel does
not have, is offloaded or fails.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from ._errors import error
from ._reason import Reason
from ._socket import socket as offloaded_socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket as _standard

    from ._errors import UlpError
    from ._pushing import Direction
    from ._scope import Scope
    from ._tls import TlsConnection
    from ._ulp import LayerInfo
    from .control import Control, Pdu
    from .layers import Layer


class InstalledPushing:
    """The methods of install()'s class, whether the socket is offloaded or not."""

    __slots__ = ()

    if TYPE_CHECKING:
        _ours: offloaded_socket | None
        _kernel_listener: _standard.socket | None
        _scope: Scope | None
        _reason: Reason | None
        _pushes: list[Callable[[offloaded_socket], None]]

    def push(self, *layers: Layer, direction: Direction = "both") -> None:
        """As `xts_socket.socket.push()`. Before bind(), connect() or listen() it does not block; then these raise
        UlpError if the proxy refuses, or OSError (EOPNOTSUPP) if the socket has to stay with the kernel."""
        from . import _ulp

        _ulp.checked(layers, direction)
        self._push(lambda ours: ours.push(*layers, direction=direction))

    def peek_mode(self) -> None:
        """As `xts_socket.socket.peek_mode()`, with the exceptions described at push()."""
        self._push(offloaded_socket.peek_mode)

    def _push(self, what: Callable[[offloaded_socket], None]) -> None:
        if self._ours is None and self._scope is None:
            raise self._kernels()
        if self._ours is not None:
            if self._kernel_listener is not None and self._scope is None:
                raise OSError(
                    errno.EOPNOTSUPP, "it serves this host's loopback through the kernel: push before listen()"
                )
            what(self._ours)
        self._pushes.append(what)

    def _kernels(self) -> OSError:
        why = self._reason.name if self._reason is not None else "no rules were in force when it was made"
        return OSError(errno.EOPNOTSUPP, f"the socket stays with the kernel ({why}), which has no pushed protocols")

    def _offloaded(self) -> offloaded_socket:
        """OSError: the socket is not offloaded, or not yet."""
        if self._ours is None:
            raise self._kernels() if self._scope is None else error(errno.ENOTCONN)
        return self._ours

    def end_peek_mode(self, drop: int) -> None:
        """As `xts_socket.socket.end_peek_mode()`."""
        self._offloaded().end_peek_mode(drop)

    def do_handshake(self) -> None:
        """As `xts_socket.socket.do_handshake()`."""
        self._offloaded().do_handshake()

    def recv_pdu(self) -> Pdu | None:
        """As `xts_socket.socket.recv_pdu()`."""
        return self._offloaded().recv_pdu()

    def send_pdu(self, data: Any, control: Control | None = None) -> None:
        """As `xts_socket.socket.send_pdu()`."""
        self._offloaded().send_pdu(data, control)

    def send_pdu_part(self, data: Any, control: Control | None = None) -> int:
        """As `xts_socket.socket.send_pdu_part()`."""
        return self._offloaded().send_pdu_part(data, control)

    def ulp_error(self) -> UlpError | None:
        """As `xts_socket.socket.ulp_error()`; also None on a kernel socket, which has no protocols."""
        return None if self._ours is None else self._ours.ulp_error()

    def ulp_info(self) -> list[LayerInfo]:
        """As `xts_socket.socket.ulp_info()`; empty until the socket is offloaded."""
        return [] if self._ours is None else self._ours.ulp_info()

    @property
    def tls(self) -> TlsConnection | None:
        """As `xts_socket.socket.tls`."""
        return None if self._ours is None else self._ours.tls
