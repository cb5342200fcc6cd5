"""What a terminal is like: how wide, and whether it has colours. Commands ask here, so that all follow the same
conventions: COLUMNS, NO_COLOR (https://no-color.org), FORCE_COLOR, TERM=dumb, and a terminal that does not know its
width.

The package rich follows them too, except where a width is given to it: its users ask piped_columns().
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

#: Of a terminal that says it is 0 columns wide, as one of `docker run -t` may.
_UNKNOWN = 80


def columns(stream: TextIO | None = None, piped: int | None = None) -> int | None:
    """How many columns lines may have on this stream (default: standard output). Where it is no terminal, `piped`,
    which is None for lines of any length. COLUMNS goes before both."""
    stream = stream or sys.stdout
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return int(asked)
    if not stream.isatty():
        return piped
    try:
        return os.get_terminal_size(stream.fileno()).columns or _UNKNOWN
    except OSError:
        return _UNKNOWN


def has_colours(stream: TextIO | None = None) -> bool:
    """Whether to write colours to this stream (default: standard output). An empty variable is the same as none."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return (stream or sys.stdout).isatty() and os.environ.get("TERM") != "dumb"


def piped_columns(columns: int) -> int | None:
    """The width for rich's Console: this one where standard output is no terminal; None where rich finds it itself."""
    return None if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal() else columns
