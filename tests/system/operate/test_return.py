"""The proxy, or the agent, ends and comes back: listeners and UDP sockets are there again by themselves, as they were,
and in the meantime they are as sockets whose network is down."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest
from beds.authority import Authority, tls_tables
from beds.operated_proxy import wait
from beds.restarts import Ethernet, Place, cases, children_of, place, processor_time_s
from system.operate.programs.away import SCRIPTS
from system.operate.programs.sleeping_server import OPTIONS, PROCESSES, TTL
from system.operate.programs.sleeping_ways import LIBRARY, WAYS

T = TypeVar("T")
PROGRAMS = Path(__file__).with_name("programs")
GROUP = "239.7.7.7"
RETURN_S = 2.0  # within which the next client is served
ALL_S = 5.0  # within which all of many processes are back
START_S = 20.0
ENDS = ["kill", "stop", "workers"]
#: What may differ by the kind of queue: how the end is noticed, by whom, and what is left of the old queue.
BY_ETHERNET = {
    "a_listener_that_was_shut_down",
    "a_listener_while_it_is_away",
    "connections_end_once",
    "datagrams_while_it_is_away",
    "aio",
    "standard_accept",
}


@pytest.fixture(scope="module")
def one_place(request: pytest.FixtureRequest, xts_authority: Authority) -> Iterator[Place]:
    with tempfile.TemporaryDirectory(prefix="xts-return-") as name:  # other users reach it
        folder = Path(name)
        folder.chmod(0o755)
        with place(request.param, folder, tls_tables(folder, xts_authority)) as made:
            yield made


@pytest.fixture
def where(one_place: Place) -> Place:
    one_place.start()
    return one_place


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    line = process.stdout.readline().strip()
    if not line:
        assert process.stderr
        process.kill()
        raise AssertionError(process.stderr.read())
    return line


def repeat(function: Callable[[], T], deadline: float) -> T:
    """Its result, as soon as it has one."""
    while True:
        try:
            return function()
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


# --- servers that sleep ---------------------------------------------------------------------------


class Servers:
    """The processes of sleeping_server.py."""

    def __init__(self, where: Place, process: subprocess.Popen[str], ports: list[int]) -> None:
        self.where, self.process = where, process
        self.forked, self.reused, self.tls, self.udp = ports
        self._context = ssl.create_default_context(cafile=str(where.directory / "roots.pem"))
        for _ in range(PROCESSES):
            assert line_of(process) == "ready"
        self.pids = children_of(process.pid)

    def stream(self, port: int) -> int:
        """Asks a server, which has all options; returns its pid."""
        with self.where.connect(port) as connection, connection.makefile() as lines:
            return self._check(lines.readline(), {name: value for name, (_, _, value) in OPTIONS.items()})

    def over_tls(self) -> int:
        with (
            self.where.connect(self.tls) as connection,
            self._context.wrap_socket(connection, server_hostname="localhost") as wrapped,
            wrapped.makefile() as lines,
        ):
            return self._check(lines.readline(), {name: value for name, (_, _, value) in OPTIONS.items()})

    def datagram(self) -> int:
        return self._check(self.where.datagram(self.udp).decode(), {"IP_TTL": TTL})

    def _check(self, text: str, options: dict[str, int]) -> int:
        if not text:
            raise ConnectionResetError
        said = json.loads(text)
        # The kernel shows 1 for each flag; the device is the same kernel.
        assert said["options"] == options
        return int(said["pid"])

    def members(self) -> int:
        """How many sockets of the device are in the group."""
        number = f"{int.from_bytes(socket.inet_aton(GROUP), 'little'):08X}"
        with self.where.device():
            lines = Path("/proc/thread-self/net/igmp").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.split()[0] == number)

    def serve(self, deadline: float) -> None:
        for ask in (lambda: self.stream(self.forked), lambda: self.stream(self.reused), self.over_tls, self.datagram):
            repeat(ask, deadline)

    def all_serve(self, deadline: float) -> None:
        """Each process accepts from its own listener, and is a member of the group."""
        seen: set[int] = set()
        while seen != set(self.pids) or self.members() != PROCESSES:
            assert time.monotonic() < deadline, (seen, self.pids, self.members())
            with contextlib.suppress(OSError):
                seen.add(self.stream(self.reused))

    def rest(self, seconds: float) -> float:
        """The processor time that they use in so many seconds."""
        before = sum(map(processor_time_s, self.pids))
        time.sleep(seconds)
        return sum(map(processor_time_s, self.pids)) - before


@contextlib.contextmanager
def servers(where: Place) -> Iterator[Servers]:
    ports = where.free_ports(4)
    arguments = [where.address, where.interface, *map(str, ports), GROUP]
    with where.program([str(PROGRAMS / "sleeping_server.py"), *arguments]) as process:
        yield Servers(where, process, ports)


@pytest.mark.parametrize(("one_place", "how"), cases(ENDS, {"kill", "stop"}), indirect=["one_place"])
def test_servers_that_sleep(where: Place, how: str) -> None:
    with servers(where) as asleep:
        asleep.serve(time.monotonic() + START_S)
        asleep.all_serve(time.monotonic() + START_S)
        where.end(how)
        assert asleep.rest(1.5) < 0.1 * PROCESSES, "an idle process costs next to nothing"
        where.start()
        back = time.monotonic()
        asleep.serve(back + RETURN_S)
        asleep.all_serve(back + ALL_S)
        where.end("kill")  # and again
        where.start()
        asleep.serve(time.monotonic() + RETURN_S)
        assert asleep.rest(0.5) < 0.05 * PROCESSES
        asleep.process.kill()
        assert asleep.process.stdout
        assert asleep.process.stdout.read() == "", "no call has failed"


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("one_place", ["afxdp"], indirect=True)
def test_servers_that_sleep_while_the_agent_is_stopped(where: Place) -> None:
    assert isinstance(where, Ethernet)
    with servers(where) as asleep:
        asleep.all_serve(time.monotonic() + START_S)
        where.end_agent()
        assert asleep.rest(1) < 0.1 * PROCESSES
        where.start_agent()
        back = time.monotonic()
        asleep.serve(back + RETURN_S)
        asleep.all_serve(back + ALL_S)


# --- what a program sees --------------------------------------------------------------------------


class Script:
    """A script of away.py, step by step."""

    def __init__(self, where: Place, process: subprocess.Popen[str], port: int) -> None:
        self.where, self.process, self.port = where, process, port
        self.kept: list[socket.socket] = []

    def ask(self, port: int, expected: bytes = b"served\n") -> None:
        with repeat(lambda: self.where.connect(port), time.monotonic() + START_S) as connection:
            connection.settimeout(START_S)
            with connection.makefile("rb") as stream:
                assert stream.readline() in (expected, b"child\n")
                assert stream.read() == b"", "the server closes first"

    def ask_datagram(self) -> None:
        assert repeat(lambda: self.where.datagram(self.port), time.monotonic() + START_S) == b"question"

    def take(self) -> None:
        with self.where.device():
            for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
                self.kept.append(socket.socket(socket.AF_INET, kind))
                self.kept[-1].bind((self.where.address, self.port))
            self.kept[0].listen()
        self.where.start()

    def fill(self) -> None:
        """A listener on the port whose backlog is full: the kernel drops what else would connect."""
        with self.where.device():
            self.kept.append(socket.socket())
        self.kept[0].bind((self.where.address, self.port))
        self.kept[0].listen(0)
        for _ in range(3):
            with self.where.network():
                self.kept.append(socket.socket())
            self.kept[-1].setblocking(False)
            self.kept[-1].connect_ex((self.where.address, self.port))

    def free(self) -> None:
        for sock in self.kept:
            sock.close()
        self.kept.clear()

    def run(self) -> list[str]:
        """Does what the script says at its steps; returns these."""
        steps = []
        with contextlib.ExitStack() as stack:
            stack.callback(self.free)
            while (said := line_of(self.process)) != "done":
                word, *numbers = said.split()
                steps.append(word)
                if word == "end":
                    self.where.end("kill")
                elif word == "start":
                    self.where.start()
                elif word in ("take", "fill", "free"):
                    getattr(self, word)()
                elif word == "send":
                    with contextlib.suppress(TimeoutError):
                        self.where.datagram(self.port)
                elif word == "noise":
                    with contextlib.suppress(TimeoutError):
                        self.where.datagram(self.port, b"noise")
                elif word == "connect":
                    self.kept.append(self.where.connect(self.port))
                self._go()
                if word == "ask_at":
                    self.ask(int(numbers[0]))
                elif word == "datagram" or (word == "ask" and self._is_of_datagrams()):
                    self.ask_datagram()
                elif word == "ask":
                    self.ask(self.port)
                    if numbers:
                        self.ask(int(numbers[0]))
                        self.ask_datagram()
        assert self.process.wait(START_S) == 0
        return steps

    def _is_of_datagrams(self) -> bool:
        return "datagrams_while_it_is_away" in str(self.process.args)

    def _go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()


def run_script(where: Place, name: str, *, way: str = "interposer") -> list[str]:
    (port,) = where.free_ports(1)
    command = [str(PROGRAMS / "away.py"), name, where.address, str(port)]
    with where.program(command, interposed=way == "interposer") as process:
        return Script(where, process, port).run()


@pytest.mark.parametrize(("one_place", "name"), cases(set(SCRIPTS) - {"executed"}, BY_ETHERNET), indirect=["one_place"])
def test_program(where: Place, name: str) -> None:
    if name == "a_worker_that_has_given_up_its_rights" and os.geteuid() != 0:
        pytest.skip("only root has rights to give up")
    assert "end" in run_script(where, name)


# --- ways of sleeping ------------------------------------------------------------------------------


def serves(where: Place, stream: int, udp: int, deadline: float) -> None:
    def ask() -> bytes:
        with where.connect(stream) as connection, connection.makefile("rb") as lines:
            return lines.readline()

    assert repeat(ask, deadline) == b"served\n"
    assert repeat(lambda: where.datagram(udp), deadline) == b"question"


@pytest.mark.parametrize(("one_place", "way"), cases(WAYS, BY_ETHERNET), indirect=["one_place"])
def test_a_way_of_sleeping(where: Place, way: str) -> None:
    stream, udp = where.free_ports(2)
    arguments = [way, where.address, str(stream), str(udp)]
    environment = {"XTS_RULES": str(where.directory / "rules")}
    command = [str(PROGRAMS / "sleeping_ways.py"), *arguments]
    with where.program(command, environment, interposed=way not in LIBRARY) as process:
        assert line_of(process) == "ready"
        serves(where, stream, udp, time.monotonic() + START_S)
        where.end("kill")
        before = processor_time_s(process.pid)
        time.sleep(1)
        assert processor_time_s(process.pid) - before < 0.1
        where.start()
        serves(where, stream, udp, time.monotonic() + RETURN_S)


@pytest.mark.parametrize("one_place", ["shm"], indirect=True)
def test_a_proxy_that_is_started_again_and_again(where: Place) -> None:
    """Each time before the library takes the last start for settled: pauses do not grow beyond the return's time."""
    stream, udp = where.free_ports(2)
    command = [str(PROGRAMS / "sleeping_ways.py"), "standard_select", where.address, str(stream), str(udp)]
    environment = {"XTS_RULES": str(where.directory / "rules")}
    took = []
    with where.program(command, environment) as process:
        assert line_of(process) == "ready"
        for _ in range(14):
            where.end("kill")
            where.start()
            began = time.monotonic()
            serves(where, stream, udp, began + START_S)
            took.append(time.monotonic() - began)
    assert max(took) < RETURN_S, took


# --- many at once ----------------------------------------------------------------------------------

MANY = 300
LISTENING = "0A"  # in /proc/net/tcp


def listeners(where: Place, port: int) -> int:
    """How many sockets of the device listen on the port."""
    with where.device():
        lines = Path("/proc/thread-self/net/tcp").read_text().splitlines()[1:]
    fields = [line.split() for line in lines]
    return sum(found[1].endswith(f":{port:04X}") and found[3] == LISTENING for found in fields)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_many_processes_come_back_at_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with place("shm", tmp_path, f"[limits]\nclients = {2 * MANY}\n") as where:
        (port,) = where.free_ports(1)
        command = [str(PROGRAMS / "many_servers.py"), where.address, str(port), str(MANY)]
        with where.program(command) as process:
            for _ in range(MANY):
                assert line_of(process) == "ready"
            assert listeners(where, port) == MANY
            where.end("kill")
            pids = children_of(process.pid)
            before = sum(map(processor_time_s, pids))
            time.sleep(3)
            used = sum(map(processor_time_s, pids)) - before
            assert used < 3 * 0.005 * MANY, f"{used:.2f} s of a processor, while all they can do is wait"
            where.start()
            back = time.monotonic()
            while (there := listeners(where, port)) < MANY:
                assert time.monotonic() < back + ALL_S, f"{there} of {MANY} are back"
                time.sleep(0.05)
            with where.connect(port) as connection, connection.makefile("rb") as lines:
                assert lines.readline() == b"served\n"


# --- memberships -----------------------------------------------------------------------------------


def memberships(where: Place) -> list[str]:
    """Of the groups 239.77.*.1, at the device: how many sockets each has, and what they have of each source."""
    with where.device():
        counts = Path("/proc/thread-self/net/igmp").read_text().splitlines()
        filters = Path("/proc/thread-self/net/mcfilter").read_text().splitlines()
    found = [" ".join(line.split()[:2]) for line in counts if line.split()[0].endswith("4DEF")]
    return sorted(found) + sorted(" ".join(line.split()) for line in filters if "0xef4d" in line)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("one_place", ["shm"], indirect=True)
def test_memberships_are_as_they_were(where: Place, seed: int) -> None:
    """Random calls in every form: what the list has kept of them gives the same memberships and sources."""
    command = [str(PROGRAMS / "group_members.py"), where.interface, str(seed)]
    with where.program(command) as process:
        assert line_of(process) == "ready"
        before = memberships(where)
        assert len(before) > 5, before
        where.end("kill")
        wait(lambda: not memberships(where), "end of the memberships")
        where.start()
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
        assert line_of(process) == "back"
        assert memberships(where) == before
