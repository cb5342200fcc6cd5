"""The cards of a lab's switch: what ethtool asks of a network card, asked of the switch's ports.

Theory of operation. `python -m xts_lab.card SOCKET PORT=END ...` runs in the namespace of the switch. It puts the
program xts_lab_card (bpf/xts_lab_card.bpf.c) on the egress of each port: the card at the other end of its cable, whose
interface is END. It then answers requests on a Unix socket, one a connection: a line of JSON each way. A card's rule
has a location, as rules of ethtool have, a destination address and a queue. The program has them in a map, so frames
follow them also when this process has ended.

Tests make the cable to a card bad (`cable`): it loses frames, singly or in bursts, and brings some twice. They make
the way to it slow (`pace`, slow_cable.py): frames come late, in another order, or wait for a slow port.
They tell a card to behave as the driver of a real one (`behave`): to have no rules, no room, or to lose them.
DRIVERS says which answer was taken from which driver.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
import socket
import struct
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pyroute2 import IPRoute
from xts_bpf.bpf_object import checked, descriptor_of, map_of, open_object, programs
from xts_bpf.native import FOLDER, ffi, lib

from .slow_cable import Pace, SlowWire, sharpen_timers
from .topology import index_of

OBJECT = FOLDER / "xts_lab_card.bpf.o"
REQUEST_BYTES_MAX = 4096
_RULES, _CABLES, _DEAF = "xts_lab_rules", "xts_lab_cables", "xts_lab_deaf"
_EGRESS = 0xFFFFFFF3  # the second hook of the clsact discipline: linux/pkt_sched.h, TC_H_MIN_EGRESS
_CABLE = struct.Struct("=IIIIQQ")
_NUMBER = struct.Struct("=I")
_KEY, _RULE = struct.Struct("=6s2x"), struct.Struct("=QQ")


@dataclass(frozen=True)
class Behaviour:
    """How a card answers. `insert_errno`: 0, or the answer to each new rule. `rules_max`: how many it has room for;
    one more is answered with `full_errno`. `xdp_bits`: the driver's XDP features
    (xts_messages/machine/xdp_features.py), 0: as the kernel says; `buffers`: of a frame with zero copy. `bind_errno`:
    the answer to a queue that is bound with zero copy. `moves`: frames arrive on such a queue."""

    insert_errno: int = 0
    rules_max: int = 1024
    full_errno: int = errno.ENOSPC
    xdp_bits: int = 0
    buffers: int = 1
    bind_errno: int = 0
    moves: bool = True


@dataclass(frozen=True)
class Cable:
    """What is bad about the cable to a card, in parts per million of frames. Losses begin with `loss_ppm`, and go on
    for `burst` frames."""

    loss_ppm: int = 0
    burst: int = 1
    duplicate_ppm: int = 0


#: Answers of drivers of Linux, by the file they are in.
DRIVERS = {
    # drivers/net/ethernet/mellanox/mlx5/core/en_fs_ethtool.c: 1024 locations, ENOSPC beyond them
    "mlx5": Behaviour(),
    "full": Behaviour(rules_max=0),
    # drivers/net/ethernet/intel/igb/igb.h: IGB_MAX_RXNFC_FILTERS
    "igb": Behaviour(rules_max=16),
    # drivers/net/ethernet/intel/ixgbe/ixgbe_ethtool.c: no flow type but those of IPv4
    "ixgbe": Behaviour(insert_errno=errno.EINVAL),
    # drivers/net/veth.c has no set_rxnfc: net/ethtool/ioctl.c answers
    "veth": Behaviour(insert_errno=errno.EOPNOTSUPP),
}
#: Features of drivers with zero copy: BASIC, REDIRECT, ZERO_COPY and RX_SEVERAL of
#: xts_messages/machine/xdp_features.py.
ZERO_COPY_BITS = 1 | 2 | 8 | 32


@dataclass
class Card:
    """A port's card: its map, and the rules in it by location."""

    object: Any
    map_fd: int
    cable_fd: int
    deaf_fd: int
    rules: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    behaviour: Behaviour = Behaviour()
    deaf: set[int] = field(default_factory=set)  # queues on which nothing arrives

    def bind(self, queue: int, *, zero_copy: bool) -> None:
        """A queue is bound, with zero copy or without. OSError: it is not."""
        if zero_copy and self.behaviour.bind_errno:
            raise OSError(self.behaviour.bind_errno, os.strerror(self.behaviour.bind_errno))
        (self.deaf.add if zero_copy and not self.behaviour.moves else self.deaf.discard)(queue)
        if lib.bpf_map_update_elem(self.deaf_fd, _NUMBER.pack(queue), _NUMBER.pack(queue in self.deaf), 0) < 0:
            raise OSError(ffi.errno, f"the card's queues: {os.strerror(ffi.errno)}")

    def insert(self, location: int, destination: bytes, queue: int) -> None:
        """As ETHTOOL_SRXCLSRLINS: a rule at a location that is taken replaces the one there. OSError: not now."""
        if self.behaviour.insert_errno:
            raise OSError(self.behaviour.insert_errno, os.strerror(self.behaviour.insert_errno))
        if location not in self.rules and len(self.rules) >= self.behaviour.rules_max:
            raise OSError(self.behaviour.full_errno, os.strerror(self.behaviour.full_errno))
        if location in self.rules:
            self.remove(location)
        if lib.bpf_map_update_elem(self.map_fd, _KEY.pack(destination), _RULE.pack(queue, 0), 0) < 0:
            raise OSError(ffi.errno, f"the card's table: {os.strerror(ffi.errno)}")
        self.rules[location] = (destination, queue)

    def remove(self, location: int) -> None:
        """As ETHTOOL_SRXCLSRLDEL. OSError ENOENT: there is none."""
        if location not in self.rules:
            raise OSError(errno.ENOENT, f"there is no rule {location}")
        destination, _ = self.rules.pop(location)
        lib.bpf_map_delete_elem(self.map_fd, _KEY.pack(destination))

    def lose(self) -> None:
        """All rules are gone, as at `ethtool -L` with some drivers."""
        for location in list(self.rules):
            self.remove(location)

    def bad_cable(self, cable: Cable) -> None:
        """From now on the cable to the card is like this."""
        value = _CABLE.pack(cable.loss_ppm, cable.burst, cable.duplicate_ppm, 0, 0, 0)
        if lib.bpf_map_update_elem(self.cable_fd, bytes(4), value, 0) < 0:
            raise OSError(ffi.errno, f"the cable: {os.strerror(ffi.errno)}")

    def counted(self) -> dict[str, int]:
        """How many frames the cable has lost, and brought twice."""
        value = ffi.new("char[]", _CABLE.size)
        lib.bpf_map_lookup_elem(self.cable_fd, bytes(4), value)
        *_, lost, duplicated = _CABLE.unpack(bytes(ffi.buffer(value, _CABLE.size)))
        return {"lost": lost, "duplicated": duplicated}

    def listed(self) -> list[dict[str, Any]]:
        """The rules, with the number of frames that each has matched."""
        found = []
        for location, (destination, queue) in sorted(self.rules.items()):
            value = ffi.new("char[]", _RULE.size)
            lib.bpf_map_lookup_elem(self.map_fd, _KEY.pack(destination), value)
            frames = _RULE.unpack(bytes(ffi.buffer(value, _RULE.size)))[1]
            found.append({"location": location, "destination": destination.hex(), "queue": queue, "frames": frames})
        return found


def _load() -> Card:
    opened = open_object(OBJECT, f"opening {OBJECT}")
    checked(lib.bpf_object__load(opened), f"loading {OBJECT}")
    rules, cables, deaf = (map_of(opened, name) for name in (_RULES, _CABLES, _DEAF))
    return Card(opened, rules, cables, deaf)


def let_answers_through(port: str, card: Card | None = None) -> None:
    """Puts an XDP program on the port that lets everything pass: veth sends back what the program at its other end
    answers (XDP_TX) only to an end that has a program, too."""
    card = card or _load()
    with IPRoute() as route:
        program = descriptor_of(programs(card.object)["xts_lab_port"])
        error = int(lib.xts_bpf_attach(index_of(route, port), program, -1))
    if error:
        raise OSError(-error, f"an XDP program on {port}: {os.strerror(-error)}")


def _attach(port: str) -> Card:
    """Puts the programs on the port, with a table of its own."""
    card = _load()
    let_answers_through(port, card)
    with IPRoute() as route:
        index = index_of(route, port)
        route.tc("add", "clsact", index)
        route.tc(
            "add-filter",
            "bpf",
            index,
            ":1",
            fd=descriptor_of(programs(card.object)["xts_lab_card"]),
            name="xts_lab_card",
            parent=_EGRESS,
            direct_action=True,
        )
    return card


@dataclass
class Switch:
    """The cards by the interface that each stands for, their ports, and the wire between these, if there are two."""

    cards: dict[str, Card]
    ports: dict[str, str]
    wire: SlowWire | None

    def set_pace(self, end: str, pace: Pace) -> None:
        """OSError: not on this wire."""
        if not self.wire:
            raise OSError(errno.EOPNOTSUPP, "only the wire between two ports of a bridge can be slow")
        self.wire.set_pace(self.ports[end], pace)

    def counted(self, end: str) -> dict[str, int]:
        """What has become of frames on the way to this end."""
        return self.cards[end].counted() | (self.wire.counted(self.ports[end]) if self.wire else {})


def _execute(switch: Switch, request: dict[str, Any]) -> Any:
    """Carries out a request; returns the answer's value. OSError: the card's answer."""
    card = switch.cards[request["end"]]
    match request["ask"]:
        case "rules":
            return card.listed()
        case "insert":
            card.insert(int(request["location"]), bytes.fromhex(request["destination"]), int(request["queue"]))
        case "remove":
            card.remove(int(request["location"]))
        case "lose":
            card.lose()
        case "cable":
            card.bad_cable(Cable(**request["cable"]))
        case "pace":
            switch.set_pace(request["end"], Pace(**request["pace"]))
        case "features":
            return [{"bits": card.behaviour.xdp_bits, "buffers": card.behaviour.buffers}]
        case "bind":
            card.bind(int(request["queue"]), zero_copy=bool(request["zero_copy"]))
        case "counted":
            return switch.counted(request["end"])
        case "behave":
            card.behaviour = Behaviour(**request["behaviour"])
        case other:
            raise ValueError(f"no request {other!r}")
    return None


def _answer(switch: Switch, connection: socket.socket) -> None:
    data = connection.recv(REQUEST_BYTES_MAX)
    if not data:
        return
    try:
        answer = {"value": _execute(switch, json.loads(data)), "error": 0}
    except OSError as error:
        answer = {"error": error.errno or errno.EIO, "reason": error.strerror or str(error)}
    except (ValueError, KeyError, TypeError) as error:
        answer = {"error": errno.EINVAL, "reason": str(error)}
    connection.sendall(json.dumps(answer).encode())


def serve(path: str, ends: dict[str, str], ready_fd: int, bridge: str = "") -> None:
    """Answers until it is ended. `ends`: port -> interface at the other end. `bridge`: the ports are in it."""
    cards = {end: _attach(port) for port, end in ends.items()}
    sharpen_timers()
    first, *others = ends
    wire = SlowWire((first, others[0]), bridge) if bridge and len(others) == 1 else None
    switch = Switch(cards, {end: port for port, end in ends.items()}, wire)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        Path(path).chmod(0o666)  # agent and proxy are other users when they ask
        listener.listen(16)
        os.write(ready_fd, b".")
        os.close(ready_fd)
        while True:
            connection, _ = listener.accept()
            with connection, suppress(ConnectionError):
                connection.settimeout(1)
                _answer(switch, connection)


def ask(path: Path, end: str, what: str, **request: Any) -> Any:
    """Asks the card of an end. OSError: its answer, or it is not there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(5)
        connection.connect(str(path))
        connection.sendall(json.dumps({"end": end, "ask": what, **request}).encode())
        answer = json.loads(connection.recv(1 << 20))
    if answer["error"]:
        raise OSError(answer["error"], answer["reason"])
    return answer["value"]


def behave(path: Path, end: str, behaviour: Behaviour) -> None:
    """From now on the card of an end answers so."""
    ask(path, end, "behave", behaviour=asdict(behaviour))


def set_cable(path: Path, end: str, cable: Cable) -> None:
    """From now on the cable to an end is like this."""
    ask(path, end, "cable", cable=asdict(cable))


def set_pace(path: Path, end: str, pace: Pace) -> None:
    """From now on the way to an end is like this."""
    ask(path, end, "pace", pace=asdict(pace))


def main() -> None:
    """The lab's program `card`."""
    parser = argparse.ArgumentParser(description="The cards of a lab's switch; xts-lab starts it.")
    parser.add_argument("socket", help="where to answer")
    parser.add_argument("ends", nargs="+", metavar="PORT=END", help="a port, and the interface at its other end")
    parser.add_argument("--bridge", default="", help="what the ports are in; without it nothing can be slow")
    parser.add_argument("--ready-fd", type=int, required=True, help="where to write when it answers")
    options = parser.parse_args()
    serve(options.socket, dict(pair.split("=", 1) for pair in options.ends), options.ready_fd, options.bridge)


if __name__ == "__main__":
    main()
