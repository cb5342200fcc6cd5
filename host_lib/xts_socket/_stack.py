"""`Stack`: a queue and a lock of its own for the sockets that a thread makes, perhaps at another endpoint.

The setting XTS_STACKS gives threads their stacks without this; a `Stack` is for a program that decides itself where
each socket is made:

    with Stack(endpoint="/run/xts/west.sock") as stack:
        s = xts_socket.socket()  # at west; so are others that this thread makes here
"""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from ._errors import check
from ._misuse import named, wanted
from ._native import ffi, lib

if TYPE_CHECKING:
    from ._base import SocketBase


def _use(number: int) -> int:
    before = ffi.new("int *")
    check(lib.xts_py_stack_use(number, before))
    return int(before[0])


class Stack:
    """A stack of libxts. New sockets of a thread are made in it between `with` and its end, or after `use()`."""

    @named
    def __init__(self, endpoint: str | os.PathLike[str] | None = None) -> None:
        """endpoint: path of the agent's or proxy's socket; None: the process's. It attaches with its first socket."""
        if endpoint is not None and not isinstance(endpoint, str | bytes | os.PathLike):
            raise wanted("Stack(endpoint=…)", "a path", endpoint)
        path = ffi.NULL if endpoint is None else ffi.new("char[]", os.fsencode(endpoint))
        self.number: int = check(lib.xts_py_stack_create(path))
        self._before = threading.local()
        self._released = False

    def use(self) -> None:
        """From now on, new sockets of the calling thread are made in this stack."""
        _use(self.number)

    def release(self) -> None:
        """From now on no new sockets are made in it. It ends with its last socket. May be called again."""
        if not self._released:
            self._released = True
            check(lib.xts_py_stack_release(self.number))

    def __enter__(self) -> Stack:
        self._before.number = _use(self.number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _use(self._before.number)
        self.release()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.number}{' released' if self._released else ''}>"


def stack_of(s: SocketBase) -> int:
    """The number of the stack that contains a socket. OSError (EBADF) if the socket is closed."""
    number = getattr(s, "number", None)
    if not isinstance(number, int):
        raise wanted("stack_of()", "a socket of xts_socket", s)
    return check(lib.xts_py_stack_of(number))
