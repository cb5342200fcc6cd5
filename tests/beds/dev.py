"""`xts dev` as its users have it: an environment without settings, and a place for its proxies that is watched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from beds.patience import SLOWER

XTS = (sys.executable, "-m", "xts_socket.cli")
RUN_S = 60.0 * SLOWER
_SETTINGS = ("XTS_", "XLIO_", "VMA_", "PYTEST_")


@dataclass(frozen=True, slots=True)
class DevBed:
    """`run` and `start` carry out commands; `place` is where sockets of the proxies they start are."""

    place: Path

    def environment(self, **extra: str) -> dict[str, str]:
        out = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS)}
        out.pop("XDG_RUNTIME_DIR", None)
        return {**out, "TMPDIR": str(self.place), **extra}

    def run(self, *argv: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            argv,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
        )

    def dev(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """`xts dev` to its end."""
        return self.run(*XTS, "dev", *arguments, **environment)

    def python(self, source: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-c", source, *arguments, **environment)

    @contextmanager
    def start(self, argv: Sequence[str], **environment: str) -> Iterator[subprocess.Popen[str]]:
        """In a process group of its own, as a shell starts a job. It has ended at the end of the block."""
        with subprocess.Popen(
            argv,
            env=self.environment(**environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def proxies(self) -> list[int]:
        """Process ids of the proxies with sockets here, and of their other processes."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    command = entry.joinpath("cmdline").read_bytes()
                except OSError:
                    continue
                if b"xts_proxy" in command and os.fsencode(self.place) in command:
                    found.append(int(entry.name))
        return found

    def left(self) -> list[Any]:
        """What is left of proxies: processes, files."""
        return [*self.proxies(), *self.place.iterdir()]

    def nothing_is_left(self) -> None:
        """Soon: for those that were killed, and for what finds out only then."""
        wait(lambda: not self.left(), lambda: f"left behind: {self.left()}")


@contextmanager
def dev_bed() -> Iterator[DevBed]:
    """With a short name: those of Unix sockets have room for little more. Every user may enter it: root's proxies look
    for such a place. At the end nothing may be left there."""
    with TemporaryDirectory(prefix="d", dir="/tmp") as place:
        Path(place).chmod(0o711)
        made = DevBed(Path(place))
        yield made
        made.nothing_is_left()


def wait(condition: Callable[[], object], what: Callable[[], str], timeout_s: float = RUN_S) -> None:
    """Until the condition holds; AssertionError with what is missing when it does not."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.01)
