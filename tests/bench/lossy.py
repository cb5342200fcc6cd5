"""Measures what loss and reordering on the wire cost a link whose frames are repeated (`reliable`): the rate of one
connection over a lab's switch, for each direction and round trip, against the same wire without loss; and the shares of
eight processes that send to one slow port.

Each repetition measures all wires of a round trip one after the other, beginning with another one each time, so that
what the machine does besides hits all alike. The round trip is what the lab's switch adds to its own: a thread of
Python passes the frames on (deploy/xts_lab/slow_cable.py), which costs some of a core, at all wires alike. "as it is"
has no such thread. A figure is the median of the repetitions, with their range.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from xts_lab import topology
from xts_lab.card import Cable, set_pace
from xts_lab.lab import Lab
from xts_lab.slow_cable import Pace
from xts_lab.wire import Wire, set_cables, set_paces
from xts_messages.terminal import terminal
from xts_messages.terminal.command_line import CommandLine
from xts_messages.terminal.standard_output import ends_with_reader

FLOW = Path(__file__).with_name("flow.py")
HOSTS = 8
WARM_S = 0.5
#: Of a million frames.
_PERCENT = 10_000


@dataclass(frozen=True)
class Way:
    """What the wire does. `goal`: the share of the rate without loss that is to be reached; 0: none was set."""

    cable: Cable
    reorder_ppm: int = 0
    goal: float = 0


NO_LOSS = "no loss"
WAYS = {
    NO_LOSS: Way(Cable()),
    "0.1 %": Way(Cable(_PERCENT // 10)),
    "1 %": Way(Cable(_PERCENT), goal=0.8),
    "5 %": Way(Cable(5 * _PERCENT), goal=0.5),
    "1 %, bursts of 5": Way(Cable(_PERCENT // 5, burst=5)),
    "1 % overtaken by 100": Way(Cable(), reorder_ppm=_PERCENT),
}
#: Round trips that the switch adds, in ms; 0: it is as it is.
ROUND_TRIPS_MS = (0.0, 0.1, 1.0, 10.0)
DIRECTIONS = {"to the device": ("sink", "send"), "to the host": ("source", "receive")}
Key = tuple[str, float, str]


@dataclass
class Figures:
    """Rates by direction, round trip and wire; and the shares of each incast, with the part of the port in use."""

    rates: dict[Key, list[float]] = field(default_factory=lambda: defaultdict(list))
    shares: list[tuple[list[float], float]] = field(default_factory=list)

    def ratios(self, key: Key) -> list[float]:
        """Of each repetition, to the same without loss."""
        direction, round_trip_ms, _ = key
        whole = self.rates[direction, round_trip_ms, NO_LOSS]
        return [rate / base if base else 0.0 for rate, base in zip(self.rates[key], whole, strict=False)]


class Flow:
    """A stream that runs: how many bytes have come."""

    def __init__(self, lab: Lab, there: str, here: str, stack: ExitStack) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        server = stack.enter_context(lab.popen("net", [sys.executable, str(FLOW), there], text=True, **pipes))
        stack.callback(server.kill)
        assert server.stdout
        port = server.stdout.readline().strip()
        client = stack.enter_context(lab.popen("host", [sys.executable, str(FLOW), here, port], text=True, **pipes))
        stack.callback(client.kill)
        self._receiver = client if here == "receive" else server

    def came(self) -> tuple[float, int]:
        """When, in seconds, and how many bytes until then. RuntimeError: it has ended."""
        assert self._receiver.stdin and self._receiver.stdout
        self._receiver.stdin.write("\n")
        self._receiver.stdin.flush()
        line = self._receiver.stdout.readline().split()
        if not line:
            raise RuntimeError("a stream has ended")
        return float(line[0]), int(line[1])


def rates(flows: list[Flow], seconds: float) -> list[float]:
    """Bit/s of each stream in that time, after a moment."""
    time.sleep(WARM_S)
    begin = [flow.came() for flow in flows]
    time.sleep(seconds)
    end = [flow.came() for flow in flows]
    return [(e[1] - b[1]) * 8 / (e[0] - b[0]) for b, e in zip(begin, end, strict=True)]


def set_way(lab: Lab, way: Way, round_trip_ms: float) -> None:
    set_cables(lab.card, way.cable)
    set_paces(lab.card, Pace(delay_us=int(round_trip_ms * 500), reorder_ppm=way.reorder_ppm))


def turned(names: list[str], number: int) -> list[str]:
    """Beginning with another one each time."""
    at = number % len(names)
    return names[at:] + names[:at]


@contextmanager
def raised(mtu: int, queues: int) -> Iterator[Lab]:
    lab = Lab(f"lossy{os.getpid()}", wire=Wire.SWITCH, reliable=True, queues=queues, relayed_max=0, mtu=mtu, cpus=(1,))
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


def measure_rates(arguments: argparse.Namespace, figures: Figures, say: Console) -> None:
    with raised(arguments.mtu, 2) as lab:
        for number in range(arguments.repetitions):
            for round_trip_ms in arguments.round_trip_ms:
                for direction, (there, here) in DIRECTIONS.items():
                    for name in turned(list(WAYS), number):
                        set_way(lab, WAYS[name], round_trip_ms)
                        with ExitStack() as stack:
                            (rate,) = rates([Flow(lab, there, here, stack)], arguments.seconds)
                        figures.rates[direction, round_trip_ms, name].append(rate)
                        say.print(f"{number + 1}: {direction}, {round_trip_ms:g} ms, {name}: {rate / 1e6:,.0f} Mbit/s")
                        set_way(lab, WAYS[NO_LOSS], 0)


def measure_incast(arguments: argparse.Namespace, figures: Figures, say: Console) -> None:
    with raised(arguments.mtu, HOSTS) as lab:
        pace = Pace(delay_us=50, rate_mbit=arguments.port_mbit, room=arguments.port_frames)
        set_pace(lab.card, topology.DPU_XTS.interface, pace)
        for number in range(arguments.repetitions):
            with ExitStack() as stack:
                flows = [Flow(lab, "sink", "send", stack) for _ in range(HOSTS)]
                time.sleep(1.0)
                found = rates(flows, arguments.incast_seconds)
            shares = [rate / sum(found) * HOSTS for rate in found]
            figures.shares.append((shares, sum(found) / 1e6 / arguments.port_mbit))
            say.print(f"{number + 1}: incast: {', '.join(f'{share:.2f}' for share in sorted(shares))}")


def table(figures: Figures, direction: str, round_trips_ms: list[float]) -> Table:
    """Mbit/s without loss, then shares of that."""
    found = Table(title=f"{direction}: Mbit/s without loss, and the share of that over other wires (range)")
    for head in ("wire", "goal", *(f"{ms:g} ms" if ms else "as it is" for ms in round_trips_ms)):
        found.add_column(head, justify="left" if head == "wire" else "right")
    for name, way in WAYS.items():
        cells = []
        for ms in round_trips_ms:
            key = direction, ms, name
            values = [v / 1e6 for v in figures.rates[key]] if name == NO_LOSS else figures.ratios(key)
            cells.append(said(values, ",.0f" if name == NO_LOSS else ".2f"))
        found.add_row(name, f"{way.goal:g}" if way.goal else "", *cells)
    return found


def said(values: list[float], form: str) -> str:
    if not values:
        return ""
    low, high = min(values), max(values)
    return f"{statistics.median(values):{form}} ({low:{form}}-{high:{form}})"


def show(figures: Figures, console: Console, arguments: argparse.Namespace) -> None:
    if figures.rates:
        for direction in DIRECTIONS:
            console.print(table(figures, direction, arguments.round_trip_ms))
    for shares, used in figures.shares:
        worst = max(abs(share - 1) for share in shares)
        console.print(
            f"incast of {HOSTS}: shares {min(shares):.2f} to {max(shares):.2f} (goal: 0.8 to 1.2), "
            f"the furthest {worst:.0%} off; {used:.0%} of the port's rate"
        )


def _parser() -> argparse.ArgumentParser:
    found = CommandLine(
        prog="python -m bench.lossy", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = found.add_argument
    add("--repetitions", type=int, default=5, metavar="N", help="default: %(default)s")
    add("--seconds", type=float, default=2.0, metavar="S", help="of a rate (default: %(default)s)")
    add("--incast-seconds", type=float, default=5.0, metavar="S", help="of an incast (default: %(default)s)")
    add("--round-trip-ms", type=float, nargs="+", default=list(ROUND_TRIPS_MS), metavar="MS", help="default: all")
    add("--mtu", type=int, default=topology.XTS_MTU, help="of the wire (default: %(default)s)")
    add("--port-mbit", type=int, default=1000, metavar="MBIT", help="rate of the slow port (default: %(default)s)")
    add("--port-frames", type=int, default=64, metavar="N", help="frames that wait there (default: %(default)s)")
    add("--only", choices=("rates", "incast"), help="default: both")
    add("--json", type=Path, metavar="FILE", help="write the figures of all repetitions there")
    return found


@ends_with_reader
def main() -> int:
    arguments = _parser().parse_args()
    if os.geteuid() != 0:
        print("bench.lossy: needs root: it makes network namespaces", file=sys.stderr)
        return 2
    console, progress = Console(width=terminal.piped_columns(130)), Console(stderr=True)
    figures = Figures()
    before = os.getloadavg()
    if arguments.only != "incast":
        measure_rates(arguments, figures, progress)
    if arguments.only != "rates":
        measure_incast(arguments, figures, progress)
    show(figures, console, arguments)
    load = {"before": before[0], "after": os.getloadavg()[0], "cores": os.cpu_count()}
    console.print(f"load: {load['before']:.1f} before, {load['after']:.1f} after, on {load['cores']} cores")
    if arguments.json:
        found = [
            {"direction": d, "round_trip_ms": ms, "wire": w, "bit_s": v} for (d, ms, w), v in figures.rates.items()
        ]
        arguments.json.write_text(json.dumps({"rates": found, "incast": figures.shares, "load": load}) + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"bench.lossy: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
