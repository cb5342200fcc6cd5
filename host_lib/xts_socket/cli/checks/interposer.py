"""The interposer, with which `xts run` offloads the sockets of unmodified programs: is it installed, and can it be
loaded."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ..processes.executable import preload_library, preload_value
from . import Check

_NAME = "interposer"
_MEND = "install the package again, for this C library and architecture"
_ALONE = "programs cannot be put under `xts run`; those that use xts_socket or libxts themselves are not concerned"


def checks() -> Iterator[Check]:
    yield check(preload_library())


def check(library: Path) -> Check:
    """Makes the loader preload the library into a small program, and looks whether it is there."""
    if not library.exists():
        return Check(_NAME, "warn", f"{library} is not there: {_ALONE}", _MEND)
    try:
        environment = {**os.environ, "LD_PRELOAD": preload_value(os.environ, str(library))}
        done = subprocess.run(
            ["cat", "/proc/self/maps"], env=environment, capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError) as failure:
        return Check(_NAME, "warn", f"not tried: {failure}")
    if str(library.resolve()) not in done.stdout:
        said = done.stderr.strip().splitlines()
        return Check(_NAME, "warn", f"cannot be loaded ({said[0] if said else 'no word why'}): {_ALONE}", _MEND)
    return Check(_NAME, "ok", str(library))
