"""Sessions of TLS are resumed by whichever worker: a whole xts-proxy with two, and programs with a queue each."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from beds.authority import Authority
from beds.kernel_server import KernelServer
from beds.operated_proxy import Proxy, running, wait
from beds.operated_tls import directory, identity
from beds.tls_programs import DEADLINE_S, outcome, program, says, shown_by
from beds.ulp_tls import ONE_THREE, ONE_TWO, client_context, server_context

__all__ = ["directory"]  # fixture

AUTHORITY = Authority()
OWN = AUTHORITY.issue("localhost")
KINDS = pytest.mark.parametrize("kind", ["ticket of 1.2", "ID", "ticket of 1.3"])
RECORDS = pytest.mark.parametrize("records", ["auto", "openssl"])


def of_kind(context: ssl.SSLContext, kind: str) -> ssl.SSLContext:
    context.maximum_version = ONE_THREE if kind == "ticket of 1.3" else ONE_TWO
    if kind == "ID":
        context.options |= ssl.OP_NO_TICKET
    return context


@contextmanager
def two_workers(directory: Path, records: str) -> Iterator[Proxy]:
    text = f'[tls]\nrecords = "{records}"\n{identity(directory, "own", OWN)}'
    text += f'[[tls.trust]]\nname = "default"\nfile = "{directory}/own.pem"\n'
    with running(directory, text, workers=2) as proxy:
        yield proxy


def workers_of_channels(proxy: Proxy) -> set[int]:
    return {row["worker"] for row in proxy.status()["channels"]}


@RECORDS
@KINDS
def test_a_server_of_two_processes(directory: Path, kind: str, records: str) -> None:
    """What one began, the other one resumes, on a thread of its own, there and back."""
    context = of_kind(client_context(AUTHORITY.certificate), kind)
    with two_workers(directory, records) as proxy, ExitStack() as stack:
        served = [stack.enter_context(program(proxy, "serve")) for _ in range(2)]
        ports = [int(says(one)) for one in served]
        assert workers_of_channels(proxy) == {0, 1}
        session, resumed = None, []
        for port in (*ports, *ports):
            with shown_by(port, context, session) as peer:
                resumed.append(peer.session_reused)
                session = peer.session
        assert resumed == [False, True, True, True]
        assert [outcome(one)[1] for one in served] == [[], []]
        assert proxy.status()["tls"]["resumed"] == 3


class Server(KernelServer):
    """Of the kernel's sockets, for clients that come one after the other, or at a time."""

    def __init__(self, kind: str) -> None:
        self.resumed: list[bool | None] = []
        self.failures: list[OSError] = []
        self._context = of_kind(server_context(OWN), kind)
        super().__init__()

    def serve(self, sock: socket.socket) -> None:
        try:
            sock.settimeout(DEADLINE_S)
            with sock, self._context.wrap_socket(sock, server_side=True) as tls:
                self.resumed.append(tls.session_reused)
                while data := tls.recv(100):
                    tls.sendall(data)
                tls.unwrap()
        except OSError as failure:
            self.failures.append(failure)


@RECORDS
@KINDS
def test_clients_on_two_workers(directory: Path, kind: str, records: str) -> None:
    """Each process shakes hands once and then resumes; none resumes the session of another one. A ticket of TLS 1.3 is
    read after the handshake, by a thread: the next connection may be too early for it on a busy machine."""
    with two_workers(directory, records) as proxy, Server(kind) as server, ExitStack() as stack:
        clients = [stack.enter_context(program(proxy, "connect", str(server.port))) for _ in range(2)]
        wait(lambda: server.resumed.count(False) >= 2 and workers_of_channels(proxy) == {0, 1}, "connections of both")
        seen = len(server.resumed)
        wait(lambda: len(server.resumed) >= seen + 16, "more of them")
        assert [outcome(one)[1] for one in clients] == [[], []]
        assert server.failures == []
        whole = server.resumed.count(False)
        assert whole == 2 if kind != "ticket of 1.3" else 2 <= whole <= len(server.resumed) / 2
