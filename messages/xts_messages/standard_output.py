"""What a command does when nobody reads its standard output any more: `xts status --watch | head`.

Python makes an exception of it, which each `print()` may raise, and again the interpreter's last flush. A command ends
instead as SIGPIPE ends other programs: without a word, with the status that a shell gives them. The signal itself
stays ignored, for a peer that closes a socket is no reason to end.
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

#: What a shell calls the end by SIGPIPE.
STATUS = 128 + signal.SIGPIPE


class _Output(io.FileIO):
    """A descriptor; a write that nobody can read any more ends the command."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
            os.dup2(nowhere, self.fileno())  # for what is in buffers yet
            os.close(nowhere)
            raise SystemExit(STATUS) from None


def _replace() -> None:
    """Standard output ends the command from now on. Not where a test, say, has put something in its place."""
    old = sys.stdout
    if old is None or old is not sys.__stdout__ or not isinstance(old, io.TextIOWrapper):
        return
    try:
        old.flush()
        raw = _Output(old.fileno(), "wb", closefd=False)
    except (OSError, ValueError):
        return  # it is closed: whoever prints will find out
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=old.encoding,
        errors=old.errors,
        line_buffering=old.line_buffering,
        write_through=old.write_through,
    )


def ends_with_reader(main: Callable[Given, int]) -> Callable[Given, int]:
    """For the function that is a command: it ends with STATUS when nobody reads its output any more."""

    @functools.wraps(main)
    def command(*arguments: Given.args, **options: Given.kwargs) -> int:
        _replace()
        try:
            status = main(*arguments, **options)
        except SystemExit:  # of argparse, after --help
            _flush()
            raise
        _flush()
        return status

    return command


def _flush() -> None:
    """Before the interpreter does it, which would only complain."""
    if sys.stdout is not None and not sys.stdout.closed:
        sys.stdout.flush()
