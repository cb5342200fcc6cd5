"""`xts doctor`: what this machine can and cannot do for offloaded sockets, and how to mend it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from xts_messages.terminal.command_line import add_watch, watch
from xts_messages.terminal.text_table import print_table

from ..checks import (
    Check,
    endpoint,
    interfaces,
    interposer,
    kernel,
    offered,
    polling,
    privilege,
    protocols,
    queues,
    rdma,
    tls,
    wire,
)
from ..options import add_verb

_EXIT_STATUS = "exit status: 0, or 1 when a check failed that offloading needs"
_LEVEL_STYLES = {"ok": "green", "warn": "yellow", "fail": "red"}


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "doctor",
        "sudo xts doctor",
        run,
    )
    add_watch(parser)
    parser.epilog = f"{parser.epilog}\n\n{_EXIT_STATUS}"


def run(arguments: argparse.Namespace) -> int:
    return watch(arguments.watch, lambda: _look(arguments), goes_on=True)


def _look(arguments: argparse.Namespace) -> int:
    offered.forget()
    parts = (endpoint, queues, polling, wire, protocols, interposer, kernel, interfaces, privilege, rdma, tls)
    checks = [check for part in parts for check in part.checks()]
    works = all(check.level != "fail" for check in checks)
    if arguments.json:
        offers = [asdict(offer) for offer in protocols.offered()]
        print(
            json.dumps({"works": works, "checks": [asdict(check) for check in checks], "protocols": offers}, indent=2)
        )
    else:
        _print(checks, works)
    return 0 if works else 1


def _print(checks: list[Check], works: bool) -> None:
    rows = [(check.level, check.name, check.found, check.mend) for check in checks]
    print_table(("", "Check", "Found", "To do"), rows, styles=_LEVEL_STYLES, piped_columns=100)
    print()
    print(f"Offloaded sockets {'work' if works else 'do not work'} here.")
    if {check.name for check in checks if check.level == "fail"} == {"endpoint"}:
        print("`xts dev -- PROGRAM` runs a program with a proxy of its own, on this machine.")
