"""Measures one build against another: both are up, and the same workloads run in one and the other in turn, so that
both meet the machine's slow and fast phases. What is compared is the second over the first, within each round. The 95 %
interval says where the median would be if it were measured for ever: what it includes, the rounds do not rule out.

Each checkout is built by its own deploy/setup; that says how they differ: two commits, or one with
SKBUILD_CMAKE_DEFINE="XTS_PROBES=OFF;XTS_WAITS=OFF" in its environment.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from xts_messages.terminal import terminal
from xts_messages.terminal.command_line import CommandLine
from xts_messages.terminal.standard_output import ends_with_reader

from . import analysis, in_turn, report
from .analysis import Figures, Run
from .options import pairs
from .steps import Steps

_DEFAULT = ("request-spin:shm", "requests-32:shm")
_METRICS = (
    ("host_us_per_op", "host µs each", 3),
    ("device_us_per_op", "device µs each", 3),
    ("own_us_per_op", "of that the proxy", 3),
    ("p50_us", "p50 µs", 2),
    ("rate", "per second", 0),
    *report.BULK,
)
#: Of the two benches' networks and proxies.
_NAMES = ("xts1", "xts2")
_EXAMPLE = """\
example, the cost of wait counters and probes in 2 minutes:
  git worktree add ../without && cd ../without && SKBUILD_CMAKE_DEFINE="XTS_PROBES=OFF;XTS_WAITS=OFF" deploy/setup
  cd - && PYTHONPATH=tests .venv/bin/python -m bench.compare ../without . --rounds 30
and of the head that frames have on a card (BENCH_WIRE, BENCH_STEERING: xts_lab/wire.py, xts_bpf/steering.py):
  PYTHONPATH=tests .venv/bin/python -m bench.compare . . --run requests-32:afxdp-soft --in-second BENCH_STEERING=address
Needs root and two cores that nothing else uses, as tests/bench/run does, which it runs in each checkout.
"""


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
    out = Table(title="the second over the first: median of the rounds", title_justify="left")
    for title in ("workload", "path", "figure"):
        out.add_column(title)
    for title in ("the first", "ratio", "95 % interval", "range"):
        out.add_column(title, justify="right")
    for workload, subjects in data.items():
        for path in dict.fromkeys(subject.rpartition(" ")[0] for subject in subjects):
            for metric, title, digits in _METRICS:
                ratios = analysis.ratios(data, workload, metric, f"{path} 1", f"{path} 0")
                if not ratios:
                    continue
                first = analysis.spread(subjects[f"{path} 0"][metric]).median
                ratio, interval = analysis.spread(ratios), analysis.interval(ratios.values())
                sure = f"{interval[0]:.3f}–{interval[1]:.3f}" if interval else "needs 6 rounds"
                text = f"{ratio.median:.3f}", sure, f"{ratio.low:.3f}–{ratio.high:.3f}"
                out.add_row(workload, path, title, f"{first:,.{digits}f}", *text)
    return out


def _parser() -> argparse.ArgumentParser:
    found = CommandLine(
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
    found.add_argument("--rounds", type=int, default=30, metavar="N", help="default: 30")
    found.add_argument("--seconds", type=float, default=0.3, metavar="S", help="length of a window; default: 0.3")
    found.add_argument(
        "--patience", type=float, default=2.0, metavar="S", help="for runs that others disturb; default: 2"
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
    with Steps(Console(stderr=True)) as steps, ExitStack() as stack:
        benches = [
            stack.enter_context(
                in_turn.Bench(
                    checkout,
                    name,
                    wanted,
                    seconds=arguments.seconds,
                    patience_s=arguments.patience,
                    environment=dict(variables),
                )
            )
            for checkout, name, variables in zip(
                checkouts, _NAMES, (arguments.in_first, arguments.in_second), strict=True
            )
        ]
        for pair in wanted:
            for number, which in steps.through(plan, lambda step: f"{pair}, round {step[0] + 1}"):  # noqa: B023
                runs.append(named(benches[which].run(number, pair), which, number))
    Console(width=terminal.piped_columns(130)).print(table(analysis.figures(runs)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        sys.exit(f"bench.compare: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
