"""`xts-trace`: watches a system that runs, with bcc, at the static probes of libxts and of the proxy and at the
kernel's tracepoints. Nothing has to be restarted, and what is not watched costs nothing."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.table import Table
from xts_messages.terminal.command_line import CommandLine, add_common
from xts_messages.terminal.standard_output import ends_with_reader

from xts_bpf.probes import TraceError
from xts_bpf.trace_drops import Tracer, program_of
from xts_bpf.trace_programs import SUBJECTS, Row

_DESCRIPTION = """\
Watches a system that runs, with bcc. It needs root, python3-bpfcc, and kernel headers of any version. On a device with
hosts of its own (AF_XDP) it sees one end: the stages of a send are complete where both ends are on this machine.
"""
_EXAMPLES = """\
examples:
  xts-trace send --seconds 5          how long sends take: in the call, the queue, the worker, TCP
  xts-trace wakeups                   who sleeps how often, and how long it takes to run again
  xts-trace queues --json             how deep queues and spill buffers are
  xts-trace drops --interface xts0    frames that XDP could not deliver, and why
"""


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86400:
        raise argparse.ArgumentTypeError("a number of seconds, from 0 to 86400")
    return value


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = CommandLine(prog="xts-trace", description=_DESCRIPTION, epilog=_EXAMPLES)
    add_common(parser)
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    for name, subject in SUBJECTS.items():
        verb = verbs.add_parser(name, help=subject.summary, epilog=f"example: xts-trace {name} --seconds 5")
        verb.add_argument(
            "--pid",
            type=int,
            action="append",
            default=[],
            metavar="PID",
            help="only this process; may be repeated, as for a program and the proxy's xts-workers (default: all)",
        )
        verb.set_defaults(run=_probes, verb=name)
    verb = verbs.add_parser(
        "drops",
        help="frames that XDP could not deliver, and why",
        epilog="example: xts-lab exec host -- xts-trace drops --interface xts0",
    )
    verb.add_argument("--interface", required=True, metavar="NAME", help="interface of this network namespace")
    verb.set_defaults(run=_drops)
    for verb in verbs.choices.values():
        verb.add_argument(
            "--seconds", type=_seconds, default=10.0, metavar="S", help="how many seconds to watch (default 10)"
        )
        verb.add_argument("--json", action="store_true", help="print a JSON array instead of a table")
    return parser


def _watching(options: argparse.Namespace, rows: Callable[[], list[Row]]) -> list[Row]:
    """Returns the rows after that many seconds, or at Ctrl-C."""
    print(f"xts-trace: watching for {options.seconds:g} s", file=sys.stderr, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(options.seconds)
    return rows()


def _probes(options: argparse.Namespace) -> list[Row]:
    subject = SUBJECTS[options.verb]
    with subject.watch(options.pid) as watch:
        if watch.missing:
            names = ", ".join(watch.missing)
            print(f"xts-trace: no process that runs has the probes {names}: these are not seen", file=sys.stderr)
        return _watching(options, lambda: subject.rows(watch.counts()))


def _drops(options: argparse.Namespace) -> list[Row]:
    tracer = Tracer(program_of(options.interface))
    try:
        return _watching(options, tracer.counts)
    finally:
        tracer.close()


def _show(rows: list[Row]) -> None:
    if not rows:
        Console().print("nothing seen")
        return
    columns = [name for name, value in rows[0].items() if not isinstance(value, dict)]
    table = Table(*columns)
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    Console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


@ends_with_reader
def main(arguments: list[str] | None = None) -> int:
    """The command. 0; 1: tracing is not possible here; 2: wrong usage."""
    options = make_parser().parse_args(arguments)
    try:
        rows = options.run(options)
    except (TraceError, OSError) as error:
        print(f"xts-trace: {getattr(error, 'strerror', None) or error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(rows))
    else:
        _show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
