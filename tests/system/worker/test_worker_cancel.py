"""CANCEL: a host closes a socket whose CONNECT has not been answered, by its own number. And what else names a socket
in that way."""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator

import pytest
from beds.scripted_host import ScriptedHost, Worker
from beds.worker import FEATURES
from xts_lab.free_ports import free_port
from xts_messages.wire import codec, ulp_attributes
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags
from xts_messages.wire.ulps import BY_NAME, REQUESTS

LOOPBACK = "127.0.0.1"
CANCEL = table.FEATURES["CANCEL"][0]
MANY = 2000  # more than were looked through once, and than one table of chains has


def tls_push(ciphers: bytes = b"") -> bytes:
    """Of a client that verifies nothing, in the payload of CONNECT."""
    attributes = ulp_attributes.encode_attributes(
        "TLS", {"role": 1, "verify": 0} | ({"ciphers": ciphers.decode()} if ciphers else {})
    )
    push = struct.pack("!IHH", 0, 0, BY_NAME["TLS"].number) + attributes
    return struct.pack("!II", REQUESTS["PUSH_ULP"][0], len(push)) + push


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(connections=3 * MANY) as made:
        yield made


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach(features=CANCEL) as made:
        yield made.open()


@pytest.fixture
def full() -> Iterator[int]:
    """The port of a listener that has as many connections as may wait: a connect waits, too."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.create_server((LOOPBACK, 0), backlog=0))
        stack.enter_context(socket.create_connection(server.getsockname()))
        yield server.getsockname()[1]


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((LOOPBACK, 0)) as made:
        made.settimeout(5)
        yield made


def start(host: ScriptedHost, port: int, number: int = 0, pushes: bytes = b"") -> int:
    """Sends CONNECT; the socket's number."""
    number = number or host.new_socket()
    peer = Endpoint.of(LOOPBACK, port)
    host.send("XTS_CMD_CONNECT", pushes, xts_socket=number, post_credits=65536, domain=4, peer=peer)
    return number


def set_option(host: ScriptedHost, number: int) -> codec.Frame:
    """An option of a socket that has no identifier yet, and the answer; what crosses it stays in the backlog."""
    value = (1).to_bytes(4, "little")
    fields = {"xts_socket": number, "domain": 4, "token": 7}
    option = {"level": socket.IPPROTO_TCP, "option": socket.TCP_NODELAY}
    host.send("XTS_CMD_SETSOCKOPT", value, **fields, **option)
    passed = []
    while (frame := host.receive()).name != "XTS_REPLY_SOCKOPT_ACK":
        passed.append(frame)
    host.backlog[:0] = passed
    assert frame.id == number and not frame.error
    return frame


def cancel(host: ScriptedHost, number: int) -> list[codec.Frame]:
    """CANCEL, and what crosses it; the last is CLOSED."""
    host.send("XTS_CMD_CANCEL", xts_socket=number)
    frames = []
    while True:
        frames.append(host.receive())
        if frames[-1].name == "XTS_REPLY_RECV" and frames[-1].flags & flags("CLOSED"):
            assert frames[-1].id == number
            return frames


def test_a_connect_on_its_way_ends_at_once(worker: Worker, host: ScriptedHost, full: int) -> None:
    number = start(host, full)
    worker.wait(lambda s: s.connections == 1, "no connect")
    assert len(cancel(host, number)) == 1, "CONNECT has no answer any more"
    worker.wait(lambda s: s.connections == 0, "it goes on")
    assert worker.stats().bad_identifiers == 0


@pytest.mark.parametrize("pushes", [b"", tls_push(b"ALL:fresh"), tls_push()], ids=["", "slow push", "push"])
def test_right_behind_the_connect(worker: Worker, full: int, pushes: bytes) -> None:
    """Also if that takes several turns: what it needs is made by another thread."""
    with worker.attach(features=FEATURES | CANCEL) as host:
        host.open()
        for _ in range(5):
            assert len(cancel(host, start(host, full, pushes=pushes))) == 1
        worker.wait(lambda s: s.connections == 0, "it goes on")


def test_a_handshake_on_its_way(worker: Worker, server: socket.socket) -> None:
    """TCP is connected, and TLS is not: the peer has the ClientHello and then the end."""
    with worker.attach(features=FEATURES | CANCEL) as host:
        host.open()
        number = start(host, server.getsockname()[1], pushes=tls_push())
        with server.accept()[0] as peer:
            peer.settimeout(5)
            assert peer.recv(1) == b"\x16"
            assert len(cancel(host, number)) == 1
            with contextlib.suppress(ConnectionResetError):
                while peer.recv(65536):
                    pass
        worker.wait(lambda s: s.connections == 0, "it goes on")


def test_it_crosses_the_answer(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    number = start(host, server.getsockname()[1])
    peer, _ = server.accept()
    with peer:
        peer.settimeout(5)
        worker.wait(lambda s: s.connects_ok == 1, "no answer")
        names = [frame.name for frame in cancel(host, number)]
        assert names == ["XTS_REPLY_CONNECT_ACK", "XTS_REPLY_RECV"]
        with pytest.raises(ConnectionResetError):
            peer.recv(1)
    worker.wait(lambda s: s.connections == 0, "it goes on")


@pytest.mark.parametrize("allowed", [True, False], ids=["by TCP", "by policy"])
def test_a_connect_that_has_failed(allowed: bool) -> None:
    with Worker(allowed) as worker, worker.attach(features=CANCEL) as host, socket.create_server((LOOPBACK, 0)) as gone:
        host.open()
        port = gone.getsockname()[1]
        gone.close()
        number = start(host, port)
        worker.wait(lambda s: s.connects_failed == 1, "no failure")
        answer, closed = cancel(host, number)
        assert answer.error == (errno.ECONNREFUSED if allowed else errno.EACCES)
        assert not closed.error
        worker.wait(lambda s: s.connections == 0, "its socket is still there")


def test_a_connect_that_has_made_no_socket(host: ScriptedHost) -> None:
    """The answer is the same: a host need not know what has crossed."""
    with Worker(connections=0) as worker, worker.attach(features=CANCEL) as poor:
        poor.open()
        number = start(poor, 9)
        answer, closed = cancel(poor, number)
        assert (answer.error, answer.fields["proxy_id"]) == (errno.ENOBUFS, 0)
        assert not closed.error and worker.stats().bad_identifiers == 0
    assert len(cancel(host, 12345)) == 1


def test_a_number_that_is_used_again(worker: Worker, host: ScriptedHost, full: int, server: socket.socket) -> None:
    for _ in range(3):
        number = start(host, full, 77)
        cancel(host, number)
    start(host, server.getsockname()[1], 77)
    ack = host.expect("XTS_REPLY_CONNECT_ACK")
    assert not ack.error and ack.id == 77
    server.accept()[0].close()
    host.send("XTS_CMD_SEND", id=ack.fields["proxy_id"])  # names it: CANCEL does not find it any more
    assert [frame.flags for frame in cancel(host, 77)][-1] == flags("CLOSED")
    assert worker.stats().connections == 1


def test_a_link_without_the_feature(worker: Worker) -> None:
    with worker.attach() as old:
        old.open()
        old.send("XTS_CMD_CANCEL", xts_socket=1)
        assert old.wait_down() == errno.EPROTO


@pytest.mark.parametrize("settles", [False, True], ids=["on its way", "answered"])
def test_an_option_without_an_identifier_is_of_the_socket_that_connects(
    worker: Worker, host: ScriptedHost, full: int, server: socket.socket, settles: bool
) -> None:
    """Also when it crosses the answer: it did not, and made a socket that its host never heard of."""
    number = start(host, server.getsockname()[1] if settles else full)
    if settles:
        worker.wait(lambda s: s.connects_ok == 1, "no answer")
    answer = set_option(host, number)
    if settles:
        assert host.expect("XTS_REPLY_CONNECT_ACK").fields["proxy_id"] == answer.fields["proxy_id"]
    assert worker.stats().connections == 1


def test_thousands_of_them(worker: Worker, host: ScriptedHost) -> None:
    """Each is found by its number, whatever the numbers, and in whatever order they go."""
    port = free_port()
    numbers = [(n % 7) << 20 | n * 64 for n in range(1, MANY + 1)]
    for number in numbers:
        start(host, port, number)
        assert host.expect("XTS_REPLY_CONNECT_ACK").error == errno.ECONNREFUSED
    assert worker.stats().connections == MANY
    for number in numbers[::2] + numbers[1::2][::-1]:
        assert len(cancel(host, number)) == 1
    worker.wait(lambda s: s.connections == 0, "some were not found")
    assert worker.stats().bad_identifiers == 0


def test_a_channel_that_ends_with_thousands(worker: Worker) -> None:
    port = free_port()
    with worker.attach(features=CANCEL) as host:
        host.open()
        for _ in range(MANY // 4):
            start(host, port)
            host.expect("XTS_REPLY_CONNECT_ACK")
    with worker.attach(epoch=5, features=CANCEL) as other:
        other.open()
        worker.wait(lambda s: s.connections == 0, "they outlive their channel")
        cancel(other, 2)
