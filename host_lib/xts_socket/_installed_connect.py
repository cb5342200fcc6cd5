"""The decision, kernel or offloaded, in the methods bind, connect and listen of install()'s class, and in the first
datagram that is sent. It is made in C (native/decision/decision.h). _installed_socket.py has the rest of the class, and
the theory of operation.
"""

from __future__ import annotations

import errno
import os
import select
import socket as _standard
from collections.abc import Callable
from contextlib import suppress
from socket import SHUT_RDWR, SOCK_DGRAM, SOCK_SEQPACKET, SOCK_STREAM
from time import monotonic, sleep
from typing import Any

from . import _report
from ._address import decode, encode
from ._arguments import c_int
from ._base import BACKLOG
from ._decision import Decision
from ._descriptor import drop, keep_both, keep_under, wake_sleepers_of
from ._epoll_registrations import kept_in_epoll_sets
from ._errors import error
from ._installed_guards import PUT_HERE, Allowed, ask_guard
from ._installed_pushing import InstalledPushing
from ._reason import Reason
from ._rules import Role
from ._scope import Scope
from ._socket import socket as offloaded_socket
from ._warning import warn

_Base = _standard.socket  # the standard module's class when this was imported
_REBIND_S = 1.0


class InstalledConnect(InstalledPushing, _Base):
    """A kernel socket that may become an offloaded one."""

    __slots__ = (
        *("_datagrams", "_interface_failure", "_kernel_listener", "_notes", "_number_known"),
        *("_ours", "_packets", "_pushes", "_reason", "_scope", "_sleeping"),
    )

    _ours: offloaded_socket | None
    _kernel_listener: _standard.socket | None  # the kernel socket, while it may still be needed
    _scope: Scope | None  # while undecided
    _reason: Reason | None
    _notes: list[tuple[Any, ...]]  # options set so far
    _pushes: list[Callable[[offloaded_socket], None]]  # protocols pushed before connect or listen
    _datagrams: bool  # a UDP socket, SOCK_DGRAM
    _interface_failure: OSError | None  # this host has no such interface, but the device may have it
    _sleeping: int  # number of threads in receiving calls while undecided
    _packets: bool  # SOCK_SEQPACKET, which the kernel does not have for TCP
    _number_known: bool  # fileno() has been called

    def _start(self) -> None:
        self._ours = self._kernel_listener = self._scope = self._reason = None
        self._notes = []
        self._interface_failure = None
        self._pushes = []
        self._sleeping = 0
        self._datagrams = self._packets = self._number_known = False

    @property
    def reason(self) -> Reason | None:
        """Why it is a kernel socket; `Reason.NONE`: it is offloaded; None: undecided, or no rules were in force."""
        return self._reason

    def _settle(self) -> None:
        """It stays with the kernel for good."""

    def accept(self) -> tuple[_standard.socket, Any]:
        """Accepts from the kernel; the connection gets the reason of the listener."""
        accepted, address = super().accept()
        if isinstance(accepted, InstalledConnect):
            accepted._reason = self._reason
        return accepted, address

    # --- deciding -------------------------------------------------------------------------------------------

    def _stay(self, reason: Reason, explanation: str = "") -> None:
        if self._ours is not None:
            return
        self._check_may_stay(reason)
        if self._interface_failure is not None:
            if explanation:
                raise error(self._interface_failure.errno or 0, explanation) from self._interface_failure
            raise self._interface_failure
        scope, self._scope = self._scope, None
        if scope is not None:
            try:
                self._reason = scope.stays(reason, explanation)
            except OSError:
                self._scope = scope
                raise
            self._settle()

    def _check_may_stay(self, reason: Reason) -> None:
        """OSError: its data would be sent without the protocols that were pushed."""
        what = "a protocol has been pushed" if self._pushes else "SOCK_SEQPACKET" if self._packets else None
        if what is not None:
            raise OSError(errno.EOPNOTSUPP, f"{what}, and the socket cannot be offloaded ({reason.name})")

    def _decide(self, scope: Scope, role: Role, local: Any, peer: Any) -> Decision:
        type = SOCK_DGRAM if self._datagrams else SOCK_SEQPACKET if self._packets else SOCK_STREAM
        return scope.decide(role, (super().fileno(), self.family, type), local, peer)

    def _repeat(self, decision: Decision) -> None:
        """Repeats on the XTS socket everything that the program has done with this one."""
        decision.repeat(super().gettimeout(), self._notes, self._pushes)

    def _offload(self, ours: offloaded_socket) -> None:
        ours._proto = super().proto  # what the program has given, and its accepted connections have
        self._ours, self._reason = ours, Reason.NONE
        if self._scope is not None:
            self._scope.offloaded()
        if not self._datagrams:
            if self._number_known:
                self._show_mirror()
        elif self._number_known:
            with kept_in_epoll_sets(super().fileno()):
                wake_sleepers_of(ours.number, super().fileno())
                self._wake_sleepers()
                self._show_mirror()
        elif self._sleeping:
            self._wake_sleepers()

    def _wake_sleepers(self) -> None:
        """Wakes threads that sleep on the kernel socket; only if there are any, since another process may have the
        socket too (fork), and decide differently."""
        with suppress(OSError):  # it fails with ENOTCONN, but the threads are awake
            super().shutdown(SHUT_RDWR)

    def _tell(self, line: int, local: Any, peer: Any) -> None:
        """Records the decision, and the line of the rules that made it, for `xts status`."""
        if self._ours is not None:
            kind, number = _report.OFFLOADED, self._ours.number
        else:
            kind, number = _report.STAYED if self._scope is None else _report.UNDECIDED, 0
        reason = self._reason or 0
        _report.decided(super().fileno(), kind, reason=reason, line=line, number=number, local=local, peer=peer)

    def _resolved(self, address: Any, call: str) -> Any:
        """The address with a number for the host; None: the kernel shall report the fault in it."""
        try:
            return decode(encode(self.family, address, call))
        except (TypeError, OverflowError, ValueError, OSError):
            return None

    def _decide_bind(self, address: Any) -> bool:
        """True: it was bound."""
        scope, resolved = self._scope, self._resolved(address, "bind")
        if scope is None or resolved is None:
            return False
        role = Role.UDP_RECEIVER if self._datagrams else Role.TCP_SERVER
        decision = self._decide(scope, role, resolved, None)
        try:
            return self._bind_by(decision, scope, address, resolved)
        finally:
            self._tell(decision.line, resolved, None)

    def _bind_by(self, decision: Decision, scope: Scope, address: Any, resolved: Any) -> bool:
        self._repeat(decision)
        decision.bind(resolved)
        if decision.ours is not None:
            if not self._datagrams:
                self._kernel_listener = _Base(self.family, self.type, self.proto, os.dup(super().fileno()))
            self._offload(decision.ours)
            if self._datagrams:
                # only now: without a scope, other threads would see a socket that stays with the kernel
                self._scope = None
            return True
        if decision.reason is Reason.RULE and not (self._datagrams and resolved[1]):
            return False  # decided later, by listen() or, as a client, by connect() or the first datagram
        if decision.reason is not Reason.ADDRESS:
            self._stay(decision.reason, decision.explanation)
            return False
        if scope.strict:
            raise error(errno.EADDRNOTAVAIL)
        super().bind(address)  # it may be an address of this host
        self._stay(decision.reason)
        return True

    def _decide_connect(self, address: Any, call: str) -> Any:
        """Decides, if it is undecided; returns the address with a number for the host, or None: use it unchanged."""
        resolved = self._resolved(address, call)
        if resolved is None:
            return None
        if self._ours is not None:
            return resolved if self._keeps_as_client(resolved) else None
        if self._scope is None:
            return None
        self._decide_client(self._scope, Role.UDP_CONNECT if self._datagrams else Role.TCP_CLIENT, resolved)
        return resolved

    def _decide_to_send(self, address: Any) -> None:
        """Called before a datagram socket, which may be undecided, sends; address None: to its peer."""
        if self._scope is None or self._ours is not None or address is None:
            return
        resolved = self._resolved(address, "sendto")
        if resolved is not None:
            self._decide_client(self._scope, Role.UDP_SENDER, resolved)

    def _kernel_has_received(self) -> None:
        """Called after an undecided datagram socket has received: it is a receiver, since the sender knows its port."""
        if self._scope is not None and self._ours is None:
            self._stay(Reason.RULE)

    def _decide_client(self, scope: Scope, role: Role, resolved: Any) -> None:
        local: Any = super().getsockname()
        bound = local if local[1] else None
        decision = self._decide(scope, role, bound, resolved)
        self._repeat(decision)
        if bound is not None and not (self._datagrams and bound[0] in ("0.0.0.0", "::")):
            decision.bind(bound)  # the port is also taken on this host, and not used
        if decision.ours is None:
            self._stay(decision.reason, decision.explanation)
        else:
            self._offload(decision.ours)
            self._scope = None
        self._tell(decision.line, bound, resolved)

    def _keeps_as_client(self, peer: Any) -> bool:
        """Called before an offloaded socket connects: does it stay offloaded? Otherwise it has been given back to the
        kernel."""
        ours, kernel_listener, scope = self._ours, self._kernel_listener, self._scope
        assert ours is not None
        if scope is None or kernel_listener is None:
            return True  # it has connected before
        local = ours.getsockname()
        verdict = scope.ask(Role.TCP_CLIENT, local, peer)
        if not verdict.offload:
            self._check_may_stay(Reason.RULE)
        self._scope = None
        if verdict.offload:
            self._kernel_listener = None
            kernel_listener.close()
            self._tell(verdict.line, local, peer)
            return True
        self._ours = self._kernel_listener = None
        if self._number_known:
            drop(super().fileno())
            os.dup2(kernel_listener.fileno(), super().fileno(), inheritable=False)
        super().settimeout(ours.gettimeout())
        ours.close()
        kernel_listener.close()
        self._reason = scope.stays(Reason.RULE)
        self._tell(verdict.line, local, peer)
        self._settle()
        self._bind_again(local)
        return False

    def _bind_again(self, address: Any) -> None:
        """Binds to the address at which the proxy was bound. The proxy releases the port only now, which matters if it
        has this host's addresses."""
        deadline = monotonic() + _REBIND_S
        while True:
            try:
                super().bind(address)
                return
            except OSError as failure:
                if failure.errno != errno.EADDRINUSE or monotonic() > deadline:
                    raise
            sleep(0.005)

    def bind(self, address: Any, /) -> None:
        if "bind" in PUT_HERE and (self._ours is not None or self._scope is not None):
            with suppress(Allowed):
                ask_guard(self, "bind", address)
                return
        if self._ours is not None:
            self._ours.bind(address)
        elif not self._decide_bind(address):
            super().bind(address)

    def connect(self, address: Any, /) -> None:
        if "connect" in PUT_HERE and (self._ours is not None or self._scope is not None):
            with suppress(Allowed):
                ask_guard(self, "connect", address)
                return
        if self._ours is None and self._scope is None:
            super().connect(address)
            return
        resolved = self._decide_connect(address, "connect")
        if self._ours is not None:
            self._ours.connect(address if resolved is None else resolved)
        else:
            super().connect(address)

    def connect_ex(self, address: Any, /) -> int:
        if "connect_ex" in PUT_HERE and (self._ours is not None or self._scope is not None):
            with suppress(Allowed):
                return int(ask_guard(self, "connect_ex", address))
        if self._ours is None and self._scope is None:
            return super().connect_ex(address)
        try:
            resolved = self._decide_connect(address, "connect_ex")
        except OSError as failure:
            if failure.errno is None:
                raise
            return failure.errno
        if self._ours is not None:
            return self._ours.connect_ex(address if resolved is None else resolved)
        return super().connect_ex(address)

    def listen(self, backlog: int = BACKLOG, /) -> None:
        backlog = c_int(backlog)
        if "listen" in PUT_HERE and (self._ours is not None or self._scope is not None):
            with suppress(Allowed):
                ask_guard(self, "listen", backlog)
                return
        if self._scope is not None and self._ours is None and not self._datagrams:
            local: Any = super().getsockname()
            if local[1]:
                verdict = self._scope.ask(Role.TCP_SERVER, local, None)
                self._stay(Reason.RULE)  # as for bind()
                self._tell(verdict.line, local, None)
            else:  # on all addresses, at a port that the proxy chooses
                self._decide_bind(("", 0))
                self._stay(Reason.RULE)  # unless the attempt has decided
        if self._ours is None:
            super().listen(backlog)
            return
        self._ours.listen(backlog)
        scope, self._scope = self._scope, None
        if self._kernel_listener is not None and scope is not None:
            self._listen_on_kernel(scope, backlog)

    def _listen_on_kernel(self, scope: Scope, backlog: int) -> None:
        ours, kernel_listener = self._ours, self._kernel_listener
        assert ours is not None and kernel_listener is not None
        local = ours.getsockname()
        try:
            if not self._pushes and not self._packets and scope.also_local(local):
                kernel_listener.bind(local)
                kernel_listener.listen(backlog)
                kernel_listener.setblocking(False)
                if self._number_known:
                    self._show_mirror()
                return
        except OSError as failure:
            warn(f"port {local[1]} is taken on this host, whose own loopback is not served: {failure}")
        self._kernel_listener = None
        kernel_listener.close()

    def _show_mirror(self) -> None:
        """Puts a descriptor that mirrors this socket's readiness in the place of the kernel socket."""
        ours, fd = self._ours, super().fileno()
        assert ours is not None
        if fd < 0:
            return
        if self._kernel_listener is not None and self._scope is None:
            with select.epoll() as both:
                both.register(ours.fileno(), select.EPOLLIN)
                both.register(self._kernel_listener.fileno(), select.EPOLLIN)
                os.dup2(both.fileno(), fd, inheritable=False)
            keep_both(fd, ours.number, self._kernel_listener.fileno())
        else:
            os.dup2(ours.fileno(), fd, inheritable=False)
            keep_under(fd, ours.number)
