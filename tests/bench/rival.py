"""A proxy that one would run instead (haproxy.py, udp_proxy.py): started, awaited, ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

#: Starts a command in the device's namespace, with its output in a file.
Spawn = Callable[[list[str], IO[str]], subprocess.Popen[str]]
_START_S = 10.0


@contextmanager
def running(
    spawn: Spawn, command: list[str], log: Path, is_ready: Callable[[], bool]
) -> Iterator[subprocess.Popen[str]]:
    """It is ready, until the block ends. RuntimeError with the end of its output when it does not start."""
    with log.open("w") as file:
        process = spawn(command, file)
    try:
        deadline = time.monotonic() + _START_S
        while not is_ready():
            if process.poll() is not None or time.monotonic() > deadline:
                status = process.poll()
                raise RuntimeError(f"{command[0]} did not start: exit status {status}\n{log.read_text()[-1000:]}")
            time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        process.wait(10)
