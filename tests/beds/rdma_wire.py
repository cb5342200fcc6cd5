"""Two RDMA devices of the virtual machine with a wire between them: one end is the host's, the other the DPU's.

Both are in the first network namespace, for software RoCE of Linux 6.1 is in no other. Without more, what one sends to
the other would go over loopback: an address of this machine is local, whoever asks. Rules of routing send it out of the
interface instead, and let only the other end take it for local. The wire is two veth pairs and a bridge between them,
so that an interface may lose its carrier, frames be lost on the way, and an end be pulled out.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from beds.patience import SLOWER
from beds.rdma import Device, modules_missing, unlimited_memory

ADDRESSES = {"rxe": ("10.9.2.1", "10.9.2.2"), "siw": ("10.9.3.1", "10.9.3.2")}
#: Routing tables: of this number for the host's end, the next one for the DPU's.
_TABLES = {"rxe": 910, "siw": 920}
_RULE_OF_LOCAL, _RULE_IN, _RULE_OUT = 100, 10, 20
_BRIDGE_PORT = "b{}"


class Wire:
    """The devices are `host` and `dpu`. They stay, as the machine goes after the tests."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.host, self.dpu = (
            Device(kind, name=f"{kind}{end}", interface=f"v{kind}{end}", address=address)
            for end, address in zip("hd", ADDRESSES[kind], strict=True)
        )

    def missing(self) -> str:
        """Why there cannot be one; empty: there can."""
        return modules_missing(self.kind, "sch_netem", "bridge")

    def make(self) -> None:
        """Makes it."""
        unlimited_memory()
        bridge = f"br{self.kind}"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        for end in (self.host, self.dpu):
            port = _BRIDGE_PORT.format(end.interface)
            _ip("link", "add", end.interface, "type", "veth", "peer", "name", port)
            _ip("link", "set", port, "master", bridge, "up")
            _ip("link", "set", end.interface, "up")
            _ip("addr", "add", f"{end.address}/32", "dev", end.interface)
            for key in ("accept_local=1", "rp_filter=0", "arp_ignore=1"):
                _run("sysctl", "-q", "-w", f"net.ipv4.conf.{end.interface}.{key}")
        _run("sysctl", "-q", "-w", "net.ipv4.conf.all.rp_filter=0")
        self._route()
        for end in (self.host, self.dpu):
            end.add()

    def _route(self) -> None:
        """Each address is local only for what comes in at its interface; from elsewhere it is across the wire."""
        _quietly("ip", "rule", "add", "pref", str(_RULE_OF_LOCAL), "lookup", "local")
        _quietly("ip", "rule", "del", "pref", "0")
        for number, (end, other) in enumerate(((self.host, self.dpu), (self.dpu, self.host)), _TABLES[self.kind]):
            within = "to", end.address, "iif", end.interface, "lookup", "local"
            _ip("rule", "add", "pref", str(_RULE_IN), *within)
            _ip("rule", "add", "pref", str(_RULE_OUT), "to", other.address, "lookup", str(number))
        self.restore_routes()

    def restore_routes(self) -> None:
        """They go with an interface that is switched off."""
        for number, (end, other) in enumerate(((self.host, self.dpu), (self.dpu, self.host)), _TABLES[self.kind]):
            way = f"{other.address}/32", "dev", end.interface, "src", end.address, "table", str(number)
            _ip("route", "replace", *way)

    @contextmanager
    def losing(self, percent: float) -> Iterator[None]:
        """Inside, so many of the frames in each direction do not arrive. All: the wire is cut, and nobody says so."""
        ports = [_BRIDGE_PORT.format(end.interface) for end in (self.host, self.dpu)]
        for port in ports:
            _run("tc", "qdisc", "replace", "dev", port, "root", "netem", "loss", f"{percent}%", "limit", "10000")
        try:
            yield
        finally:
            for port in ports:
                _run("tc", "qdisc", "del", "dev", port, "root")

    @contextmanager
    def pulled_out(self, end: Device) -> Iterator[None]:
        """Inside, the interface of an end has no carrier."""
        port = _BRIDGE_PORT.format(end.interface)
        _ip("link", "set", port, "down")
        try:
            yield
        finally:
            _ip("link", "set", port, "up")

    @contextmanager
    def switched_off(self, end: Device) -> Iterator[None]:
        """Inside, the interface of an end is down."""
        with end.cut():
            yield
        self.restore_routes()

    def lost(self) -> int:
        """How many frames netem has lost so far, inside `losing`."""
        said = _run("tc", "-s", "qdisc", "show")
        parts = [line.split("dropped ")[1].split(",")[0] for line in _behind(said, "netem") if "dropped " in line]
        return sum(map(int, parts))


def _behind(said: str, word: str) -> Iterator[str]:
    """The lines of `tc -s` that belong to queueing disciplines of this kind."""
    within = False
    for line in said.splitlines():
        if line.startswith("qdisc "):
            within = line.split()[1] == word
        elif within:
            yield line


def _run(*words: str) -> str:
    return subprocess.run(words, check=True, timeout=12 * SLOWER, stdout=subprocess.PIPE, text=True).stdout


def _ip(*words: str) -> None:
    _run("ip", *words)


def _quietly(*words: str) -> None:
    """It may have been done already, for the other kind."""
    subprocess.run(words, check=False, timeout=12 * SLOWER, capture_output=True)
