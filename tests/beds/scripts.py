"""Scripts: functions that a test runs in another process, by the name they have; all of them are registered here.

A *setting* is what scripts share: the calls they are given, and the environment they run in. `script("waits")` is the
decorator that makes a function one of the setting "waits", `scripts("waits")` are all of them. A program runs them:
`python program … NAME`, or with `NAME,NAME,…` all of these, each in a process of its own that is forked before it has
used anything but Python (`apart`). So an interpreter starts once for a setting, and not once for each script. On the
test's side, `Outcomes` (script_outcomes.py) runs all that were selected when the first of them is asked for.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from beds.patience import SLOWER
from beds.ready import readable

Function = TypeVar("Function", bound=Callable[..., None])
#: A script ends after SCRIPT_S and says where it was. Of several, none is started after START_S: the last has ended, or
#: was killed, before RUN_S are over, which whoever runs the program waits, and which is less than pytest's timeout.
SCRIPT_S, KILL_S, START_S, RUN_S = 45 * SLOWER, 50.0 * SLOWER, 30.0 * SLOWER, 90.0 * SLOWER

_settings: dict[str, dict[str, Callable[..., None]]] = {}


def script(setting: str) -> Callable[[Function], Function]:
    """A decorator for the scripts of a setting."""

    def register(function: Function) -> Function:
        named = _settings.setdefault(setting, {})
        assert function.__name__ not in named, f"two scripts {function.__name__} in {setting}"
        named[function.__name__] = function
        return function

    return register


def scripts(setting: str) -> Mapping[str, Callable[..., Any]]:
    """Those that have been registered so far, and those that will be, in the order of their definition."""
    return _settings.setdefault(setting, {})


def apart(names: str) -> str:
    """The name to run here. Of several, each is returned in a process of its own; this one waits, writes to standard
    output how those ended that it had the time to start (JSON: name -> "", or what was wrong) and ends."""
    if "," not in names:
        return _limited(names)
    outcomes: dict[str, str] = {}
    begun = time.monotonic()
    for name in names.split(","):
        if time.monotonic() - begun > START_S:
            break
        with tempfile.TemporaryFile() as said:
            pid = os.fork()
            if not pid:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                return _limited(name)
            status = _end_of(pid)
            said.seek(0)
            text = said.read().decode(errors="replace")
        outcomes[name] = "" if not status else f"{name}: exit status {status}\n{text}"
    json.dump(outcomes, sys.stdout)
    sys.exit(0)


def _limited(name: str) -> str:
    faulthandler.dump_traceback_later(SCRIPT_S, exit=True)
    return name


def _end_of(pid: int) -> int:
    """Its exit status; it is killed if it could not even end itself in time."""
    fd = os.pidfd_open(pid)
    try:
        if not readable(fd, KILL_S):
            os.kill(pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    finally:
        os.close(fd)
