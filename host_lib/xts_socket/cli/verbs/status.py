"""`xts status`: the offloaded sockets of this host's processes, which sockets/attached.py reads. Sockets that are not
offloaded are in processes/interposed.py, and killed programs in processes/killed_programs.py. sockets/status_tables.py
prints."""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import asdict
from typing import Any

from xts_messages.terminal.command_line import add_watch, watch

from ..device import device_interfaces, offered_interfaces
from ..options import add_verb, endpoint_path
from ..processes import interposed, killed_programs
from ..sockets.attached import Process, ask
from ..sockets.status_rates import Looks, write_csv


def add(verbs: Any) -> None:
    parser = add_verb(verbs, "status", "xts status --pid 4711", run)
    parser.add_argument("--pid", type=int, help="only this process")
    parser.add_argument("--all", action="store_true", help="with --processes: also those that use another endpoint")
    add_watch(parser)
    parser.add_argument(
        "--csv", action="store_true", help="print CSV instead, a row for each socket; with --watch also its rates"
    )
    parser.add_argument("-l", "--listening", action="store_true", help="only listeners")
    parser.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also what identifies sockets at both ends (their numbers, the epoch of the attachment), and the "
        "processes' credits and wake-ups",
    )
    parser.add_argument(
        "--interfaces",
        action="store_true",
        help="list the device's network interfaces, as reported by the proxy: where multicast groups can be "
        "joined, and which time stamps they provide",
    )
    parser.add_argument(
        "--routes",
        action="store_true",
        help="list the device's routes, rules of policy routing and multicast groups, as reported on the proxy's "
        "control socket",
    )
    parser.add_argument(
        "--control",
        metavar="PATH",
        help="with --routes: control socket of the proxy (default: $XTS_CONTROL, else /run/xts/proxy.sock)",
    )
    parser.add_argument(
        "--processes",
        action="store_true",
        help="list the programs under `xts run`: what they have offloaded, and why the rest was left to the kernel",
    )


def run(arguments: argparse.Namespace) -> int:
    looks = Looks()
    return watch(arguments.watch, lambda: _show(arguments, looks), clears=not (arguments.csv or arguments.json))


def _show(arguments: argparse.Namespace, looks: Looks) -> int:
    if arguments.interfaces:
        return device_interfaces.show(arguments.json)
    if arguments.routes:
        from ..device import device_routes  # and msgspec, which the rest does without

        return device_routes.show(arguments.control, arguments.json)
    if arguments.processes:
        endpoint = None if arguments.all else endpoint_path()
        return interposed.show(arguments.pid, arguments.json, endpoint, verbose=arguments.verbose)
    path = endpoint_path()
    attached = [process for process in ask(path) if arguments.pid in (None, process.pid)]
    first = not looks.has_looked
    if arguments.watch is not None:
        looks.look(attached)
    if arguments.csv:
        write_csv(attached, looks, head=first, listening=arguments.listening)
        return 0
    killed = [process for process in killed_programs.ask(path) if arguments.pid in (None, process.pid)]
    if arguments.json:
        living, dead = [_as_json(process, looks) for process in attached], [asdict(process) for process in killed]
        queues = [asdict(one) for one in offered_interfaces.ask(path)]
        shown = {"endpoint": path, "interfaces": queues, "processes": living, "ended": dead}
        if arguments.watch is None:
            print(json.dumps(shown, indent=2))
        else:  # one line each time
            print(json.dumps({"time": round(time.time(), 3)} | shown), flush=True)
        return 0
    if attached:
        from ..sockets.status_tables import print_tables

        print_tables(attached, looks, listening=arguments.listening, verbose=arguments.verbose)
    elif arguments.pid is not None:
        print(f"process {arguments.pid} is not attached to {path}")
    else:
        print(f"no process is attached to {path}" if not os.geteuid() else f"no process of yours is attached to {path}")
    killed_programs.show(killed)
    for line in offered_interfaces.lines(offered_interfaces.ask(path)):
        print(line)
    return 0


def _as_json(process: Process, looks: Looks) -> dict[str, Any]:
    found = asdict(process)
    if looks.are_there:
        found["rates"] = looks.of(process)
        for row, entry in zip(found["entries"], process.entries, strict=True):
            row["rates"] = looks.of(process, entry)
    return found
