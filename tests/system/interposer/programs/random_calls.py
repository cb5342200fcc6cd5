"""Random scripts of socket calls, carried out on the kernel's sockets and under the interposer, and compared.

    python tests/system/interposer/programs/random_calls.py --seconds 600
        [--seed 7] [--script '[["pair", 0, 1, "127.0.0.1"]]']

Runs scripts until the time is over; the first difference is made as small as it can be, and printed with both
outcomes. Exit status 1: there was one. `--script` runs a single one and prints what each call came to.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from beds.children import share_import_path
from beds.preload import PreloadBed, preload_bed
from beds.stack_modes import Mode
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy
from system.interposer.programs.random_scripts import Script, scripts

# Who is offloaded, by address: 127.0.0.1 and ::1 both ends, 127.0.0.2 the client, 127.0.0.3 the server.
RULES = """\
use os tcp_server 127.0.0.2:*
use os tcp_client 127.0.0.3:*
use xts tcp_server *:*
use xts tcp_client *:*
"""
# The interposer's children: as it comes; with hardly any room and no spinning.
VARIANTS: tuple[dict[str, str], ...] = ({}, {"XTS_FRAME_WINDOW": "4", "XTS_SPIN_US": "0"})
ROUND_SCRIPTS = 200
ANSWER_S = 60.0
CONFIRM_PAUSE_S = 0.02
CHILD = str(Path(__file__).with_name("random_child.py"))
ANY_SCRIPTS = scripts()


class Child:
    """A process that carries scripts out, one after the other."""

    def __init__(self, environment: Mapping[str, str], program: str) -> None:
        self.environment, self.program = environment, program
        self.process: subprocess.Popen[str] | None = None
        self.descriptors = 0

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, self.program],
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, script: Script, expected: list[Any] | None = None, settle_s: float = 0, pause_s: float = 0
    ) -> list[Any]:
        """The trace: for each operation its result and the state after it."""
        if self.process is None:
            self.process = self.start()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        order = {"script": script, "expected": expected, "settle_s": settle_s, "pause_s": pause_s}
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_S)
        line = self.process.stdout.readline() if ready else ""
        if not line:
            status = self.process.poll() if ready else None
            self.stop()
            return [f"ended: {status}" if ready else "hung"]
        answer = json.loads(line)
        self.descriptors = answer["descriptors"]
        trace: list[Any] = answer["trace"]
        return trace

    def stop(self) -> None:
        if self.process is None:
            return
        self.process.kill()
        self.process.communicate()
        self.process = None


class Comparison:
    """The kernel's sockets and ours, side by side."""

    def __init__(self, bed: PreloadBed, settle_s: float, mode: Mode | None = None, program: str = CHILD) -> None:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("XTS_")}
        self.kernel = Child(plain, program)
        self.variants = [Child(bed.environment(RULES, env), program) for env in VARIANTS]
        if mode:
            environment = bed.environment(mode.rules(RULES, bed.proxy.endpoint), mode.environment)
            self.variants = [Child(environment, program)]
        self.ours = self.variants[0]
        self.settle_s = settle_s
        self.scripts = 0
        self.early = 0  # the kernel's state had to be looked at again
        self.results: Counter[str] = Counter()

    def difference(self, script: Script) -> str | None:
        """What differs, in words; None: nothing does."""
        self.scripts += 1
        expected = self.kernel.run(script)
        found = self.ours.run(script, expected, self.settle_s)
        if found != expected:
            # The kernel's outcome could have been a passing one, seen too early.
            confirmed = self.kernel.run(script, pause_s=CONFIRM_PAUSE_S)
            if confirmed != expected:
                self.early += 1
                expected, found = confirmed, self.ours.run(script, confirmed, self.settle_s)
        if found == expected:
            for operation, (result, *_) in zip(script, expected, strict=True):
                name = next(part for part in operation if isinstance(part, str))
                self.results[f"{name}: {result if isinstance(result, str) else 'done'}"] += 1
            return None
        return describe(script, expected, found)

    def choose(self, number: int) -> None:
        """Which of VARIANTS the scripts that follow run on."""
        self.ours = self.variants[number % len(self.variants)]

    def stop(self) -> None:
        for child in (self.kernel, *self.variants):
            child.stop()


def describe(script: Script, expected: list[Any], found: list[Any]) -> str:
    lines = [json.dumps(script)]
    for i, operation in enumerate(script):
        kernel, ours = (trace[i] if i < len(trace) else None for trace in (expected, found))
        if kernel == ours:
            lines.append(f"  {operation}: {kernel}")
            continue
        lines += [f"  {operation}:", f"    kernel {kernel}", f"    ours   {ours}"]
        break
    return "\n".join(lines)


@contextmanager
def comparison(folder: Path, settle_s: float, mode: Mode | None = None, program: str = CHILD) -> Iterator[Comparison]:
    with preload_bed(folder) as bed:
        made = Comparison(bed, settle_s, mode, program)
        try:
            yield made
        finally:
            made.stop()


class DifferenceError(AssertionError):
    """A script that does not go the same way on both."""


def search(
    compared: Comparison, number: int, count: int, generated: SearchStrategy[Script] = ANY_SCRIPTS
) -> str | None:
    """`count` random scripts of this seed. The smallest that differs, as text."""
    compared.choose(number)
    seen: list[str] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
    )
    @given(generated)
    def explore(script: Script) -> None:
        if found := compared.difference(script):
            if not seen:
                print(f"differs, and is made smaller now: {found}", flush=True)
            seen.append(found)
            raise DifferenceError(found)

    try:
        explore()
    except DifferenceError as difference:
        return str(difference)
    except Flaky as flaky:
        return f"now and then only: {flaky}\n{seen[0]}"
    return None


def main(about: str | None = __doc__, program: str = CHILD, generated: SearchStrategy[Script] = ANY_SCRIPTS) -> int:
    share_import_path()
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--settle", type=float, default=2, metavar="SECONDS", help="to wait for an expected state")
    parser.add_argument("--script", type=json.loads, help="run this one only")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        comparison(Path(folder), arguments.settle, program=program) as compared,
    ):
        if arguments.script:
            expected = compared.kernel.run(arguments.script, pause_s=CONFIRM_PAUSE_S)
            found = compared.ours.run(arguments.script, expected, arguments.settle)
            print(describe(arguments.script, expected, found))
            return int(found != expected)
        end, number, found_text = time.monotonic() + arguments.seconds, arguments.seed, None
        while not found_text and time.monotonic() < end:
            found_text = search(compared, number, ROUND_SCRIPTS, generated)
            number += 1
        print(f"{compared.scripts} scripts, {sum(compared.results.values())} calls, {compared.early} looked at again")
        print(f"descriptors of the children: {[child.descriptors for child in (compared.kernel, *compared.variants)]}")
        for what, count in sorted(compared.results.items()):
            print(f"{count:8} {what}")
        if found_text:
            print(found_text)
        return int(bool(found_text))


if __name__ == "__main__":
    sys.exit(main())
