"""From our record layer to the kernel's TLS in the middle of a stream, each direction alone; and a descriptor with keys
in the kernel that goes on in another process. The numbers go on where ours have ended: the peer, Python's ssl, notices
nothing. What the proxy does not do yet by itself (it chooses at the end of the handshake) is tried with its parts."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from beds.kernel_tls import kernel_tls_reason, tls_stat
from beds.ulp_tls import AUTHORITY, ONE_THREE, SERVER, TlsBed, server_context
from oracles.tls_records import BY_NAME, Secret
from test_tls_keys import tcp_pair

TCP_ULP, SOL_TLS, TLS_TX, TLS_RX = 31, 282, 1, 2
CIPHER = BY_NAME["aes-256-gcm"]

pytestmark = pytest.mark.skipif(
    bool(kernel_tls_reason()), reason=f"{kernel_tls_reason()}: tests/vm/run runs this test where there is"
)


class Connection:
    """A client of ours on TCP, its peer, and the keys of both directions as the peer's key log has them."""

    def __init__(self, bed: TlsBed, folder: Path) -> None:
        bed.local.close()
        bed.peer.close()
        bed.local, bed.peer = tcp_pair()
        bed.peer.setblocking(False)
        context = server_context(SERVER, minimum_version=ONE_THREE, keylog_filename=str(folder / "keylog"))
        context.num_tickets = 0  # each record is one of the exchanges below
        bed.push("TLS", server_name="localhost", no_resumption=True)
        self.bed, self.peer = bed, bed.connect_to(context)
        lines = [line.split() for line in (folder / "keylog").read_text().splitlines()]
        secrets = {line[0]: bytes.fromhex(line[2]) for line in lines if line[0] != "#"}
        self.sends = Secret(CIPHER, secrets["CLIENT_TRAFFIC_SECRET_0"]).keys()
        self.receives = Secret(CIPHER, secrets["SERVER_TRAFFIC_SECRET_0"]).keys()

    def send(self, data: bytes) -> None:
        """By our record layer: one record."""
        assert self.bed.write(data) == len(data)
        assert self.heard(len(data)) == data
        self.sends = self.sends.next()

    def receive(self, data: bytes) -> None:
        self.peer.send(data)
        assert until(lambda: b"".join(pdu.data for pdu in self.bed.read_all())) == data
        self.receives = self.receives.next()

    def heard(self, count: int) -> bytes:
        """What the peer reads, so many bytes."""
        data = b""
        while len(data) < count:
            data += until(self.peer.recv)
        return data

    def give(self, direction: int) -> None:
        """The kernel has this direction from now on, with its next number."""
        with suppress(FileExistsError):  # the other direction is there
            self.bed.local.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"tls")
        keys = self.sends if direction == TLS_TX else self.receives
        self.bed.local.setsockopt(SOL_TLS, direction, keys.crypto_info())


def until(read: Callable[[], bytes]) -> bytes:
    """Something has come over loopback."""
    while not (data := read()):
        os.sched_yield()
    return data


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[Connection]:
    """That our record layer has carried for a while."""
    with TlsBed() as bed:
        bed.add_trust("default", AUTHORITY.certificate)
        made = Connection(bed, tmp_path)
        for i in range(1, 4):
            made.send(b"question" * i)
            made.receive(b"answer" * i)
        yield made


def test_the_kernel_sends_on(connection: Connection) -> None:
    """And our record layer goes on to receive."""
    before = tls_stat()
    connection.give(TLS_TX)
    for i in range(1, 4):
        assert connection.bed.local.send(b"by the kernel" * i) == 13 * i
        assert connection.heard(13 * i) == b"by the kernel" * i
        connection.receive(b"answer" * i)
    after = tls_stat()
    assert after["TlsTxSw"] == before["TlsTxSw"] + 1 and after["TlsRxSw"] == before["TlsRxSw"]


def test_the_kernel_receives_on(connection: Connection) -> None:
    """And our record layer goes on to send."""
    before = tls_stat()
    connection.give(TLS_RX)
    for i in range(1, 4):
        connection.peer.send(b"answer" * i)
        assert until(lambda: receive(connection.bed.local)) == b"answer" * i
        connection.send(b"question" * i)
    after = tls_stat()
    assert after["TlsRxSw"] == before["TlsRxSw"] + 1 and after["TlsTxSw"] == before["TlsTxSw"]
    assert after["TlsDecryptError"] == before["TlsDecryptError"]


def receive(sock: socket.socket) -> bytes:
    with suppress(BlockingIOError):
        return sock.recv(1 << 16)
    return b""


GOES_ON = """
import socket, sys
with socket.socket(fileno=int(sys.argv[1])) as way:
    _, (fd,), _, _ = socket.recv_fds(way, 1, 1)
with socket.socket(fileno=fd) as connection:
    connection.setblocking(True)
    while data := connection.recv(1 << 16):
        connection.sendall(b"echo of " + data)
"""


def test_a_descriptor_with_keys_goes_on_in_another_process(connection: Connection) -> None:
    """Which gets no key: the kernel has them, and they stay with the socket. This process has closed its own."""
    connection.send(b"by ours")
    connection.give(TLS_TX)
    connection.give(TLS_RX)
    assert connection.bed.local.send(b"from here") == 9
    assert connection.heard(9) == b"from here"
    ours, its = socket.socketpair()
    with ours, its:
        command = [sys.executable, "-c", GOES_ON, str(its.fileno())]
        with subprocess.Popen(command, pass_fds=[its.fileno()]) as child:
            socket.send_fds(ours, [b"x"], [connection.bed.local.fileno()])
            connection.bed.local.close()
            for i in range(1, 4):
                connection.peer.send(b"question" * i)
                assert connection.heard(8 + 8 * i) == b"echo of " + b"question" * i
            connection.bed.peer.shutdown(socket.SHUT_WR)
            assert child.wait(20) == 0
