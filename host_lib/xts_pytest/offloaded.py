"""Which sockets of this process were offloaded, and why the others were not, since a moment: for the marker."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from xts_socket import install, uninstall
from xts_socket.cli.processes.interposed import REPORT_LINK, Interposed, describe, read_page, reason_text
from xts_socket.testing import replaced, under_interposer

__all__ = ["Offloaded", "under_interposer"]

#: Of sockets that are not TCP.
_NOT_TCP = frozenset({"PROTOCOL", "FAMILY"})
_UNSEEN = (
    "no socket of this test was offloaded: it made none through the socket module. Sockets that modules make in C"
    " (uvloop, grpcio, gevent, psycopg) are offloaded only where the tests run as `xts dev -- pytest`"
)
_REPLACED = (
    "no socket of this test was offloaded: something has put another class in place of socket.socket, such as the"
    " fixture socket_enabled of pytest-socket"
)
_NONE = "no socket of this test was offloaded: this process made none. Programs that a test starts are not counted"
_NO_TCP = (
    "no socket of this test was offloaded: it made none that is TCP. UDP is offloaded where a rule says so"
    " (host_lib/RULES.md)"
)


class Offloaded:
    """From entering on, the standard module's sockets are offloaded and counted. A context manager."""

    def __init__(self) -> None:
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        if not under_interposer():
            install()
            self._undo.callback(uninstall)
        self._offloaded, self._stayed = _counts()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def problem(self, allowed: frozenset[str]) -> str | None:
        """What was not offloaded, with the reasons, except those allowed; or that nothing was."""
        offloaded, stayed = _counts()
        news = {name: count for name, count in (stayed - self._stayed).items() if name not in _NOT_TCP | allowed}
        if news:
            return "\n".join(_line(name, count) for name, count in news.items())
        if offloaded != self._offloaded:
            return None
        if any(stayed[name] > self._stayed[name] for name in _NOT_TCP):
            return _NO_TCP
        if under_interposer():
            return _NONE
        return _REPLACED if replaced() else _UNSEEN


def _line(name: str, count: int) -> str:
    page = _own_page()
    number, why = next(((r.number, r.text) for r in page.stayed if r.name == name), (0, "")) if page else (0, "")
    cause = page.attach_error if page and page.attach_error else why or reason_text(number)
    sockets = "1 socket was" if count == 1 else f"{count} sockets were"
    return f"{sockets} not offloaded ({name}): {cause}"


def _counts() -> tuple[int, Counter[str]]:
    page = _own_page()
    if page is None:
        return 0, Counter()
    return page.offloaded, Counter({reason.name: reason.count for reason in page.stayed})


def _own_page() -> Interposed | None:
    """What `xts status --processes` shows of this process; the interposer and install() write it alike."""
    for link in Path("/proc/self/fd").iterdir():
        try:
            if os.readlink(link) != REPORT_LINK:  # noqa: PTH115 - a Path would be made of what is no path
                continue
            page = read_page(link.read_bytes())
        except OSError:
            continue
        if page is not None and page.pid == os.getpid():
            return describe(page.pid, page)
    return None
