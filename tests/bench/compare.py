"""Measures one build against another: the same workloads in two checkouts, in turn, so that both meet the machine's
slow and fast phases. What is compared is the second over the first, within each round.

Each checkout is built by its own deploy/setup; that says how they differ: two commits, or one with
SKBUILD_CMAKE_DEFINE="XTS_PROBES=OFF;XTS_WAITS=OFF" in its environment.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from xts_messages.terminal.standard_output import ends_with_reader

from . import analysis, report, resultfile
from .analysis import Figures, Run
from .options import pairs
from .steps import Steps

_DEFAULT = ("request-spin:shm", "requests-32:shm")
_METRICS = (
    ("host_us_per_op", "host µs each", 3),
    ("device_us_per_op", "device µs each", 3),
    ("p50_us", "p50 µs", 2),
    ("rate", "per second", 0),
    *report.BULK,
)
#: In addition to its windows: a lab is raised and taken down, the load of others is looked at.
_PATIENCE_S = 90.0
_EXAMPLE = """\
example, the cost of wait counters and probes in 5 minutes:
  git worktree add ../without && cd ../without && SKBUILD_CMAKE_DEFINE="XTS_PROBES=OFF;XTS_WAITS=OFF" deploy/setup
  cd - && PYTHONPATH=tests .venv/bin/python -m bench.compare ../without . --rounds 10
and of the head that frames have on a card (BENCH_WIRE, BENCH_STEERING: xts_lab/wire.py, xts_bpf/steering.py):
  PYTHONPATH=tests .venv/bin/python -m bench.compare . . --run requests-32:afxdp-soft --in-second BENCH_STEERING=address
Needs root and two cores that nothing else uses, as tests/bench/run does, which it runs in each checkout.
"""


def measure(
    checkout: Path, wanted: Sequence[str], seconds: float, patience_s: float, environment: Mapping[str, str]
) -> list[Run]:
    """One run of each in a checkout, with these variables. RuntimeError with what its bench said, when it fails."""
    with tempfile.TemporaryDirectory(prefix="xts-compare-") as folder:
        file = Path(folder) / "runs.jsonl"
        command = [str(checkout / "tests/bench/run"), "--repetitions", "1", "--check-mb", "0", "--json", str(file)]
        command += ["--seconds", str(seconds), "--patience", str(patience_s)]
        command += [part for one in wanted for part in ("--run", one)]
        command += [part for queue in sorted({_queue(one) for one in wanted}) for part in ("--queue", queue)]
        limit_s = _PATIENCE_S + len(wanted) * (20 * seconds + patience_s)
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                check=False,
                timeout=limit_s,
                env=os.environ | dict(environment),
            )
        except OSError as error:
            raise RuntimeError(f"{command[0]}: {error.strerror}: is {checkout} a checkout?") from None
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"no end after {limit_s:.0f} s: {' '.join(command)}") from None
        if done.returncode:
            raise RuntimeError(f"exit status {done.returncode}: {' '.join(command)}\n{done.stderr[-2000:]}")
        return resultfile.read(file).runs


def _queue(pair: str) -> str:
    return "shm" if pair.rpartition(":")[2].startswith("shm") else "afxdp"


def rounds(checkouts: Sequence[Path], count: int) -> Iterator[tuple[int, int]]:
    """Number of the round and of the checkout: in every other round the other one begins."""
    for number in range(count):
        for turn in range(len(checkouts)):
            yield number, (turn + number) % len(checkouts)


def named(run: Run, checkout: int, number: int) -> Run:
    """With the checkout as part of what was measured."""
    return replace(run, subject=f"{run.subject} {checkout}", repetition=number)


def table(data: Figures) -> Table:
    """The second checkout over the first, and the first's own figures."""
    out = Table(title="the second over the first: median (range over the rounds)", title_justify="left")
    for title in ("workload", "path", "figure", "the first", "ratio"):
        out.add_column(title, justify="left" if title in ("workload", "path", "figure") else "right")
    for workload, subjects in data.items():
        for path in dict.fromkeys(subject.rpartition(" ")[0] for subject in subjects):
            for metric, title, digits in _METRICS:
                ratio = analysis.ratio(data, workload, metric, f"{path} 1", f"{path} 0")
                if ratio is None:
                    continue
                first = analysis.spread(subjects[f"{path} 0"][metric]).median
                text = f"{ratio.median:.3f} ({ratio.low:.3f}–{ratio.high:.3f})"
                out.add_row(workload, path, title, f"{first:,.{digits}f}", text)
    return out


def _parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m bench.compare",
        description=__doc__,
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("first", type=Path, help="a checkout that is built")
    found.add_argument("second", type=Path, help="another one")
    found.add_argument(
        "--run",
        action="append",
        choices=pairs(),
        metavar="WORKLOAD:PATH",
        help=f"may be repeated; default: {', '.join(_DEFAULT)}",
    )
    for name in ("first", "second"):
        found.add_argument(
            f"--in-{name}",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            type=_variable,
            help=f"a variable for the {name}; so a checkout can be measured against itself",
        )
    found.add_argument("--rounds", type=int, default=10, metavar="N", help="default: 10")
    found.add_argument("--seconds", type=float, default=1.0, metavar="S", help="length of a window; default: 1")
    found.add_argument(
        "--patience", type=float, default=5.0, metavar="S", help="for runs that others disturb; default: 5"
    )
    return found


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: expected NAME=VALUE")
    return name, value


@ends_with_reader
def main() -> int:
    arguments = _parser().parse_args()
    checkouts = (arguments.first.resolve(), arguments.second.resolve())
    wanted = arguments.run or list(_DEFAULT)
    runs: list[Run] = []
    plan = list(rounds(checkouts, arguments.rounds))
    with Steps(Console(stderr=True)) as steps:
        for number, which in steps.through(plan, lambda step: f"round {step[0] + 1}: {checkouts[step[1]].name}"):
            environment = dict((arguments.in_first, arguments.in_second)[which])
            found = measure(checkouts[which], wanted, arguments.seconds, arguments.patience, environment)
            runs += [named(run, which, number) for run in found]
    Console().print(table(analysis.figures(runs)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"bench.compare: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
