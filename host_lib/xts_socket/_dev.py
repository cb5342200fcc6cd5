"""`with xts_socket.dev():` runs an offload proxy of this process's own while the block lasts."""

from __future__ import annotations

import atexit
import errno
import os
from _thread import allocate_lock
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from xts_messages.settings.configuration_file import read_text

from . import _report
from ._dev_proxy import DevProxy
from ._environment import DEFAULT_ENDPOINT, setting
from ._info import configure
from ._install import under_interposer
from ._misuse import named, wanted
from ._native import lib
from ._rules import LOOPBACK_VARIABLE, loopback_of_environment, offload_loopback

_VARIABLES = ("XTS_ENDPOINT", "XTS_QUEUE", LOOPBACK_VARIABLE)

_lock = allocate_lock()
_proxy: DevProxy | None = None  # shared by all blocks of the process
_users = 0
_before: dict[str, str | None] = {}


class GivenProxy:
    """The proxy of `xts dev` or `xts run`, which started this process: there is no other one in it."""

    @property
    def endpoint(self) -> str:
        """The endpoint to which programs attach."""
        queue = setting("XTS_QUEUE") or ""
        return queue.removeprefix("shm:") or setting("XTS_ENDPOINT") or DEFAULT_ENDPOINT

    @property
    def control(self) -> str:
        """The socket that `xts-proxy status` uses, if this machine can reach it."""
        return setting("XTS_CONTROL") or ""

    def environment(self, **extra: str) -> dict[str, str]:
        """os.environ with `extra`: programs started with it attach to the same proxy."""
        return {**os.environ, **extra}

    def log_text(self) -> str:
        """Empty: the program that started the proxy has the log."""
        return ""

    def _not_ours(self) -> NoReturn:
        text = "the proxy is that of `xts dev` or `xts run`: run without it for one that can be stopped and killed"
        raise OSError(errno.EPERM, text)

    kill = start = pause = resume = _not_ours


@named
@contextmanager
def dev(tables: str | os.PathLike[str] = "") -> Iterator[DevProxy | GivenProxy]:
    """An offload proxy for this process, without privilege or configuration, used by XTS sockets that are made in the
    block.

    Its network is this machine's, loopback included. It is a process over shared memory, and ends with the block or
    with this process, however that ends. os.wait() does not find it, unless this process is the one that gets
    orphans. Blocks may nest and run in several threads; they share one proxy, which ends with the last of them.
    Then open XTS sockets end (ECONNRESET); bytes that were sent on closed ones are still delivered. Programs
    started in the block attach to it as well (XTS_ENDPOINT). In them, and under install() and offload(), loopback is
    offloaded as other addresses are, unless rules say otherwise (XTS_LOOPBACK). After fork(), the child's new
    sockets also use the proxy, which still belongs to the parent.

    Under `xts dev` and `xts run` the process has a proxy already: the block uses that one, and changes nothing.

    tables: additional configuration for the proxy, for example [[tls.identity]] (deploy/xts-proxy.toml): its text, or
    the path of a file with it. Raises OSError: ENOENT and its like if that cannot be read; EBUSY if this process is
    attached to another proxy already, or if `tables` are given and a proxy runs already; ENETDOWN if the proxy could
    not be started; ENOSYS on a kernel before 5.3. The text gives the reason.
    """
    if under_interposer():
        if tables:
            raise OSError(errno.EBUSY, "the proxy of `xts dev` or `xts run` runs already: give the tables to that one")
        yield GivenProxy()
        return
    proxy = _enter(tables)
    try:
        yield proxy
    finally:
        _leave()


def _enter(tables: str | os.PathLike[str]) -> DevProxy:
    global _proxy, _users  # noqa: PLW0603 - of the process, as its attachment
    with _lock:
        if _proxy is None:
            _proxy = _started(tables)
        _users += 1
        return _proxy


def tables_and_origin(tables: str | os.PathLike[str]) -> tuple[str, str]:
    """The text of tables, and the file in which mistakes in it are reported. TOML has a table or a key, or a comment: a
    text without them is a path. OSError: that file cannot be read."""
    if isinstance(tables, str) and (not tables or tables.startswith("#") or any(mark in tables for mark in "[=\n")):
        return tables, "tables"
    if not isinstance(tables, str | os.PathLike):
        raise wanted("dev(tables=…)", "a text or the path of a file", tables)
    path = os.fspath(tables)
    try:
        return read_text(path), path
    except OSError as failure:
        why = f"tables: {path}: {failure.strerror} (taken for the path of a file: it has no [table] and no key = value)"
        raise OSError(failure.errno, why) from None


def _started(tables: str | os.PathLike[str]) -> DevProxy:
    text, origin = tables_and_origin(tables)
    proxy = DevProxy(text, tables_file=origin, hidden=True)
    proxy.start()
    try:
        configure(endpoint=proxy.endpoint)
    except OSError as failure:
        proxy.kill()
        if failure.errno != errno.EBUSY:
            raise
        text = "this process is attached to an offload proxy already: enter dev() before its first XTS socket"
        raise OSError(errno.EBUSY, text) from None
    _before.update({name: os.environ.get(name) for name in _VARIABLES})
    os.environ["XTS_ENDPOINT"] = proxy.endpoint
    os.environ.pop("XTS_QUEUE", None)
    os.environ[LOOPBACK_VARIABLE] = "1"
    offload_loopback(True)
    return proxy


def _leave() -> None:
    global _users  # noqa: PLW0603
    with _lock:
        _users = max(0, _users - 1)
        if not _users:
            _end()


def _end() -> None:
    """Waits until data that closed sockets have sent has left, then ends the proxy. Also called at the interpreter's
    exit, if the block of a thread has not been left by then."""
    global _proxy
    if _proxy is None:
        return
    proxy, _proxy = _proxy, None
    lose()
    lib.xts_leave()
    offload_loopback(loopback_of_environment())
    _report.attached_at(None)
    for name, value in _before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    _before.clear()
    proxy.stop()


def lose(share: float = 0.0, count: int = 0) -> None:
    """For tests: the next `count` messages that this process sends are lost, and of the others this share."""
    lib.xts_lose(round(share * 1e6), count)


def _in_child() -> None:
    """After a fork: leaving blocks that were entered in the parent affects only this process."""
    global _lock  # noqa: PLW0603
    _lock = allocate_lock()
    if _proxy is not None and not _proxy.is_ours():
        _proxy.forget()


os.register_at_fork(after_in_child=_in_child)
atexit.register(_end)
