"""The two programs at the ends: start, commands, answers."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from beds.patience import SLOWER
from beds.ready import readable
from bench.native_programs import NATIVE as BENCH_NATIVE
from bench.native_programs import TOP, compile_program, libxts_directory

_NATIVE = Path(__file__).with_name("native")
_SOURCES = ("script.c", "conn.c", "stress_worker.c", "main.c")

#: Queues whose both ends are built for the run, with the law and other invariants checked at every step, and with
#: these sanitizers.
BUILT = {"shm-checked": "address,undefined", "shm-races": "thread"}

#: Starts a command at the role's end with extra environment: (role, command, environment, streams).
Spawn = Callable[..., subprocess.Popen[str]]


class StressError(AssertionError):
    """Something was wrong: data, an end, an error that should not be, no progress. The text says what and where."""


def build(kind: str) -> Path:
    """stress-kernel, stress-xts, or that of a queue in BUILT."""
    api = "kernel" if kind == "kernel" else "xts"
    sources = [*(_NATIVE / name for name in _SOURCES), BENCH_NATIVE / f"net_api_{api}.c", BENCH_NATIVE / "pdus.c"]
    output = TOP / "build" / "stress" / f"stress-{kind}"
    includes = (_NATIVE, BENCH_NATIVE)
    if kind in BUILT:
        return compile_program(output, sources, _built(kind), includes, _sanitizers(kind))
    return compile_program(output, sources, libxts_directory() if api == "xts" else None, includes)


def build_proxy(queue: str) -> Path:
    """The proxy's workers for a queue in BUILT."""
    directory = _built(queue)
    libraries = (str(directory / "libxts_worker.a"), str(directory / "libxts_core.a"))
    includes = (TOP / "messages" / "native", TOP / "dpu_proxy" / "native")
    output = TOP / "build" / "stress" / f"proxy-{queue}"
    output.unlink(missing_ok=True)  # the libraries are no sources to compare with
    return compile_program(
        output, [_NATIVE / "proxy.c"], None, includes, (*libraries, "-lssl", "-lcrypto", *_sanitizers(queue))
    )


def _sanitizers(queue: str) -> tuple[str, ...]:
    return (f"-fsanitize={BUILT[queue]}", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")


def _built(queue: str) -> Path:
    """The libraries under the sanitizers of a queue; .ci/run has made those of "shm-checked" already."""
    if queue == "shm-checked" and (made_before := os.environ.get("XTS_TEST_CHECKED")):
        return Path(made_before)
    directory = TOP / "build" / "stress" / queue
    options = ["-DCMAKE_BUILD_TYPE=Debug", "-DXTS_DEBUG=ON", f"-DXTS_SANITIZE={BUILT[queue]}"]
    for command in (
        ["cmake", "-S", str(TOP / "deploy" / "cmake"), "-B", str(directory), *options],
        ["cmake", "--build", str(directory), "-j2", "--target", "xts", "xts_worker"],
    ):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} failed:\n{made.stdout[-4000:]}{made.stderr[-4000:]}")
    return directory


@dataclass(slots=True)
class End:
    """One running program. Figures are those of its last answer."""

    name: str
    process: subprocess.Popen[str]
    errors: IO[str]
    figures: dict[str, Any]

    @classmethod
    def start(cls, name: str, spawn: Spawn, role: str, command: list[str], environment: dict[str, str]) -> End:
        """Starts it and waits until it listens."""
        errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 -- closed by close()
        process = spawn(role, command, environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
        end = cls(name, process, errors, {})
        end.answer("listening", 10 * SLOWER)
        return end

    def ask(self, command: str, timeout_s: float = 10 * SLOWER) -> dict[str, Any]:
        """Gives a command and returns the answer's figures."""
        self.say(command)
        return self.answer(command, timeout_s)

    def say(self, text: str) -> None:
        """Writes a line to the program."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{text}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.check()
            raise

    def answer(self, state: str, timeout_s: float) -> dict[str, Any]:
        """The next line of output. StressError when the program has failed or says nothing."""
        assert self.process.stdout is not None
        ready = readable(self.process.stdout, timeout_s)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            self.check()
            raise StressError(f"{self.name} end: no answer ({state}) for {timeout_s:g} s")
        self.figures = json.loads(line)
        if self.figures["state"] != state:
            raise StressError(f"{self.name} end: answered {line!r} to {state!r}")
        return self.figures

    def check(self) -> None:
        """StressError when the program has ended, with what it said."""
        try:
            status = self.process.wait(0.5 if self.process.poll() is None and self._has_spoken() else 0)
        except subprocess.TimeoutExpired:
            return
        raise StressError(f"{self.name} end: exit status {status}\n{self.said()}")

    def _has_spoken(self) -> bool:
        return bool(self.said())

    def said(self) -> str:
        """Its standard error so far."""
        self.errors.seek(0)
        return self.errors.read().strip()

    def close(self) -> None:
        """Ends the program."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                stream.close()
