"""The rules in force for new sockets, and decisions by them."""

from __future__ import annotations

import errno
import os
import sys
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from . import _report
from ._decision import Decision
from ._environment import setting
from ._errors import error
from ._fallback_notice import notice_fallback, why
from ._misuse import wanted
from ._native import lib
from ._once_per_run import count_in_run
from ._reason import Reason, count
from ._rules import RULES_VARIABLE, Group, Role, Rules, RulesError, Verdict, application_id

_endpoint_used = False  # whether an endpoint that a rule names has been used


def _read(path: str) -> Rules:
    """The rules of a file, which is read again only if it has changed: a program may have a block for each request.
    Raises as Rules.read()."""
    try:
        found = Path(path).stat()
    except OSError:
        return Rules.read(path)
    return _read_as_it_is(path, (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))


@lru_cache(maxsize=16)
def _read_as_it_is(path: str, _identity: tuple[int, ...]) -> Rules:
    return Rules.read(path)


@cache
def _default() -> Rules:
    return Rules.default()


class Scope:
    """Rules, and whether they are strict. For a process or for a block."""

    def __init__(self, rules: str | os.PathLike[str] | Rules | None, strict: bool | None) -> None:
        """`rules`: a file; None: the file of XTS_RULES, or the default. `strict` None: as XTS_STRICT says. Raises
        OSError, ValueError (RulesError)."""
        path: str | os.PathLike[str] = ""
        if rules is None:
            path = setting(RULES_VARIABLE) or ""
            rules = _read(path) if path else _default()
        elif not isinstance(rules, Rules):
            if not isinstance(rules, str | os.PathLike):
                raise wanted("rules", "the path of a file", rules)
            path = os.fspath(rules)
            rules = _read(path)
        self.strict = setting("XTS_STRICT") == "1" if strict is None else strict
        _report.start(str(path), self.strict)
        self._path = os.path.abspath(path) if path else ""  # noqa: PTH100 - nothing is resolved
        self._take(rules)

    def _take(self, rules: Rules) -> None:
        self._own_group = rules.group_here(sys.orig_argv[0].rpartition("/")[2], application_id())

    @property
    def _group(self) -> Group:
        """The rules now: read again if `xts rules reload` has asked for it."""
        if number := lib.xts_control_rules_asked():
            self._read_again(number)
        return self._own_group

    def _read_again(self, number: int) -> None:
        """If that fails, the earlier ones hold. A scope whose rules are not from a file has nothing to read."""
        code, why = 0, ""
        try:
            if self._path:
                self._take(Rules.read(self._path))
            else:
                code, why = errno.ENOENT, "the process has no file of rules"
        except RulesError as failure:
            code, why = errno.EINVAL, str(failure).splitlines()[0]
        except OSError as failure:
            code, why = failure.errno or errno.EIO, failure.strerror or str(failure)
        if code:
            lib.xts_py_notice(f"{self._path}: rules not read again, those before hold: {why}".encode())
        lib.xts_control_rules_done(number, code, why.encode())

    def ask(self, role: Role, local: Any, peer: Any) -> Verdict:
        return self._group.ask(role, local, peer)

    def may_offload_datagrams(self) -> bool:
        """Do the rules offload any datagram socket?"""
        return any(map(self._group.may_offload, (Role.UDP_SENDER, Role.UDP_RECEIVER, Role.UDP_CONNECT)))

    def decide(self, role: Role, kind: tuple[int, int, int], local: Any, peer: Any) -> Decision:
        """Decides about a socket: `kind` is its descriptor, family and type."""
        decision = Decision(self._group, role, kind, local, peer)
        if decision.ours is not None and (endpoint := decision.endpoint) is not None:
            _tell_endpoint(endpoint)
        return decision

    def also_local(self, bound: Any) -> bool:
        """Does a listener bound to this address also need a kernel socket for the host's own loopback?"""
        return self._group.also_local(bound)

    def offloaded(self) -> None:
        """Counts a socket that is offloaded."""
        if self.strict:
            count_in_run(Reason.NONE)
        count(Reason.NONE)

    def stays(self, reason: Reason, explanation: str = "") -> Reason:
        """Counts a socket that stays with the kernel. OSError if a strict scope does not allow that."""
        code = lib.xts_reason_error(reason) if self.strict else 0
        notice_fallback(reason, code, explanation)
        if code:
            count_in_run(reason)
            raise error(code, f"not offloaded ({reason.name}, strict): {why(reason, explanation)}")
        count(reason)
        return reason


#: The scope of the process (install), and that of the block (offload), which takes precedence.
process: Scope | None = None
block: ContextVar[Scope | None] = ContextVar("xts_socket.offload", default=None)


def current() -> Scope | None:
    return block.get() or process


def _tell_endpoint(endpoint: str) -> None:
    """`xts status` shows the first one that is used."""
    global _endpoint_used  # noqa: PLW0603 - one of the process
    if not _endpoint_used:
        _endpoint_used = True
        _report.attached_at(endpoint)
