"""A program in a terminal of a given size: what it writes there."""

from __future__ import annotations

import os
import pty
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence

from beds.patience import SLOWER
from beds.ready import readable

DEADLINE_S = 60.0 * SLOWER
#: What decides over colours and widths. A test says each of them.
CONVENTIONS = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TERM", "COLORTERM")


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The environment of this process without its own conventions, on a common terminal, and with these."""
    found = {name: value for name, value in os.environ.items() if name not in CONVENTIONS}
    return found | {"TERM": "xterm-256color"} | dict(given)


def written(argv: Sequence[str], columns: int, rows: int = 24, **given: str) -> str:
    """What the program writes to a terminal of that size, with these variables set. It has to end by itself."""
    control, terminal = pty.openpty()
    try:
        termios.tcsetwinsize(terminal, (rows, columns))
        process = subprocess.Popen(
            argv, stdin=terminal, stdout=terminal, stderr=terminal, env=environment(given), start_new_session=True
        )
        os.close(terminal)
        terminal = -1
        found = b"".join(_read(control))
        process.wait(DEADLINE_S)
    finally:
        os.close(control)
        if terminal >= 0:
            os.close(terminal)
    return found.decode().replace("\r\n", "\n")


def _read(control: int) -> list[bytes]:
    """Until nobody has the terminal open any more."""
    deadline = time.monotonic() + DEADLINE_S
    found: list[bytes] = []
    while True:
        ready = readable(control, deadline - time.monotonic())
        assert ready, f"the program did not end in {DEADLINE_S:.0f} s, after {b''.join(found)!r}"
        try:
            part = os.read(control, 65536)
        except OSError:  # EIO: the last one has closed it
            return found
        if not part:
            return found
        found.append(part)
