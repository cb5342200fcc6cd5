"""Which program this is: its version, and a digest of its files, by which a log tells two builds of a version apart."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import xts_messages
from xts_messages.version import __version__

import xts_proxy
from xts_proxy.upgrade.handover import Program


def this_program() -> Program:
    """As it was when this was called first: before the sandbox closes, and before a package replaces the files."""
    return Program(__version__, _digest(), os.getpid())


@cache
def _digest() -> str:
    """Of what runs in the proxy's processes: Python and the C below it."""
    found = hashlib.sha256()
    for package in (xts_proxy, xts_messages):
        for place in package.__path__:
            for path in _files(Path(place)):
                found.update(f"{path.relative_to(place)}\0".encode())
                found.update(path.read_bytes())
    return found.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.suffix in (".py", ".so") and path.is_file())
