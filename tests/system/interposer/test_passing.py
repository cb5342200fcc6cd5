"""Descriptors over Unix sockets (SCM_RIGHTS), between programs under the interposer."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from beds.calls import until
from beds.interposed_place import PATIENCE_S, InLab, Place, refused
from beds.real_programs import need
from beds.script_outcomes import Outcomes
from beds.scripts import RUN_S
from system.interposer.programs.preload_scripts import KERNEL, OURS
from xts_lab.free_ports import free_port

PROGRAMS = Path(__file__).parent / "programs"
CLUSTER_CLIENTS = 12


def answer(client: socket.socket, question: bytes) -> bytes:
    with client:
        client.sendall(question)
        client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()


@contextmanager
def giving(place: Place, way: Path, what: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    command = [sys.executable, str(PROGRAMS / "passing.py"), "give", str(way), what]
    with place.start(command) as giver:
        assert giver.stdout is not None
        yield giver, int(giver.stdout.readline())


def datagram_client(place: Place, port: int) -> socket.socket:
    made = place.datagrams()
    made.connect((place.here, port))
    made.settimeout(PATIENCE_S)
    return made


def test_one_program_gives_another_a_datagram_socket(place: Place, tmp_path: Path) -> None:
    """What the first has not read the second reads."""
    way = tmp_path / "way"
    with giving(place, way, "datagrams") as (giver, port), datagram_client(place, port) as client:
        client.send(b"unread")
        command = [sys.executable, str(PROGRAMS / "passing.py"), "take", str(way)]
        with place.start(command) as taker:
            assert client.recv(100) == b"UNREAD"
            client.send(b"second")
            assert client.recv(100) == b"SECOND"
            assert taker.wait(PATIENCE_S) == 0
        assert giver.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("what", ["connection", "listener", "wildcard"])
def test_one_program_gives_another_a_socket(what: str, place: Place, tmp_path: Path) -> None:
    way = tmp_path / "way"
    with giving(place, way, what) as (giver, port):
        client = place.client(port) if what == "connection" else None
        if client:
            client.sendall(b"first ")
        command = [sys.executable, str(PROGRAMS / "passing.py"), "take", str(way)]
        with place.start(command) as taker:
            if client:
                assert answer(client, b"second") == b"SECOND"
            else:
                for _ in range(2):
                    assert answer(place.client(port), b"hello") == b"HELLO"
            assert taker.wait(PATIENCE_S) == 0
        assert giver.wait(PATIENCE_S) == 0


def test_a_program_without_the_interposer_gets_nothing_of_it(place: Place, tmp_path: Path) -> None:
    way = tmp_path / "way"
    with giving(place, way, "connection") as (giver, port), place.client(port) as client:
        client.sendall(b"first secret")
        with socket.socket(socket.AF_UNIX) as here:
            here.connect(str(way))
            _, fds, _, _ = socket.recv_fds(here, 10, 4)
            with socket.socket(fileno=fds[0]) as carrier:
                with pytest.raises(ConnectionResetError):
                    carrier.recv(1)
                with pytest.raises(BrokenPipeError):
                    carrier.send(b"x")
            here.sendall(b"done")
        assert giver.wait(PATIENCE_S) == 0
        with suppress(ConnectionResetError):  # where the rest had come, and was not read
            assert client.recv(1) == b""


def test_handles_of_multiprocessing(place: Place) -> None:
    with place.start([sys.executable, str(PROGRAMS / "passing_handles.py")]) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        for i in range(6):
            assert answer(place.client(port), b"hello %d" % i) == b"HELLO %d" % i
        assert program.wait(PATIENCE_S) == 0


CLUSTER = """
const cluster = require('cluster'), http = require('http');
cluster.schedulingPolicy = process.argv[2] === 'rr' ? cluster.SCHED_RR : cluster.SCHED_NONE;
if (cluster.isPrimary) {
  for (let i = 0; i < 2; i++) cluster.fork();
  let listening = 0;
  cluster.on('listening', (worker, address) => { if (++listening === 2) console.log(address.port); });
} else {
  const server = http.createServer((request, response) => response.end(`worker ${cluster.worker.id}\\n`));
  server.listen(0, process.env.LISTEN_AT);
}
"""


@pytest.mark.parametrize("policy", ["rr", "none"])
def test_cluster_of_node(policy: str, place: Place, tmp_path: Path) -> None:
    """The primary process accepts and passes connections (rr), or passes the listener (none)."""
    script = tmp_path / "cluster.js"
    script.write_text(CLUSTER)
    with place.start([need("node"), str(script), policy]) as primary:
        assert primary.stdout is not None
        port = int(primary.stdout.readline())
        answers = set()
        for _ in range(CLUSTER_CLIENTS):
            with place.client(port) as client:
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answers.add(client.makefile("rb").read().rpartition(b"\r\n\r\n")[2])
        workers = {b"worker 1\n", b"worker 2\n"}
        assert answers == workers if policy == "rr" else answers and answers <= workers
        primary.terminate()
        until(lambda: primary.poll() is not None)


HAPROXY = """
global
    noreuseport
    stats socket {folder}/{name}.sock mode 600 level admin expose-fd listeners
defaults
    mode http
    timeout connect 5s
    timeout client 5s
    timeout server 5s
frontend test
    bind {here}:{port}
    http-request return status 200 content-type text/plain string {name}
"""


def test_reload_of_haproxy(place: Place, tmp_path: Path) -> None:
    """The new process gets the listener from the old one (expose-fd): no connection is refused or lost meanwhile."""
    haproxy = need("haproxy")
    port = free_port()

    def command(name: str, *more: str) -> list[str]:
        (tmp_path / f"{name}.cfg").write_text(HAPROXY.format(folder=tmp_path, name=name, here=place.here, port=port))
        return [haproxy, "-db", "-f", str(tmp_path / f"{name}.cfg"), *more]

    def ask() -> bytes:
        with place.client(port) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return client.makefile("rb").read().rpartition(b"\r\n\r\n")[2]

    with place.start(command("first")) as first:
        until(lambda: not refused(place, port))
        assert ask() == b"first"
        takes_over = command("second", "-x", f"{tmp_path}/first.sock", "-sf", str(first.pid))
        with place.start(takes_over):
            answers = [ask()]
            while answers[-1] == b"first":
                answers.append(ask())
            assert set(answers) <= {b"first", b"second"}
            assert first.wait(PATIENCE_S) == 0
            assert ask() == b"second"


SPAWNING = sorted(name for name, function in {**KERNEL, **OURS}.items() if function.__module__.endswith("_spawn"))


@pytest.fixture(scope="module")
def spawning(request: pytest.FixtureRequest, in_lab: InLab, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    at = tmp_path_factory.mktemp("peers") / "peers.sock"

    def run(names: str, _: str) -> bytes:
        command = [sys.executable, str(PROGRAMS / "preload_scripts.py"), names]
        with in_lab.peers(at), in_lab.start(command, {"PEERS_AT": str(at)}) as process:
            output, _ = process.communicate(timeout=RUN_S)
        assert process.returncode == 0, output
        return bytes(output)

    return Outcomes(request, run)


@pytest.mark.root
@pytest.mark.afxdp
@pytest.mark.parametrize("name", SPAWNING)
def test_spawning_on_afxdp(name: str, spawning: Outcomes) -> None:
    """On shm these run with the others (test_preload.py)."""
    spawning.check("test_spawning_on_afxdp", name)
