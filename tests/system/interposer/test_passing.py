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
