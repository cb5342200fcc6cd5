"""Kernel or offloaded: the decision about a socket, which is made in C (native/decision/decision.h)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os import fsdecode
from socket import SO_BINDTODEVICE, SOCK_CLOEXEC, SOL_SOCKET
from typing import Any

from xts_messages.terminal.printable import printable

from ._native import ffi, lib
from ._reason import Reason
from ._rules import Group, Role
from ._socket import socket

_DEVICE = (SOL_SOCKET, SO_BINDTODEVICE)


class Decision:
    """The decision about one socket. `ours` is the XTS socket that replaces it; None: it stays with the kernel, for
    `reason`."""

    __slots__ = ("_native", "ours")

    def __init__(self, group: Group, role: Role, kind: tuple[int, int, int], local: Any, peer: Any) -> None:
        """`kind`: descriptor of the kernel socket, family and type of the XTS socket. Addresses as in Group.ask()."""
        self._native = ffi.new("struct xts_decision *")
        fd, family, type = kind
        group.decide((fd, family, type | SOCK_CLOEXEC), role, local, peer, self._native)
        self.ours = None if self._native.s < 0 else socket(family, type, 0, self._native.s)

    @property
    def reason(self) -> Reason:
        return Reason(self._native.reason)

    @property
    def line(self) -> int:
        """The line of the rules that decided; 0: none did."""
        return int(self._native.line)

    @property
    def endpoint(self) -> str | None:
        """The endpoint that the rule names."""
        return fsdecode(ffi.string(self._native.endpoint)) if self._native.endpoint else None

    @property
    def explanation(self) -> str:
        """More than the reason tells: what the endpoint said, or which option failed; mostly empty."""
        return printable(ffi.string(self._native.explanation).decode(errors="replace"))

    def repeat(
        self, timeout: float | None, options: list[tuple[Any, ...]], pushes: list[Callable[[socket], None]]
    ) -> None:
        """Sets the options on the XTS socket, and pushes. OSError: a push was refused; then there is no XTS socket."""
        if self.ours is None:
            return
        self.ours.settimeout(timeout)
        for option in _in_force(options):
            try:
                self.ours.setsockopt(*option)
            except OSError as failure:
                lib.xts_decision_option_failed(self._native, int(option[0]), int(option[1]), failure.errno or 0)
                self.ours.close()
                self.ours = None
                return
        try:
            for push in pushes if self.ours is not None else ():
                push(self.ours)
        except OSError:
            self.ours.close()
            raise

    def bind(self, address: Any) -> None:
        """Binds the XTS socket, if there is one. OSError: the address is refused, wherever the socket is."""
        if self.ours is None:
            return
        with self._step(lib.XTS_STEP_BIND):
            self.ours.bind(address)

    @contextmanager
    def _step(self, step: int) -> Iterator[None]:
        assert self.ours is not None
        try:
            yield
        except OSError as failure:
            self.ours.close()
            self.ours = None
            lib.xts_decision_failed(self._native, step, failure.errno or 0)
            if self._native.error:
                raise


def _in_force(options: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without options that name a device, except the last: the others may have been undone."""
    devices = [option for option in options if option[:2] == _DEVICE]
    return [option for option in options if option[:2] != _DEVICE] + devices[-1:]
