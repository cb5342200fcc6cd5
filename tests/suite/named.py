"""The command `tests/vm/run --named NAME [WORD…]`: runs a set of tests of named_sets.py in the virtual machine.

Theory of operation. Outside, what the machine cannot write is built, and the machine is booted, and ended where it does
not end by itself. Inside, each part is a process with a time limit, in a session of its own. What a part has left
behind that was ended is taken down, for the next one needs the network cards. What each came to is in a file that both
see, so that the last line is right though the machine stops in between.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suite.named_sets import NAMED, NamedSet, Part
from suite.outcome import duration

TOP = Path(__file__).resolve().parents[2]
RUN = TOP / "tests" / "vm" / "run"
#: The folder that the machine may write to, as it is called outside and inside.
OUTSIDE, INSIDE = TOP / "build" / "vm" / "out", Path("/run/out")
RESULTS = "named.json"
#: For a kernel that has to be fetched, and to boot.
BEFORE_S = 900.0
#: For a program to end after SIGINT.
GRACE_S = 20.0
CANNOT = 77
LINES_SHOWN = 40
FOR_TERMINALS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]")


@dataclass(frozen=True)
class Came:
    """What a part came to."""

    name: str
    right: bool
    says: str
    seconds: float


def judged(part: Part, status: int | None, text: str, limit_s: float) -> tuple[bool, str]:
    """Was it right, and what is said of it. `status` None: it did not end in time."""
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "")
    if status is None:
        return False, f"did not end in {duration(limit_s)}"
    if part.program:
        return status == 0, last
    count = {kind: int(number) for number, kind in re.findall(r"(\d+) (passed|failed|errors?|skipped)", last)}
    says = ", ".join(f"{number} {kind}" for kind, number in count.items()) or last
    if status == 0 and count.get("skipped"):
        reasons = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("SKIPPED")]
        others = [reason for reason in reasons if not reason.startswith(part.skips or ("nothing is expected",))]
        expected = part.may_be_skipped or bool(reasons and not others and count.get("passed"))
        return expected, f"{says}: {(others or reasons or [''])[0]}"
    return status == 0 and bool(count.get("passed")), says


def run_part(part: Part, log: Path, limit_s: float, variables: Sequence[tuple[str, str]] = ()) -> Came:
    """Runs it to its end, or ends it. Its output is in the log."""
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    command = [*((str(TOP / part.program),) if part.program else pytest), *part.arguments]
    begun = time.monotonic()
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command,
            cwd=TOP,
            env=os.environ | dict(variables),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            status: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            _end(process)
            status = None
    right, says = judged(part, status, log.read_text(errors="replace"), limit_s)
    return Came(part.name, right, says, time.monotonic() - begun)


def _end(process: subprocess.Popen[Any]) -> None:
    """By Ctrl-C, and then by force: the process, and what has its session."""
    with suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(GRACE_S)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def last_line(name: str, parts: int, results: Sequence[Came], seconds: float) -> str:
    """The only one that many read."""
    wrong = [f"{one.name} ({one.says})" for one in results if not one.right]
    if len(results) < parts:
        wrong.append(f"{parts - len(results)} parts were not run")
    right = f"{sum(one.right for one in results)} of {parts} parts right, in {duration(seconds)}"
    return f"{name}: FAILED: {'; '.join(wrong)}; {right}" if wrong else f"{name}: {right}"


def chosen(found: NamedSet, words: Sequence[str]) -> list[Part]:
    """The parts whose names have one of the words; without words all of them."""
    return [part for part in found.parts if not words or any(word in part.name for word in words)]


# --- inside ---------------------------------------------------------------------------------------------


def _inside(name: str, words: Sequence[str]) -> int:
    found = NAMED[name]
    take_back = importlib.import_module(found.bed).take_back
    parts, results = chosen(found, words), list[Came]()
    deadline = time.monotonic() + found.minutes * 60
    for number, part in enumerate(parts, 1):
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            break
        print(f"{name}: {number} of {len(parts)}: {part.name}", flush=True)
        log = INSIDE / f"named-{number:02}.log"
        came = run_part(part, log, min(part.limit_s, left_s), (*found.variables, *part.variables))
        take_back()
        results.append(came)
        (INSIDE / RESULTS).write_text(json.dumps([asdict(one) for one in results]))
        print(f"    {'right' if came.right else 'WRONG'}, {came.says}, {duration(came.seconds)}", flush=True)
        if not came.right:
            print("\n".join(log.read_text(errors="replace").splitlines()[-LINES_SHOWN:]), flush=True)
    return int(len(results) < len(parts) or not all(one.right for one in results))


# --- outside --------------------------------------------------------------------------------------------


def _outside(name: str, words: Sequence[str]) -> int:
    found = NAMED[name]
    parts = chosen(found, words)
    for arguments in found.before:
        subprocess.run([sys.executable, *arguments], cwd=TOP, check=True)
    for left in OUTSIDE.glob("named*"):
        left.unlink()
    inside = [f"PYTHONPATH={TOP / 'tests'}", ".venv/bin/python", "-m", "suite.named", "--inside", name, *words]
    command = [str(RUN), *found.machine, "--shell", shlex.join(["env", *inside])]
    begun = time.monotonic()
    status = _shown(command, os.environ | dict(found.variables), found.minutes * 60 + BEFORE_S)
    try:
        results = [Came(**one) for one in json.loads((OUTSIDE / RESULTS).read_text())]
    except (OSError, ValueError):
        results = []
    if status == CANNOT and not results:
        print(f"{name}: cannot be run here, as the line above says")
        return CANNOT
    print(last_line(name, len(parts), results, time.monotonic() - begun))
    return int(bool(status) or len(results) < len(parts) or not all(one.right for one in results))


def _shown(command: Sequence[str], environment: Mapping[str, str], limit_s: float) -> int:
    """Runs it to its end, or ends it; its lines are shown as they come, without what is for a terminal."""
    with subprocess.Popen(
        command,
        cwd=TOP,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        over = threading.Timer(limit_s, _end, (process,))
        over.start()
        try:
            assert process.stdout
            for line in process.stdout:
                if text := FOR_TERMINALS.sub("", line).rstrip():
                    print(text, flush=True)
            return process.wait()
        except BaseException:  # Ctrl-C: nothing goes on without us
            _end(process)
            raise
        finally:
            over.cancel()


def parser() -> argparse.ArgumentParser:
    sets = NAMED.items()
    made = argparse.ArgumentParser(
        prog="tests/vm/run --named",
        description="Runs a set of tests in the virtual machine, says what each part came to, and ends by itself.\n"
        "The last line says how it ended, and so does the exit status.",
        epilog="sets:\n" + "".join(f"  {name:14}{one.about}, {one.minutes} min at most\n" for name, one in sets),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("name", choices=NAMED, metavar="NAME", help=f"one of {', '.join(NAMED)}")
    made.add_argument("words", nargs="*", metavar="WORD", help="only the parts whose names have one of these words")
    made.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return made


def main() -> int:
    """Exit status: 0, all was right; 1, something was not; 77, it cannot be run here."""
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell has started it in the background
        signal.signal(number, signal.default_int_handler)
    arguments = parser().parse_args()
    if not chosen(NAMED[arguments.name], arguments.words):
        parser().error(f"no part of {arguments.name} has a name with {' or '.join(arguments.words)}")
    return (_inside if arguments.inside else _outside)(arguments.name, arguments.words)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
