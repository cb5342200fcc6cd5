"""A proxy whose workers are killed, and a program of its host that says what it has noticed (survivor.py)."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from xts_lab.card import Cable
from xts_lab.free_ports import free_port
from xts_lab.wire import Wire, set_cables
from xts_messages.attaching.attach import list_queues
from xts_proxy.status import control_socket

from beds import process_tree
from beds.authority import Authority
from beds.dialogues import echo_server, peer_address
from beds.operated_proxy import NO_METRICS, running, wait
from beds.operated_tls import identity, trust
from beds.patience import SLOWER
from beds.ready import readable
from beds.restarts import Ethernet, Place, SharedMemory

PROGRAM = Path(__file__).parent.parent / "system" / "operate" / "programs" / "survivor.py"
SIGNALS = (signal.SIGKILL, signal.SIGSEGV)
_AFXDP = [pytest.mark.root, pytest.mark.afxdp]
_OVER_ETHERNET = [pytest.param(kind, marks=_AFXDP) for kind in ("afxdp", "relay", "switch")]
#: See crashing(). Where lost frames are repeated is the same code above the queue as behind a switch.
KINDS = ["shm", *_OVER_ETHERNET, pytest.param("repeated", marks=[*_AFXDP, pytest.mark.long])]
#: For what has bytes under way, where it is not.
BUSY_KINDS = ["shm", *_OVER_ETHERNET, *(pytest.param(kind, marks=_AFXDP) for kind in ("repeated", "short"))]
LISTENERS = 3
#: A new connection has to be possible in this time after a crash.
NEW_CONNECTIONS_S = 0.5
#: What the issue asks for, of which a few crashes tell little: a share of 0.9 fails one time in ten.
SHARES = {"idle": 1.0, "offered": 0.95, "busy": 0.99, "under way": 0.95, "full rate": 0.9}
AUTHORITY = Authority()
#: The identity of peers, and of the proxy, whose name for it is "own".
ISSUED = AUTHORITY.issue("localhost")


class Crashing:
    """A proxy, and one program of its host. `pid`: of the supervisor; `control`: its control socket."""

    def __init__(self, place: Place, pid: int, control: Path) -> None:
        self.place, self.pid, self.control = place, pid, control
        self.before = 0

    def crash(self, number: int, before: Callable[[int], object] | None = None) -> None:
        """Kills the workers; when this returns they are dead. `before`: is done to them while they are stopped."""
        self.before = process_tree.one(self.pid, "xts-workers", other_than=self.before)
        ended = os.pidfd_open(self.before)
        if before:
            process_tree.stop(self.before)
            before(self.before)
        os.kill(self.before, number)
        assert readable(ended, 10 * SLOWER)
        os.close(ended)

    def announced(self, count: int) -> None:
        """Returns when the workers have told the program of so many connections since the last crash."""
        wait(lambda: sum(one["accepts"] for one in self.status()["workers"]) >= count, "connections for the program")

    def status(self, *, connections: bool = False) -> dict[str, Any]:
        return control_socket.ask(str(self.control), control_socket.Question("status", connections))

    def unconnected(self) -> int:
        """How many sockets the workers have that are no connections."""
        return sum(row["state"] != "established" for row in self.status(connections=True)["connections"])


def tls_tables(folder: Path) -> str:
    """For the proxy's file: what crashing() says of TLS."""
    (folder / "roots.pem").write_bytes(AUTHORITY.certificate)
    return trust(folder) + identity(folder, "own", ISSUED)


def all_are_proved(place: Ethernet) -> bool:
    """The proxy was started again: meanwhile frames found no queue but the first one, and the agent may know of it."""
    return all(queue.lacking == 0 for queue in list_queues(str(place.lab.endpoint)))


@contextmanager
def crashing(kind: str, crashes_max: int = 1000, more: str = "", under: Sequence[str] = ()) -> Iterator[Crashing]:
    """A proxy that has an identity for TLS, and trusts AUTHORITY: "shm", "afxdp", "relay" (there is one queue, which is
    the relay's), "switch" (frames have heads), "repeated" (so, and lost ones are repeated), one of these two with
    " relay", "lossy" (some are lost), or "short" (a switch whose packets are shorter than a message). `more`: of its
    file. `under`: as of running(), of "shm"."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-crash-")))
        folder.chmod(0o755)
        tables = tls_tables(folder) + more
        if kind == "shm":
            settings = {"crashes_max": crashes_max, "drain_timeout_s": 0.2} | NO_METRICS
            made = stack.enter_context(running(folder, tables, under=under, **settings))
            yield Crashing(SharedMemory(folder), made.process.pid, folder / "proxy.sock")
            return
        queues = {"queues": 1, "relayed_max": 64} if kind.endswith("relay") else {}
        reliable = kind.startswith(("repeated", "lossy"))
        wire = Wire.SWITCH if reliable or kind.startswith(("switch", "short")) else None
        mtu = 1500 if kind == "short" else None
        place = Ethernet(folder, wire=wire, reliable=reliable, mtu=mtu, **queues)
        stack.callback(place.close)
        place.end("stop")
        configuration = place.lab.directory / "proxy.toml"
        text = configuration.read_text()
        text = text.replace("[proxy]", f"[proxy]\ncrashes_max = {crashes_max}", 1)
        configuration.write_text(f"{text}\n{tables}")
        place.start()
        bed = Crashing(place, place.lab.records()["proxy"].pid, place.lab.directory / "proxy.sock")
        wait(lambda: all_are_proved(place), "proof of the queues", 60)
        if kind == "lossy":
            set_cables(place.lab.card, Cable(loss_ppm=10_000, duplicate_ppm=5_000))
        if queues:
            wait(lambda: any(row["pid"] for row in bed.status()["channels"]), "the relay", 20 * SLOWER)
        yield bed


class Tap:
    """In the network, before a server: keeps what each client has sent."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.streams: list[bytearray] = []

    @contextmanager
    def to(self, port: int) -> Iterator[int]:
        """The port to connect to."""
        with self.place.network():
            address = self.place.address if self.place.address == "127.0.0.1" else "0.0.0.0"
            server = socket.create_server((address, free_port(address)), backlog=512)
        threading.Thread(target=self._serve, args=(server, port), daemon=True).start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            server.close()

    def _serve(self, server: socket.socket, port: int) -> None:
        while True:
            try:
                client, _ = server.accept()
            except OSError:
                return
            with self.place.network():
                peer = socket.socket()
            peer.connect((peer_address(self.place), port))
            self.streams.append(bytearray())
            threading.Thread(target=self._both_ways, args=(client, peer, self.streams[-1]), daemon=True).start()

    @classmethod
    def _both_ways(cls, client: socket.socket, peer: socket.socket, keep: bytearray) -> None:
        with client, peer:
            back = threading.Thread(target=cls._pass, args=(peer, client, bytearray()))
            back.start()
            cls._pass(client, peer, keep)
            back.join()

    @staticmethod
    def _pass(one: socket.socket, other: socket.socket, keep: bytearray) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 17):
                keep += data
                other.sendall(data)
        for end in (one, other):
            with suppress(OSError):
                end.shutdown(socket.SHUT_WR if end is other else socket.SHUT_RD)


class Program:
    """survivor.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.ports: list[int] = json.loads(self._line())

    def _line(self) -> str:
        assert self._process.stdout
        assert self._process.stderr
        line = self._process.stdout.readline()
        assert line, self._process.stderr.read()
        return line

    @contextmanager
    def stopped(self) -> Iterator[None]:
        process_tree.stop(self._process.pid)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def does(self, what: str) -> dict[str, Any]:
        assert self._process.stdin
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        said = json.loads(self._line())
        assert isinstance(said, dict)
        return said


@contextmanager
def program(
    place: Place, idle: int, tls: ssl.SSLContext | None = None, listening: Tap | None = None
) -> Iterator[Program]:
    """`tls`: of its peer, with one version. `listening`: between it and its peer."""
    with echo_server(place, tls) as port, listening.to(port) if listening else nullcontext(port) as port:
        arguments = [str(PROGRAM), peer_address(place), str(port), place.address, str(idle), str(LISTENERS)]
        arguments += [str(int(tls.minimum_version))] if tls else []
        with place.program(arguments, interposed=False) as process:
            yield Program(process)


def answers(connection: socket.socket) -> bool:
    """It is accepted: the program uses what it has accepted as an echo client, so we answer it."""
    data = b""
    while len(data) < 3000 and (more := connection.recv(3000)):
        data += more
    connection.sendall(data)
    return len(data) == 3000


def use(on: Program, accepted: list[socket.socket]) -> dict[str, Any]:
    """All connections of the program; those that it has accepted have their peers here."""
    said: dict[str, Any] = {}
    asking = threading.Thread(target=lambda: said.update(on.does("use")))
    asking.start()
    assert all(answers(connection) for connection in accepted)
    asking.join()
    return said


@dataclass
class Kept:
    """How many connections of each kind there were at a crash, and which did not go on."""

    there: Counter[str] = field(default_factory=Counter)
    ended: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    slowest_s: float = 0.0

    def note(self, kind: str, count: int, ended: list[str]) -> None:
        self.there[kind] += count
        self.ended[kind] += ended

    def share(self, kind: str) -> float:
        return 1 - len(self.ended[kind]) / self.there[kind]

    def __str__(self) -> str:
        shares = (f"{kind} {self.share(kind):.3f} of {self.there[kind]}" for kind in self.there)
        ends = dict(Counter(end for all_of_kind in self.ended.values() for end in all_of_kind))
        return f"{', '.join(shares)}; new within {self.slowest_s:.3f} s; {ends}"


def crash_under_load(kind: str, crashes: int, idle: int = 20) -> Kept:
    """Without TLS."""
    kept, accepted = Kept(), []
    with crashing(kind) as bed, program(bed.place, idle) as on, ExitStack() as stack:
        on.does("busy")
        for number in range(crashes):
            if number % 2:
                on.does("begin")
                assert on.does("carry")["bytes"]
            assert on.does("carried")["hangs"] == []
            waiting = [stack.enter_context(bed.place.connect(port, 10)) for port in on.ports]
            bed.crash(SIGNALS[number // 2 % 2])
            made = on.does("connect")
            assert made["failures"] == [], made
            kept.slowest_s = max(kept.slowest_s, made["seconds"])
            said = on.does("carried")
            assert said["hangs"] == []
            kept.note("busy", 8, said["busy"])
            kept.note("under way", 4, said["under way"])
            if number % 2:
                how = on.does("end")["flow"]
                kept.note("full rate", 1, [] if how == "right" else [how])
            without = on.does("accept")["without"]
            kept.note("offered", LISTENERS, ["?"] * len(without))
            accepted += [one for number, one in enumerate(waiting) if number not in without]
            kept.note("idle", idle + len(accepted), use(on, accepted)["failures"])
        on.does("quiet")
    return kept


def carry(kept: Kept, bed: Crashing, on: Program, crashes: int, *, flows: bool = True) -> None:
    """Crashes while the program's connections are busy, every other time with a stream at full rate."""
    on.does("busy")
    for number in range(crashes):
        flow = flows and number % 2 == 1
        if flow:
            on.does("begin")
            assert on.does("carry")["bytes"]
        assert on.does("carried")["hangs"] == []
        bed.crash(SIGNALS[number // 2 % 2])
        said = on.does("carried")
        assert said["hangs"] == []
        kept.note("busy", 8, said["busy"])
        kept.note("under way", 4, said["under way"])
        if flow:
            how = on.does("end")["flow"]
            kept.note("full rate", 1, [] if how == "right" else [how])
    on.does("quiet")
