"""`xts log`: how much the library writes on standard error, in processes that run."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from xts_messages.terminal.text_table import print_table

from ..options import add_which, are_named
from ..processes import control_pages
from ..processes.control_pages import LOG_LEVELS, page_of, unreachable
from . import VERBS

_EPILOG = """\
examples:
  xts log                     show the level of each process
  xts log info --pid 4711     from now on this process logs each socket, and why one is not offloaded
  xts log settings --pid 4711 back to the level of the process's settings (XTS_LOG)
  xts log warning --all       each process that this user may access

exit status: 0; 1 when a process cannot be asked; 2 when it is not said which ones to change
"""


def add(verbs: Any) -> None:
    parser = verbs.add_parser(
        "log",
        help=VERBS["log"],
        description="Show or change what the library writes to standard error in running processes.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "level",
        nargs="?",
        choices=(*LOG_LEVELS, "settings"),
        help="the new level, in force at once; settings: the level that XTS_LOG and the file of settings say "
        "(default: show the levels)",
    )
    add_which(parser, "show or change only this process", "change each process that this user may access")
    parser.add_argument("--json", action="store_true", help="print JSON instead")
    parser.set_defaults(run=run, endpoint=None)


def run(arguments: argparse.Namespace) -> int:
    if arguments.level is not None and not are_named(arguments, "xts log"):
        return 2
    found = []
    for pid in [arguments.pid] if arguments.pid is not None else control_pages.pids():
        with page_of(pid) as page:
            if page is None:
                continue
            if arguments.level is not None:
                page.ask_for_log(None if arguments.level == "settings" else arguments.level)
            found.append({"pid": pid, "program": page.program, "level": page.log_level})
    if arguments.json:
        print(json.dumps({"processes": found}, indent=2))
    elif found:
        print_table(("Process", "Log"), [(f"{p['program']} ({p['pid']})", str(p["level"])) for p in found])
    elif arguments.pid is not None:
        print(f"xts log: {unreachable(arguments.pid)}", file=sys.stderr)
    else:
        print("no process that can be reached has the library in use")
    return 1 if arguments.pid is not None and not found else 0
