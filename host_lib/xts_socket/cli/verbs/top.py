"""`xts top`: sockets of this host and their other ends on the device, live; or as JSON or CSV."""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
import time
from dataclasses import asdict
from typing import Any

from xts_messages.terminal.command_line import add_watch

from ..device.device_routes import route_text
from ..device.proxy_side import CONTROL_DEFAULT, control_path
from ..options import add_verb, endpoint_path
from ..sockets.joined import COLUMNS, Look, Row, flat, look
from ..sockets.status_rates import cell

_VIEWS = ("socket", "process", "queue", "tenant", "worker", "peer")
_LOOK_S = 1.0


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "top", "xts top --by process", run)
    parser.add_argument(
        "--control",
        metavar="PATH",
        help=f"control socket of the proxy (default: $XTS_CONTROL, else {CONTROL_DEFAULT}); of a proxy on another "
        "machine, one that ssh -L has brought here",
    )
    parser.add_argument(
        "--by", choices=_VIEWS, default="socket", help="what a row stands for at first; the key g changes it"
    )
    parser.add_argument(
        "--filter", metavar="WORDS", default="", help="only sockets whose row has all these words; the key / changes it"
    )
    parser.add_argument("--csv", action="store_true", help="print CSV instead, a row for each socket")
    add_watch(parser)
    parser.epilog = (
        f"{parser.epilog}\n\nWith --json or --csv it reads the figures twice, a second apart, and prints the second "
        "reading with the rates\nbetween both; with --watch it goes on. The screen needs the package textual: "
        "pip install 'xts-offload[top]'."
    )


def run(arguments: argparse.Namespace) -> int:
    control = arguments.control or control_path()

    def take(before: Look | None) -> Look:
        return look(endpoint_path(), control, before)

    if arguments.json or arguments.csv:
        return _print_looks(arguments, take)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise OSError("xts top draws on a terminal; --json or --csv print to a file or a pipe")
    try:
        from ..top.top_app import Top
    except ImportError as error:
        if error.name and error.name.partition(".")[0] == "textual":
            raise OSError(
                "the screen needs the package textual: pip install 'xts-offload[top]'; --json and --csv do without"
            ) from None
        raise
    take(None)  # if neither end answers, that is reported before the screen is taken over

    def route(row: Row) -> str:
        return route_text(control, row.local, row.peer)

    app = Top(take, arguments.watch or _LOOK_S, arguments.by, arguments.filter, route)
    app.run()
    return app.return_code or 0


def _print_looks(arguments: argparse.Namespace, take: Any) -> int:
    from ..sockets.grouped import grouped
    from ..top.top_columns import matches

    found = take(None)
    head = True
    while True:
        time.sleep(arguments.watch or _LOOK_S)
        found = take(found)
        rows = [row for row in found.rows if matches(row, arguments.filter)]
        for sentence in found.missing:
            print(f"xts: {sentence}", file=sys.stderr)
        groups = None if arguments.by == "socket" else [group.flat() for group in grouped(rows, arguments.by)]
        shown = [flat(row) for row in rows] if groups is None else groups
        if arguments.csv:
            _print_csv(shown, COLUMNS if groups is None else None, head)
        else:
            _print_json(arguments, found, shown)
        head = False
        if arguments.watch is None:
            return 0


def _print_json(arguments: argparse.Namespace, found: Look, shown: list[dict[str, Any]]) -> None:
    answer = {
        "time": round(time.time(), 3),
        "missing": found.missing,
        "proxy": found.proxy and {"version": found.proxy.proxy.version, "state": found.proxy.proxy.state},
        "interfaces": [asdict(one) for one in found.interfaces],
        f"{arguments.by}s" if arguments.by != "process" else "processes": shown,
    }
    print(json.dumps(answer, indent=2 if arguments.watch is None else None), flush=True)


def _print_csv(shown: list[dict[str, Any]], columns: tuple[str, ...] | None, head: bool) -> None:
    from ..sockets.grouped import COLUMNS as OF_GROUPS

    names = columns or OF_GROUPS
    writer = csv.writer(sys.stdout, lineterminator=os.linesep)
    if head:
        writer.writerow(("time", *names))
    now = f"{time.time():.3f}"
    for row in shown:
        writer.writerow([now, *(cell(row[name]) for name in names)])
    sys.stdout.flush()
