"""`xts-proxy upgrade`: a new proxy takes over from the running one, and the programs of its hosts do not notice."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import msgspec
import pytest
from beds.authority import Authority
from beds.dialogues import LATE_CHILD, dialogue, echo_server, peer_address, unmovable
from beds.operated_proxy import PROXY, user_to_become, wait
from beds.operated_tls import identity, trust
from beds.restarts import Place
from beds.ulp_tls import ONE_THREE, ONE_TWO, client_context, server_context
from beds.upgrades import OverEthernet, OverSharedMemory, Upgrading, upgrading
from xts_bpf.interface_state import read_state
from xts_lab import card, topology
from xts_proxy.status import control_socket
from xts_proxy.upgrade import handover

PROGRAM = Path(__file__).with_name("programs") / "upgraded.py"
AFXDP = [pytest.mark.root, pytest.mark.afxdp]
KINDS = ["shm", pytest.param("afxdp", marks=AFXDP)]
IDLE = 100
AUTHORITY = Authority()
ISSUED = AUTHORITY.issue("localhost")


@contextmanager
def program(
    place: Place, idle: int = IDLE, tls: ssl.SSLContext | None = None
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The program, and the port of its listener. `tls`: of its peer, with one version."""
    with echo_server(place, tls) as port:
        version = [str(int(tls.minimum_version))] if tls else []
        arguments = [str(PROGRAM), peer_address(place), str(port), place.address, str(idle), *version]
        with place.program(arguments, interposed=False) as process:
            assert process.stdout
            line = process.stdout.readline()
            if not line:
                raise AssertionError(process.communicate()[1])
            yield process, int(line)


def result(process: subprocess.Popen[str]) -> dict[str, object]:
    out, complaint = process.communicate("", timeout=30)
    assert out, complaint
    said = json.loads(out)
    assert isinstance(said, dict)
    print(said)
    return said


@contextmanager
def place_of(kind: str, *, tls: bool = False) -> Iterator[Upgrading]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xts-upgrade-")))
        folder.chmod(0o755)
        (folder / "roots.pem").write_bytes(AUTHORITY.certificate)
        tables = trust(folder) + identity(folder, "own", ISSUED) if tls else ""
        yield stack.enter_context(upgrading(kind, folder, tables))


class Storm:
    """Connects to the listener all the time; `failures`: what did not go as it should."""

    def __init__(self, place: Place, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.place, self.port, self.tls = place, port, tls
        self.count = 0
        self.failures: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Storm:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def wait_for(self, more: int) -> None:
        """Until so many more are answered."""
        until = self.count + more
        wait(lambda: self.count > until or self.failures, "answers", 10)

    def _connection(self) -> socket.socket:
        made = self.place.connect(self.port, 5.0)
        return self.tls.wrap_socket(made, server_hostname="localhost") if self.tls else made

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                with self._connection() as connection:
                    connection.sendall(b"ping")
                    if (answer := connection.recv(4)) != b"ping":
                        self.failures.append(f"another answer: {answer!r}")
                self.count += 1
            except OSError as error:
                self.failures.append(repr(error))


def nobody_notices(where: Upgrading, upgrades: int) -> None:
    """Idle connections, requests, a transfer at full rate, new connections in both directions."""
    with program(where.place) as (process, port):
        with Storm(where.place, port) as storm:
            for number in range(upgrades):
                print(number, storm.count, flush=True)
                where.upgrade()
                storm.wait_for(20)
        assert where.status()["reset"] == 0
        said = result(process)
    assert said["failures"] == [] and storm.failures == [] and said["datagrams"]
    assert said["requests"] and said["connects"] and said["transferred"]


@pytest.mark.parametrize(
    "kind",
    [
        *KINDS,
        pytest.param("switch", marks=AFXDP),
        pytest.param("relay", marks=AFXDP),
        pytest.param("repeated", marks=[*AFXDP, pytest.mark.long]),
    ],
)
def test_nobody_notices(kind: str) -> None:
    with place_of(kind) as where:
        nobody_notices(where, 1)


@pytest.mark.parametrize(
    ("kind", "version"),
    [
        pytest.param("shm", ONE_THREE, id="shm-1.3"),
        pytest.param("afxdp", ONE_TWO, id="afxdp-1.2", marks=AFXDP),
        pytest.param("relay", ONE_THREE, id="relay-1.3", marks=[*AFXDP, pytest.mark.long]),
        pytest.param("shm", ONE_TWO, id="shm-1.2", marks=pytest.mark.long),
        pytest.param("afxdp", ONE_THREE, id="afxdp-1.3", marks=[*AFXDP, pytest.mark.long]),
    ],
)
def test_nobody_notices_with_tls(kind: str, version: ssl.TLSVersion) -> None:
    """The same with TLS in the proxy, as a client and as a server: a transfer under way over several upgrades."""
    both = {"minimum_version": version, "maximum_version": version}
    peer, client = server_context(ISSUED, **both), client_context(AUTHORITY.certificate, **both)
    with place_of(kind, tls=True) as where, program(where.place, 20, peer) as (process, port):
        with Storm(where.place, port, client) as storm:
            for _ in range(2):
                where.upgrade()
                storm.wait_for(5)
                assert where.status()["reset"] == 0
        said = result(process)
    assert said["failures"] == [] and storm.failures == []
    assert said["requests"] and said["connects"] and said["transferred"]


@pytest.mark.long
@pytest.mark.timeout(900)  # a new proxy takes a second to start
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_notices_a_hundred(kind: str) -> None:
    with place_of(kind) as where:
        nobody_notices(where, 100)


# --- one of them ends meanwhile -------------------------------------------------------------------


class HalfANewProxy:
    """Takes over as far as a test says, and then ends."""

    def __init__(self, control: str) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(control)
        self.sock.sendall(msgspec.json.encode(control_socket.Question("upgrade")) + b"\n")
        assert json.loads(self._line()) == {"upgrade": "granted"}
        self.wire = handover.Wire(self.sock)

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\n"):
            line += self.sock.recv(1)
        return line

    def hear(self, kind: type) -> object:
        said, came = self.wire.hear_now(10)
        handover.close_all(came)
        assert isinstance(said, kind), said
        return said

    def say(self, said: handover.Said) -> None:
        asyncio.run(self.wire.say(said))


def until_granted(new: HalfANewProxy) -> None:
    new.hear(handover.Granted)


def until_ready(new: HalfANewProxy) -> None:
    until_granted(new)
    new.say(handover.Ready(handover.VERSION))


def until_begun(new: HalfANewProxy) -> None:
    until_ready(new)
    new.hear(handover.Begins)
    new.hear(handover.Resumption)


def until_sockets(new: HalfANewProxy) -> None:
    until_begun(new)
    new.hear(handover.Sockets)


def until_offered(new: HalfANewProxy) -> None:
    until_sockets(new)
    new.hear(handover.Channel)


def until_refused(new: HalfANewProxy) -> None:
    until_sockets(new)
    channel = new.hear(handover.Channel)
    assert isinstance(channel, handover.Channel)
    new.say(handover.Takes(channel.queue_id, "no room"))


def says_something_else(new: HalfANewProxy) -> None:
    until_begun(new)
    new.say(handover.Done(0))


STEPS = [until_granted, until_ready, until_begun, until_sockets, until_offered, until_refused, says_something_else]


@pytest.fixture(scope="module")
def over_shm() -> Iterator[Upgrading]:
    with place_of("shm", tls=True) as made:
        yield made


@pytest.mark.root
@pytest.mark.parametrize("step", STEPS)
def test_the_new_proxy_ends_and_the_running_one_goes_on(
    over_shm: Upgrading, step: Callable[[HalfANewProxy], None]
) -> None:
    """With the keys of TLS, which the running one has wiped and takes back, too."""
    with dialogue(over_shm) as ask, dialogue(over_shm, server_context(ISSUED)) as ask_tls:
        new = HalfANewProxy(over_shm.control())
        step(new)
        new.wire.close()
        assert (ask(), ask_tls()) == ("goes on", "goes on")
        wait(lambda: over_shm.proxy_state() == "running", "end of the attempt")
        assert ask() == "goes on"
        with dialogue(over_shm) as another:  # it serves processes that come now
            assert another() == "goes on"


@pytest.mark.root
def test_the_new_proxy_ends_with_what_it_has(over_shm: Upgrading) -> None:
    """Its hosts come back to the running one, which goes on with the others."""
    with dialogue(over_shm) as one, dialogue(over_shm) as other:
        new = HalfANewProxy(over_shm.control())
        until_sockets(new)
        channel, descriptors = new.wire.hear_now(10)
        assert isinstance(channel, handover.Channel)
        new.say(handover.Takes(channel.queue_id))
        new.hear(handover.Yours)
        new.hear(handover.Sockets)  # of the other one
        handover.close_all(descriptors)
        new.wire.close()
        assert sorted((one(), other())) == ["again", "goes on"]


@pytest.mark.root
@pytest.mark.afxdp
def test_the_new_proxy_ends_with_what_is_behind_a_relay() -> None:
    """The running one takes it back: each process claims from it what it had."""
    with place_of("relay") as where, dialogue(where) as one, dialogue(where) as other:
        new = HalfANewProxy(where.control())
        until_sockets(new)
        new.hear(handover.Sockets)  # of the other one
        new.hear(handover.Channel)
        new.wire.close()
        assert (one(), other()) == ("goes on", "goes on")
        wait(lambda: where.proxy_state() == "running", "end of the attempt")
        where.upgrade()
        assert (one(), other()) == ("goes on", "goes on")


@pytest.mark.root
@pytest.mark.long
def test_the_new_proxy_is_killed_at_any_moment() -> None:
    """A real one, each time later, until the running one has ended: one of both serves, and no program waits for
    neither."""

    def one_serves() -> bool:
        if where.process.poll() is not None:
            return True
        with contextlib.suppress(ConnectionRefusedError, FileNotFoundError):  # it is about to end
            return where.proxy_state() == "running"
        return False

    with place_of("shm", tls=True) as where, dialogue(where) as plain, dialogue(where, server_context(ISSUED)) as tls:
        assert isinstance(where, OverSharedMemory)
        outcomes = set()
        for moment_s in (0.3 + 0.04 * number for number in range(100)):
            new, ready = where.begin()
            with contextlib.suppress(subprocess.TimeoutExpired):
                new.wait(moment_s)
            new.kill()
            new.wait()
            os.close(ready)
            wait(one_serves, "one that serves", 20)
            if where.process.poll() is not None:
                outcomes.add("it had everything")
                break
            said = {plain(), tls()}
            outcomes |= said
            assert said <= {"goes on", "again"}
        print(moment_s, outcomes)
        assert outcomes >= {"goes on", "it had everything"}


#: Less than drain_timeout_s, for which the running proxy would wait otherwise.
NOTICED_S = 4


@pytest.mark.root
def test_what_cannot_move_is_named(over_shm: Upgrading) -> None:
    """While the running proxy waits for it. It goes on as soon as the new one has ended, and resets nothing."""
    assert isinstance(over_shm, OverSharedMemory)
    with unmovable(over_shm) as ask:
        new = HalfANewProxy(over_shm.control())
        until_begun(new)
        wait(lambda: over_shm.status().get("waits"), "a reason")
        assert over_shm.status()["waits"] == {"tls_keys": 1}
        command = [*PROXY, "status", "--control", over_shm.control()]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert "waits for 1 connections that cannot move: tls_keys" in said
        new.wire.close()
        wait(lambda: over_shm.proxy_state() == "running", "end of the attempt", NOTICED_S)
        with dialogue(over_shm) as another:
            assert another() == "goes on"
        assert ask() == "goes on"


ASKING = """
import os, socket, sys
os.setuid(int(sys.argv[2]))
asking = socket.socket(socket.AF_UNIX)
asking.connect(sys.argv[1])
asking.sendall(b'{"ask": "upgrade"}' + bytes([10]))
print(asking.recv(1000).decode())
"""


@pytest.mark.root
def test_only_root_may(over_shm: Upgrading) -> None:
    """Whoever can reach the control socket."""
    user = pwd.getpwnam(user_to_become()).pw_uid
    os.chown(over_shm.control(), user, -1)
    command = [sys.executable, "-c", ASKING, over_shm.control(), str(user)]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "only root may take over" in asked.stdout, asked


@pytest.mark.root
@pytest.mark.afxdp
def test_where_lost_frames_are_repeated() -> None:
    """The session of each queue goes on in the new proxy. Twice: what it has taken over it hands over, too."""
    with place_of("repeated") as where, ExitStack() as stack:
        ask = stack.enter_context(dialogue(where))
        for _ in range(2):
            where.upgrade()
            assert where.status()["reset"] == 0
            assert [ask(), ask()] == ["goes on", "goes on"]


def attached(where: OverEthernet) -> int:
    """The number of the XDP program of the device's interface."""
    with where.lab.inside("dpu"):
        found = read_state(topology.DPU_XTS.interface)
    assert found and found.program_id
    return found.program_id


@pytest.mark.root
@pytest.mark.afxdp
def test_rules_of_the_card_stay_for_the_next_proxy() -> None:
    """A proxy that hands over leaves them all, and one that stops takes them all away."""
    with place_of("switch") as where:
        assert isinstance(where, OverEthernet)
        rules = where.rules()
        assert rules
        where.upgrade()
        assert where.rules() == rules
        where.stop()
        assert where.rules() == []
    with place_of("switch") as where:
        assert isinstance(where, OverEthernet)
        where.stop()
        assert where.rules() == []


@pytest.mark.root
@pytest.mark.afxdp
def test_rules_of_the_card_are_put_back_by_the_next_proxy() -> None:
    with place_of("switch") as where:
        assert isinstance(where, OverEthernet)
        rules = where.rules()
        where.upgrade()
        location = int(rules[0]["location"])
        card.ask(where.lab.card, topology.DPU_XTS.interface, "remove", location=location)
        assert len(where.rules()) == len(rules) - 1
        wait(lambda: [rule["queue"] for rule in where.rules()] == [rule["queue"] for rule in rules], "the rule", 20)


@pytest.mark.root
@pytest.mark.afxdp
def test_a_new_proxy_that_fails_leaves_the_interface_alone() -> None:
    """It has the program by then, and its process that looks after the interface waits."""
    with place_of("switch") as where:
        assert isinstance(where, OverEthernet)
        rules, program = where.rules(), attached(where)
        text = (where.lab.directory / "proxy.toml").read_text()
        wrong = where.lab.directory / "wrong.toml"
        identity_of_none = 'name = "none"\ncertificate = "/not-there.pem"\nkey = "/not-there.key"\n'
        wrong.write_text(f"{text}\n[[tls.identity]]\n{identity_of_none}")
        command = [*PROXY, "--config", str(wrong), "upgrade"]
        new = where.lab.run("dpu", command, capture_output=True, text=True, timeout=30)
        assert new.returncode
        assert "not-there" in new.stderr
        wait(lambda: where.proxy_state() == "running", "the running proxy")
        assert (where.rules(), attached(where)) == (rules, program)


# --- programs of other sorts ----------------------------------------------------------------------

FORKS = """
import os, socket, sys
server = socket.create_server((sys.argv[1], 0), backlog=128)
print(server.getsockname()[1], flush=True)
for _ in range(3):
    if os.fork() == 0:
        while True:
            connection, _ = server.accept()
            with connection:
                connection.sendall(connection.recv(4))
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["shm", pytest.param("afxdp", marks=[*AFXDP, pytest.mark.long])])
def test_a_server_that_forks(kind: str) -> None:
    """An ordinary program under the interposer, whose processes share a listener."""
    with place_of(kind) as where, where.place.program(["-c", FORKS, where.place.address]) as process:
        assert process.stdout
        port = int(process.stdout.readline())
        with Storm(where.place, port) as storm:
            storm.wait_for(20)
            where.upgrade()
            storm.wait_for(50)
        assert storm.failures == []
        assert where.status()["reset"] == 0


@pytest.mark.parametrize("kind", ["shm", pytest.param("afxdp", marks=[*AFXDP, pytest.mark.long])])
def test_a_child_that_accepts_while_its_parent_sleeps(kind: str) -> None:
    """The listener is the parent's, which has not noticed the upgrade, and never will."""
    with place_of(kind) as where, where.place.program(["-c", LATE_CHILD, where.place.address]) as process:
        assert process.stdout and process.stdin
        port = int(process.stdout.readline())
        where.upgrade()
        process.stdin.write("begin\n")
        process.stdin.flush()
        with Storm(where.place, port) as storm:
            storm.wait_for(20)
        assert storm.failures == []


SERVES_TLS = Path(__file__).with_name("programs") / "upgraded_tls_server.py"


@contextmanager
def tls_server(where: Upgrading) -> Iterator[tuple[int, IO[str]]]:
    """Its port, and what it says after that."""
    with where.place.program([str(SERVES_TLS), where.place.address], interposed=False) as process:
        assert process.stdout
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        yield int(line), process.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_a_listener_with_tls(kind: str) -> None:
    """It is there all the time, and no handshake fails: what comes meanwhile waits in its backlog. It never accepts
    anything without TLS."""
    client = client_context(AUTHORITY.certificate)
    with place_of(kind, tls=True) as where, tls_server(where) as (port, _), Storm(where.place, port, client) as storm:
        storm.wait_for(5)
        where.upgrade()
        storm.wait_for(20)
        assert where.status()["sockets"] in (1, 2)  # the listener, and what it has accepted
        assert storm.failures == []


@pytest.mark.root
def test_a_listener_whose_identity_the_new_proxy_has_not() -> None:
    """It does not listen there, and its program is told why."""
    with place_of("shm", tls=True) as where, tls_server(where) as (port, says):
        assert isinstance(where, OverSharedMemory)
        file = where.directory / "proxy.toml"
        with where.place.connect(port, 5.0):
            pass
        file.write_text(file.read_text().replace('"own"', '"another"'))
        where.upgrade()

        def refuses() -> bool:
            try:
                where.place.connect(port, 5.0).close()
            except ConnectionRefusedError:
                return True
            return False

        wait(refuses, "end of the listener", 10)
        assert says.readline()
        file.write_text(file.read_text().replace('"another"', '"own"'))
        where.upgrade()
        wait(lambda: not refuses(), "the listener", 15)


@pytest.mark.parametrize("kind", ["shm", pytest.param("relay", marks=AFXDP)])
def test_programs_that_sleep(kind: str) -> None:
    """They are not in any call of the library, and take no part: connections with what has come for them, and with what
    they have sent and TCP has not taken. Twice: the second process has them without having heard of them."""
    with place_of(kind) as where, ExitStack() as stack:
        asks = [stack.enter_context(dialogue(where)) for _ in range(8)]
        for _ in range(2):
            where.upgrade()
            queues = len(asks) if kind == "shm" else 1
            assert where.status() == {"channels": queues, "sockets": len(asks), "reset": 0}
        assert [ask() for ask in asks] == ["goes on"] * len(asks)
