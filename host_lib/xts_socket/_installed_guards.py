"""Methods of the standard class that somebody has replaced: guards (pytest-socket) and tracers. Under install() they
are called, too, although install()'s class has methods of its own.

Theory of operation. A guard replaces `socket.socket.connect` by a function that looks at the address, and either raises
or calls the method that it found there, which is the C code's. install()'s method asks it first. For that time the
object has no descriptor, so the C code that the guard comes to has nothing to connect and fails with EBADF: that is the
guard's consent, and the real call follows. Whatever else it raises or returns is the result of the call. (So a tracer
sees the call, and a failure that the program does not see.)
"""

from __future__ import annotations

import _socket
import errno
import socket as _standard
from _thread import get_ident
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_Base = _standard.socket  # the standard module's class when this was imported
#: Its attributes. It has none of the methods that are C code's itself (connect, bind, listen, sendto …): one that is
#: here has been put here.
PUT_HERE = vars(_Base)
_asking: set[tuple[int, int]] = set()  # thread, object


class Allowed(Exception):  # noqa: N818 - not an error
    """Nobody guards the call, or the guard lets it pass."""


def _replaced(name: str) -> Any:
    """What stands in place of the C code's method; None: it is there itself."""
    found = PUT_HERE.get(name)
    return None if found is None or found is getattr(_socket.socket, name) else found


def ask_guard(sock: _standard.socket, name: str, *arguments: Any) -> Any:
    """The result of a call that somebody has replaced. Raises Allowed if the real call shall be made; or what the
    replacement raises."""
    guard = _replaced(name)
    if hasattr(type(guard), "__get__"):
        guard = guard.__get__(sock, type(sock))  # a method of the object; a Mock, for example, is none
    asked = (get_ident(), id(sock))
    if guard is None or asked in _asking:
        raise Allowed
    _asking.add(asked)
    try:
        with _without_descriptor(sock):
            result = guard(*arguments)
    except OSError as failure:
        if failure.errno != errno.EBADF:
            raise
        raise Allowed from None
    finally:
        _asking.discard(asked)
    if name == "connect_ex" and result == errno.EBADF:
        raise Allowed
    return result


@contextmanager
def _without_descriptor(sock: _standard.socket) -> Iterator[None]:
    fd = _socket.socket.fileno(sock)
    if fd < 0:
        yield
        return
    timeout = _socket.socket.gettimeout(sock)
    c_class: Any = _socket.socket
    kind = [member.__get__(sock) for member in (c_class.family, c_class.type, c_class.proto)]
    _socket.socket.detach(sock)
    try:
        yield
    finally:
        c_class.__init__(sock, *kind, fd)
        _socket.socket.settimeout(sock, timeout)
