"""Notices about sockets that should have been offloaded, after install() or offload(), and stay with the kernel:
written to standard error once for each reason among the processes of one `xts run` or `xts dev`, as by the interposer
(preload/fallback_notice.c). The cause is kept for `xts status --processes`."""

from __future__ import annotations

import os
import sys

from . import _report
from ._native import lib
from ._once_per_run import once_per_run
from ._reason import Reason

_FAILURES = 32  # preload/fallback_notice.c: the first number in the page for reasons that made calls fail


def notice_fallback(reason: Reason, code: int, attach_error: str) -> None:
    """A socket that should have been offloaded stays with the kernel or, if code is not 0, its call fails with code.
    `attach_error`: the endpoint's explanation, or empty."""
    if not lib.xts_reason_is_noticed(reason) and not code:
        return
    if attach_error:
        _report.attach_failed(attach_error)
    if not once_per_run(reason + (_FAILURES if code else 0)):
        return
    outcome = f'so calls fail with "{os.strerror(code)}"' if code else "sockets stay with the kernel"
    program = sys.orig_argv[0].rpartition("/")[2]
    text = f"{program} (process {os.getpid()}): not offloaded, {outcome} ({reason.name})"
    lib.xts_py_notice(f"{text}: {why(reason, attach_error)}".encode())


def why(reason: Reason, attach_error: str) -> str:
    """The sentence about the reason: the endpoint's own, if there is one."""
    from .cli.processes import reason_text

    return attach_error or reason_text(reason)
