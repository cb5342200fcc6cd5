"""The command: arguments, the order of runs, progress."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from . import analysis, certificates, environment, haproxy, memory, programs, report, served, targets
from .analysis import Run
from .beds import raised
from .report import Results
from .session import Session, session
from .steps import Steps
from .subjects import AFXDP_THR, DIRECT_R0, HAPROXY, SHM, SUBJECTS, WORKLOADS, Subject, Workload

CHECK_BYTES = 48 << 20
FILES = 200_000
FOREIGN_LOAD = 0.03
_IDLE_SUBJECTS = {"direct": DIRECT_R0, "haproxy": HAPROXY, "afxdp": AFXDP_THR, "shm": SHM}


def _names() -> dict[str, list[str]]:
    """What --only may say, and the keys it stands for: a workload, or all whose names begin like it."""
    names: dict[str, list[str]] = {}
    for workload in WORKLOADS:
        names.setdefault(workload.group, []).append(workload.key)
    names |= {workload.key: [workload.key] for workload in WORKLOADS}
    return names | {"idle": ["idle"], "memory": ["memory"]}


def _arguments() -> argparse.Namespace:
    names = sorted(_names())
    parser = argparse.ArgumentParser(
        prog="tests/bench/run",
        description=__doc__,
        epilog="examples: ./tests/bench/run --quick --only send --only requests-32 --json bench.json; "
        "./tests/bench/run --only redis --queue shm. "
        "Needs root (network namespaces) and two cores that nothing else uses.",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one window of 0.5 s each instead of seven of 1 s, 2,000 idle connections",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything, with the environment, to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write a picture (.png, .svg, .pdf) to FILE")
    parser.add_argument(
        "--only",
        action="append",
        choices=names,
        metavar="NAME",
        help=f"may be repeated; a workload, or the beginning that several share: {', '.join(names)}",
    )
    parser.add_argument("--queue", action="append", choices=["afxdp", "shm"], help="may be repeated; default: both")
    parser.add_argument("--repetitions", type=int, metavar="N", help="default: 7, quick 2")
    parser.add_argument("--seconds", type=float, metavar="S", help="length of a window; default: 1, quick 0.5")
    parser.add_argument("--connections", type=int, metavar="N", help="idle connections; default: 10000, quick 2000")
    parser.add_argument(
        "--patience",
        type=float,
        default=20,
        metavar="S",
        help="how long a run that other programs disturb is made again, seconds (default: %(default)s)",
    )
    return parser.parse_args()


def _measure(live: Session, wanted: list[Workload], repetitions: int, seconds: float, steps: Steps) -> list[Run]:
    """The paths of one repetition follow each other, so that they share the machine's slow and fast
    phases."""
    plan = [
        (workload, repetition, subject)
        for workload in wanted
        for repetition in range(repetitions)
        for subject in workload.subjects
        if live.has(subject)
    ]

    def name(step: tuple[Workload, int, Subject]) -> str:
        workload, repetition, subject = step
        return f"{workload.key} {repetition + 1}/{repetitions}: {subject.label}"

    return [
        live.run(workload, subject, repetition, seconds) for workload, repetition, subject in steps.through(plan, name)
    ]


def _check_all(live: Session, wanted: list[Workload], steps: Steps) -> dict[str, object]:
    """Every byte, once for each path that will be measured."""
    subjects = {
        subject.key: subject
        for workload in wanted
        for subject in workload.subjects
        if live.has(subject) and subject in SUBJECTS  # the others' paths are among these
    }
    plan = steps.through(list(subjects.values()), lambda subject: f"every byte: {subject.label}")
    return {subject.key: dict(live.check(subject, CHECK_BYTES)) for subject in plan}


def _memory(
    live: Session, only: set[str], connections: int, watch_s: float, steps: Steps
) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, float]]]:
    subjects = {key: subject for key, subject in _IDLE_SUBJECTS.items() if live.has(subject)}
    idle: dict[str, dict[str, float]] = {}
    held: dict[str, dict[str, float]] = {}
    plan = [
        (what, key)
        for key, subject in subjects.items()
        for what in ("idle", "memory")
        if what in only and not (what == "memory" and subject is HAPROXY)
    ]

    def name(step: tuple[str, str]) -> str:
        what = f"{connections:,} idle connections" if step[0] == "idle" else "memory of a process"
        return f"{what}: {subjects[step[1]].label}"

    for what, key in steps.through(plan, name):
        subject = subjects[key]
        if what == "idle":
            count = min(connections, haproxy.most_connections()) if subject is HAPROXY else connections
            idle[key] = memory.idle_connections(live, subject, count, watch_s)
        else:
            held[key] = memory.attached_process(live, subject)
    return idle, held


def _raise_file_limit() -> None:
    """As many files as 10,000 connections through HAProxy need, or as many as this container allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, FILES), max(hard, FILES)))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    arguments = _arguments()
    console = Console(width=max(130, Console().width) if not sys.stdout.isatty() else None)
    if os.geteuid() != 0:
        print(
            "tests/bench/run: needs root: it makes network namespaces and pins processes to cores",
            file=sys.stderr,
        )
        return 2
    if (os.cpu_count() or 1) < 2:
        print(
            "tests/bench/run: needs two cores: one for the application, one for everything else",
            file=sys.stderr,
        )
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the labs are taken down on the way out
    os.sched_setaffinity(0, {1})
    _raise_file_limit()
    only = {key for name in arguments.only or _names() for key in _names()[name]}
    wanted = [workload for workload in WORKLOADS if workload.key in only]
    repetitions = arguments.repetitions or (2 if arguments.quick else 7)
    seconds = arguments.seconds or (0.5 if arguments.quick else 1.0)
    connections = arguments.connections or (2000 if arguments.quick else 10000)
    served.check_installed(wanted)
    built = programs.build(programs.TOP / "build" / "bench")
    with (
        tempfile.TemporaryDirectory(prefix="xts-bench-") as directory,
        raised(arguments.queue or ["afxdp", "shm"], (made := certificates.make(Path(directory))).tables()) as (
            baseline,
            beds,
        ),
        session(baseline, beds, built, arguments.patience, made) as live,
        Steps(console) as steps,
    ):
        facts = environment.record([baseline, *beds.values()], sys.argv)
        foreign = facts["foreign_load"] = environment.foreign_load()
        if foreign > FOREIGN_LOAD:
            console.print(f"[yellow]core 0 is {foreign:.0%} busy with something else: figures suffer[/]")
        checks = _check_all(live, wanted, steps)
        runs = _measure(live, wanted, repetitions, seconds, steps)
        idle, held = _memory(live, only & {"idle", "memory"}, connections, 1.0 if arguments.quick else 4.0, steps)
    figures = analysis.figures(runs)
    results = Results(facts, checks, runs, figures, idle, held, targets.judge(figures, idle, held))
    report.print_workloads(console, figures)
    report.print_memory(console, idle, held)
    report.print_targets(console, results.verdicts)
    if arguments.json:
        report.write_json(arguments.json, results)
    if arguments.plot:
        report.write_plot(arguments.plot, results)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError) as error:
        sys.exit(f"tests/bench/run: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
