"""A new proxy starts next to the one that it takes over from, on the same cores. It does so in the background
(SCHED_IDLE): the other one's worker is SCHED_BATCH, and waits for an ordinary thread. Nobody waits for the new proxy
before it says that it is ready.

Where others leave no time, a thread in the background gets next to none. So that ends after QUIET_S in any case.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from xts_proxy.supervisor import sandbox

#: It needs 0.1 to 0.2 s of a core.
QUIET_S = 1.0
#: begin() has put this process there, or the one that it was forked from; no operator has.
_begun = False


def begin() -> None:
    """This thread, the only one of its process, is in the background, if it may leave that again."""
    global _begun  # noqa: PLW0603 - processes that are forked inherit it
    if not sandbox.allow_nice() and not sandbox.holds("sys_nice"):
        return
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        _begun = True
        signal.signal(signal.SIGALRM, lambda *_: end())
        go_on()


def go_on() -> None:
    """The same in a process that was forked, if the one that has forked it is there."""
    if _is_quiet():
        signal.setitimer(signal.ITIMER_REAL, QUIET_S)


def before_confined() -> None:
    """This thread is about to lose its privileges: it may not leave the background later, where the limit says so."""
    if not sandbox.allow_nice():
        end()


def end() -> None:
    """This thread is an ordinary one. Harmless when repeated."""
    if not _is_quiet():
        return
    signal.setitimer(signal.ITIMER_REAL, 0)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _is_quiet() -> bool:
    return _begun and os.sched_getscheduler(0) == os.SCHED_IDLE
