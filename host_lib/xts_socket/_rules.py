"""Transport rules: which sockets of which program are offloaded (host_lib/RULES.md; native/rules/rules.h).

    rules = Rules.read("xts.conf")
    verdict = rules.group("nginx", None).ask(Role.TCP_CLIENT, None, ("2001:db8::1", 443))

Reading blocks for the file; asking does not. Addresses are the socket module's tuples, with numbers, not names.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from enum import IntEnum
from socket import AF_INET, AF_INET6, htons, inet_pton
from struct import pack
from typing import Any, NamedTuple

from ._environment import setting
from ._native import ffi, lib

#: The variable with the path of a process's rules.
RULES_VARIABLE = "XTS_RULES"
#: The variable that says whether loopback is offloaded as other addresses are.
LOOPBACK_VARIABLE = "XTS_LOOPBACK"


class Role(IntEnum):
    """What a socket is about to do; the numbers are those of enum xts_role."""

    TCP_SERVER = 0
    TCP_CLIENT = 1
    UDP_SENDER = 2
    UDP_RECEIVER = 3
    UDP_CONNECT = 4


class Verdict(NamedTuple):
    """The answer for a socket."""

    offload: bool
    line: int  # line of the rule or `default` that decided; 0: the built-in default
    group_line: int  # line of the application-id above it; 0: before any
    endpoint: str | None  # path of the attach socket that the rule names
    why: str


class Step(NamedTuple):
    """A group or rule that was tried."""

    line: int
    mismatch: str | None  # None: it fits


class Mistake(NamedTuple):
    """What is wrong in a line of a rule file."""

    line: int
    column: int
    text: str


class RulesError(ValueError):
    """A rule file that was refused; str() has a line `path:line:column: expected …, found …` for each mistake.

    `mistakes` has the first 32, in the file's order; `count` counts all. `line`, `column` and `text` are the first's.
    """

    def __init__(self, path: str, mistakes: list[Mistake], count: int) -> None:
        self.path, self.mistakes, self.count = path, mistakes, count
        self.line, self.column, self.text = mistakes[0]
        lines = [self.where(mistake) for mistake in mistakes]
        more = count - len(mistakes)
        super().__init__("\n".join(lines + ([f"{path}: and {more} more"] if more else [])))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, self.mistakes, self.count), self.__dict__

    def where(self, mistake: Mistake) -> str:
        """One mistake as a line."""
        return f"{self.path}:{mistake.line}:{mistake.column}: {mistake.text}"


def offload_loopback(wanted: bool) -> None:
    """The device is this machine: loopback is offloaded as other addresses are, in all rules that this process asks."""
    lib.xts_rules_loopback(wanted)


def loopback_of_environment() -> bool:
    """What XTS_LOOPBACK says."""
    return setting(LOOPBACK_VARIABLE) == "1"


offload_loopback(loopback_of_environment())


def application_id() -> str | None:
    """The id of this process, from the environment; None if it has none."""
    return setting("XTS_APPLICATION_ID")


class Rules:
    """The rules of a file, or the default ones. Immutable; any thread may ask."""

    def __init__(self, native: Any) -> None:
        self._native = native

    @classmethod
    def read(cls, path: str) -> Rules:
        """The rules of a file. Raises RulesError for faults in it, OSError if it cannot be read."""
        return cls._taken(path, lib.xts_rules_read, os.fsencode(path))

    @classmethod
    def parse(cls, text: bytes, path: str = "rules") -> Rules:
        """The same for the text of a file; `path` is for the message of RulesError."""
        return cls._taken(path, lib.xts_rules_parse, text, len(text))

    @classmethod
    def default(cls) -> Rules:
        """The rules without a file: TCP is offloaded, except on loopback (XTS_LOOPBACK)."""
        return cls(lib.xts_rules_default())

    @classmethod
    def of_environment(cls) -> Rules:
        """The rules of $XTS_RULES, or without it the default. Raises as read() does."""
        path = setting(RULES_VARIABLE)
        return cls.read(path) if path else cls.default()

    @classmethod
    def _taken(cls, path: str, function: Any, *arguments: Any) -> Rules:
        out, errors = ffi.new("struct xts_rules **"), ffi.new("struct xts_rules_errors *")
        result = function(out, *arguments, errors)
        if result == -errno.EINVAL and errors.count:
            kept = [errors.error[i] for i in range(min(errors.count, lib.XTS_RULES_ERRORS))]
            mistakes = [Mistake(e.line, e.column, ffi.string(e.text).decode("ascii", "replace")) for e in kept]
            raise RulesError(path, mistakes, errors.count)
        if result < 0:
            raise OSError(-result, os.strerror(-result), path)
        return cls(ffi.gc(out[0], lib.xts_rules_free))

    def group(self, program: str, id: str | None, user: str | int | None = None, cgroup: str | None = None) -> Group:
        """The rules for a program, by its short name, its id, its user and its cgroup."""
        native, _kept = _program(program, id, user, cgroup)
        return Group(self, lib.xts_rules_group(self._native, native))

    def group_here(self, program: str, id: str | None) -> Group:
        """The same for this process, with its own user and cgroup."""
        return Group(self, lib.xts_rules_group_here(self._native, os.fsencode(program), _id(id)))

    def tried_groups(
        self, program: str, id: str | None, user: str | int | None = None, cgroup: str | None = None
    ) -> Iterator[Step]:
        """The groups tried for a program, up to the one that fits."""
        line, why = ffi.new("unsigned *"), ffi.new("char **")
        native, _kept = _program(program, id, user, cgroup)
        n = 0
        while lib.xts_rules_try_group(self._native, n, native, line, why):
            yield Step(line[0], _text(why[0]))
            if not why[0]:
                return
            n += 1

    def notes(self) -> list[tuple[int, str]]:
        """Statements that have no effect, or that match more than may be meant, by line. May be called only once."""
        if lib.xts_rules_take_notes(self._native):
            raise MemoryError
        line, text = ffi.new("unsigned *"), ffi.new("char **")
        found: list[tuple[int, str]] = []
        while lib.xts_rules_note(self._native, len(found), line, text):
            found.append((line[0], _text(text[0]) or ""))
        return sorted(found)


class Group:
    """The rules for one program."""

    def __init__(self, rules: Rules, native: Any) -> None:
        self._rules = rules  # keeps the rules alive
        self._native = native

    def ask(self, role: Role, local: tuple[Any, ...] | None, peer: tuple[Any, ...] | None) -> Verdict:
        """Is such a socket offloaded? An address of None is not known (yet)."""
        verdict = lib.xts_rules_ask(self._native, role, _sockaddr(local), _sockaddr(peer))
        endpoint = os.fsdecode(ffi.string(verdict.endpoint)) if verdict.endpoint else None
        return Verdict(verdict.offload, verdict.line, verdict.group_line, endpoint, _text(verdict.why) or "")

    def decide(self, kind: tuple[int, int, int], role: Role, local: Any, peer: Any, out: Any) -> None:
        """Decides about a socket (_decision.py)."""
        undecided = ffi.new("struct xts_undecided *", (self._native, *kind))
        lib.xts_decide(undecided, role, _sockaddr(local), _sockaddr(peer), out)

    def also_local(self, bound: tuple[Any, ...]) -> bool:
        """Does an offloaded listener with this bound address also need a kernel socket for this host's loopback?"""
        return lib.xts_decide_also_local(self._native, _sockaddr(bound))

    def may_offload(self, role: Role) -> bool:
        """Could any socket of this role be offloaded?"""
        return lib.xts_rules_may_offload(self._native, role)

    def tried(self, role: Role, local: tuple[Any, ...] | None, peer: tuple[Any, ...] | None) -> Iterator[Step]:
        """The rules tried for such a socket, up to the one that matches; including those of other roles."""
        line, why = ffi.new("unsigned *"), ffi.new("char **")
        local_address, peer_address = _sockaddr(local), _sockaddr(peer)
        n = 0
        while lib.xts_rules_try(self._native, n, role, local_address, peer_address, line, why):
            yield Step(line[0], _text(why[0]))
            if not why[0]:
                return
            n += 1


_NO_USER = 0xFFFFFFFF  # (uid_t) -1


def _program(program: str, id: str | None, user: str | int | None, cgroup: str | None) -> tuple[Any, list[Any]]:
    """struct xts_rule_program, and the memory that it points to. A user given by number has no name, and one given by
    name no number."""
    number = int(user) if user is not None and str(user).isdecimal() else _NO_USER
    name = None if number != _NO_USER else user
    texts = [None if one is None else ffi.new("char[]", os.fsencode(str(one))) for one in (program, id, name, cgroup)]
    native = ffi.new("struct xts_rule_program *", {"uid": number & _NO_USER})
    native.name, native.id, native.user, native.cgroup = (ffi.NULL if one is None else one for one in texts)
    return native, texts


def _id(id: str | None) -> Any:
    return ffi.NULL if id is None else os.fsencode(id)


def _text(text: Any) -> str | None:
    return ffi.string(text).decode("ascii", "replace") if text else None


def _sockaddr(address: tuple[Any, ...] | None) -> Any:
    """The struct sockaddr of a tuple, whose family follows from the form of the address, as rules have no families."""
    if address is None:
        return ffi.NULL
    host, port = address[:2]
    if ":" in host:
        return pack("=HHI16sI", AF_INET6, htons(port), 0, inet_pton(AF_INET6, host.partition("%")[0]), 0)
    return pack("=HH4s8x", AF_INET, htons(port), inet_pton(AF_INET, host))
