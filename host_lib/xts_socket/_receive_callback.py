"""Receive callbacks: a function decides about each datagram or PDU before a receive call returns it.

Theory of operation

The function is never called with a lock of the library held, nor by a thread of the library's: the garbage collector
and signal handlers may run in any Python code, and they may close or use sockets. So libxts queues what comes, and a
receive call on a socket with a callback fails instead of taking the first datagram or PDU (core/receive_callback.h).
Then `decide` runs in the calling thread: it takes a copy of the first one, calls the function, and reports the answer
to libxts, until there is nothing left to decide; then the receive call is made again with the time that is left.
`epoll.poll()` does the same for the sockets that it is about to report. While one thread is deciding, the socket is not
readable for others, which keeps the order.

The C data under a packet's memoryview owns the memory: everything that refers to it, for example a slice, keeps it.
release() gives back the receive credits that a packet takes.
"""

from __future__ import annotations

import errno
from _thread import get_ident
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum
from functools import partial
from types import TracebackType
from typing import Any, Self
from weakref import ref

from ._address import Address, decode
from ._descriptor import receive_callbacks
from ._errors import check, error
from ._message import unpack_ancillary
from ._native import ffi, lib


class PacketVerdict(IntEnum):
    """The decision about a datagram or PDU."""

    __module__ = "xts_socket"

    #: it is dropped
    DROP = lib.XTS_PACKET_DROP
    #: receive calls return it, as without a callback
    RECV = lib.XTS_PACKET_RECV
    #: the packet belongs to the program, until it is released
    HOLD = lib.XTS_PACKET_HOLD


class Packet:
    """A datagram or PDU that a receive callback has to decide about.

    It is valid while the callback runs and, if the callback has answered HOLD, until release(), the end of a `with`
    block, or the end of the object. Until then it takes receive credits: a socket whose packets are all kept gets no
    more.
    """

    __slots__ = ("_data", "_owner", "_raw")
    __module__ = "xts_socket"

    def __init__(self, raw: Any) -> None:
        # The memoryview refers to the owner of the memory, too, so every slice of it keeps the memory.
        self._owner: Any = ffi.gc(ffi.cast("char *", raw.data), partial(_free, raw))
        self._raw: Any = raw
        self._data = memoryview(ffi.buffer(self._owner, raw.bytes)).toreadonly()

    @property
    def data(self) -> memoryview:
        """Its bytes, read-only. For a train (UDP_GRO), those of all its datagrams."""
        self._valid()
        return self._data

    @property
    def address(self) -> Address | None:
        """The sender; for a PDU, the peer of the connection."""
        raw = self._valid()
        return decode(bytes(ffi.buffer(raw.address, raw.address_bytes)))

    @property
    def stamp_ns(self) -> int | None:
        """The time of arrival, if the socket has SO_TIMESTAMP or SO_TIMESTAMPNS; else None."""
        stamp_ns: int = self._valid().stamp_ns
        return stamp_ns or None

    @property
    def segment_bytes(self) -> int:
        """For a train (UDP_GRO): the size of each of its datagrams except the last. 0: it is a single datagram."""
        return int(self._valid().segment_bytes)

    @property
    def ancdata(self) -> list[tuple[int, int, bytes]]:
        """What recvmsg() would return as ancillary data: (level, type, data) for each item."""
        raw = self._valid()
        return unpack_ancillary(bytes(ffi.buffer(raw.control, raw.control_bytes)))

    @property
    def released(self) -> bool:
        return self._raw is None

    def release(self) -> None:
        """Gives it back: its credits are free again, and `data` is released. BufferError: an export of it still exists
        (slices do not prevent it: they keep the memory, but not the credits)."""
        if self._raw is not None:
            self._data.release()
            raw, self._raw = self._raw, None
            owner, self._owner = self._owner, None
            lib.xts_packet_release(raw)
            del owner

    def __enter__(self) -> Self:
        self._valid()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        if self._raw is None:
            return "<xts_socket.Packet released>"
        return f"<xts_socket.Packet of {self._raw.bytes} bytes from {self.address}>"

    def _valid(self) -> Any:
        if self._raw is None:
            raise ValueError("the packet has been released, or its callback has not answered HOLD")
        return self._raw

    def _end(self) -> None:
        """The callback has not kept it."""
        with suppress(BufferError):  # the memory lives as long as its exports
            self._data.release()
        self._raw = self._owner = None


ReceiveCallback = Callable[[Packet], PacketVerdict]


def _free(raw: Any, _: Any) -> None:
    lib.xts_packet_free(raw)


def register(number: int, callback: ReceiveCallback | None) -> None:
    """OSError: EOPNOTSUPP: the socket has neither datagrams nor PDUs; EBADF."""
    if callback is not None and not callable(callback):
        raise TypeError(f"a receive callback has to be callable, not {type(callback).__name__!r}")
    check(lib.xts_py_ask_reader(number, callback is not None))
    if callback is None:
        receive_callbacks.pop(number, None)
    else:
        receive_callbacks[number] = callback


#: Sockets whose callback is being called, and the thread that calls it.
_asking: dict[int, int] = {}


def decide(number: int) -> None:
    """Asks the callback about the first in the queue, and so on, until one is to stay there. OSError (EDEADLK): called
    in a callback of the same socket."""
    if _asking.get(number) == get_ident():
        raise error(errno.EDEADLK, "the receive callback of this socket wants to receive from it")
    out = ffi.new("const struct xts_packet **")
    while lib.xts_py_undecided(number, out) > 0:
        _ask(number, out[0])


def _ask(number: int, raw: Any) -> None:
    verdict = PacketVerdict.RECV
    callback = receive_callbacks.get(number)
    packet = owner = None
    _asking[number] = get_ident()
    try:
        packet = Packet(raw)
        owner = packet._owner  # needed even if the callback releases the packet
        if callback is not None:
            answer = callback(packet)
            if not isinstance(answer, PacketVerdict):
                raise TypeError(f"a receive callback has to return a PacketVerdict, not {answer!r}")
            verdict = answer
    except Exception as failure:  # as ctypes and cffi do for exceptions in their callbacks
        _report(callback, failure)
    finally:
        lib.xts_packet_decided(raw, verdict)
        _asking.pop(number, None)
        if packet is None:
            lib.xts_packet_free(raw)
        elif verdict is not PacketVerdict.HOLD:
            packet._end()
        elif packet.released:
            lib.xts_packet_release(raw)
        del owner


class _Failed:
    """Reports an exception of a callback where no code can catch it: the interpreter calls sys.unraisablehook, with
    this as its object."""

    __slots__ = ("callback", "failure")

    def __init__(self, callback: Any, failure: Exception) -> None:
        self.callback, self.failure = callback, failure

    def __call__(self, _: Any) -> None:
        raise self.failure

    def __repr__(self) -> str:
        return f"the receive callback {self.callback!r}"


class _Ends:
    """Ends at once; a weak reference to it reports that."""


def _report(callback: Any, failure: Exception) -> None:
    ends = _Ends()
    _told = ref(ends, _Failed(callback, failure))
    del ends
