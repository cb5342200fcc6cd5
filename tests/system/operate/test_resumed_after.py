"""Sessions of TLS are resumed after an upgrade, and tickets after a crash of the workers: clients in the network of a
listener with TLS in the proxy, and a client with TLS in the proxy."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from beds import process_tree
from beds.authority import Authority
from beds.kernel_server import KernelServer
from beds.operated_proxy import NO_METRICS, running
from beds.operated_tls import identity, trust
from beds.patience import SLOWER
from beds.ready import readable
from beds.restarts import Place, SharedMemory
from beds.ulp_tls import ONE_THREE, ONE_TWO, client_context, server_context
from beds.upgrades import upgrading

PROGRAMS = Path(__file__).with_name("programs")
AUTHORITY = Authority()
OWN, CLIENTS = AUTHORITY.issue("localhost"), AUTHORITY.issue("client.example")
DEADLINE_S = 20.0 * SLOWER
KINDS = pytest.mark.parametrize("kind", ["ticket of 1.2", "ticket of 1.3", "ID"])


def of_kind(context: ssl.SSLContext, kind: str) -> ssl.SSLContext:
    context.maximum_version = ONE_THREE if kind == "ticket of 1.3" else ONE_TWO
    if kind == "ID":
        context.options |= ssl.OP_NO_TICKET
    return context


def tables(folder: Path) -> str:
    (folder / "roots.pem").write_bytes(AUTHORITY.certificate)
    return trust(folder) + identity(folder, "own", OWN)


@contextmanager
def upgraded() -> Iterator[tuple[Place, Callable[[], None]]]:
    """A place, and what replaces its proxy by another one."""
    with tempfile.TemporaryDirectory(prefix="xts-resumed-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "roots.pem").write_bytes(AUTHORITY.certificate)
        with upgrading("shm", folder, tables(folder)) as where:
            yield where.place, where.upgrade


@contextmanager
def crashed() -> Iterator[tuple[Place, Callable[[], None]]]:
    """A place, and what kills the workers of its proxy."""
    with tempfile.TemporaryDirectory(prefix="xts-resumed-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with running(folder, tables(folder), crashes_max=100, **NO_METRICS) as proxy:
            before = 0

            def crash() -> None:
                nonlocal before
                before = process_tree.one(proxy.process.pid, "xts-workers", other_than=before)
                ended = os.pidfd_open(before)
                os.kill(before, signal.SIGKILL)
                assert readable(ended, DEADLINE_S)
                os.close(ended)

            yield SharedMemory(folder), crash


AFTER_AN_UPGRADE = pytest.param(upgraded, marks=pytest.mark.root, id="upgrade")
AFTER_A_CRASH = pytest.param(crashed, id="crash")


@contextmanager
def served(place: Place, *more: str) -> Iterator[int]:
    """The port of a server with TLS in the proxy."""
    with place.program([str(PROGRAMS / "upgraded_tls_server.py"), place.address, *more], interposed=False) as process:
        assert process.stdout and readable(process.stdout, DEADLINE_S)
        yield int(process.stdout.readline())


class Client:
    """Of the network; it offers the session that it was given last."""

    def __init__(self, place: Place, port: int, context: ssl.SSLContext) -> None:
        self._place, self._port, self._context = place, port, context
        self._session: ssl.SSLSession | None = None

    def resumes(self) -> bool | None:
        """Another connection, which exchanges something and ends in order. Has it resumed?"""
        sock = self._place.connect(self._port, DEADLINE_S)
        with self._context.wrap_socket(sock, server_hostname="localhost", session=self._session) as tls:
            tls.settimeout(DEADLINE_S)
            tls.sendall(b"four")
            assert tls.recv(4) == b"four"
            assert tls.recv(4) == b""
            self._session = tls.session
            return tls.session_reused


@pytest.mark.parametrize("bed", [AFTER_AN_UPGRADE, AFTER_A_CRASH])
@KINDS
def test_a_client_of_the_network(
    bed: Callable[[], AbstractContextManager[tuple[Place, Callable[[], None]]]], kind: str
) -> None:
    """Again and again: what the process before has given out, its successor takes. A server's sessions by their IDs
    end with a process that dies."""
    context, resumed = of_kind(client_context(AUTHORITY.certificate), kind), []
    with bed() as (place, another), served(place) as port:
        client = Client(place, port, context)
        assert not client.resumes()
        for _ in range(3):
            another()
            resumed.append(client.resumes())
            assert client.resumes()
    assert resumed == [bed is upgraded or kind != "ID"] * 3


def test_a_client_with_a_certificate_after_a_crash() -> None:
    """Whoever broke into the process that has died could have made a ticket that says it had one: it shows it again."""
    context = client_context(AUTHORITY.certificate, CLIENTS)
    with crashed() as (place, crash), served(place, "verifies") as port:
        client = Client(place, port, context)
        assert [client.resumes(), client.resumes()] == [False, True]
        crash()
        assert [client.resumes(), client.resumes()] == [False, True]


class Server(KernelServer):
    """Of the kernel's sockets."""

    def __init__(self, kind: str) -> None:
        self._context = of_kind(server_context(OWN), kind)
        super().__init__()

    def serve(self, sock: socket.socket) -> None:
        with suppress(OSError), sock, self._context.wrap_socket(sock, server_side=True) as tls:
            tls.settimeout(DEADLINE_S)
            while data := tls.recv(100):
                tls.sendall(data)
            tls.unwrap()


def resumes(process: subprocess.Popen[str]) -> bool:
    """Another connection of the client's."""
    assert process.stdin and process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    assert readable(process.stdout, DEADLINE_S)
    return process.stdout.readline() == "True\n"


@pytest.mark.parametrize("bed", [AFTER_AN_UPGRADE, AFTER_A_CRASH])
@KINDS
def test_a_client_with_tls_in_the_proxy(
    bed: Callable[[], AbstractContextManager[tuple[Place, Callable[[], None]]]], kind: str
) -> None:
    """Clients' sessions go to the next proxy, and end with a process that dies. A ticket of TLS 1.3 is read by a
    thread: the connection after the first one may be too early for it."""
    with ExitStack() as stack:
        place, another = stack.enter_context(bed())
        server = stack.enter_context(Server(kind))
        arguments = [str(PROGRAMS / "resuming_client.py"), "127.0.0.1", str(server.port)]
        client = stack.enter_context(place.program(arguments, interposed=False))
        for _ in range(2):
            for _ in range(100):
                if resumes(client):
                    break
            assert resumes(client)
            another()
            assert resumes(client) == (bed is upgraded)
