"""The rules in force for new sockets, and asking them: an XTS socket, or the reason why there is none."""

from __future__ import annotations

import errno
import os
import sys
from _thread import allocate_lock
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from socket import SO_BINDTODEVICE, SOL_SOCKET
from typing import Any

from . import _report
from ._environment import setting
from ._errors import error
from ._fallback_notice import notice_fallback, why
from ._native import ffi, lib
from ._reason import STRICT_ERRORS, Reason, count
from ._rules import RULES_VARIABLE, Role, Rules, Verdict, application_id
from ._socket import socket

_TCP_FASTOPEN_CONNECT = 30
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}

#: Those of dev(), where the environment names none.
dev_rules: Path | None = None
_lock = allocate_lock()
_endpoint: str | None = None  # a process has one channel: the first endpoint that a rule names is its own


class Scope:
    """Rules, and what happens where they cannot be kept. For a process or for a block."""

    def __init__(self, rules: str | os.PathLike[str] | Rules | None, strict: bool) -> None:
        """`rules`: a file; None: those of XTS_RULES, or the default. Raises OSError, ValueError (RulesError)."""
        path = ""
        if rules is None and dev_rules is not None:
            rules = dev_rules
        if rules is None:
            path = setting(RULES_VARIABLE) or ""
            rules = Rules.of_environment()
        elif not isinstance(rules, Rules):
            path = os.fspath(rules)
            rules = Rules.read(path)
        self.strict = strict
        _report.start(path, strict)
        self._group = rules.group(sys.orig_argv[0].rpartition("/")[2], application_id())

    def ask(self, role: Role, local: Any, peer: Any) -> Verdict:
        return self._group.ask(role, local, peer)

    def wants_local(self, bound: Any) -> bool:
        """Is a listener bound to this address for the host's own loopback too? A wildcard one is, unless rules offload
        loopback as well."""
        loopback = _LOOPBACK.get(bound[0])
        return loopback is not None and not self.ask(Role.TCP_SERVER, (loopback, bound[1]), None).offload

    def open(
        self,
        verdict: Verdict,
        kind: tuple[int, int],
        timeout: float | None,
        notes: list[tuple[Any, ...]],
        pushes: list[Callable[[socket], None]],
    ) -> socket | Reason:
        """An XTS socket of this kind (family, type) with the options in `notes` set and what is in `pushes` pushed, or
        the reason why not. OSError: a push was refused."""
        if not verdict.offload or _is_at_loopback(notes):
            return Reason.RULE
        if not _endpoint_agrees(verdict.endpoint):
            return Reason.NO_ENDPOINT
        if any(note[1] == _TCP_FASTOPEN_CONNECT and note[2] for note in notes):
            return Reason.FASTOPEN
        try:
            made = socket(*kind)
        except OSError as failure:
            return _reason_of(failure)
        try:
            made.settimeout(timeout)
            for note in _in_force(notes):
                made.setsockopt(*note)
        except OSError as failure:
            made.close()
            return Reason.PROXY_DOWN if failure.errno in (errno.ENETDOWN, errno.ECONNRESET) else Reason.OPTION
        try:
            for push in pushes:
                push(made)
        except OSError:
            made.close()
            raise
        count(Reason.NONE)
        return made

    def stays(self, reason: Reason) -> Reason:
        """Counts a socket that stays with the kernel. OSError where a strict scope does not have that."""
        notice_fallback(reason, STRICT_ERRORS.get(reason, 0) if self.strict else 0)
        if self.strict and reason in STRICT_ERRORS:
            raise error(STRICT_ERRORS[reason], f"not offloaded ({reason.name}, strict): {why(reason)}")
        count(reason)
        return reason


#: Of the process (install), and of the block (offload); the block's goes first.
process: Scope | None = None
block: ContextVar[Scope | None] = ContextVar("xts_socket.offload", default=None)


def current() -> Scope | None:
    return block.get() or process


def _endpoint_agrees(endpoint: str | None) -> bool:
    global _endpoint  # noqa: PLW0603 - one of the process
    if endpoint is None:
        return True
    with _lock:
        if _endpoint is None:
            from ._info import configure

            try:
                configure(endpoint=endpoint)
            except OSError:
                return False
            _endpoint = endpoint
        return endpoint == _endpoint


_DEVICE = (SOL_SOCKET, SO_BINDTODEVICE)


def _is_at_loopback(notes: list[tuple[Any, ...]]) -> bool:
    """Was it bound to the loopback device (SO_BINDTODEVICE)? That is this host's own, and the kernel's business."""
    names = [note[2] for note in notes if note[:2] == _DEVICE]
    return bool(names) and not isinstance(names[-1], int) and bytes(names[-1] or b"").partition(b"\0")[0] == b"lo"


def _in_force(notes: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without devices that were named before the last: it may have been undone."""
    devices = [note for note in notes if note[:2] == _DEVICE]
    return [note for note in notes if note[:2] != _DEVICE] + devices[-1:]


def _reason_of(failure: OSError) -> Reason:
    if failure.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS):
        return Reason.LIMIT
    if failure.errno == errno.EUSERS:
        return Reason.NO_QUEUE
    if failure.errno in (errno.EACCES, errno.EPERM):
        return Reason.REFUSED
    info = ffi.new("struct xts_info *")
    attached = lib.xts_py_get_info(info) >= 0
    if not attached and info.link_error in (errno.ENOENT, errno.ECONNREFUSED):
        return Reason.NO_ENDPOINT
    return Reason.REFUSED if info.link_error in (errno.EPROTONOSUPPORT, errno.EOPNOTSUPP) else Reason.PROXY_DOWN
