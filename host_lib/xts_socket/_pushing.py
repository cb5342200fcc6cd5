"""The methods of a socket for pushed protocols (the paper, "ULP Offloads"): pushing, handshakes, PDUs, errors, peek
mode.

This file is small, so that `import xts_socket` stays cheap: the work is in _ulp.py, the protocols are in layers.py,
control data is in control.py; each is imported when it is first needed.
"""

from __future__ import annotations

import errno
from socket import MSG_EOR
from time import monotonic
from typing import Any, Literal

from ._base import SocketBase
from ._errors import check
from ._errors import error as plain_error
from ._misuse import named, of_pdus, wanted
from ._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._errors import UlpError
    from ._tls import TlsConnection
    from ._ulp import LayerInfo
    from .control import Control, Pdu
    from .layers import Layer

_recv_pdu = lib.xts_py_recv_pdu
_send_pdu = lib.xts_py_send_pdu
_RECEIVING = (lib.xts_py_recv, lib.xts_py_recvfrom, lib.xts_py_recvmsg)
_unpack = ffi.unpack
_view = ffi.from_buffer
_CHARS = ffi.typeof("char[]")

Direction = Literal["both", "receive", "send"]

#: recv_pdu() reads into one of these, and into a second one for control data; longer PDUs come in several parts.
_ROOM_BYTES = 262144
_rooms: list[tuple[Any, Any]] = []

#: The errno with which a fault of a protocol ends a connection (FAULTS in xts_messages/wire/ulps.py), without those
#: with which a socket without protocols may fail as well.
_ONLY_OF_ULPS = (errno.EBADMSG, errno.EKEYREJECTED)
#: errno that are never such a fault: not worth asking the proxy for a reason.
_NO_FAULTS = (errno.EINPROGRESS, errno.EALREADY, errno.EISCONN)


class PushingSocket(SocketBase):
    """`socket` without sending and receiving bytes."""

    __slots__ = ()

    # --- pushing --------------------------------------------------------------------------------------------

    @named
    def push(self, *layers: Layer, direction: Direction = "both") -> None:
        """Pushes protocols onto the socket, the first one next to TCP: `push(Tls(), Http2())`.

        direction: "receive", "send", or "both": those that the protocol has (a parser has only the receive side). Data
        that was sent before leaves unchanged; data that was received and not read yet goes through the protocols first.
        Before connect() or listen(), the protocols apply from the first byte on (listen(): on each accepted
        connection).

        Blocks for a round trip for each and, if connected, until their handshakes are done, at most for the socket's
        timeout; on a non-blocking socket call do_handshake() after it. Raises UlpError with the proxy's reason when a
        layer is refused (what was pushed before it stays: close the socket), or its handshake fails; ValueError for a
        direction that the protocol does not have.
        """
        from . import _ulp

        _ulp.push(self, layers, direction)
        self._finish_handshake()

    def connect_with(self, address: Any, *layers: Layer) -> None:
        """push() of these and connect(), in one message to the proxy: it does not wait longer than connect().

        If the proxy refuses, that is an error of the connection: a UlpError with its reason, which a non-blocking
        socket reports when it reports other errors of connecting. After any failure the socket can only be closed.
        """
        if not layers:
            self.connect(address)
            return
        from . import _ulp

        self._connected(_ulp.connect(self, address, layers))

    def _finish_handshake(self) -> None:
        """Waits for handshakes, for push() and end_peek_mode(): unless the socket is non-blocking, or not connected
        yet."""
        if self._timeout == 0 or self._peeking:
            return
        try:
            self.do_handshake()
        except OSError as failure:
            if failure.errno != errno.ENOTCONN:  # connect() will wait for them
                raise

    def do_handshake(self) -> None:
        """Waits until the handshakes of all pushed protocols are done, at most for the socket's timeout.

        Raises UlpError if one has failed, BlockingIOError on a non-blocking socket if it is not done yet (wait until
        the socket is writable), OSError (ENOTCONN) before it is connected.
        """
        result = lib.xts_py_ulp_handshake(self._number, self._timeout_ms)
        if result < 0:
            self._finish(result, lib.xts_py_ulp_handshake, self._number)

    def peek_mode(self) -> None:
        """Begins peek mode (the paper, "ULP protocol handshake"): received bytes can be received again, through the
        protocols that are pushed until end_peek_mode(). To be called before connect(), before listen() (for the
        accepted connections), or while nothing has been received yet (else OSError EISCONN). No more bytes can be
        peeked at than the proxy's TCP buffers hold."""
        check(lib.xts_py_ioctl(self._number, lib.SIOC_PEEK_MODE, ffi.new("int *", 1)))
        self._peeking = True

    def end_peek_mode(self, drop: int) -> None:
        """Ends peek mode: drops this many bytes from the first received on the connection, and reads on from there
        through the pushed protocols, for whose handshakes it waits as push() does. OSError (EINVAL): not in peek mode,
        or fewer bytes have been received."""
        if not 0 <= drop <= 0xFFFFFFFF:
            raise ValueError(f"end_peek_mode({drop}): out of range")
        check(lib.xts_py_ioctl(self._number, lib.SIOC_END_PEEK_MODE, ffi.new("uint32_t *", drop)))
        self._peeking = False
        self._finish_handshake()

    # --- information -------------------------------------------------------------------------------------

    def ulp_error(self) -> UlpError | None:
        """Why a protocol ended the connection, or why the last push was refused; None: neither has happened. It is
        returned, not raised. Blocks for a round trip the first time after a fault."""
        from . import _ulp

        return _ulp.last_error(self._number)

    def ulp_info(self) -> list[LayerInfo]:
        """The pushed protocols, from TCP upwards, and the proxy's report about each. Blocks for some round trips."""
        from . import _ulp

        return _ulp.layer_infos(self)

    @property
    def tls(self) -> TlsConnection | None:
        """TLS in the proxy: version(), cipher(), getpeercert() and other methods of ssl.SSLSocket; None: no `Tls` was
        pushed through this object, nor onto the listener that accepted it."""
        from . import _ulp

        return _ulp.tls_of(self)

    def _finish(self, result: int, function: Any, *arguments: Any) -> int:
        try:
            return super()._finish(result, function, *arguments)
        except OSError as failure:
            if function in _RECEIVING and self._is_ragged_eof(failure):
                return 0
            raise

    def _is_ragged_eof(self, failure: OSError) -> bool:
        """Does this failure of recv() mean the end of the stream?"""
        return (
            self.suppress_ragged_eofs
            and getattr(failure, "fault", None) == "truncated"
            and self._layers[-1].layer.PROTOCOL == "TLS"
        )

    def _failure(self, code: int, connecting: bool = False) -> OSError:
        if code in _NO_FAULTS or (not self._layers and code not in _ONLY_OF_ULPS):
            return plain_error(code)
        from . import _ulp

        return _ulp.failure(self._number, code, connecting)

    # --- PDUs -----------------------------------------------------------------------------------------------

    def recv_pdu(self) -> Pdu | None:
        """The next PDU, complete, however long; None at the end of the stream. For sockets of type SOCK_SEQPACKET.

        On a non-blocking socket, or at the timeout, the part that has come already is kept for the next call (which
        should be this one: recv() would get only the rest).
        """
        of_pdus("recv_pdu", self._type)
        while True:
            data, flags, control = self._recv_part()
            if flags & MSG_EOR and self._partial is None:
                return _pdu(data, control)
            if self._partial is None:
                if not data:
                    return None
                self._partial = [control]
            self._partial.append(data)
            if flags & MSG_EOR:
                control, *parts = self._partial
                self._partial = None
                return _pdu(b"".join(parts), control)
            if not data:
                self._partial = None
                raise OSError(errno.EBADMSG, "the stream ended inside a PDU")

    def _recv_part(self) -> tuple[bytes, int, tuple[int, int, bytes] | None]:
        """The result of one call: (data, flags of the message, its control data)."""
        try:
            room = _rooms.pop()
        except IndexError:
            room = (ffi.new("char[]", _ROOM_BYTES), ffi.new("struct xts_py_pdu *"))
        buffer, pdu = room
        try:
            got = _recv_pdu(self._number, buffer, _ROOM_BYTES, pdu, self._timeout_ms)
            if got < 0:
                got = self._finish(got, _recv_pdu, self._number, buffer, _ROOM_BYTES, pdu)
            control = None
            if pdu.control_bytes:
                control = (pdu.level, pdu.type, bytes(_unpack(pdu.control, pdu.control_bytes)))
            return _unpack(buffer, got), pdu.flags, control
        finally:
            _rooms.append(room)

    def send_pdu(self, data: Any, control: Control | None = None) -> None:
        """Sends one PDU, with control data if its protocol takes some. For sockets of type SOCK_SEQPACKET.

        The timeout is for the whole. BlockingIOError: a non-blocking socket has no room, and nothing was sent, unless
        `characters_written` says how much was (of a PDU longer than half of the window): then only send_pdu_part() can
        continue it.
        """
        of_pdus("send_pdu", self._type)
        deadline = monotonic() + self._timeout if self._timeout else None
        with _view(_CHARS, data) as view:
            size = len(view)
            sent = self._send_part(view, size, control)
            while sent < size:
                if self._timeout == 0:
                    raise BlockingIOError(errno.EAGAIN, "a part of the PDU is sent", sent)
                if deadline is not None and monotonic() >= deadline:
                    raise TimeoutError("timed out within a PDU")
                sent += self._send_part(view + sent, size - sent, None)

    def send_pdu_part(self, data: Any, control: Control | None = None) -> int:
        """Sends one PDU, or as much of it as there is room for; returns how many bytes. The next calls continue with
        the rest, without control data."""
        of_pdus("send_pdu_part", self._type)
        with _view(_CHARS, data) as view:
            return self._send_part(view, len(view), control)

    def _send_part(self, view: Any, size: int, control: Control | None) -> int:
        if control is not None and not hasattr(control, "ancillary"):
            raise wanted("control", "control data of xts_socket, such as GrpcMessage(),", control)
        level, kind, ancillary = (0, 0, b"") if control is None else control.ancillary()
        call = (self._number, view, size, level, kind, ancillary, len(ancillary), 0)
        sent = _send_pdu(*call, self._timeout_ms)
        return sent if sent >= 0 else self._finish(sent, _send_pdu, *call)


def _pdu(data: bytes, control: tuple[int, int, bytes] | None) -> Pdu:
    from .control import Pdu, decoded

    return Pdu(data, None if control is None else decoded(*control))
