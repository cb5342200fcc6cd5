"""`socket`: an offloaded TCP socket with the interface of `socket.socket`. This file has the methods that move data;
the others are in _base.py and, for pushed protocols, in _pushing.py."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Callable, Iterable
from errno import EAGAIN, ESPIPE
from fcntl import F_SETFL
from os import O_NONBLOCK
from select import POLLIN
from socket import SOCK_STREAM, SocketIO
from time import monotonic_ns
from typing import Any, BinaryIO

from . import _message
from ._address import ROOM, Address, decode, encode
from ._arguments import c_int, c_ssize
from ._errors import check
from ._native import ffi, lib
from ._pushing import PushingSocket
from ._sendfile_offset import check_offset

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._receive_callback import ReceiveCallback

_recv = lib.xts_py_recv
_send = lib.xts_py_send
_view = ffi.from_buffer
_unpack = ffi.unpack
_CHARS = ffi.typeof("char[]")
_raw_buffer = ffi.new_allocator(should_clear_after_alloc=False)

#: recv() reads into one of these and copies the data into a bytes object: so no buffer is allocated or cleared.
_POOL_BYTES = 262144
_POOL_MAX = 8
_pool: list[Any] = []

_SENDFILE_BYTES = 262144


class socket(PushingSocket):  # noqa: N801 - named as the class it stands in for
    """A TCP or UDP socket whose protocol work is done by the offload proxy.

    `fileno` takes over an existing XTS socket, named by its descriptor (what `detach()` returned) or its number,
    with the family, type and protocol it has. Raises OSError: ENETDOWN without a proxy, EMFILE, EAFNOSUPPORT,
    ESOCKTNOSUPPORT, EPROTONOSUPPORT.
    """

    __slots__ = ()
    __module__ = "xts_socket"  # where users import it from

    def accept(self) -> tuple[socket, Any]:
        """Returns (a new socket, the address of its peer)."""
        sockaddr = ffi.new("char[]", ROOM)
        length = ffi.new("unsigned int *", ROOM)
        number = lib.xts_py_accept(self._number, sockaddr, length, self._timeout_ms)
        if number < 0:
            number = self._finish(number, lib.xts_py_accept, self._number, sockaddr, length)
        return self._accepted(number, sockaddr, length)

    def accept_now(self) -> tuple[socket, Any] | None:
        """accept() that never waits, whatever the timeout; None: there is no connection. Leaves the socket non-blocking
        for the library: for listeners that use only this function."""
        sockaddr = ffi.new("char[]", ROOM)
        length = ffi.new("unsigned int *", ROOM)
        check(lib.xts_py_fcntl(self._number, F_SETFL, O_NONBLOCK))
        number = lib.xts_py_accept(self._number, sockaddr, length, 0)
        if number == -EAGAIN:
            return None
        return self._accepted(check(number), sockaddr, length)

    def _accepted(self, number: int, sockaddr: Any, length: Any) -> tuple[socket, Any]:
        sock = socket.__new__(socket)
        sock._adopt(number, self)
        return sock, decode(_unpack(sockaddr, min(length[0], ROOM)))

    def _accept(self) -> tuple[int, Any]:
        """accept() in the form that the standard class has for its subclasses: returns a descriptor for
        `socket(fileno=)`."""
        sock, address = self.accept()
        return sock.detach(), address

    # --- sending --------------------------------------------------------------------------------------------

    def send(self, data: Any, flags: int = 0, /) -> int:
        """Sends at least one byte; returns how many."""
        if flags:
            flags = c_int(flags)
        if data.__class__ is not bytes:
            with _readable(data) as view:  # releases the buffer after an error, even if a traceback refers to it
                return self._send(view, flags)
        sent = _send(self._number, data, len(data), flags, self._timeout_ms)
        return sent if sent >= 0 else self._finish(sent, _send, self._number, data, len(data), flags)

    def _send(self, view: Any, flags: int) -> int:
        sent = _send(self._number, view, len(view), flags, self._timeout_ms)
        return sent if sent >= 0 else self._finish(sent, _send, self._number, view, len(view), flags)

    def sendall(self, data: Any, flags: int = 0, /) -> None:
        """Sends everything. The timeout is for the whole. After an error it is unknown how much was sent."""
        if flags:
            flags = c_int(flags)
        if data.__class__ is not bytes:
            with _readable(data) as view:
                self._send_rest(view, 0, flags)
            return
        size = len(data)
        sent = _send(self._number, data, size, flags, self._timeout_ms)
        if sent == size:
            return
        if sent < 0:
            sent = self._finish(sent, _send, self._number, data, size, flags)
        if sent < size:
            self._send_rest(_view(_CHARS, data), sent, flags)

    def _send_rest(self, view: Any, sent: int, flags: int) -> None:
        timeout_ms = self._timeout_ms
        deadline_ns = monotonic_ns() + timeout_ms * 1_000_000
        size = len(view)
        while True:
            rest = (self._number, view + sent if sent else view, size - sent, flags)
            result = _send(*rest, timeout_ms)
            sent += result if result >= 0 else self._finish(result, _send, *rest)
            if sent >= size:
                return
            if timeout_ms > 0:
                # rounded up, so that it never ends too early
                timeout_ms = -((monotonic_ns() - deadline_ns) // 1_000_000)
                if timeout_ms <= 0:
                    raise TimeoutError("timed out")

    def sendto(self, data: Any, *arguments: Any) -> int:
        """sendto(data, [flags,] address): one datagram; on TCP, the same as send()."""
        if not 1 <= len(arguments) <= 2:
            raise TypeError(f"sendto() takes 2 or 3 arguments ({len(arguments) + 1} given)")
        flags, address = arguments if len(arguments) == 2 else (0, arguments[0])
        data, flags = _readable(data), c_int(flags)
        sockaddr = encode(self._family, address, "sendto")
        sys.audit("socket.sendto", self, address)
        call = (self._number, data, len(data), flags, sockaddr, len(sockaddr))
        sent = lib.xts_py_sendto(*call, self._timeout_ms)
        return sent if sent >= 0 else self._finish(sent, lib.xts_py_sendto, *call)

    def sendmsg(
        self, buffers: Iterable[Any], ancdata: Iterable[Any] = (), flags: int = 0, address: Any = None, /
    ) -> int:
        """Gathers and sends; returns how many bytes."""
        sockaddr = b"" if address is None else encode(self._family, address, "sendmsg")
        sys.audit("socket.sendmsg", self, address)
        message = _message.Message(buffers, _message.pack_ancillary(ancdata), sockaddr, False)
        flags = c_int(flags)
        sent = lib.xts_py_sendmsg(self._number, message.header, flags, self._timeout_ms)
        try:
            return sent if sent >= 0 else self._finish(sent, lib.xts_py_sendmsg, self._number, message.header, flags)
        finally:
            message.release()

    def sendfile(self, file: BinaryIO, offset: int = 0, count: int | None = None) -> int:
        """Sends a file, opened in binary mode, from `offset` to its end or `count` bytes; returns how many.

        Of a regular file these are the bytes of its descriptor, from `offset` on wherever the file's position is, as
        os.sendfile() sends them; after that the position is behind what was sent. Anything else is read from where it
        is, or from an `offset` that is not 0: a pipe to its end, of which socket.socket sends nothing. ValueError: a
        text file, a non-blocking socket, not a stream socket."""
        self._check_sendfile_params(file, offset, count)
        if self._timeout == 0:
            raise ValueError("non-blocking sockets are not supported")
        try:
            descriptor = file.fileno()
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
            os.pread(descriptor, 0, 0)  # fails if it is open for writing only
            check_offset(descriptor, offset, 1)
        except (AttributeError, OSError):  # io.UnsupportedOperation is an OSError
            regular = False
        if not regular:
            return self._sendfile_use_send(file, offset, count)
        return self._send_parts(file, lambda size, at: os.pread(descriptor, size, at), offset, count)

    def _check_sendfile_params(self, file: BinaryIO, offset: int, count: int | None) -> None:
        if "b" not in getattr(file, "mode", "b"):
            raise ValueError("file should be opened in binary mode")
        if not self._type & SOCK_STREAM:
            raise ValueError("only SOCK_STREAM type sockets are supported")
        if count is not None and not isinstance(count, int):
            raise TypeError(f"count must be a positive integer (got {count!r})")
        if count is not None and count <= 0:
            raise ValueError(f"count must be a positive integer (got {count!r})")

    def _sendfile_use_send(self, file: BinaryIO, offset: int = 0, count: int | None = None) -> int:
        self._check_sendfile_params(file, offset, count)
        if self._timeout == 0:
            raise ValueError("non-blocking sockets are not supported")
        if offset:
            file.seek(offset)
        return self._send_parts(file, lambda size, _: file.read(size), offset, count)

    def _send_parts(self, file: BinaryIO, read: Callable[[int, int], bytes], offset: int, count: int | None) -> int:
        """`read` returns at most so many bytes from a place in the file."""
        total = 0
        try:
            while (size := _part(count, total)) and (data := read(size, offset + total)):
                view, done = memoryview(data), 0
                while done < len(view):
                    sent = self.send(view[done:])
                    done += sent
                    total += sent
            return total
        finally:
            if total and hasattr(file, "seek"):
                try:
                    file.seek(offset + total)
                except OSError as failure:  # of a pipe, whose bytes are sent nevertheless
                    if failure.errno != ESPIPE and not isinstance(failure, io.UnsupportedOperation):
                        raise

    # --- receiving ------------------------------------------------------------------------------------------

    def recv(self, bufsize: int, flags: int = 0, /) -> bytes:
        """At most `bufsize` bytes; b"" at the end of the stream."""
        if bufsize.__class__ is not int or not 0 < bufsize <= _POOL_BYTES:
            return self._recv_unusual(bufsize, flags)
        if flags:
            flags = c_int(flags)
        try:
            buffer = _pool.pop()
        except IndexError:
            buffer = _raw_buffer("char[]", _POOL_BYTES)
        got = _recv(self._number, buffer, bufsize, flags, self._timeout_ms)
        if got < 0:
            try:
                got = self._finish(got, _recv, self._number, buffer, bufsize, flags)
            except OSError:
                _pool.append(buffer)
                raise
        data: bytes = _unpack(buffer, got if got < bufsize else bufsize)  # with MSG_TRUNC a datagram may be longer
        if len(_pool) < _POOL_MAX:
            _pool.append(buffer)
        return data

    def _recv_unusual(self, bufsize: int, flags: int) -> bytes:
        bufsize, flags = c_ssize(bufsize), c_int(flags)
        if bufsize < 0:
            raise ValueError("negative buffersize in recv")
        if not bufsize:
            return b""  # at once, whatever the state of the socket: the standard module makes no system call
        buffer = _raw_buffer("char[]", bufsize)
        got = _recv(self._number, buffer, bufsize, flags, self._timeout_ms)
        if got < 0:
            got = self._finish(got, _recv, self._number, buffer, bufsize, flags)
        return bytes(_unpack(buffer, min(got, bufsize)))

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Receives into a writable buffer, at most `nbytes` (0: its size); returns how many, 0 at the end of the
        stream."""
        view = _writable(buffer, nbytes, "recv_into")
        size = c_ssize(nbytes) or len(view)
        if not size:
            return 0  # as recv(0)
        if flags:
            flags = c_int(flags)
        got = _recv(self._number, view, size, flags, self._timeout_ms)
        if got < 0:
            try:
                got = self._finish(got, _recv, self._number, view, size, flags)
            finally:
                ffi.release(view)
        return got

    def recvfrom(self, bufsize: int, flags: int = 0, /) -> tuple[bytes, Address | None]:
        """(data, address): a datagram; on TCP the address is None."""
        bufsize, flags = c_ssize(bufsize), c_int(flags)
        if bufsize < 0:
            raise ValueError("negative buffersize in recvfrom")
        buffer = _raw_buffer("char[]", bufsize)
        got, address = self._recvfrom(buffer, bufsize, flags)
        return _unpack(buffer, min(got, bufsize)), address

    def recvfrom_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> tuple[int, Address | None]:
        """As recv_into(), with the address of a datagram: (how many bytes, address); on TCP the address is None."""
        view = _writable(buffer, nbytes, "recvfrom_into")
        try:
            return self._recvfrom(view, c_ssize(nbytes) or len(view), c_int(flags))
        finally:
            ffi.release(view)

    def _recvfrom(self, buffer: Any, size: int, flags: int) -> tuple[int, Address | None]:
        sockaddr = ffi.new("char[]", ROOM)
        length = ffi.new("unsigned int *", ROOM)
        call = (self._number, buffer, size, flags, sockaddr, length)
        got = lib.xts_py_recvfrom(*call, self._timeout_ms)
        if got < 0:
            got = self._finish(got, lib.xts_py_recvfrom, *call)
        return got, decode(_unpack(sockaddr, min(length[0], ROOM)))

    def recvmsg(
        self, bufsize: int, ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[bytes, list[Any], int, Address | None]:
        """(data, ancillary data, flags of the message, address)."""
        bufsize = c_ssize(bufsize)
        if bufsize < 0:
            raise ValueError("negative buffer size in recvmsg()")
        buffer = bytearray(bufsize)
        got, ancillary, message_flags, address = self.recvmsg_into([buffer], ancbufsize, flags)
        return bytes(buffer[:got]), ancillary, message_flags, address

    def recvmsg_into(
        self, buffers: Iterable[Any], ancbufsize: int = 0, flags: int = 0, /
    ) -> tuple[int, list[Any], int, Address | None]:
        """Scatters into the buffers: (how many bytes, ancillary data, flags of the message, address)."""
        ancbufsize, flags = c_ssize(ancbufsize), c_int(flags)
        if ancbufsize < 0:
            raise ValueError("invalid ancillary data buffer length")
        message = _message.Message(buffers, ancbufsize, None, True)
        try:
            got = lib.xts_py_recvmsg(self._number, message.header, flags, self._timeout_ms)
            if got < 0:
                got = self._finish(got, lib.xts_py_recvmsg, self._number, message.header, flags)
            return got, message.ancillary(), message.header.msg_flags, message.sender
        finally:
            message.release()

    def set_receive_callback(self, callback: ReceiveCallback | None) -> None:
        """From now on asks a function about each datagram or PDU before a receive call returns it; None: no longer.

        `callback(packet)` returns a PacketVerdict: DROP, RECV or HOLD. It is called in the thread that calls a receive
        function of this socket, run_receive_callback(), or poll() of an `epoll` that contains the socket. No lock is
        held: it may use this socket and others, except that it cannot receive from this one (EDEADLK). It is asked
        about one packet at a time; meanwhile the socket is not readable for other threads. An Exception is reported by
        sys.unraisablehook, and the packet is queued. KeyboardInterrupt and similar exceptions leave the receive call,
        and the packet is queued as well. After DROP or HOLD, a receive call continues to wait.

        A PDU that is longer than half of the receive window is queued in parts, and the callback may not be asked about
        it. Raises OSError: EOPNOTSUPP: the socket is a stream socket.
        """
        from ._receive_callback import register

        register(self._number, callback)

    def run_receive_callback(self) -> None:
        """Calls the receive callback for what has come, without receiving: for a program that waits with select(),
        asyncio or trio, and keeps or drops everything. Never waits."""
        from ._receive_callback import decide

        lib.xts_py_poll(self._number, POLLIN, 0)  # handles messages that have come
        decide(self._number)

    def makefile(
        self,
        mode: str = "r",
        buffering: int | None = None,
        *,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
    ) -> Any:
        """A file over the socket, as made by io.open(); the socket stays open until both are closed."""
        if not set(mode) <= {"r", "w", "b"}:
            raise ValueError(f"invalid mode {mode!r} (only r, w, b allowed)")
        writing = "w" in mode
        reading = "r" in mode or not writing
        raw = SocketIO(self, ("r" if reading else "") + ("w" if writing else ""))  # type: ignore[arg-type]
        self._io_refs += 1
        size = io.DEFAULT_BUFFER_SIZE if buffering is None or buffering < 0 else buffering
        if size == 0:
            if "b" not in mode:
                raise ValueError("unbuffered streams must be binary")
            return raw
        if reading and writing:
            buffered: Any = io.BufferedRWPair(raw, raw, size)
        else:
            buffered = io.BufferedReader(raw, size) if reading else io.BufferedWriter(raw, size)
        if "b" in mode:
            return buffered
        text = io.TextIOWrapper(buffered, io.text_encoding(encoding), errors, newline)
        text.mode = mode  # type: ignore[misc]
        return text


def _readable(data: Any) -> Any:
    if isinstance(data, str):
        raise TypeError("a bytes-like object is required, not 'str'")
    return _view(_CHARS, data)


def _writable(buffer: Any, nbytes: int, call: str) -> Any:
    nbytes = c_ssize(nbytes)
    if nbytes < 0:
        raise ValueError(f"negative buffersize in {call}")
    view = _message.memory_of(buffer, True)
    if nbytes > len(view):
        raise ValueError("buffer too small for requested bytes")
    return view


def _part(count: int | None, done: int) -> int:
    """How many bytes of a file to read next."""
    return _SENDFILE_BYTES if count is None else min(count - done, _SENDFILE_BYTES)
