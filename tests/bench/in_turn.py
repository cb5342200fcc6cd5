"""The bench of a checkout that stays up and makes one run each time it is told to: for compare.py.

What it is told, a line on its standard input: REPETITION WORKLOAD:PATH. The answer is the run's line on its standard
output, as in a result file. So two checkouts can be up at a time and take turns within a second. When each run raised
its network and proxy first, turns were eight seconds apart; the machine's speed changed meanwhile, and the ratio of a
build to itself was anything from 0.65 to 1.57.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .analysis import Run
from .options import Asked
from .resultfile import Writer
from .session import Session

_CHUNK_BYTES = 1 << 16
_STOPS_S = 30.0


def measure(live: Session, asked: Asked, writer: Writer, lines: Iterable[str]) -> None:
    """The runs that these lines name, until they end. ValueError for a line that names none."""
    known = {
        f"{workload.key}:{subject.key}": (workload, subject)
        for workload in asked.wanted()
        for subject in workload.subjects
        if asked.wants(workload, subject) and live.has(subject)
    }
    for line in lines:
        repetition, _, pair = line.strip().partition(" ")
        if pair not in known or not repetition.isdecimal():
            raise ValueError(f"{line.strip()!r}: expected REPETITION WORKLOAD:PATH, of {', '.join(known)}")
        writer.run(live.run(*known[pair], int(repetition), asked.seconds))


class Bench:
    """The bench of one checkout, up while this is open."""

    def __init__(
        self,
        checkout: Path,
        name: str,
        wanted: Sequence[str],
        *,
        seconds: float,
        patience_s: float = 5.0,
        environment: Mapping[str, str] | None = None,
        limit_s: float = 120.0,
    ) -> None:
        """`name`: of its networks and proxies. `limit_s`: to raise them, and for a run in addition to its windows.
        RuntimeError where there is no bench."""
        queues = sorted({"shm" if pair.rpartition(":")[2].startswith("shm") else "afxdp" for pair in wanted})
        self._command = [str(checkout / "tests/bench/run"), "--in-turn", "--check-mb", "0", "--json", "-"]
        self._command += ["--seconds", str(seconds), "--patience", str(patience_s)]
        self._command += [part for pair in wanted for part in ("--run", pair)]
        self._command += [part for queue in queues for part in ("--queue", queue)]
        self._limit_s = limit_s + 20 * seconds + patience_s
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self._read = b""
        variables = {**os.environ, **(environment or {}), "BENCH_NAME": name}
        try:
            self._process = subprocess.Popen(
                self._command,
                bufsize=0,  # its end is told of by write(), and not again by close()
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=variables,
                start_new_session=True,
            )
        except OSError as error:
            self._said.close()
            raise RuntimeError(f"{self._command[0]}: {error.strerror}: is {checkout} a checkout?") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It takes its networks down at the end of its input."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        try:
            self._process.wait(_STOPS_S)
        except subprocess.TimeoutExpired:
            self._process.terminate()
            self._process.wait()
        self._process.stdout.close()
        self._said.close()

    def run(self, repetition: int, pair: str) -> Run:
        """One run. RuntimeError, with what the bench said, when it fails or does not answer."""
        assert self._process.stdin
        try:
            self._process.stdin.write(f"{repetition} {pair}\n".encode())
        except BrokenPipeError:
            raise self._failed(f"exit status {self._process.wait()}") from None
        ends_s = time.monotonic() + self._limit_s
        while True:
            found = json.loads(self._line(ends_s))
            if found.pop("kind") == "run":
                return Run(**found)

    def _line(self, ends_s: float) -> bytes:
        assert self._process.stdout
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._read:
                if not selector.select(max(0.0, ends_s - time.monotonic())):
                    raise self._failed(f"no answer after {self._limit_s:.0f} s")
                data = os.read(self._process.stdout.fileno(), _CHUNK_BYTES)
                if not data:
                    raise self._failed(f"exit status {self._process.wait()}")
                self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line

    def _failed(self, what: str) -> RuntimeError:
        self._said.seek(0)
        return RuntimeError(f"{what}: {' '.join(self._command)}\n{self._said.read()[-2000:]}")
