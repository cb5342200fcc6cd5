"""What a command does when its standard output has no reader any more: `xts status --watch | head`.

Python raises an exception for this, possibly at each `print()`, and again at the interpreter's last flush. Instead, a
command ends as SIGPIPE ends other programs: silently, with the status that a shell gives them. The signal itself stays
ignored, since a peer that closes a socket is no reason to end.
"""

from __future__ import annotations

import functools
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, ParamSpec

Given = ParamSpec("Given")

#: The status that a shell gives to a program that SIGPIPE has ended.
STATUS = 128 + signal.SIGPIPE


class _Output(io.FileIO):
    """A descriptor on which a write without a reader ends the command."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self.fileno())  # for data that is still in buffers
            os.close(nowhere)
            raise SystemExit(STATUS) from None


def _replace() -> None:
    """From now on standard output ends the command. Not if something else is in its place, for example in a test."""
    old = sys.stdout
    if old is None or old is not sys.__stdout__ or not isinstance(old, io.TextIOWrapper):
        return
    try:
        old.flush()
        raw = _Output(old.fileno(), "wb", closefd=False)
    except (OSError, ValueError):
        return  # it is closed: the first print() will fail
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=old.line_buffering,
        write_through=old.write_through,
    )


def ends_with_reader(main: Callable[Given, int]) -> Callable[Given, int]:
    """For the function that is a command: it ends with STATUS when its output has no reader any more."""

    @functools.wraps(main)
    def command(*arguments: Given.args, **options: Given.kwargs) -> int:
        _replace()
        try:
            status = main(*arguments, **options)
        except SystemExit:  # from argparse, after --help
            _flush()
            raise
        _flush()
        return status

    return command


def _flush() -> None:
    """Before the interpreter does it, which would only print a warning."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
