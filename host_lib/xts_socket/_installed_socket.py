"""The class that `socket.socket` is after install(): a kernel socket that may become an offloaded one.

Theory of operation

Each object is a real `socket.socket`, with a descriptor of the kernel, and *undecided* at first. Its first bind,
connect or listen, or its first datagram to an address, asks the rules (_scope.py). It then either stays what it was, or
holds an XTS socket that all calls go to. A socket that was bound as a server goes back to the kernel if it then
connects as a client and a rule leaves such clients to the kernel.

The descriptor keeps its number. If `fileno()` of an offloaded socket is called, or has been before, the XTS socket's
mirror is put in the kernel socket's place (dup2), so that readiness shows under the same number. Registrations made
before that in an epoll set are lost with the kernel socket; those of a datagram socket, which event loops register
before it is decided, are moved. The only descriptor of an accepted socket is the mirror, which is made on request.

A listener on the wildcard address serves both networks, as under the interposer: the device's addresses through the
proxy, this host's own loopback through a kernel socket (the *kernel listener*). Its descriptor is then an epoll set of
both.

C code that takes the socket object itself (ssl's _wrap_socket) finds a socket that is not connected, or no
descriptor: an error, never wrong data.
"""

from __future__ import annotations

import errno
import os
import select
import socket as _standard
import warnings
from collections.abc import Callable
from contextlib import suppress
from socket import (
    AF_INET,
    AF_INET6,
    IPPROTO_TCP,
    IPPROTO_UDP,
    SOCK_CLOEXEC,
    SOCK_DGRAM,
    SOCK_NONBLOCK,
    SOCK_SEQPACKET,
    SOCK_STREAM,
)
from time import monotonic
from typing import Any, Self

from . import _report
from ._arguments import c_int
from ._descriptor import drop, duplicate, give, number_of, take_half, take_over
from ._installed_connect import InstalledConnect
from ._installed_guards import PUT_HERE, Allowed, ask_guard
from ._installed_receive import receive as receive_undecided
from ._kernel_socket import KernelSocket
from ._membership import may_be_of_device
from ._reason import Reason, count
from ._scope import current
from ._socket import socket as offloaded_socket

_Base = _standard.socket  # the standard module's class when this was imported
_FLAGS = SOCK_NONBLOCK | SOCK_CLOEXEC
_MPTCP = 262  # IPPROTO_MPTCP, which is offloaded as TCP


class _IsASocket(type):
    """For isinstance(): sockets that were made before install() count as `socket.socket`, too."""

    def __instancecheck__(cls, instance: object) -> bool:
        if cls is socket:
            return isinstance(instance, _Base)
        return super().__instancecheck__(instance)


class socket(InstalledConnect, metaclass=_IsASocket):  # noqa: N801 - named as the class it stands in for
    """`socket.socket`, offloaded where the rules in force when it was made say so."""

    __slots__ = ()
    __module__ = "xts_socket.installed"

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: int | None = None) -> None:
        self._start()
        family, type, proto = c_int(family), c_int(type), c_int(proto)
        if fileno is not None and (number_of(fileno) is not None or take_over(fileno)):
            if (half := take_half(fileno)) is None:
                self._take(offloaded_socket(family, type, proto, fileno))
            else:
                self._take_both(fileno, half)
            return
        scope = current()
        self._packets = (
            scope is not None and fileno is None and type & ~_FLAGS == SOCK_SEQPACKET and proto == IPPROTO_TCP
        )
        if self._packets:  # the kernel socket keeps the place
            type = SOCK_STREAM | type & _FLAGS
        super().__init__(family, type, proto, fileno)
        if scope is None:
            self._settle()
            return
        never = None
        if self.family not in (AF_INET, AF_INET6):
            never = Reason.FAMILY
        elif self.type & ~_FLAGS == SOCK_DGRAM and self.proto in (0, IPPROTO_UDP) and scope.may_offload_datagrams():
            self._datagrams = True
        elif not self._packets and (self.type & ~_FLAGS != SOCK_STREAM or self.proto not in (0, IPPROTO_TCP, _MPTCP)):
            never = Reason.PROTOCOL
        if fileno is not None:
            self._reason = never or Reason.INHERITED
        elif never is not None:
            self._reason = scope.stays(never)
        else:
            self._scope = scope
        if self._scope is None:
            self._settle()

    def _settle(self) -> None:
        if type(self) is socket:  # a program's own subclass stays what it is
            self.__class__ = KernelSocket  # type: ignore[assignment]

    def _take(self, ours: offloaded_socket) -> None:
        """Turns a fresh object into an offloaded socket without a kernel descriptor."""
        self._io_refs = 0
        self._closed = False
        self._ours, self._reason = ours, Reason.NONE

    def _take_both(self, fd: int, half: int) -> None:
        """Turns it into a listener on both this host and the device that another program has sent as `fd`."""
        number = number_of(fd)
        drop(fd)
        os.dup2(half, fd, inheritable=False)
        _Base.__init__(self, fileno=fd)
        self._ours, self._reason = offloaded_socket(fileno=number), Reason.NONE
        self._kernel_listener = _Base(fileno=half)
        self._kernel_listener.setblocking(False)
        self._number_known = True
        self._show_mirror()

    @classmethod
    def _of(cls, ours: offloaded_socket) -> Self:
        made = cls.__new__(cls)
        made._start()
        made._take(ours)
        return made

    @property
    def may_be_offloaded(self) -> bool:
        """Is it offloaded, or not decided yet?"""
        return self._ours is not None or self._scope is not None

    # --- accepting ------------------------------------------------------------------------------------------

    def accept(self) -> tuple[_standard.socket, Any]:
        if self._ours is None:
            return super().accept()
        if self._kernel_listener is not None:
            return self._accept_from_both(self._ours, self._kernel_listener)
        made, address = self._ours.accept()
        return socket._of(made), address

    def _accept_from_both(
        self, ours: offloaded_socket, kernel_listener: _standard.socket
    ) -> tuple[_standard.socket, Any]:
        """Tries the proxy's queue first, then the kernel's, without preferring either; waits for both."""
        timeout = ours.gettimeout()
        deadline = None if timeout is None else monotonic() + timeout
        poll = None
        while True:
            accepted = self._accept_now(ours, kernel_listener)
            if accepted is not None:
                return accepted
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                raise (
                    BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
                    if timeout == 0
                    else TimeoutError("timed out")
                )
            if poll is None:
                poll = select.poll()
                poll.register(ours.fileno(), select.POLLIN)
                poll.register(kernel_listener.fileno(), select.POLLIN)
            poll.poll(None if left is None else left * 1000)

    def _accept_now(
        self, ours: offloaded_socket, kernel_listener: _standard.socket
    ) -> tuple[_standard.socket, Any] | None:
        found = ours.accept_now()
        if found is not None:
            return socket._of(found[0]), found[1]
        with suppress(BlockingIOError):
            local, address = kernel_listener.accept()
            accepted = KernelSocket(local.family, local.type, local.proto, local.detach())
            accepted._reason = Reason.LOCAL
            count(Reason.LOCAL)
            accepted.setblocking(True)
            if (default := _standard.getdefaulttimeout()) is not None:
                accepted.settimeout(default)
            return accepted, address
        return None

    # --- the descriptor -------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """The number with which it was made, even if it is offloaded. It then mirrors the readiness: the functions of
        `os` find the socket by it (_installed_descriptor.py), and the kernel refuses what C code writes to it."""
        # Set before _ours is read: another thread that is offloading the socket has to see that the number is known.
        known, self._number_known = self._number_known, True
        if self._ours is None:
            return super().fileno()
        if super().fileno() < 0:
            return self._ours.fileno()
        if not known:
            self._show_mirror()
        return super().fileno()

    def get_inheritable(self) -> bool:
        return super().get_inheritable()

    def set_inheritable(self, inheritable: bool) -> None:
        if self._ours is None:
            super().set_inheritable(inheritable)
        elif self._kernel_listener is not None and self._scope is None:
            # The descriptor is an epoll set of two sockets, the kernel's and the device's. A new program would get
            # neither through it: only sockets have labels (xts_pass), and the kernel's alone would not serve the
            # device.
            raise OSError(
                errno.EOPNOTSUPP,
                "a listener on a wildcard address has two sockets here, the device's and this host's, and its "
                "descriptor is neither: bind it to an address, or pass it by socket.send_fds()",
            )
        else:
            give(self._ours.number, self.fileno(), inheritable)

    def detach(self) -> int:
        _report.closed(super().fileno())
        if self._ours is None:
            return super().detach()
        kernel_listener, scope = self._kernel_listener, self._scope
        if kernel_listener is not None and scope is None:
            raise OSError(errno.EOPNOTSUPP, "a listener on both the device and the host has two sockets")
        fd = self.fileno()
        ours, self._ours = self._ours, None
        self._kernel_listener = self._scope = None
        if kernel_listener is not None:
            kernel_listener.close()
        if super().fileno() >= 0:
            super().detach()
            ours.forget()
        else:
            ours.detach()
        self._closed = True
        return fd

    def dup(self) -> Self:
        return super().dup() if self._ours is None else self._of(self._ours.dup())

    def moved(self) -> Self:
        """Returns another object that is this socket from now on; this one is closed, without effect on the socket."""
        made = type(self).__new__(type(self))
        if super().fileno() >= 0:
            timeout = super().gettimeout()
            _Base.__init__(made, self.family, self.type, self.proto, super().detach())
            _Base.settimeout(made, timeout)
        made._io_refs = 0
        for name in InstalledConnect.__slots__:
            setattr(made, name, getattr(self, name))
        made._closed = False
        self._ours = self._kernel_listener = self._scope = None
        self._closed = True
        return made

    def _real_close(self, *arguments: Any) -> None:
        ours, self._ours = self._ours, None
        kernel_listener, self._kernel_listener = self._kernel_listener, None
        self._scope = None
        if kernel_listener is not None:
            kernel_listener.close()
        try:
            if super().fileno() >= 0:
                drop(super().fileno())
                _report.closed(super().fileno())
                super()._real_close(*arguments)  # type: ignore[misc]
        finally:
            if ours is not None:
                ours.close()

    def close(self) -> None:
        self._closed = True
        if self._io_refs <= 0:
            self._real_close()

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if getattr(self, "_ours", None) is not None:
            try:
                _warn(f"unclosed {self!r}", ResourceWarning, source=self)
            finally:
                self._real_close()
        else:
            _report.closed(super().fileno())
            super().__del__()  # type: ignore[misc]

    def __repr__(self) -> str:
        return super().__repr__() if self._ours is None else repr(self._ours)

    @property
    def type(self) -> int:  # type: ignore[override]
        if self._ours is not None:
            return self._ours.type
        return SOCK_SEQPACKET if self._packets else super().type

    # --- options --------------------------------------------------------------------------------------------

    def setsockopt(self, *arguments: Any) -> None:
        if self._ours is not None:
            self._ours.setsockopt(*arguments)
        else:
            try:
                super().setsockopt(*arguments)
            except OSError as failure:
                if self._scope is None or not self._datagrams:
                    raise
                if not may_be_of_device(arguments, failure, self._interface_failure):
                    raise
                self._interface_failure = self._interface_failure or failure
            if self._scope is not None:
                self._notes.append(arguments)


def _delegating(name: str) -> Callable[..., Any]:
    kernels = getattr(_Base, name)

    def call(self: socket, *arguments: Any, **named: Any) -> Any:
        ours = self._ours
        if ours is None:
            return kernels(self, *arguments, **named)
        return getattr(ours, name)(*arguments, **named)

    call.__name__, call.__qualname__, call.__doc__ = name, f"socket.{name}", kernels.__doc__
    return call


def _delegating_property(name: str) -> property:
    kernels = getattr(_Base, name)

    def get(self: socket) -> Any:
        return kernels.__get__(self) if self._ours is None else getattr(self._ours, name)

    return property(get, doc=kernels.__doc__)


def _deciding(name: str) -> Callable[..., Any]:
    """A method of a datagram socket that sends or receives, and so may decide where the socket belongs."""
    plain, kernels = _delegating(name), getattr(_Base, name)

    def send(self: socket, *arguments: Any) -> Any:
        if name in PUT_HERE and (self._ours is not None or self._scope is not None):
            with suppress(Allowed):
                return ask_guard(self, name, *arguments)
        if self._datagrams and self._scope is not None:
            self._decide_to_send(arguments[-1] if name == "sendto" else arguments[3] if len(arguments) > 3 else None)
        return plain(self, *arguments)

    def receive(self: socket, *arguments: Any, **named: Any) -> Any:
        if self._ours is not None:
            return getattr(self._ours, name)(*arguments, **named)
        if self._datagrams and self._scope is not None:
            return receive_undecided(self, name, arguments, named)
        return kernels(self, *arguments, **named)

    call = send if name.startswith("send") else receive
    call.__name__, call.__qualname__, call.__doc__ = plain.__name__, plain.__qualname__, plain.__doc__
    return call


_CALLS = """getblocking getpeername getsockname getsockopt gettimeout send sendall sendfile setblocking settimeout
shutdown"""
for _name in _CALLS.split():
    setattr(socket, _name, _delegating(_name))
for _name in ("recv", "recv_into", "recvfrom", "recvfrom_into", "recvmsg", "recvmsg_into", "sendmsg", "sendto"):
    setattr(socket, _name, _deciding(_name))
for _name in ("family", "proto", "timeout"):
    setattr(socket, _name, _delegating_property(_name))


def fromfd(fd: int, family: int, type: int, proto: int = 0) -> _standard.socket:
    """socket.fromfd for descriptors of both kinds."""
    if number_of(fd) is None and not take_over(fd):
        return socket(family, type, proto, os.dup(fd))
    if (half := take_half(fd)) is not None:
        os.close(half)
        raise OSError(errno.EOPNOTSUPP, "a listener on both the device and this host: use socket.socket(fileno=)")
    return socket._of(offloaded_socket(family, type, proto, duplicate(fd)))


del _name
