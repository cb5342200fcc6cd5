"""install() and offload(): programs that use the standard socket module, offloaded by the transport rules.

Public names are replaced: `socket.socket` (create_connection, create_server, asyncio, http.client and all others that
make sockets through the module follow), the functions that take descriptors (`socket.fromfd`, `dup`, `close`, and in
`os` read, write and others: _installed_descriptor.py), those that look up names (`socket.getaddrinfo` and related
functions), and what makes an `ssl.SSLSocket`. `subprocess.Popen` refuses offloaded sockets as standard input and
output. Modules that have imported the class by name before (`from socket import socket`) keep the standard one.
"""

from __future__ import annotations

import os
import socket as _standard
import ssl
from _thread import allocate_lock
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from . import _installed_descriptor, _installed_multiprocessing, _installed_socket, _made_in_c, _scope, _when_imported
from ._descriptor import close, dup
from ._installed_names import where_offloaded
from ._kernel_socket import KernelSocket
from ._misuse import named
from ._names import FUNCTIONS
from ._rules import Rules
from ._scope import Scope
from ._ssl import create
from ._warning import warn

RulesSource = str | os.PathLike[str] | Rules | None

_lock = allocate_lock()
_users = 0  # install(), and the blocks of offload() that are running
_saved: list[tuple[Any, str, Any]] = []


@named
def install(rules: RulesSource = None, strict: bool | None = None) -> bool:
    """Makes `socket.socket` of the standard module offload the sockets that the rules select, from now on.

    rules: path of a rule file (host_lib/RULES.md); None: the file of XTS_RULES, or the default: TCP is offloaded except
    on loopback. strict: if a socket would have to stay with the kernel for a reason other than a rule, its call fails
    with OSError; None: as XTS_STRICT says. A second call changes the rules. Under `xts run` (libxts-preload), where
    sockets are offloaded already, it only warns (RuntimeWarning) and returns False; otherwise it returns True. Raises
    OSError, or ValueError (RulesError: path:line:column) for a fault in the rules; then nothing has changed.
    """
    if _preloaded():
        return False
    scope = Scope(rules, strict)
    with _lock:
        if _scope.process is None:
            _enter()
        _scope.process = scope
    return True


def uninstall() -> None:
    """Undoes install(). Open sockets stay what they are."""
    with _lock:
        if _scope.process is not None:
            _scope.process = None
            _leave()


@named
@contextmanager
def offload(rules: RulesSource = None, strict: bool | None = None) -> Iterator[None]:
    """`with offload():` is install() for the sockets that the block makes, in this thread or asyncio task.

    The rules are a context variable: tasks begun in the block have them, threads started in it do not (unless run in a
    copy of the context), and sockets made elsewhere at the same time are not affected by the block. Blocks nest.
    Sockets outlive the block.
    """
    if _preloaded():
        yield
        return
    scope = Scope(rules, strict)
    with _lock:
        _enter()
    token = _scope.block.set(scope)
    try:
        yield
    finally:
        _scope.block.reset(token)
        with _lock:
            _leave()


@cache
def under_interposer() -> bool:
    """Was this process started by `xts run`, so that libxts-preload offloads its sockets?"""
    return "libxts-preload" in Path("/proc/self/maps").read_text()


def _preloaded() -> bool:
    if not under_interposer():
        return False
    warn("this process runs under libxts-preload, which offloads its sockets already: nothing to do for xts_socket")
    return True


def _enter() -> None:
    global _users  # noqa: PLW0603 - of the process, as what it counts
    _users += 1
    if _users > 1:
        return
    for owner, name, ours in (
        (_standard, "socket", _installed_socket.socket),
        (_standard, "fromfd", _installed_socket.fromfd),
        (_standard, "dup", dup),
        (_standard, "close", close),
        (ssl.SSLSocket, "_create", classmethod(create)),
        *((os, name, function) for name, function in _installed_descriptor.FUNCTIONS.items()),
        *((_standard, name, where_offloaded(name)) for name in FUNCTIONS),
    ):
        _replace(owner, name, ours)
    _made_in_c.look_out()
    _installed_multiprocessing.tell(_installed_socket.socket, KernelSocket)
    _when_imported.when_imported("subprocess", _replace_in_subprocess)


def _replace(owner: Any, name: str, ours: Any) -> None:
    _saved.append((owner, name, vars(owner)[name]))
    setattr(owner, name, ours)


def _replace_in_subprocess(subprocess: Any) -> None:
    _replace(subprocess.Popen, "__init__", _installed_descriptor.refusing(subprocess.Popen.__init__))


def _leave() -> None:
    global _users  # noqa: PLW0603
    _users -= 1
    if not _users:
        for owner, name, before in _saved:
            setattr(owner, name, before)
        _saved.clear()
        _when_imported.stop()
