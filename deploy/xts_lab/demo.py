"""`deploy/demo`: what offloaded TCP and TLS are for, in under a minute.

First a job with real programs: a Python program on a host without a network gets a file from nginx over TLS and serves
it to curl, and an unmodified curl gets it, too; each time the SHA-256 is checked. Then measurements of what the same
traffic costs the host's core, compared with today's alternatives: kernel TCP with OpenSSL in the application, and
HAProxy on the device.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from pyroute2.netlink.exceptions import NetlinkError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from xts_messages.terminal import terminal
from xts_messages.terminal.command_line import CommandLine
from xts_messages.terminal.standard_output import ends_with_reader

from . import demo_job, demo_picture, placement
from .demo_job import Task, certificate_in, make_file, trust_tables
from .demo_measure import MEASURED_CORES, ROWS, WAYS, Found, Plan, bench, check_bench, found_in, rows_named
from .places import LabPlace, LoopbackPlace, Place, certificates_folder, two_cores
from .privilege import LabError, afxdp_unavailable, missing_privilege

FILE_MB = 32
ROUNDS = 3
SECONDS = 0.3

EXAMPLES = """\
examples:
  sudo deploy/demo                              all of it
  sudo deploy/demo --plot demo.svg --json demo.json
  deploy/demo                                   without root: shared memory over loopback
  sudo deploy/demo --queue shm --row tls-bulk --row bulk --rounds 7
"""


@contextmanager
def everything_on(core: int) -> Iterator[None]:
    """Pins this process and everything it starts, including the proxy, to a core. Jobs choose their own core."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def interruptible() -> None:
    """Ctrl-C, SIGTERM and SIGHUP end the demo by taking everything down; during that, further signals wait."""

    def interrupt(_number: int, _frame: object) -> None:
        for number in interrupts:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    interrupts = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    for number in interrupts:
        signal.signal(number, interrupt)


def choose_queues(queue: str | None, console: Console) -> tuple[str, ...]:
    """The kinds of queue that labs can have here; none if we may have no labs. Prints the reason."""
    if lacking := missing_privilege():
        if queue == "afxdp":
            raise LabError(f"an afxdp queue needs root; lacking {', '.join(lacking)}. Try sudo deploy/demo")
        console.print(
            "No privilege: no namespaces and no AF_XDP. The same on a shared-memory queue, everything on\n"
            "this machine's loopback, where the sender's core also does the receiver's TCP.\n"
            "The whole: sudo deploy/demo",
            highlight=False,
        )
        return ()
    if queue is None and (reason := afxdp_unavailable()):
        console.print(f"Without afxdp: {reason}", highlight=False)
        queue = "shm"
    return (queue,) if queue else ("afxdp", "shm")


def queues_to_measure(queues: tuple[str, ...], console: Console) -> tuple[str, ...]:
    """Of these, the kinds of queue whose figures can be told here. Prints the reason."""
    if "afxdp" not in queues or not (reason := placement.unavailable()):
        return queues
    console.print(f"No figures over afxdp: {reason}", highlight=False)
    return tuple(queue for queue in queues if queue != "afxdp")


def do_job(place: Place, task: Task, console: Console) -> None:
    """Raises a place, does the job in it, and takes it down."""
    with everything_on(place.device_core), place:
        console.print(f"[bold]{place.description}[/]", highlight=False)
        demo_job.do(place, task, lambda did: console.print(f"  [green]✓[/] {did}", highlight=False))


def measure(plan: Plan, console: Console) -> Found:
    """Measures all rows, with a progress bar. LabError when the bench fails."""
    found = Found()
    bars = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    device_core = two_cores()[1]  # this process runs there, too: drawing the bar is not work of the host
    with everything_on(device_core), Progress(*bars, console=console, transient=True, refresh_per_second=2) as progress:
        task = progress.add_task("measuring: labs", total=len(plan.runs()) * plan.rounds)
        with bench(plan) as lines:
            for title, so_far in found_in(plan, lines):
                found = so_far
                progress.update(task, advance=1, description=f"measuring: {title}")
    return found


def _as_json(found: Found, plan: Plan) -> str:
    calm = found.foreign_share <= demo_picture.NO_VERDICT
    return json.dumps(
        {
            "environment": found.environment,
            "rounds": found.rounds,
            "foreign_share": found.foreign_share,
            "figures": [
                {
                    "row": row.key,
                    "label": row.label,
                    "unit": row.unit,
                    "way": way,
                    **asdict(found.figures[row.key, way]),
                }
                for row in plan.rows
                for way in WAYS
                if (row.key, way) in found.figures
            ],
            "verdict": demo_picture.verdict(found, plan.rows) if calm else "",
            "worse": list(demo_picture.losses(found, plan.rows, plan.loopback)) if calm else [],
        },
        indent=2,
        ensure_ascii=False,
    )


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = CommandLine(
        prog="deploy/demo",
        description=__doc__,
        epilog=EXAMPLES,
    )
    parser.add_argument("--queue", choices=("afxdp", "shm"), help="one kind of queue (default: all this machine has)")
    parser.add_argument(
        "--size", type=int, default=FILE_MB, metavar="MB", help="the file's size (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help="rounds at most (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help="of each run (default: %(default)s)"
    )
    keys = [row.key for row in ROWS]
    parser.add_argument("--row", action="append", choices=keys, help="only this row; may be repeated (default: all)")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "xts-demo"
    parser.add_argument(
        "--cache", type=Path, default=cache, metavar="DIR", help="folder of the file (default: %(default)s)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the picture there (.svg, .png)")
    options = parser.parse_args(argv)
    if not 1 <= options.size <= 4096 or not 0.05 <= options.seconds <= 60 or not 1 <= options.rounds <= 100:
        parser.error("--size: 1 to 4096; --seconds: 0.05 to 60; --rounds: 1 to 100")
    if options.plot and options.plot.suffix not in (".svg", ".png"):
        parser.error("--plot: a name that ends in .svg or .png")
    return options


def show(options: argparse.Namespace, console: Console) -> None:
    """The whole demo. LabError or OSError when it cannot be shown; nothing is left behind."""
    check_bench()
    if options.plot:
        demo_picture.check_drawing(options.plot)
    queues = choose_queues(options.queue, console)
    with certificates_folder() as directory, console.status(f"a file of {options.size} MB"):
        task = Task(*make_file(options.cache, options.size), certificate_in(Path(directory)))
        tables = trust_tables(task.certificate)
        labs: list[Place] = [LabPlace(queue, tables) for queue in queues]
        for place in labs or [LoopbackPlace(tables)]:
            do_job(place, task, console)
    if not os.sched_getaffinity(0) >= MEASURED_CORES:
        console.print("No figures: they need two cores, 0 and 1, of which one is the host alone.", highlight=False)
        return
    if queues and not (queues := queues_to_measure(queues, console)):
        return
    loopback = not queues
    plan = Plan(rows_named(options.row), queues or ("shm",), loopback, options.rounds, options.seconds)
    found = measure(plan, console)
    demo_picture.print_all(console, found, plan.rows, plan.loopback)
    if not any(way == "haproxy" for _, way in found.figures):
        console.print("Without HAProxy, which is not installed; deploy/setup as root installs it.", highlight=False)
    if options.json:
        options.json.write_text(_as_json(found, plan) + "\n", encoding="utf-8")
    if options.plot:
        demo_picture.plot(options.plot, found, plan.rows)


@ends_with_reader
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _arguments(argv)
    console = Console(width=terminal.piped_columns(100))
    interruptible()
    try:
        show(options, console)
    except (LabError, OSError, RuntimeError, NetlinkError) as error:
        console.print(f"demo: {error}", style="red", highlight=False, markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("demo: interrupted; everything is down again", highlight=False)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
