"""The socket object without moving data: its life, properties, connecting and options.

Theory of operation

A socket object holds a libxts socket number, not a descriptor; `fileno()` makes a real one that mirrors its readiness
(_descriptor.py). Every operation is one native call, which waits if it has to (python_waits.h) with the GIL released.
As in CPython, a socket with a timeout is non-blocking for the library, and this package waits with the timeout.

After fork() the numbers belong to the parent's attachment. The child's copies of socket objects are closed at
once, so that they can never reach a socket the child makes itself under the same number. Which these are is noted
before the fork: an at-fork hook of the program that runs before ours may have made the child's own first sockets.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from _weakrefset import WeakSet
from fcntl import F_SETFL
from select import POLLOUT
from socket import (
    AF_INET,
    SO_DOMAIN,
    SO_ERROR,
    SO_PROTOCOL,
    SO_TYPE,
    SOCK_CLOEXEC,
    SOCK_NONBLOCK,
    SOCK_STREAM,
    SOL_SOCKET,
    SOMAXCONN,
    AddressFamily,
    SocketKind,
    getdefaulttimeout,
)
from typing import Any, Self

from ._address import asked, encode
from ._arguments import c_int, c_unsigned, flag_of, timeout_of
from ._descriptor import (
    adopt,
    after_fork,
    before_fork,
    descriptor_of,
    duplicate,
    forget_in_child,
    give,
    release,
)
from ._errors import again, check, error
from ._message import memory_of
from ._native import ffi, lib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._ulp import Pushed

_live: WeakSet[SocketBase] = WeakSet()
_parents: list[SocketBase] = []  # during fork()


def _before_fork() -> None:
    _parents.extend(_live)
    before_fork()


def _forget_in_child() -> None:
    for sock in _parents:
        sock._number = sock._descriptor = -1
        sock._closed = True
        _live.discard(sock)
    _parents.clear()
    forget_in_child()


def _after_fork() -> None:
    _parents.clear()
    after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_forget_in_child, after_in_parent=_after_fork)


#: How many connections wait for accept() if listen() is not told: as in the standard module.
BACKLOG = min(SOMAXCONN, 128)

#: enum xts_state of status.h.
_STATES = (
    *("closed", "unconnected", "connecting", "connected", "listening"),
    *("end of stream received", "half-closed", "both ends closed", "closing", "failed"),
)


class SocketBase:
    """`socket` without sending and receiving."""

    __slots__ = (
        "__weakref__",
        "_closed",
        "_descriptor",
        "_family",
        "_io_refs",
        "_layers",
        "_number",
        "_partial",
        "_peeking",
        "_proto",
        "_timeout",
        "_timeout_ms",
        "_type",
        "suppress_ragged_eofs",
    )

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        self._number = self._descriptor = -1
        self._io_refs = 0
        self._closed = False
        self._layers: tuple[Pushed, ...] = ()
        self._partial: list[Any] | None = None
        self._peeking = False
        #: As in ssl.SSLSocket: over TLS in the proxy, the stream may end without TLS's own end (close_notify). Many
        #: peers omit it, but an attacker on the way can forge such an end. False: it is an error (UlpError, fault
        #: "truncated").
        self.suppress_ragged_eofs = True
        family, type, proto = c_int(family), c_int(type), c_int(proto)
        if fileno is not None:
            sys.audit("socket.__new__", self, family, type, proto)
            number, self._descriptor = adopt(fileno)
            found = _option(number, SO_TYPE)
            type = found if type == -1 else type
            family = _option(number, SO_DOMAIN) if family == -1 else family
            proto = _option(number, SO_PROTOCOL) if proto == -1 else proto
        else:
            family = int(AF_INET) if family == -1 else family
            type = int(SOCK_STREAM) if type == -1 else type
            proto = 0 if proto == -1 else proto
            sys.audit("socket.__new__", self, family, type, proto)
            number = check(lib.xts_py_socket(family, type | SOCK_CLOEXEC, proto))
        self._family = int(family)
        self._type = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)
        self._proto = int(proto)
        self._number = number
        self._timeout: float | None = None
        self._timeout_ms = -1
        _live.add(self)
        if type & SOCK_NONBLOCK:
            self._timeout, self._timeout_ms = 0.0, 0
        elif (default := getdefaulttimeout()) is not None:
            self.settimeout(default)

    def _adopt(self, number: int, listener: SocketBase) -> None:
        """Turns a fresh object into an accepted connection."""
        self._number = number
        self._descriptor = -1
        self._io_refs = 0
        self._closed = False
        self._layers, self._partial, self._peeking = listener._layers, None, listener._peeking
        self.suppress_ragged_eofs = listener.suppress_ragged_eofs
        self._family, self._type, self._proto = listener._family, listener._type, listener._proto
        self._timeout = None
        self._timeout_ms = -1
        sys.audit("socket.__new__", self, self._family, self._type, self._proto)
        _live.add(self)
        if (default := getdefaulttimeout()) is not None:
            self.settimeout(default)

    # --- life -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes the socket, once all files of makefile() are closed too. Data that was sent is still delivered."""
        self._closed = True
        if self._io_refs <= 0:
            self._real_close()

    def _real_close(self) -> None:
        number, self._number = self._number, -1
        if number < 0:
            return
        _live.discard(self)
        descriptor, self._descriptor = self._descriptor, -1
        result = release(number, descriptor)
        if result < 0 and result != -errno.ECONNRESET:
            raise error(-result)

    def _decref_socketios(self) -> None:
        """Called by SocketIO when it is closed."""
        if self._io_refs > 0:
            self._io_refs -= 1
        if self._closed:
            self.close()

    def detach(self) -> int:
        """Gives up the socket without closing it: returns its descriptor (see `fileno`), which `socket(fileno=)` or
        `xts_socket.close()` takes over. -1 if it is closed. (os.close() would leave the socket open.)"""
        descriptor = self.fileno()
        self.forget()
        return descriptor

    def forget(self) -> None:
        """The socket has a new owner, which has its number or descriptor: this object is closed."""
        self._closed = True
        self._number = self._descriptor = -1
        _live.discard(self)

    def moved(self) -> Self:
        """Returns another object that is this socket from now on; this one is closed, without effect on the socket."""
        made = self.__class__.__new__(self.__class__)
        for name in SocketBase.__slots__[1:]:
            setattr(made, name, getattr(self, name))
        made._io_refs, made._closed = 0, False
        self.forget()
        _live.add(made)
        return made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._closed:
            self.close()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if getattr(self, "_number", -1) >= 0:
            try:
                _warn(f"unclosed {self!r}", ResourceWarning, source=self)
            finally:  # even if warnings are errors
                number, self._number = self._number, -1  # objects that refer to this one may be finalized after it
                release(number, self._descriptor)

    def __repr__(self) -> str:
        closed = " [closed]" if self._closed else ""
        kind = type(self)
        text = f"<{kind.__module__}.{kind.__qualname__}{closed or ' ' + self._state()}, xts={self._number}"
        if self._descriptor >= 0:
            text += f", fd={self._descriptor}"
        text += f", family={self._family}, type={self._type}, proto={self._proto}"
        if not self._closed:
            for name, function in (("laddr", lib.xts_py_getsockname), ("raddr", lib.xts_py_getpeername)):
                try:
                    text += f", {name}={asked(function, self._number)}"
                except OSError:
                    continue
        return text + ">"

    def _state(self) -> str:
        """Its state in words, as in `xts status`. Does not block."""
        state = lib.xts_py_state(self._number)
        return _STATES[state] if 0 <= state < len(_STATES) else "gone"

    def __getstate__(self) -> Any:
        raise TypeError(f"cannot pickle {self.__class__.__name__!r} object")

    def dup(self) -> Self:
        """Returns another object for the same socket, which closes with the last of these objects."""
        sock = self.__class__(self._family, self._type, self._proto, duplicate(self.fileno()))
        sock.settimeout(self._timeout)
        sock._layers, sock._peeking = self._layers, self._peeking
        sock.suppress_ragged_eofs = self.suppress_ragged_eofs
        return sock

    # --- properties -----------------------------------------------------------------------------------------

    @property
    def family(self) -> AddressFamily:
        """AF_INET or AF_INET6."""
        family: AddressFamily = _named(AddressFamily, self._family)
        return family

    @property
    def type(self) -> SocketKind:
        """SOCK_STREAM, SOCK_DGRAM, or SOCK_SEQPACKET for PDUs."""
        kind: SocketKind = _named(SocketKind, self._type)
        return kind

    @property
    def proto(self) -> int:
        """The number of the protocol; 0: the type's own."""
        return self._proto

    @property
    def timeout(self) -> float | None:
        """As gettimeout()."""
        return self._timeout

    @property
    def number(self) -> int:
        """The XTS socket number, for the paper's functions and `epoll`; -1 if it is closed."""
        return self._number

    def fileno(self) -> int:
        """A kernel descriptor that is readable, writable and hung up when the socket is; -1 if it is closed.

        For select, poll, epoll and asyncio. It belongs to the socket; do not read or close it. A write to it fails
        (ENOTCONN).
        """
        if self._descriptor < 0 <= self._number:
            self._descriptor = descriptor_of(self._number)
        return self._descriptor

    def get_inheritable(self) -> bool:
        """Does a program that is started with the socket's descriptor get the socket? See set_inheritable()."""
        if self._number < 0:
            raise error(errno.EBADF)
        return self._descriptor >= 0 and os.get_inheritable(self._descriptor)

    def set_inheritable(self, inheritable: bool) -> None:
        """A program that is started with the descriptor of a listener or bound socket gets the socket with `fromfd()`.
        OSError (EOPNOTSUPP) for other sockets."""
        if self._number < 0:
            raise error(errno.EBADF)
        if inheritable or self._descriptor >= 0:
            give(self._number, self.fileno(), inheritable)

    def settimeout(self, value: float | None, /) -> None:
        """Seconds for which an operation may wait: None: forever; 0: not at all (BlockingIOError); otherwise
        TimeoutError after that time."""
        timeout, timeout_ms = timeout_of(value)
        check(lib.xts_py_fcntl(self._number, F_SETFL, 0 if timeout is None else os.O_NONBLOCK))
        self._timeout, self._timeout_ms = timeout, timeout_ms

    def gettimeout(self) -> float | None:
        """What settimeout() has set; None: operations wait forever."""
        return self._timeout

    def setblocking(self, flag: bool, /) -> None:
        """True: settimeout(None); False: settimeout(0)."""
        self.settimeout(None if flag_of(flag) else 0.0)

    def getblocking(self) -> bool:
        """Is there a time-out, or none at all? False: operations never wait."""
        return self._timeout != 0

    # --- connecting -----------------------------------------------------------------------------------------

    def bind(self, address: Any, /) -> None:
        """Binds to an address of the device; port 0: one that the proxy chooses. Waits for the proxy's answer. OSError:
        EADDRINUSE, EADDRNOTAVAIL, EACCES (the proxy's policy), EINVAL (it is bound), ENETDOWN."""
        sockaddr = encode(self._family, address, "bind")
        sys.audit("socket.bind", self, address)
        check(lib.xts_py_bind(self._number, sockaddr, len(sockaddr)))

    def connect(self, address: Any, /) -> None:
        """Connects from the device, at most for the socket's timeout; a host name is looked up by the device. Of UDP:
        sets the peer. TimeoutError; BlockingIOError (EINPROGRESS): the socket becomes writable when it is done or has
        failed. OSError: ECONNREFUSED, EHOSTUNREACH, EACCES (the proxy's policy), EISCONN, ENETDOWN, …"""
        self._connected(self._connect(address, "connect"))

    def connect_ex(self, address: Any, /) -> int:
        """connect(), but returns the errno (0: connected; EAGAIN: timed out)."""
        return self._connect(address, "connect_ex")

    def _connected(self, code: int) -> None:
        if code == errno.EAGAIN and self._timeout:
            raise TimeoutError("timed out")
        if code:
            raise self._failure(code, True)

    def _connect(self, address: Any, call: str, function: Any = lib.xts_py_connect, *arguments: Any) -> int:
        sockaddr = encode(self._family, address, call)
        sys.audit("socket.connect", self, address)
        code = -int(function(self._number, sockaddr, len(sockaddr), *arguments))
        if code > 4095:
            code = errno.EINTR
        waits = (code == errno.EINTR and self._timeout != 0) or (code == errno.EINPROGRESS and self._timeout_ms > 0)
        if not waits:
            return code
        # Interrupted, or begun without waiting: the connection attempt continues by itself, and its end makes the
        # socket writable.
        events = again(self._wait(POLLOUT), lib.xts_py_poll, self._number, POLLOUT)
        return -events if events < 0 else self.getsockopt(SOL_SOCKET, SO_ERROR)

    def _wait(self, events: int) -> int:
        return int(lib.xts_py_poll(self._number, events, self._timeout_ms))

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """The device accepts connections from now on, of which at most `backlog` wait for accept(). Waits for the
        proxy's answer. OSError: EADDRINUSE, EACCES (the proxy's policy), EINVAL (it is connected), ENETDOWN."""
        check(lib.xts_py_listen(self._number, max(c_int(backlog), 0)))

    def shutdown(self, how: int, /) -> None:
        """Ends one direction, SHUT_RD or SHUT_WR, or both, SHUT_RDWR; what was sent before is still delivered. Does not
        wait. OSError: ENOTCONN, EINVAL."""
        check(lib.xts_py_shutdown(self._number, c_int(how)))

    def getsockname(self) -> Any:
        """Its own address, which is one of the device. Does not wait."""
        return asked(lib.xts_py_getsockname, self._number)

    def getpeername(self) -> Any:
        """The address of its peer. Does not wait. OSError: ENOTCONN."""
        return asked(lib.xts_py_getpeername, self._number)

    def _finish(self, result: int, function: Any, *arguments: Any) -> int:
        """Handles a call that has returned an error: makes it again if it was interrupted, else raises."""
        result = again(result, function, *arguments)
        if result >= 0:
            return result
        if result == -errno.EAGAIN and self._timeout:
            raise TimeoutError("timed out")
        raise self._failure(-result)

    def _failure(self, code: int, connecting: bool = False) -> OSError:
        """The exception for an errno, of a connect or another call."""
        del connecting
        return error(code)

    # --- options ---------- ---------------------------------------------------------------------------------

    def getsockopt(self, level: int, optname: int, buflen: int = 0, /) -> Any:
        """The option as an int or, with `buflen`, as at most that many bytes."""
        level, optname, buflen = c_int(level), c_int(optname), c_int(buflen)
        if not 0 <= buflen <= 1024:
            raise OSError("getsockopt buflen out of range")
        if not buflen:
            value = ffi.new("int *")
            check(lib.xts_py_getsockopt_int(self._number, level, optname, value))
            return value[0]
        buffer = ffi.new("unsigned char[]", buflen)
        length = ffi.new("unsigned int *", buflen)
        check(lib.xts_py_getsockopt(self._number, level, optname, buffer, length))
        return bytes(ffi.buffer(buffer, min(length[0], buflen)))

    def setsockopt(self, level: int, optname: int, value: Any, optlen: int | None = None, /) -> None:
        """Sets the option to an int or bytes; `value` None with `optlen`: a null pointer of that length."""
        level, optname = c_int(level), c_int(optname)
        if optlen is not None:
            try:
                length = c_unsigned(optlen if value is None else None)
            except Exception:  # as in C, which has only one message for all faults
                raise TypeError("setsockopt() takes exactly 3 arguments (4 given)") from None
            check(lib.xts_py_setsockopt(self._number, level, optname, ffi.NULL, length))
            return
        try:
            number = c_int(value)
        except Exception:  # as in C: what is no int is taken for a buffer
            with memory_of(value, False) as raw:
                check(lib.xts_py_setsockopt(self._number, level, optname, raw, len(raw)))
        else:
            check(lib.xts_py_setsockopt_int(self._number, level, optname, number))


def _named(names: Any, value: int) -> Any:
    """The name of a family or type; the number itself if it has no name."""
    try:
        return names(value)
    except ValueError:
        return value


def _option(number: int, option: int) -> int:
    value = ffi.new("int *")
    check(lib.xts_py_getsockopt_int(number, SOL_SOCKET, option, value))
    return int(value[0])
