"""A proxy over shm in a directory of its own, for tests of the host library: real TCP on loopback, no privilege. With
TESTS_WIRE=rdma it is over RDMA (proxy_queue.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from xts_lab.loopback import ALLOW_LOOPBACK

from beds.patience import SLOWER
from beds.proxy_queue import queue_to
from beds.ready import readable
from beds.scripts import RUN_S

SYSTEM = Path(__file__).resolve().parents[1] / "system"
START_S = 20.0 * SLOWER


def library() -> str:
    """The installed libxts.so, or another build of it (with sanitizers) that $XTS_TEST_LIBRARY names."""
    if named := os.environ.get("XTS_TEST_LIBRARY"):
        return named
    spec = find_spec("xts_socket")
    assert spec is not None and spec.submodule_search_locations
    found = [str(path) for where in spec.submodule_search_locations for path in Path(where).glob("libxts.so.*")]
    assert found, "libxts.so.1 is not installed"
    return found[0]


class ShmProxy:
    """`start()` and `kill()` may be repeated. A context manager. `tables`: more of the configuration."""

    def __init__(self, directory: Path, tables: str = "") -> None:
        self.endpoint = directory / "endpoint.sock"
        self.log = directory / "log"
        self.config = directory / "proxy.toml"
        self._queue = queue_to(self.endpoint)
        self.config.write_text(
            f'[proxy]\n{self._queue.keys}control = "{directory / "control.sock"}"\n'
            + tables
            + ALLOW_LOOPBACK
            + self._queue.tables
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        ready, told = os.pipe()
        command = [sys.executable, "-m", "xts_proxy", "--config", str(self.config), "--ready-fd", str(told)]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stderr=log, pass_fds=[told])
        os.close(told)
        answered = readable(ready, START_S) and os.read(ready, 1)
        os.close(ready)
        assert answered, self.log.read_text()
        self._queue.start()
        return self

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self._queue.end()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()

    def environment(self, **extra: str) -> dict[str, str]:
        return {**os.environ, "XTS_ENDPOINT": str(self.endpoint), **extra}

    def command(self, program: str, *arguments: str) -> Sequence[str]:
        return [sys.executable, str(SYSTEM / program), *arguments]

    def run(self, program: str, *arguments: str, timeout_s: float = RUN_S, **extra: str) -> str:
        """Runs a program of tests/system; its output. AssertionError with what it said when it fails."""
        done = subprocess.run(
            self.command(program, *arguments), env=self.environment(**extra), text=True, capture_output=True,
            timeout=timeout_s, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{done.stderr}\n{done.stdout}\n{self.log.read_text()[-2000:]}"
        return done.stdout
