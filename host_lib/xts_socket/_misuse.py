"""Mistakes of callers, told in one way: what was wrong, where, and what to do.

`named` is for functions and classes with keywords of ours: an unknown one is a TypeError with the one that was meant.
`wanted` makes the TypeError for an argument of a wrong type. `of_pdus` refuses calls about PDUs on a stream. (The wrong
moment for a call is known in C, where `last_error_note` adds the sentence, for callers in C as well.)
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Iterable
from socket import SOCK_SEQPACKET
from typing import Any, ParamSpec, TypeVar

from ._errors import explained

_P = ParamSpec("_P")
_R = TypeVar("_R")
_TAKES_ANY, _COROUTINE = 0x08, 0x80  # inspect.CO_VARKEYWORDS, CO_COROUTINE; inspect itself takes long to import


def unknown_keyword(where: str, name: str, known: Iterable[str]) -> TypeError:
    from difflib import get_close_matches

    known = list(known)
    close = get_close_matches(name, known, 1)
    advice = f"did you mean {close[0]}?" if close else f"it has {', '.join(known)}"
    return TypeError(f"{where}() has no argument {name}: {advice}")


def named(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, which says what was meant when it gets a keyword that it does not have."""
    code = getattr(function, "__wrapped__", function).__code__
    known = [name for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if name != "self"]
    if code.co_flags & _TAKES_ANY:
        return function
    where = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

    def check(keywords: Iterable[str]) -> None:
        for name in keywords:
            if name not in known:
                raise unknown_keyword(where, name, known)

    if code.co_flags & _COROUTINE:

        async def checked_later(*arguments: _P.args, **keywords: _P.kwargs) -> Any:
            check(keywords)
            return await function(*arguments, **keywords)  # type: ignore[misc]  # it is a coroutine function

        return functools.wraps(function)(checked_later)  # type: ignore[return-value]

    @functools.wraps(function)
    def checked(*arguments: _P.args, **keywords: _P.kwargs) -> _R:
        if keywords:
            check(keywords)
        return function(*arguments, **keywords)

    return checked


class Named(type):
    """The same for classes whose parameters are their fields: dataclasses with keywords only."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        from dataclasses import fields  # it takes long to import, and whoever calls this has done it

        known = [one.name for one in fields(cls)]  # type: ignore[arg-type]  # each is a dataclass
        if arguments and known:
            raise TypeError(f"{cls.__name__}() takes its arguments by name: {', '.join(f'{one}=…' for one in known)}")
        for name in keywords:
            if name not in known:
                raise unknown_keyword(cls.__name__, name, known)
        return super().__call__(*arguments, **keywords)


def wanted(where: str, what: str, found: object) -> TypeError:
    return TypeError(f"{where}: {what} is wanted, not {found!r}")


def of_pdus(call: str, kind: int) -> None:
    """OSError (EOPNOTSUPP) unless the socket is of a type that has PDUs."""
    if kind != SOCK_SEQPACKET:
        why = (
            f"{call}() is for sockets of type SOCK_SEQPACKET, with a protocol that makes PDUs, "
            "as create_connection(push=[Lines()]) makes them; a stream has recv() and send()"
        )
        raise explained(OSError(errno.EOPNOTSUPP, f"{os.strerror(errno.EOPNOTSUPP)}: {why}"), why)
