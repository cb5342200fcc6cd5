"""Two RDMA devices of the virtual machine with a wire between them: one end is the host's, the other the DPU's.

Both are in the first network namespace, for software RoCE of Linux 6.1 is in no other. Without more, what one sends to
the other would go over loopback: an address of this machine is local, whoever asks. Rules of routing send it out of the
interface instead, and let only the other end take it for local. The wire is two veth pairs and a bridge between them,
so that an interface may lose its carrier, frames be lost on the way, and an end be pulled out.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beds.patience import SLOWER
from beds.rdma import Device, is_interface, modules_missing, unlimited_memory

ADDRESSES = {"rxe": ("10.9.2.1", "10.9.2.2"), "siw": ("10.9.3.1", "10.9.3.2")}
#: Routing tables: of this number for the host's end, the next one for the DPU's.
_TABLES = {"rxe": 910, "siw": 920}
_RULE_OF_LOCAL, _RULE_IN, _RULE_OUT = 100, 10, 20
_BRIDGE_PORT = "b{}"
#: How often the kernel repeats what is left of a connection whose process has ended.
_ORPHANS = "net.ipv4.tcp_orphan_retries"


class Wire:
    """The devices are `host` and `dpu`. They stay: the next program of tests has them, too."""

    def __init__(self, kind: str) -> None:
        self.kind, self.bridge, self.table = kind, f"br{kind}", _TABLES[kind]
        self.host, self.dpu = (
            Device(kind, name=f"{kind}{end}", interface=f"v{kind}{end}", address=address)
            for end, address in zip("hd", ADDRESSES[kind], strict=True)
        )

    def missing(self) -> str:
        """Why there cannot be one; empty: there can."""
        return modules_missing(self.kind, "sch_netem", "bridge")

    def make(self) -> None:
        """Makes it, as far as it is not there."""
        unlimited_memory()
        if not is_interface(self.bridge):
            self._make_interfaces()
        for end in (self.host, self.dpu):
            end.add()

    def _make_interfaces(self) -> None:
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("link", "set", self.bridge, "up")
        for end in (self.host, self.dpu):
            port = _BRIDGE_PORT.format(end.interface)
            _ip("link", "add", end.interface, "type", "veth", "peer", "name", port)
            _ip("link", "set", port, "master", self.bridge, "up")
            _ip("link", "set", end.interface, "up")
            _ip("addr", "add", f"{end.address}/32", "dev", end.interface)
            for key in ("accept_local=1", "rp_filter=0", "arp_ignore=1"):
                _run("sysctl", "-q", "-w", f"net.ipv4.conf.{end.interface}.{key}")
        _run("sysctl", "-q", "-w", "net.ipv4.conf.all.rp_filter=0")
        self._route()

    def _route(self) -> None:
        """Each address is local only for what comes in at its interface; from elsewhere it is across the wire."""
        _quietly("ip", "rule", "add", "pref", str(_RULE_OF_LOCAL), "lookup", "local")
        _quietly("ip", "rule", "del", "pref", "0")
        for number, (end, other) in enumerate(((self.host, self.dpu), (self.dpu, self.host)), self.table):
            within = "to", end.address, "iif", end.interface, "lookup", "local"
            _ip("rule", "add", "pref", str(_RULE_IN), *within)
            _ip("rule", "add", "pref", str(_RULE_OUT), "to", other.address, "lookup", str(number))
        self.restore_routes()

    def restore_routes(self) -> None:
        """They go with an interface that is switched off."""
        for number, (end, other) in enumerate(((self.host, self.dpu), (self.dpu, self.host)), self.table):
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
    def host_without_power(self) -> Iterator[None]:
        """Inside, nothing arrives, and in the end the host's kernel has given up what ended processes have left: over
        iWARP the end of their connections (TCP's FIN), which it would repeat when the wire is back."""
        before = _run("sysctl", "-n", _ORPHANS).strip()
        _run("sysctl", "-q", "-w", f"{_ORPHANS}=1")
        try:
            with self.losing(100):
                yield
                deadline = time.monotonic() + 60 * SLOWER
                while left := self._tcp_of_host():
                    assert time.monotonic() < deadline, f"the host's kernel goes on with {left}"
                    time.sleep(0.1)
        finally:
            _run("sysctl", "-q", "-w", f"{_ORPHANS}={before}")

    def _tcp_of_host(self) -> list[str]:
        """Its connections, as the kernel lists them."""
        address = socket.inet_aton(self.host.address)[::-1].hex().upper()
        lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
        return [line for line in lines if line.split()[1].startswith(f"{address}:")]

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
