"""Descriptors over Unix sockets (SCM_RIGHTS), between programs under the interposer."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from beds.calls import until
from beds.preload import PreloadBed
from beds.unmodified import need

PROGRAMS = Path(__file__).parent / "programs"
PATIENCE_S = 20.0
CLUSTER_CLIENTS = 12


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)


def answer(client: socket.socket, question: bytes) -> bytes:
    with client:
        client.sendall(question)
        client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()


@contextmanager
def giving(bed: PreloadBed, way: Path, what: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    command = [sys.executable, str(PROGRAMS / "passing.py"), "give", str(way), what]
    with bed.start(command, env={"XTS_STRICT": "1"}) as giver:
        assert giver.stdout is not None
        yield giver, int(giver.stdout.readline())


@pytest.mark.parametrize("what", ["connection", "listener", "wildcard"])
def test_one_program_gives_another_a_socket(what: str, bed: PreloadBed, tmp_path: Path) -> None:
    way = tmp_path / "way"
    with giving(bed, way, what) as (giver, port):
        client = connect(port) if what == "connection" else None
        if client:
            client.sendall(b"first ")
        command = [sys.executable, str(PROGRAMS / "passing.py"), "take", str(way)]
        with bed.start(command, env={"XTS_STRICT": "1"}) as taker:
            if client:
                assert answer(client, b"second") == b"SECOND"
            else:
                for _ in range(2):
                    assert answer(connect(port), b"hello") == b"HELLO"
            assert taker.wait(PATIENCE_S) == 0
        assert giver.wait(PATIENCE_S) == 0


def test_a_program_without_the_interposer_gets_nothing_of_it(bed: PreloadBed, tmp_path: Path) -> None:
    way = tmp_path / "way"
    with giving(bed, way, "connection") as (giver, port), connect(port) as client:
        client.sendall(b"first secret")
        with socket.socket(socket.AF_UNIX) as here:
            here.connect(str(way))
            _, fds, _, _ = socket.recv_fds(here, 10, 4)
            with socket.socket(fileno=fds[0]) as carrier:
                for call in (lambda: carrier.recv(1), lambda: carrier.send(b"x")):
                    with pytest.raises(OSError) as raised:
                        call()
                    assert raised.value.errno == errno.ENOTCONN
            here.sendall(b"done")
        assert giver.wait(PATIENCE_S) == 0
        with suppress(ConnectionResetError):  # where the rest had come, and was not read
            assert client.recv(1) == b""


def test_handles_of_multiprocessing(bed: PreloadBed) -> None:
    with bed.start([sys.executable, str(PROGRAMS / "passing_handles.py")], env={"XTS_STRICT": "1"}) as program:
        assert program.stdout is not None
        port = int(program.stdout.readline())
        for i in range(6):
            assert answer(connect(port), b"hello %d" % i) == b"HELLO %d" % i
        assert program.wait(PATIENCE_S) == 0


CLUSTER = """
const cluster = require('cluster'), http = require('http');
cluster.schedulingPolicy = process.argv[2] === 'rr' ? cluster.SCHED_RR : cluster.SCHED_NONE;
if (cluster.isPrimary) {
  for (let i = 0; i < 2; i++) cluster.fork();
  let listening = 0;
  cluster.on('listening', (worker, address) => { if (++listening === 2) console.log(address.port); });
} else {
  http.createServer((request, response) => response.end(`worker ${cluster.worker.id}\\n`)).listen(0, '127.0.0.1');
}
"""


@pytest.mark.parametrize("policy", ["rr", "none"])
def test_cluster_of_node(policy: str, bed: PreloadBed, tmp_path: Path) -> None:
    """The primary process accepts and passes connections (rr), or passes the listener (none)."""
    script = tmp_path / "cluster.js"
    script.write_text(CLUSTER)
    with bed.start([need("node"), str(script), policy], env={"XTS_STRICT": "1"}) as primary:
        assert primary.stdout is not None
        port = int(primary.stdout.readline())
        answers = set()
        for _ in range(CLUSTER_CLIENTS):
            with connect(port) as client:
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
    bind 127.0.0.1:{port}
    http-request return status 200 content-type text/plain string {name}
"""


def test_reload_of_haproxy(bed: PreloadBed, tmp_path: Path) -> None:
    """The new process gets the listener from the old one (expose-fd): no connection is refused or lost meanwhile."""
    haproxy = need("haproxy")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def command(name: str, *more: str) -> list[str]:
        (tmp_path / f"{name}.cfg").write_text(HAPROXY.format(folder=tmp_path, name=name, port=port))
        return [haproxy, "-db", "-f", str(tmp_path / f"{name}.cfg"), *more]

    def ask() -> bytes:
        with connect(port) as client:
            client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return client.makefile("rb").read().rpartition(b"\r\n\r\n")[2]

    with bed.start(command("first")) as first:
        until(lambda: not refused(port))
        assert ask() == b"first"
        takes_over = command("second", "-x", f"{tmp_path}/first.sock", "-sf", str(first.pid))
        with bed.start(takes_over):
            answers = [ask()]
            while answers[-1] == b"first":
                answers.append(ask())
            assert set(answers) <= {b"first", b"second"}
            assert first.wait(PATIENCE_S) == 0
            assert ask() == b"second"


def refused(port: int) -> bool:
    try:
        connect(port).close()
    except ConnectionRefusedError:
        return True
    return False
