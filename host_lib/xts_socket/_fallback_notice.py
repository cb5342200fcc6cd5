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


def notice_fallback(reason: Reason, code: int, explanation: str) -> None:
    """A socket that should have been offloaded stays with the kernel or, if code is not 0, its call fails with code.
    `explanation`: as of Decision."""
    if not lib.xts_reason_is_noticed(reason) and not code:
        return
    if explanation and lib.xts_reason_is_noticed(reason):
        _report.attach_failed(explanation)
    if not once_per_run(reason + (_FAILURES if code else 0)):
        return
    outcome = f'so calls fail with "{os.strerror(code)}"' if code else "sockets stay with the kernel"
    program = sys.orig_argv[0].rpartition("/")[2]
    text = f"{program} (process {os.getpid()}): not offloaded, {outcome} ({reason.name})"
    lib.xts_py_notice(f"{text}: {why(reason, explanation)}".encode())


def why(reason: Reason, explanation: str) -> str:
    """The sentence about the reason: what is known of this case, or what is true of all."""
    from .cli.processes.interposed import reason_text

    return explanation or reason_text(reason)
