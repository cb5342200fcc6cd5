"""What the command is asked: its arguments, and the plan that follows from them."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from xts_messages.terminal.command_line import CommandLine
from xts_messages.version import __version__

from . import rows
from .subjects import WORKLOADS, Subject, Workload

QUICK_MINUTES = 5.0
RESULTS = Path(__file__).resolve().parent / "results"

EXAMPLES = """\
placements, for veth runs the receiver on the sender's core:
  thr   afxdp: the device receives in a kernel thread on its own core, as a DMA engine would
  soft  afxdp: veth's default, the host's core runs the device's receive; half the latency, more host CPU
  r0    kernel TCP: veth's default, the host's core forwards for the device and receives for the peer
  r1    kernel TCP: receive packet steering puts each one's work on its own core, as with a NIC

examples:
  ./tests/bench/run --quick --json quick.jsonl          README's rows in 5 minutes
  ./tests/bench/run --json full.jsonl                   everything: an hour and a half
  ./tests/bench/run --resume full.jsonl                 goes on where that was interrupted
  ./tests/bench/run --only redis --queue shm --repetitions 3
  ./tests/bench/run --results                           the range over the committed result files
  ./tests/bench/run --results full.jsonl --markdown
  ./tests/bench/run --results --into deploy/docs/figures.md --picture deploy/docs/images/demo.svg
Needs root (network namespaces; --loopback does not) and two cores that nothing else uses.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be measured; in the result file, so that `--resume` knows."""

    workloads: tuple[str, ...]
    extras: tuple[str, ...]  # "idle", "memory"
    #: Only these, each WORKLOAD:PATH; empty: all.
    pairs: tuple[str, ...]
    queues: tuple[str, ...]
    loopback: bool
    repetitions: int
    seconds: float
    warmup_s: float
    connections: int
    watch_s: float
    check_bytes: int
    patience_s: float
    #: No repetition but the first is begun, or gone on with, after so many minutes; None: as long as it takes.
    minutes: float | None

    @classmethod
    def of(cls, stored: dict[str, Any]) -> Asked:
        """From what `stored()` gave. TypeError when it lacks something."""
        values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in stored.items()}
        return cls(**values)

    def stored(self) -> dict[str, Any]:
        return asdict(self)

    def wants(self, workload: Workload, subject: Subject) -> bool:
        return not self.pairs or f"{workload.key}:{subject.key}" in self.pairs

    def kinds(self) -> tuple[str, ...]:
        """Of the labs that are needed: the queues asked for, and of those over AF_XDP what some workloads need."""
        needed = {path.queue for workload in self.wanted() for path in workload.subjects if self.wants(workload, path)}
        more = ("several", "relay", "crowded") if "afxdp" in self.queues else ()
        return (*self.queues, *(kind for kind in more if kind in needed))

    def wanted(self) -> list[Workload]:
        """Workloads of which at least one path is wanted."""
        chosen = [workload for workload in WORKLOADS if workload.key in self.workloads]
        return [workload for workload in chosen if any(self.wants(workload, path) for path in workload.subjects)]


def names() -> dict[str, list[str]]:
    """What --only may say, and the keys it stands for: a workload, or all whose names begin like it."""
    found: dict[str, list[str]] = {}
    for workload in WORKLOADS:
        found.setdefault(workload.group, []).append(workload.key)
    found |= {workload.key: [workload.key] for workload in WORKLOADS}
    return found | {"idle": ["idle"], "memory": ["memory"]}


def pairs() -> list[str]:
    """What --run may say."""
    return [f"{workload.key}:{subject.key}" for workload in WORKLOADS for subject in workload.subjects]


def parser(description: str) -> argparse.ArgumentParser:
    """All arguments."""
    known = sorted(names())
    found = CommandLine(
        prog="tests/bench/run",
        description=description,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = found.add_argument
    add("--version", action="version", version=f"{found.prog} {__version__}")
    add(
        "--quick",
        action="store_true",
        help=f"README's rows in {QUICK_MINUTES:.0f} minutes: the paths they name, windows of 0.4 s, as many "
        "repetitions as there is time for, 2,000 idle connections",
    )
    files = found.add_mutually_exclusive_group()
    files.add_argument(
        "--json",
        type=Path,
        metavar="FILE",
        help="write each result to FILE as it comes, a JSON object a line (-: standard output, without tables)",
    )
    files.add_argument("--resume", type=Path, metavar="FILE", help="go on with what was interrupted, as it was asked")
    files.add_argument(
        "--results",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="measure nothing: print the range over result files, or folders of them (default: tests/bench/results)",
    )
    add("--markdown", action="store_true", help="with --results: as Markdown")
    add(
        "--into",
        type=Path,
        metavar="PAGE",
        help="with --results: replace the figures in a page (deploy/docs/figures.md)",
    )
    add(
        "--picture",
        type=Path,
        metavar="FILE",
        help="with --results: draw the demo's picture of them (deploy/docs/images/demo.svg)",
    )
    add("--plot", type=Path, metavar="FILE", help="write a picture (.png, .svg, .pdf) to FILE")
    add(
        "--only",
        action="append",
        choices=known,
        metavar="NAME",
        help=f"may be repeated; a workload, or the beginning that several share: {', '.join(known)}",
    )
    add("--rows", action="store_true", help="only the paths that README's rows name")
    add(
        "--run",
        action="append",
        choices=pairs(),
        metavar="WORKLOAD:PATH",
        help="may be repeated; only these paths of these workloads, tls-send:shm for instance",
    )
    add(
        "--in-turn",
        action="store_true",
        help="one run for each line on standard input, REPETITION WORKLOAD:PATH, until it ends (in_turn.py)",
    )
    add("--queue", action="append", choices=["afxdp", "shm"], help="may be repeated; default: both")
    add("--loopback", action="store_true", help="without root: shared memory, and everybody on this machine's loopback")
    add("--repetitions", type=int, metavar="N", help="at most; default: 7")
    add("--minutes", type=float, metavar="M", help="stop when each path was measured once and M minutes are over")
    add("--seconds", type=float, metavar="S", help="length of a window; default: 1, quick 0.4")
    add("--warmup", type=float, metavar="S", help="before each window; default: 0.3, quick 0.15")
    add("--connections", type=int, metavar="N", help="idle connections; default: 10000, quick 2000")
    add("--check-mb", type=int, metavar="MB", help="data each way of which every byte is compared first; default: 48")
    add(
        "--patience",
        type=float,
        metavar="S",
        help="how long a run that other programs disturb is made again, seconds; default: 20, quick 2",
    )
    return found


def asked(arguments: argparse.Namespace) -> Asked:
    """What follows from the arguments."""
    quick = arguments.quick
    keys = {key for name in arguments.only or names() for key in names()[name]}

    chosen_pairs = set(arguments.run or ())
    if arguments.rows or quick:
        chosen_pairs |= {f"{workload}:{path}" for workload, path in rows.needed()}

    def chosen(value: Any, plain: Any, quickly: Any) -> Any:
        return value if value is not None else quickly if quick else plain

    return Asked(
        workloads=tuple(workload.key for workload in WORKLOADS if workload.key in keys),
        extras=() if arguments.loopback or arguments.run else tuple(key for key in ("idle", "memory") if key in keys),
        pairs=tuple(sorted(chosen_pairs)),
        queues=("shm",) if arguments.loopback else tuple(arguments.queue or ("afxdp", "shm")),
        loopback=arguments.loopback,
        repetitions=chosen(arguments.repetitions, 7, 7),
        seconds=chosen(arguments.seconds, 1.0, 0.4),
        warmup_s=chosen(arguments.warmup, 0.3, 0.15),
        connections=chosen(arguments.connections, 10_000, 2000),
        watch_s=1.0 if quick else 4.0,
        check_bytes=chosen(arguments.check_mb, 48, 8) << 20,
        patience_s=chosen(arguments.patience, 20.0, 2.0),
        minutes=chosen(arguments.minutes, None, QUICK_MINUTES),
    )
