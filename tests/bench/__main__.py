"""Measures XTS against direct kernel sockets and proxies (HAProxy, nginx for UDP): throughput, rate, latency and the
CPU of host and device."""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from xts_messages.terminal import terminal
from xts_messages.terminal.standard_output import ends_with_reader

from . import (
    analysis,
    certificates,
    haproxy,
    in_turn,
    measured_on,
    memory,
    native_programs,
    options,
    picture,
    report,
    results,
    served,
    targets,
)
from .beds import Bed, LoopbackBed, loopback, raised
from .options import Asked
from .resultfile import Writer
from .session import Session, session
from .steps import Steps
from .subjects import (
    AFXDP_THR,
    DIRECT_R0,
    HAPROXY,
    NAME_SERVICE,
    SHM,
    SUBJECTS,
    UDP_PORT,
    Subject,
    Workload,
)

FILES = 200_000
FOREIGN_LOAD = 0.03
_IDLE_SUBJECTS = {"direct": DIRECT_R0, "haproxy": HAPROXY, "afxdp": AFXDP_THR, "shm": SHM}
#: The same with TLS: OpenSSL in the application, HAProxy's to the peer, or pushed.
_WITH_TLS = {f"{key}, TLS": subject for key, subject in _IDLE_SUBJECTS.items()}


def _measure(live: Session, asked: Asked, writer: Writer, steps: Steps, begun: float) -> None:
    """All paths of all workloads once, then again: a slow minute of the machine meets one repetition of each. The
    paths of one workload follow each other, so that they share the machine's slow and fast phases."""
    done = writer.recorded.done()
    plan = [
        (workload, repetition, subject)
        for repetition in range(asked.repetitions)
        for workload in asked.wanted()
        for subject in workload.subjects
        if live.has(subject) and asked.wants(workload, subject)
        if (workload.key, subject.key, repetition) not in done
    ]

    def name(step: tuple[Workload, int, Subject]) -> str:
        workload, repetition, subject = step
        return f"{workload.key} {repetition + 1}/{asked.repetitions}: {subject.label}"

    ends_s = None if asked.minutes is None else begun + 60 * asked.minutes
    for workload, repetition, subject in steps.through(plan, name, ends_s):
        if repetition and ends_s is not None and time.monotonic() > ends_s:
            break
        writer.run(live.run(workload, subject, repetition, asked.seconds))


def _check_all(live: Session, asked: Asked, writer: Writer, steps: Steps) -> None:
    """Every byte, once for each path that will be measured."""
    if not asked.check_bytes:
        return
    subjects = {
        subject.key: subject
        for workload in asked.wanted()
        for subject in workload.subjects
        if live.has(subject) and asked.wants(workload, subject)
        if subject in SUBJECTS  # the others' paths are among these
        if subject.key not in writer.recorded.checks
    }
    for subject in steps.through(list(subjects.values()), lambda subject: f"every byte: {subject.label}"):
        writer.add("check", {"path": subject.key, **live.check(subject, asked.check_bytes)})


def _memory(live: Session, asked: Asked, writer: Writer, steps: Steps) -> None:
    """Idle connections and attached processes."""
    subjects = {key: subject for key, subject in (_IDLE_SUBJECTS | _WITH_TLS).items() if live.has(subject)}
    there = {"idle": writer.recorded.idle, "memory": writer.recorded.memory}
    plan = [
        (what, key)
        for key, subject in subjects.items()
        for what in asked.extras
        if not (what == "memory" and (subject is HAPROXY or key in _WITH_TLS)) and key not in there[what]
    ]

    def name(step: tuple[str, str]) -> str:
        what = f"{asked.connections:,} idle connections" if step[0] == "idle" else "memory of a process"
        return f"{what}: {subjects[step[1]].label}"

    for what, key in steps.through(plan, name):
        subject = subjects[key]
        if what == "idle":
            most = haproxy.most_connections() if subject is HAPROXY else asked.connections
            tls = "rsa" if key in _WITH_TLS else ""
            found = memory.idle_connections(live, subject, min(asked.connections, most), asked.watch_s, tls)
        else:
            found = memory.attached_process(live, subject)
        writer.add(what, {"path": key, **found})


def _raise_file_limit() -> None:
    """As many files as 10,000 connections through HAProxy need, or as many as this container allows."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(hard, FILES), max(hard, FILES)))
    except (ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _beds(asked: Asked, tables: str) -> AbstractContextManager[tuple[Bed, dict[str, Bed]]]:
    return loopback(tables) if asked.loopback else raised(asked.kinds(), tables)


def _names(asked: Asked) -> str:
    """The proxies ask the peer."""
    peer = (LoopbackBed if asked.loopback else Bed)("").peer
    return f'[names]\nresolvers = ["{peer}:{UDP_PORT + NAME_SERVICE}"]\n'


def _go_on(writer: Writer, facts: dict[str, Any], asked: Asked) -> None:
    """RuntimeError when what is resumed was measured on something else."""
    for before in writer.recorded.environment:
        for key in ("cpu", "kernel", "commit"):
            if before[key] != facts[key]:
                raise RuntimeError(f"measured on {key} {before[key]}; this is {facts[key]}: begin another file")
    writer.add("environment", facts)
    if not writer.recorded.asked:
        writer.add("asked", asked.stored())


def _build_directory(scratch: str) -> Path:
    """The checkout's, so that it is built once; where that is somebody else's, one that goes."""
    directory = native_programs.TOP / "build" / "bench"
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return directory if os.access(existing, os.W_OK) else Path(scratch)


def _check_modules(asked: Asked, plot: Path | None) -> None:
    """RuntimeError, which says what to do, when a Python package that is needed on the way is not there."""
    needed = {"matplotlib"} if plot else set()
    for workload in asked.wanted():
        needed |= {"uvloop"} if workload.aio else {"h2", "hpack"} if workload.name == "http2" else set()
        needed |= {"aioquic"} if workload.name == "udp-quic" else set()
    if missing := sorted(name for name in needed if find_spec(name) is None):
        raise RuntimeError(f"not installed: {', '.join(missing)}. .venv/bin/pip install it, or choose with --only")


def _session(asked: Asked, writer: Writer, console: Console, lines: Iterable[str] | None) -> None:
    """Everything that is asked for and not there yet; or the runs that these lines name."""
    begun = time.monotonic()
    wanted = asked.wanted()
    if not asked.loopback:
        served.check_installed(wanted)
    with (
        tempfile.TemporaryDirectory(prefix="xts-bench-") as directory,
        nullcontext(native_programs.build(_build_directory(directory))) as built,
        _beds(asked, (made := certificates.make(Path(directory))).tables() + _names(asked)) as (baseline, beds),
        session(baseline, beds, built, asked.patience_s, made, warmup_s=asked.warmup_s) as live,
        Steps(console) as steps,
    ):
        facts = measured_on.record([baseline, *beds.values()], sys.argv)
        foreign = facts["foreign_load"] = measured_on.foreign_load()
        if foreign > FOREIGN_LOAD:
            console.print(f"[yellow]core 0 is {foreign:.0%} busy with something else: figures suffer[/]")
        _go_on(writer, facts, asked)
        _check_all(live, asked, writer, steps)
        _memory(live, asked, writer, steps)
        if lines is None:
            _measure(live, asked, writer, steps, begun)
        else:
            in_turn.measure(live, asked, writer, lines)


def _refusal(asked: Asked) -> str | None:
    """Why this cannot be measured here, in a sentence; None when it can."""
    if not asked.loopback and os.geteuid() != 0:
        return "needs root: it makes network namespaces and pins processes to cores (--loopback does without)"
    with suppress(OSError):  # whoever started us may keep to one core
        os.sched_setaffinity(0, {0, 1})
    if os.sched_getaffinity(0) != {0, 1}:
        return "needs two cores, 0 and 1: one for the application, one for everything else"
    return None


@ends_with_reader
def main() -> int:
    arguments = options.parser(__doc__ or "").parse_args()
    console = Console(width=terminal.piped_columns(130))
    if arguments.results is not None:
        paths = arguments.results or [options.RESULTS]
        if arguments.into:
            shown = list(picture.cells(picture.found_over(results.files_of(paths))))
            results.put_into(arguments.into, results.markdown(results.load(paths), shown))
        if arguments.picture:
            picture.draw(results.files_of(paths), arguments.picture)
        if not arguments.into and not arguments.picture:
            results.show(console, paths, arguments.markdown)
        return 0
    with Writer(arguments.resume or arguments.json, resume=arguments.resume is not None) as writer:
        asked = Asked.of(writer.recorded.asked) if writer.recorded.asked else options.asked(arguments)
        if refusal := _refusal(asked):
            print(f"tests/bench/run: {refusal}", file=sys.stderr)
            return 2
        _check_modules(asked, arguments.plot)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the labs are taken down on the way out
        os.sched_setaffinity(0, {1})
        _raise_file_limit()
        to_stdout = str(arguments.json) == "-"
        lines = sys.stdin if arguments.in_turn else None
        _session(asked, writer, Console(stderr=True) if to_stdout else console, lines)
        recorded = writer.recorded
    figures = analysis.figures(recorded.runs)
    if not to_stdout:
        report.print_workloads(console, figures)
        report.print_limits(console, figures)
        report.print_memory(console, recorded.idle, recorded.memory)
        report.print_targets(console, targets.judge(figures, recorded.idle, recorded.memory))
        results.print_rows(console, [results.Measured.of("this run", recorded)])
    if arguments.plot:
        report.write_plot(arguments.plot, figures, recorded.environment[-1])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError, ValueError) as error:
        plain = isinstance(error, OSError) and error.strerror and error.filename is None
        sys.exit(f"tests/bench/run: {error.strerror if plain else error}")  # type: ignore[union-attr]
    except KeyboardInterrupt:
        sys.exit(130)
