"""TLS over an offloaded socket, with the interface of `ssl.SSLSocket`.

Theory of operation

The standard SSLSocket passes a kernel descriptor to OpenSSL. Here OpenSSL works on memory (ssl.SSLObject over two
MemoryBIOs), and the bytes that it wants to read or has written are moved by socket calls. Records are read one at a
time, first the header, then the body, as OpenSSL does on a descriptor: so no received data is hidden from select(),
pending() has its usual meaning, and after unwrap() the socket is at the first byte of plain text.

OpenSSL takes all data of a write at once. Bytes that the socket does not accept are kept, and the write is reported as
not done (SSLWantWriteError, TimeoutError). The caller has to repeat the write with the same data, as OpenSSL requires,
and these are encrypted already.

One lock protects the TLS state, and is held only for computing; one lock each protects reading from and writing to the
socket, so that records stay in order when several threads read and write.
"""

from __future__ import annotations

import errno
import ssl
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from types import new_class
from typing import Any, NoReturn, Self

from ._base import SocketBase
from ._installed_socket import socket as installed_socket
from ._misuse import named, wanted

_HEADER_BYTES = 5
_PIECE_BYTES = 65536  # bytes encrypted at a time
_RECORD_TYPES = range(20, 25)


def is_ours(sock: object) -> bool:
    """Should this package do TLS on this socket: is it offloaded, or not decided yet?"""
    if isinstance(sock, SocketBase):
        return True
    return issubclass(type(sock), installed_socket) and bool(sock.may_be_offloaded)  # type: ignore[attr-defined]


class SSLSocket(ssl.SSLSocket):
    """As ssl.SSLSocket; made by SSLContext.wrap_socket() after install(), or by xts_socket.wrap_ssl().

    Differences: a timeout is for each wait of a call, not for the whole call; the SNI callback gets an SSLObject.
    """

    _sock: Any
    _tls: ssl.SSLObject | None
    _context: ssl.SSLContext
    _wanted_session: ssl.SSLSession | None
    _connected: bool
    _lock: Lock
    _read_lock: Lock
    _write_lock: Lock
    _io_refs: int
    do_handshake_on_connect: bool
    suppress_ragged_eofs: bool

    @classmethod
    def _create(cls, sock: Any, **settings: Any) -> ssl.SSLSocket:
        """Called by accept()."""
        return create(cls, sock, **settings)

    @classmethod
    def _over(
        cls,
        sock: Any,
        *,
        server_side: bool = False,
        do_handshake_on_connect: bool = True,
        suppress_ragged_eofs: bool = True,
        server_hostname: str | None = None,
        context: ssl.SSLContext | None = None,
        session: ssl.SSLSession | None = None,
    ) -> Self:
        assert context is not None
        if server_side and server_hostname:
            raise ValueError("server_hostname can only be specified in client mode")
        if server_side and session is not None:
            raise ValueError("session can only be specified in client mode")
        if context.check_hostname and not server_hostname:
            raise ValueError("check_hostname requires server_hostname")
        self = cls.__new__(cls)
        self._io_refs = 0
        self._closed = False
        self._sock = sock.moved()
        self._tls = None
        self._context, self._wanted_session = context, session
        self.server_side, self.server_hostname = server_side, server_hostname
        self.do_handshake_on_connect = do_handshake_on_connect
        self.suppress_ragged_eofs = suppress_ragged_eofs
        self._lock, self._read_lock, self._write_lock = Lock(), Lock(), Lock()
        self._connected = self._is_connected()
        if self._connected:
            try:
                self._begin()
                if do_handshake_on_connect:
                    if self.gettimeout() == 0.0:
                        raise ValueError("do_handshake_on_connect should not be specified for non-blocking sockets")
                    self.do_handshake()
            except (OSError, ValueError):
                self.close()
                raise
        return self

    def _is_connected(self) -> bool:
        try:
            self._sock.getpeername()
        except OSError as failure:
            if failure.errno != errno.ENOTCONN:
                raise
            return False
        return True

    def _begin(self) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._header = b""  # of the record that is being read
        self._body_left = 0
        self._pieces = 0  # how many have been received
        self._unsent = b""  # encrypted, but not accepted by the socket yet
        self._written = 0  # how many of the caller's bytes these are, if a write was reported as not done
        self._tls = self._context.wrap_bio(
            self._incoming, self._outgoing, self.server_side, self.server_hostname, self._wanted_session
        )
        # Callbacks of the context get it: one that chooses by SNI sets the context of the socket that the program has.
        self._tls._sslobj.owner = self  # type: ignore[attr-defined]

    # --- moving records -------------------------------------------------------------------------------------

    def _do(self, step: Callable[..., Any], *arguments: Any, reading: bool = False) -> Any:
        """Performs a step of the TLS state, and moves records until it is done."""
        while True:
            result, failure = None, None
            with self._lock:
                seen = self._pieces
                try:
                    result = step(*arguments)
                except ssl.SSLError as raised:
                    failure = raised
            try:
                if failure is None:
                    return result
                if not isinstance(failure, ssl.SSLWantReadError):
                    self._answer()  # sends the alert
                    raise failure
            finally:
                failure = None  # breaks the cycle of exception, traceback and this frame
            if reading:
                self._answer()
            else:
                self._flush()
            self._receive(seen)

    def _answer(self) -> None:
        """Sends what reading has produced, for example a reply to a key update. Never waits for a thread that writes,
        since the peer may be waiting for us to read; that thread sends it, too."""
        if self._outgoing.pending and self._write_lock.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._send_out()
            finally:
                self._write_lock.release()

    def _receive(self, seen: int) -> None:
        """Reads the available part of the next record, unless another thread has read some since `seen`."""
        with self._read_lock:
            if self._pieces != seen:
                return
            if not self._body_left:
                while len(self._header) < _HEADER_BYTES:
                    data = self._recv(_HEADER_BYTES - len(self._header))
                    self._header += data
                    self._give(data)
                    if not data:
                        return
                kind, major, self._body_left = self._header[0], self._header[1], int.from_bytes(self._header[3:])
                self._header = b""
                if kind not in _RECORD_TYPES or major != 3:
                    return  # not TLS: OpenSSL reports that, so no more is read
            data = self._recv(self._body_left)
            self._body_left -= len(data)
            self._give(data)

    def _give(self, data: bytes) -> None:
        with self._lock:
            self._pieces += 1
            if data:
                self._incoming.write(data)
            else:
                self._incoming.write_eof()

    def _recv(self, size: int) -> bytes:
        try:
            data: bytes = self._sock.recv(size)
        except BlockingIOError:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "The operation did not complete (read)") from None
        except TimeoutError:
            raise TimeoutError("The read operation timed out") from None
        return data

    def _flush(self) -> None:
        """Sends encrypted data."""
        with self._write_lock:
            self._send_out()

    def _send_out(self) -> None:
        while True:
            if not self._unsent:
                with self._lock:
                    self._unsent = self._outgoing.read()
                if not self._unsent:
                    return
            try:
                self._unsent = self._unsent[self._sock.send(self._unsent) :]
            except BlockingIOError:
                message = "The operation did not complete (write)"
                raise ssl.SSLWantWriteError(ssl.SSL_ERROR_WANT_WRITE, message) from None
            except TimeoutError:
                raise TimeoutError("The write operation timed out") from None

    def _wrapped(self, what: str) -> ssl.SSLObject:
        if self._tls is None:
            raise ValueError(f"{what} on closed or unwrapped SSL socket.")
        return self._tls

    # --- reading and writing --------------------------------------------------------------------------------

    def do_handshake(self, block: bool = False) -> None:
        if self._tls is None:
            self._sock.getpeername()  # raises ENOTCONN
        timeout = self.gettimeout()
        try:
            if timeout == 0.0 and block:
                self.settimeout(None)
            self._do(self._wrapped("Handshake").do_handshake)
            self._flush()
        finally:
            if timeout == 0.0 and block:
                self.settimeout(timeout)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        tls = self._wrapped("Read")
        try:
            got = self._do(tls.read, len, *(() if buffer is None else (buffer,)), reading=True)
        except ssl.SSLEOFError:
            if not self.suppress_ragged_eofs:
                raise
            return b"" if buffer is None else 0
        self._answer()
        return got

    def write(self, data: Any) -> int:
        tls = self._wrapped("Write")
        with memoryview(data) as view, view.cast("B") as octets:
            if self._written > len(octets):
                raise ssl.SSLError(ssl.SSL_ERROR_SSL, "bad write retry: less data than was to be written")
            count = self._written or int(self._do(tls.write, octets[:_PIECE_BYTES]))
        try:
            self._flush()
        except (ssl.SSLWantWriteError, TimeoutError):
            self._written = count
            raise
        self._written = 0
        return count

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        if self._tls is None:
            return bytes(self._sock.recv(buflen, flags))
        _no_flags(flags, "recv")
        return bytes(self.read(buflen))

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        if nbytes is None:
            nbytes = memoryview(buffer).nbytes or 1024
        if self._tls is None:
            return int(self._sock.recv_into(buffer, nbytes, flags))
        _no_flags(flags, "recv_into")
        return int(self.read(nbytes, buffer))

    def send(self, data: Any, flags: int = 0) -> int:
        if self._tls is None:
            return int(self._sock.send(data, flags))
        _no_flags(flags, "send")
        return self.write(data)

    def sendall(self, data: Any, flags: int = 0) -> None:
        if self._tls is None:
            self._sock.sendall(data, flags)
            return
        _no_flags(flags, "sendall")
        with memoryview(data) as view, view.cast("B") as octets:
            sent = 0
            while sent < len(octets):
                sent += self.write(octets[sent:])

    def sendfile(self, file: Any, offset: int = 0, count: int | None = None) -> int:
        if self._tls is None:
            return int(self._sock.sendfile(file, offset, count))
        return int(self._sendfile_use_send(file, offset, count))  # type: ignore[attr-defined]

    def recvfrom(self, *arguments: Any, **named: Any) -> NoReturn:
        raise ValueError("recvfrom not allowed on an SSL socket")

    def recvfrom_into(self, *arguments: Any, **named: Any) -> NoReturn:
        raise ValueError("recvfrom_into not allowed on an SSL socket")

    def sendto(self, *arguments: Any, **named: Any) -> NoReturn:
        raise ValueError("sendto not allowed on an SSL socket")

    # --- life -----------------------------------------------------------------------------------------------

    def connect(self, addr: Any) -> None:
        self._connect(addr, self._sock.connect)

    def connect_ex(self, addr: Any) -> int:
        return int(self._connect(addr, self._sock.connect_ex))

    def _connect(self, address: Any, connect: Callable[[Any], int | None]) -> int:
        if self.server_side:
            raise ValueError("can't connect in server-side mode")
        if self._connected or self._tls is not None:
            raise ValueError("attempt to connect already-connected SSLSocket!")
        self._begin()
        try:
            code = connect(address) or 0
            if not code:
                self._connected = True
                if self.do_handshake_on_connect:
                    self.do_handshake()
        except (OSError, ValueError):
            self._tls = None
            raise
        return code

    def accept(self) -> tuple[ssl.SSLSocket, Any]:
        sock, address = self._sock.accept()
        made = self._create(
            sock,
            server_side=True,
            do_handshake_on_connect=self.do_handshake_on_connect,
            suppress_ragged_eofs=self.suppress_ragged_eofs,
            context=self._context,
        )
        return made, address

    def unwrap(self) -> Self:
        """Ends TLS, if the peer agrees; after this the object sends and receives plain text."""
        tls = self._wrapped("unwrap()")
        self._do(tls.unwrap)
        self._flush()
        self._tls = None
        return self

    def shutdown(self, how: int) -> None:
        self._tls = None
        self._sock.shutdown(how)

    def detach(self) -> int:
        self._tls, self._closed = None, True
        return int(self._sock.detach())

    def moved(self) -> Self:
        """For TLS over TLS: the outer socket takes over this object."""
        return self

    def _real_close(self, *_: Any) -> None:
        self._tls = None
        self._sock.close()

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__}{' [closed]' * self._closed} over {self._sock!r}>"

    # --- what the connection is -----------------------------------------------------------------------------

    @property
    def context(self) -> ssl.SSLContext:
        return self._context

    @context.setter
    def context(self, context: ssl.SSLContext) -> None:
        self._context = context
        if self._tls is not None:
            self._tls.context = context

    @property
    def session(self) -> ssl.SSLSession | None:
        return None if self._tls is None else self._tls.session

    @session.setter
    def session(self, session: ssl.SSLSession | None) -> None:
        self._wanted_session = session
        if self._tls is not None and session is not None:
            self._tls.session = session

    @property
    def session_reused(self) -> bool | None:
        return None if self._tls is None else self._tls.session_reused

    def getpeercert(self, binary_form: bool = False) -> Any:
        if self._tls is None:
            self._sock.getpeername()  # raises ENOTCONN
        return self._wrapped("getpeercert()").getpeercert(binary_form)

    def pending(self) -> int:
        return 0 if self._tls is None else self._tls.pending()

    def get_channel_binding(self, cb_type: str = "tls-unique") -> bytes | None:
        if cb_type not in ssl.CHANNEL_BINDING_TYPES:
            raise ValueError(f"{cb_type} channel binding type not implemented")
        return None if self._tls is None else self._tls.get_channel_binding(cb_type)

    def verify_client_post_handshake(self) -> None:
        self._wrapped("verify_client_post_handshake()").verify_client_post_handshake()


def _no_flags(flags: int, call: str) -> None:
    if flags:
        raise ValueError(f"non-zero flags not allowed in calls to {call}() on an SSL socket")


def _of_tls(name: str) -> Callable[[SSLSocket], Any]:
    """A query of the TLS state; None if there is none."""
    return lambda self: None if self._tls is None else getattr(self._tls, name)()


def _of_socket(name: str) -> Callable[..., Any]:
    return lambda self, *arguments: getattr(self._sock, name)(*arguments)


def _property_of_socket(name: str) -> property:
    return property(lambda self: getattr(self._sock, name))


for _name in ("selected_alpn_protocol", "cipher", "shared_ciphers", "compression", "version"):
    setattr(SSLSocket, _name, _of_tls(_name))
for _name in (
    *("bind", "fileno", "listen", "getsockname", "getpeername", "getsockopt", "setsockopt", "gettimeout", "settimeout"),
    *("getblocking", "setblocking", "get_inheritable", "set_inheritable"),
):
    setattr(SSLSocket, _name, _of_socket(_name))
for _name in ("family", "type", "proto", "timeout"):
    setattr(SSLSocket, _name, _property_of_socket(_name))
del _name


_standard_create = vars(ssl.SSLSocket)["_create"].__func__


def create(cls: type[ssl.SSLSocket], /, sock: Any, **settings: Any) -> ssl.SSLSocket:
    """SSLSocket._create() under install(), which SSLContext.wrap_socket() calls with its class for sockets: the
    standard one, or a program's own (SSLContext.sslsocket_class)."""
    if is_ours(sock):
        return _over_memory(cls)._over(sock, **settings)
    for standard in cls.__mro__:  # a class of _over_memory() cannot do it: the one that it was made of
        if issubclass(standard, ssl.SSLSocket) and not issubclass(standard, SSLSocket):
            made: ssl.SSLSocket = _standard_create(standard, sock, **settings)
            return made
    raise TypeError(f"{cls!r} is no ssl.SSLSocket")


_mixed: dict[type[ssl.SSLSocket], type[SSLSocket]] = {ssl.SSLSocket: SSLSocket}


def _over_memory(cls: type[ssl.SSLSocket]) -> type[SSLSocket]:
    """The class with its methods that do TLS on a descriptor replaced by ours."""
    if issubclass(cls, SSLSocket):
        return cls
    if cls not in _mixed:
        names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
        _mixed[cls] = new_class(cls.__name__, (cls, SSLSocket), exec_body=lambda body: body.update(names))
    return _mixed[cls]


@named
def wrap_ssl(
    sock: Any,
    context: ssl.SSLContext,
    *,
    server_side: bool = False,
    server_hostname: str | None = None,
    do_handshake_on_connect: bool = True,
    suppress_ragged_eofs: bool = True,
    session: ssl.SSLSession | None = None,
) -> Any:
    """`context.wrap_socket()` for an XTS socket, which the context itself accepts only after install(). Takes the
    socket over. With a context of `ssl_context()`, TLS is done in the proxy, and the result is the socket.

    Blocks for the handshake unless `do_handshake_on_connect` is false. Raises as wrap_socket() does.
    """
    from ._tls_context import OffloadedContext

    if not isinstance(context, ssl.SSLContext):
        raise wanted("wrap_ssl(context=…)", "an ssl.SSLContext", context)
    if isinstance(context, OffloadedContext):
        return context.wrap_socket(sock, server_side=server_side, server_hostname=server_hostname)
    return SSLSocket._over(
        sock,
        server_side=server_side,
        do_handshake_on_connect=do_handshake_on_connect,
        suppress_ragged_eofs=suppress_ragged_eofs,
        server_hostname=server_hostname,
        context=context,
        session=session,
    )
