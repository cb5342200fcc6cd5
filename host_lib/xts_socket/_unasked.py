"""A fall-back to the kernel that nobody asked for, after install() or offload(): told on standard error once, as the
interposer does (preload/unasked.c), and its cause is kept for `xts status --processes`."""

from __future__ import annotations

import os
import sys

from . import _report
from ._errors import attach_error
from ._native import lib
from ._reason import Reason

_REASONS = {Reason.NO_ENDPOINT, Reason.PROXY_DOWN, Reason.LIMIT, Reason.REFUSED, Reason.NO_QUEUE}

_told = False


def unasked(reason: Reason, code: int) -> None:
    """A socket that should have been offloaded stays with the kernel, or, code not 0, its call fails with that."""
    global _told  # noqa: PLW0603 - once in a process
    if reason not in _REASONS:
        return
    why = attach_error()
    if why:
        _report.attach_failed(why)
    if _told:
        return
    _told = True
    outcome = f'so calls fail with "{os.strerror(code)}"' if code else "sockets stay with the kernel"
    program = sys.orig_argv[0].rpartition("/")[2]
    text = f"{program} (process {os.getpid()}): not offloaded, {outcome} ({reason.name})"
    lib.xts_py_notice(f"{text}: {why or _text(reason)}".encode())


def _text(reason: Reason) -> str:
    from .cli.processes import reason_text

    return reason_text(reason)
