"""`xts-lab`: raises, shows and removes the test-bed."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from pyroute2.netlink.exceptions import NetlinkError
from rich.console import Console
from rich.table import Table
from xts_messages.settings import line_origin
from xts_messages.terminal.command_line import CommandLine, add_common, add_watch, watch
from xts_messages.terminal.standard_output import ends_with_reader

from . import topology
from .card import Cable
from .lab import QUEUE_KINDS, Lab, labs
from .placement import KernelPlacement, QueuePlacement
from .privilege import LabError
from .slow_cable import Pace
from .wire import Wire, set_cables, set_paces

EXAMPLE = """\
example:
  xts-lab up --queue afxdp            make the lab, with agent and proxy running
  xts-lab exec net -- python3 -m http.server 80 &
  xts-lab exec host -- python3        a program whose only way to a network is the proxy
  xts-lab status
  xts-lab down

Programs that you have started in the lab go on without a network when the lab is taken down or replaced; down and up
list them. Exit status of down: 1 if the lab's own programs do not end.

Needs root. The namespaces are NAME-host (only the queue interface, no address), NAME-dpu (198.18.0.1,
fd18::1, and 198.18.1.1), NAME-net (198.18.0.2, fd18::2) and NAME-kern (198.18.1.2: plain kernel TCP, for
comparison); with --wire bridge or switch also NAME-switch. `up` also adds CUBIC to the machine's
net.ipv4.tcp_allowed_congestion_control; `down` leaves it there.
"""


def _parser() -> argparse.ArgumentParser:
    shared = CommandLine(add_help=False)
    shared.add_argument(
        "--name",
        default=os.environ.get("XTS_LAB") or "xts",
        help="name of the lab; several can be up at once (default: $XTS_LAB, else xts)",
    )
    parser = CommandLine(
        prog="xts-lab",
        description="The test-bed: a host, a device and a network in namespaces of this machine.",
        epilog=EXAMPLE,
    )
    add_common(parser)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, text: str, example: str, usage: str | None = None) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            parents=[shared],
            help=text,
            description=text[0].upper() + text[1:] + ".",
            usage=usage,
            epilog=f"example:\n  xts-lab {name} {example}".rstrip(),
        )

    up = command("up", "make the lab, or change it to these options", "--queue shm --name mine")
    up.add_argument("--queue", choices=QUEUE_KINDS, default="afxdp", help="kind of queue (default: %(default)s)")
    up.add_argument(
        "--queues",
        type=int,
        default=4,
        metavar="N",
        help="device queues, one for each attached process, the last for a relay (default: %(default)s)",
    )
    up.add_argument(
        "--placement",
        choices=[str(value) for value in QueuePlacement],
        default="soft",
        help="where the device's side of afxdp queues runs: in threads on core 1 (thr), or as veth does by "
        "default (soft) (default: soft)",
    )
    up.add_argument(
        "--kern-placement",
        choices=[str(value) for value in KernelPlacement],
        default="r0",
        help="where kernel TCP receives: as veth does by default (r0), or on the other core by RPS, as with a NIC "
        "(r1) (default: r0)",
    )
    up.add_argument(
        "--tables",
        type=argparse.FileType(encoding="utf-8"),
        metavar="FILE",
        help="file with more tables of the proxy's configuration: TLS identities and trust roots, parsers, limits",
    )

    up.add_argument(
        "--wire",
        choices=[str(value) for value in Wire],
        default="cable",
        help="what is between the afxdp queues of host and device: a veth pair, where queue N of one end is queue N of "
        "the other (cable); a bridge between two (bridge); or a bridge whose ports do what network cards do, with a "
        "table of rules (switch) (default: cable)",
    )
    up.add_argument(
        "--mtu",
        type=int,
        default=topology.XTS_MTU,
        help=f"of the wire between afxdp queues, {topology.MTU_LEAST} or more (default: %(default)s)",
    )
    up.add_argument(
        "--reliable",
        action="store_true",
        help="agent and proxy send lost frames again; the command `cable` makes the cables of a switch lose some",
    )
    up.add_argument(
        "--relayed-max",
        type=int,
        metavar="N",
        help="how many processes the agent's relay serves when no queue is free (default: the agent's default, "
        "64 with two queues or more; 0: no relay)",
    )

    cable = command("cable", "make the cables of a switch lose, repeat, delay, reorder or limit frames", "--loss 1")
    cable.add_argument("--loss", type=float, default=0, metavar="PERCENT", help="frames that are lost (default: 0)")
    cable.add_argument("--burst", type=int, default=1, metavar="N", help="so many in a row (default: %(default)s)")
    cable.add_argument(
        "--duplicate", type=float, default=0, metavar="PERCENT", help="frames that come twice (default: 0)"
    )
    cable.add_argument("--delay-us", type=int, default=0, metavar="US", help="each way (default: 0)")
    cable.add_argument("--reorder", type=float, default=0, metavar="PERCENT", help="overtaken frames (default: 0)")
    cable.add_argument("--reorder-by", type=int, default=100, metavar="N", help="by how many (default: %(default)s)")
    cable.add_argument("--rate-mbit", type=int, default=0, metavar="MBIT", help="of a slow port (default: 0, any)")
    cable.add_argument(
        "--room", type=int, default=256, metavar="N", help="frames that wait there (default: %(default)s)"
    )
    command("down", "remove the lab and end its agent and proxy; name the programs that you left in it", "--name mine")
    status = command("status", "show the state of the lab (exit status 1: not up)", "--json")
    status.add_argument("--json", action="store_true", help="print JSON instead")
    add_watch(status)
    usage = "xts-lab exec [--name NAME] {host,dpu,net,kern,switch} -- COMMAND ..."
    execute = command("exec", "run a command in a namespace", "host -- python3 program.py", usage)
    execute.add_argument("role", choices=topology.EVERY_ROLE, help="the namespace to run it in")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND", help="the command and its arguments")
    logs = command("logs", "print the logs of the lab's programs", "proxy")
    logs.add_argument("program", nargs="?", help="only the log of this program: proxy, agent, ...")
    return parser


def _up(options: argparse.Namespace) -> int:
    lab = Lab(
        options.name,
        queue=options.queue,
        queues=options.queues,
        placement=QueuePlacement(options.placement),
        kern_placement=KernelPlacement(options.kern_placement),
        tables=line_origin.marked(options.tables.read(), options.tables.name) if options.tables else "",
        relayed_max=options.relayed_max,
        wire=Wire(options.wire),
        reliable=options.reliable,
        mtu=options.mtu,
    )
    lab.up(say=lambda text: print(f"xts-lab: {text}", flush=True))
    over = f" over {lab.settings.wire.says}" if options.queue == "afxdp" else ""
    print(f"xts-lab: {lab.name} is up on {options.queue} queues{over}; export XTS_ENDPOINT={lab.endpoint}")
    return 0


def _down(options: argparse.Namespace) -> int:
    lab = Lab(options.name)
    was_there = lab.exists()
    left = lab.down()
    if not was_there:
        others = ", ".join(labs())
        there = f"those that are up: {others} (--name)" if others else "no lab is up"
        print(f"xts-lab: there is no lab {lab.name}: nothing was taken down; {there}", file=sys.stderr)
    for process in left:
        print(f"xts-lab: {process}", file=sys.stderr)
    if left and not lab.exists():
        print(f"xts-lab: lab {lab.name} is down", file=sys.stderr)
    return 1 if any(process.namespace is None for process in left) else 0


def _table(status: dict[str, Any]) -> Table:
    table = Table("namespace", "interface", "state", "mtu", "queues", "xdp", "addresses", title=None, box=None)
    for namespace in status["namespaces"].values():
        for name, interface in namespace["interfaces"].items():
            if name != "lo":
                table.add_row(
                    namespace["name"],
                    name,
                    interface["state"],
                    str(interface["mtu"]),
                    str(interface["queues"]),
                    "yes" if interface["xdp"] else "no",
                    " ".join(interface["addresses"]) or "none",
                )
    return table


def _status(options: argparse.Namespace) -> int:
    return watch(options.watch, lambda: _show(options))


def _show(options: argparse.Namespace) -> int:
    status = Lab(options.name).status()
    if options.json:
        print(json.dumps(status, indent=2))
    elif status["queue"] is None and not status["namespaces"]:
        print(f"lab {options.name} is not up")
    else:
        console = Console()
        console.print(
            f"lab [bold]{status['name']}[/] is {'up' if status['up'] else '[red]broken[/]'}"
            f" on {status['queue']} queues, endpoint {status['endpoint']}",
            highlight=False,
        )
        if status["queue"] == "afxdp":
            console.print(f"wire: {Wire(status['wire']).says}", highlight=False)
        for name, program in {
            "proxy": status["proxy"],
            "agent": status["agent"],
            **status["programs"],
        }.items():
            if program["pid"]:
                console.print(
                    f"{name}: process {program['pid']}{'' if program['alive'] else ' [red]ended[/]'}",
                    highlight=False,
                )
        console.print(_table(status))
    return 0 if status["up"] else 1


def _exec(options: argparse.Namespace) -> int:
    command = options.argv[1:] if options.argv[:1] == ["--"] else options.argv
    if not command:
        raise LabError("exec: no command; as in `xts-lab exec host -- python3 program.py`")
    Lab(options.name).execute(options.role, command)
    return 0


def _cable(options: argparse.Namespace) -> int:
    lab = Lab(options.name)
    if (settings := lab.stored_settings()) is None:
        raise LabError(f"lab {lab.name} is not up; raise it with `xts-lab up --wire switch`")
    if settings.wire is not Wire.SWITCH:
        raise LabError(
            f"the wire of lab {lab.name} is a {settings.wire}, which loses and delays nothing: take the lab down, and "
            "raise it with `xts-lab up --wire switch`"
        )
    loss_ppm = int(options.loss / options.burst * 10_000)
    set_cables(lab.card, Cable(loss_ppm, options.burst, int(options.duplicate * 10_000)))
    overtaken_ppm = int(options.reorder * 10_000)
    set_paces(lab.card, Pace(options.delay_us, overtaken_ppm, options.reorder_by, options.rate_mbit, options.room))
    return 0


def _logs(options: argparse.Namespace) -> int:
    lab = Lab(options.name)
    paths = sorted(lab.directory.glob("*.log")) if options.program is None else [lab.log_path(options.program)]
    if not paths or not paths[0].exists():
        raise LabError(f"lab {lab.name} has no log of {options.program or 'any program'}; is it up?")
    for path in paths:
        for line in path.read_text(errors="replace").splitlines():
            print(f"{path.stem}: {line}")
    return 0


@ends_with_reader
def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = _parser().parse_args(argv)
    commands = {"up": _up, "down": _down, "status": _status, "exec": _exec, "logs": _logs, "cable": _cable}
    try:
        return commands[options.command](options)
    except (LabError, ValueError, OSError, RuntimeError, NetlinkError) as error:
        print(f"xts-lab: {error}", file=sys.stderr)
        return 127 if options.command == "exec" and isinstance(error, FileNotFoundError) else 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
