"""The small step between `Lab.spawn()` and a program: `python -m xts_lab.launch NAMESPACE RECORD -- PROGRAM
ARG…`.

It enters the namespace, writes its record, and becomes the program. The process writes the record itself before it
becomes the program, so `xts-lab down` knows every running program of a lab at any moment. With `-` for RECORD none is
written: the program is then a child of its caller, which waits for it. (A lab starts such children without this step.)
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import netns
from .running_programs import Record


def raise_file_limit() -> None:
    """Raises the limit of descriptors to the maximum: 10,000 connections need more than the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def more_files() -> Iterator[None]:
    """The same for the duration of the block, which is for starting a program."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    raise_file_limit()
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def main(argv: list[str]) -> int:
    """Becomes the program; returns only when that failed."""
    namespace, record, dashes, *command = argv
    if dashes != "--" or not command:
        raise ValueError("usage: python -m xts_lab.launch NAMESPACE RECORD -- PROGRAM ARG…")
    if record != "-":
        Record.of(os.getpid(), command).write(Path(record))
    netns.enter(namespace)
    raise_file_limit()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
