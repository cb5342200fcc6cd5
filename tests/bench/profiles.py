"""Measures what settings change for a program: the same server under the same load, with only its settings varied.

Each repetition measures all variants of a program one after the other, beginning with another one each time; what is
compared is a variant over the default, within the repetition. The server has core 0, and is under the interposer;
proxy and load generator have core 1. The figures are those of deploy/docs/how-to/settings.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table
from xts_lab.launch import raise_file_limit
from xts_messages.settings.profiles import PROFILES
from xts_messages.terminal import terminal
from xts_messages.terminal.command_line import CommandLine
from xts_messages.terminal.standard_output import ends_with_reader

from . import analysis, certificates, measured_on, memory, native_programs, resultfile, served
from .analysis import Figures
from .beds import raised
from .resultfile import Writer
from .session import Session, session
from .steps import Steps
from .subjects import AFXDP_SOFT, SHM, Subject, Workload

#: Of each variant, by its name: variables and what they are set to.
Settings = dict[str, tuple[tuple[str, str], ...]]
#: Raises proxy, peers and applications' side, and takes them down at the end.
Begin = Callable[[], AbstractContextManager[Session]]

DEFAULT = "default"
_IDLE = 2000


def _case(key: str, title: str, program: str, connections: int, *load: str) -> Workload:
    return Workload(key, title, "served", (), connections, served=program, load=load)


CASES = (
    _case("redis-1", "redis GET, 1 connection", "redis", 1, "-t", "get"),
    _case("redis-32", "redis GET, 32 connections", "redis", 32, "-t", "get"),
    _case(
        "redis-bulk", "redis SET of 1 MiB, a connection each", "redis", 1, "-t", "set", "-d", str(1 << 20), "-k", "0"
    ),
    _case("nginx-1", "nginx, 1 connection, kept", "nginx", 1),
    _case("nginx-50", "nginx, 50 connections, kept", "nginx", 50),
    _case("nginx-close", "nginx, 50 connections, closed after each request", "nginx", 50, "-H", "Connection: close"),
    _case("postgres-1", "PostgreSQL SELECT, 1 connection", "postgres", 1),
    _case("postgres-8", "PostgreSQL SELECT, 8 connections", "postgres", 8),
    _case("python-1", "uvicorn, 1 connection, kept", "uvicorn", 1),
    _case("python-32", "uvicorn, 32 connections, kept", "uvicorn", 32),
    _case("many-2000", "nginx, 2,000 connections, kept", "nginx", 2000),
    # Those above ask again at once, within the time that a wait spins by default. These leave 500 µs between two.
    _case("postgres-paced", "PostgreSQL SELECT, 1 connection, 2,000 a second", "postgres", 1, "-R", "2000"),
    Workload("paced-1", "a client of ours that asks 2,000 times a second", "processes-request", (), rate_per_s=2000),
)
_METRICS = (
    ("rate", "requests"),
    ("p50_us", "p50"),
    ("p99_us", "p99"),
    ("host_us_per_op", "host CPU"),
    ("device_us_per_op", "device CPU"),
)
_EXAMPLE = """\
examples:
  PYTHONPATH=tests .venv/bin/python -m bench.profiles --minutes 10 --json profiles.jsonl
  PYTHONPATH=tests .venv/bin/python -m bench.profiles --only nginx --try XTS_SPIN_US=20 --repetitions 3
  PYTHONPATH=tests .venv/bin/python -m bench.profiles --results profiles.jsonl
Needs root, cores 0 and 1 that nothing else uses, and the programs: deploy/setup --dev has installed them.
"""


def variants(tried: Sequence[str]) -> Settings:
    """Settings by name: the default, each profile, and what --try says. ValueError: it says it wrongly."""
    found: Settings = {DEFAULT: ()}
    found |= {profile.name: (("XTS_PROFILE", profile.name),) for profile in PROFILES}
    for text in tried:
        parts = [part.partition("=") for part in text.split(",")]
        if not all(name.startswith("XTS_") and equals for name, equals, _ in parts):
            raise ValueError(f"--try {text}: expected XTS_NAME=VALUE, or several with commas between them")
        found[text] = tuple((name, value) for name, _, value in parts)
    return found


def plan(
    cases: Sequence[Workload], names: Sequence[str], repetitions: int
) -> list[tuple[Workload, int, tuple[str, ...]]]:
    """Steps: a case, the number of the repetition, and the variants in their order."""
    return [
        (case, number, (*names[number % len(names) :], *names[: number % len(names)]))
        for number in range(repetitions)
        for case in cases
    ]


def table(data: Figures) -> Table:
    """Of each case the default's medians, and the others over it."""
    out = Table(title="over the default: median (range over the repetitions)", title_justify="left")
    for title in ("case", "settings", *(title for _, title in _METRICS)):
        out.add_column(title, justify="left" if title in ("case", "settings") else "right", no_wrap=title == "settings")
    for case in CASES:
        subjects = data.get(case.key, {})
        for i, name in enumerate(subjects):
            cells = [_cell(data, case.key, metric, name) for metric, _ in _METRICS]
            out.add_row(case.title if not i else "", name, *cells)
    return out


def _cell(data: Figures, case: str, metric: str, name: str) -> str:
    values = data[case][name].get(metric)
    if not values:
        return ""
    if name == DEFAULT:
        return f"{analysis.spread(values).median:,.{0 if metric == 'rate' else 1}f}"
    ratio = analysis.ratio(data, case, metric, name, DEFAULT)
    return f"{ratio.median:.2f} ({ratio.low:.2f}–{ratio.high:.2f})" if ratio else ""


def idle_table(idle: dict[str, dict[str, float]]) -> Table:
    """What an idle connection takes."""
    out = Table(title=f"{_IDLE:,} idle connections of one program", title_justify="left")
    for title in ("settings", "host bytes each", "proxy bytes each", "kernel bytes each", "host core", "device core"):
        out.add_column(title, justify="left" if title == "settings" else "right")
    for name, row in idle.items():
        sizes = (f"{row[f'{who}_bytes_each']:,.0f}" for who in ("host", "proxy", "kernel"))
        out.add_row(name, *sizes, f"{row['host_cpu']:.1%}", f"{row['device_cpu']:.1%}")
    return out


def show(console: Console, recorded: resultfile.Recorded) -> None:
    data = analysis.figures(recorded.runs)
    if data:
        console.print(table(data))
    if recorded.idle:
        console.print(idle_table(recorded.idle))


def _measure_idle(
    begin: Callable[[], AbstractContextManager[Session]],
    base: Subject,
    settings: Settings,
    writer: Writer,
    steps: Steps,
) -> None:
    """Each variant has a proxy of its own: one that has had connections takes no more memory for the next ones."""
    for name in steps.through(list(settings), lambda name: f"{_IDLE:,} idle connections: {name}"):
        with begin() as live:
            found = memory.idle_connections(live, replace(base, settings=settings[name]), _IDLE, 0.5)
        writer.add("idle", {"path": name, **found})


def _measure(
    live: Session, arguments: argparse.Namespace, base: Subject, writer: Writer, steps: Steps, *, ends_s: float
) -> None:
    """Until all has been measured, or the time is over: then what has begun is measured to its end."""
    settings = variants(arguments.tried)
    cases = [case for case in CASES if not arguments.only or case.key.partition("-")[0] in arguments.only]
    todo = plan(cases, list(settings), arguments.repetitions)
    for case, number, order in steps.through(todo, lambda step: f"{step[0].title}, {step[1] + 1}", ends_s):
        if time.monotonic() > ends_s:
            break
        for name in order:
            subject = replace(base, key=name, label=f"{base.label}, {name}", settings=settings[name])
            writer.run(live.run(case, subject, number, arguments.seconds))


def _measure_all(arguments: argparse.Namespace, writer: Writer) -> None:
    ends_s = time.monotonic() + 60 * arguments.minutes
    base, settings = SHM if arguments.queue == "shm" else AFXDP_SOFT, variants(arguments.tried)
    with tempfile.TemporaryDirectory(prefix="xts-bench-") as directory, Steps(Console(stderr=True)) as steps:
        made = certificates.make(Path(directory))
        programs = native_programs.build(native_programs.TOP / "build" / "bench")

        @contextmanager
        def begin() -> Iterator[Session]:
            with (
                raised((arguments.queue,), made.tables()) as (baseline, beds),
                session(baseline, beds, programs, arguments.patience, made) as live,
            ):
                if not writer.recorded.environment:
                    facts = measured_on.record([baseline, *beds.values()], sys.argv)
                    writer.add("environment", facts | {"command": "python -m bench.profiles"})
                yield live

        if not arguments.only or "many" in arguments.only:
            _measure_idle(begin, base, settings, writer, steps)
        with begin() as live:
            _measure(live, arguments, base, writer, steps, ends_s=ends_s)


def _parser() -> argparse.ArgumentParser:
    found = CommandLine(
        prog="python -m bench.profiles",
        description=__doc__,
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    programs = sorted({case.key.partition("-")[0] for case in CASES})
    add = found.add_argument
    add("--only", action="append", choices=programs, help="may be repeated")
    add(
        "--try",
        dest="tried",
        action="append",
        default=[],
        metavar="NAME=VALUE,…",
        help="more settings, in addition to the profiles",
    )
    add("--queue", choices=("shm", "afxdp"), default="shm", help="default: shm")
    add("--repetitions", type=int, default=9, metavar="N", help="at most; default: 9")
    add("--minutes", type=float, default=10.0, metavar="M", help="begin nothing after so many; default: 10")
    add("--seconds", type=float, default=1.0, metavar="S", help="length of a window; default: 1")
    add("--patience", type=float, default=2.0, metavar="S", help="for runs that others disturb; default: 2")
    add("--json", type=Path, metavar="FILE", help="write each result to a new FILE as it comes, a JSON object a line")
    add("--results", type=Path, metavar="FILE", help="measure nothing: print what such a file has")
    return found


def _refusal(arguments: argparse.Namespace) -> str | None:
    if os.geteuid() != 0:
        return "needs root: it makes network namespaces and pins processes to cores"
    with suppress(OSError):  # whoever started us may keep to one core
        os.sched_setaffinity(0, {0, 1})
    if os.sched_getaffinity(0) != {0, 1}:
        return "needs two cores, 0 and 1: one for the server, one for everything else"
    if not find_spec("uvicorn") and (not arguments.only or "python" in arguments.only):
        return "not installed: uvicorn. deploy/setup --dev installs it, or choose others with --only"
    served.check_installed(CASES)
    return None


@ends_with_reader
def main() -> int:
    arguments = _parser().parse_args()
    console = Console(width=terminal.piped_columns(130))
    if arguments.results:
        show(console, resultfile.read(arguments.results))
        return 0
    variants(arguments.tried)
    if refusal := _refusal(arguments):
        print(f"bench.profiles: {refusal}", file=sys.stderr)
        return 2
    os.sched_setaffinity(0, {1})
    raise_file_limit()
    with Writer(arguments.json) as writer:
        _measure_all(arguments, writer)
    show(console, writer.recorded)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bench.profiles: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
