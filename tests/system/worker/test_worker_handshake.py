"""Handshakes of pushed protocols in the worker: before CONNECT_ACK, before NEWCONN, and after a push onto a connection.
TLS is what shakes hands here; what it does itself is tested in tests/unit/test_ulp_tls*.py."""

from __future__ import annotations

import contextlib
import errno
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from beds.authority import Authority
from beds.scripted_host import WINDOW, ScriptedHost, Worker
from beds.ulp_tls import client_context, server_context
from beds.worker import FEATURES, LOOPBACK, READY, Conn, connected, prefixed, receive_exactly, server, wait_for
from xts_messages._native import lib as link_lib
from xts_messages.wire import codec, ulps
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Endpoint, flags
from xts_proxy._native import ffi, lib

__all__ = ["server"]

AUTHORITY = Authority()
ISSUED = AUTHORITY.issue("localhost", "127.0.0.1")
TLS = {"ulp": "TLS", "message": False, "server_name": "localhost"}


def make_config(handshake_timeout_ms: int, first_byte_timeout_ms: int = 0) -> Any:
    limits = ffi.new(
        "struct xts_ulp_limits *",
        {
            "handshake_timeout_ms": handshake_timeout_ms,
            "first_byte_timeout_ms": first_byte_timeout_ms,
            "pdu_bytes_max": 1 << 26,
            "buffered_bytes_max": 1 << 22,
        },
    )
    config = lib.xts_ulp_config_new(limits)
    why = ffi.new("char[256]")
    own, key, roots = ISSUED.certificate, ISSUED.key, AUTHORITY.certificate
    result = lib.xts_tls_add_identity(
        config, b"own", own, len(own), key, len(key), ffi.NULL, 0, ffi.NULL, 0, why, 256
    )  # fmt: skip
    assert result == 0, ffi.string(why)
    assert lib.xts_tls_add_trust(config, b"default", roots, len(roots), ffi.NULL, 0, ffi.NULL, 0, why, 256) == 0
    return config


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> Iterator[Worker]:
    """Its parameter, if any: how long a handshake may take, or that and how long its first byte may."""
    parameter = getattr(request, "param", 10_000)
    config = make_config(*parameter) if isinstance(parameter, tuple) else make_config(parameter)
    with Worker(ulp=config) as made:
        lib.xts_ulp_config_release(config)
        yield made


@pytest.fixture
def host(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach(features=FEATURES) as made:
        yield made.open()


class Peer:
    """The TCP peer of one connection, with Python's ssl, in a thread of its own: echoes what comes, until it ends."""

    def __init__(self, make: Any, context: ssl.SSLContext, *, is_server: bool) -> None:
        self.error: Exception | None = None
        self.received = b""
        self.make, self.context, self.is_server = make, context, is_server
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        try:
            sock = self.make()
            sock.settimeout(5)
            name = None if self.is_server else "localhost"
            with self.context.wrap_socket(sock, server_side=self.is_server, server_hostname=name) as tls:
                while data := tls.recv(65536):
                    self.received += data
                    tls.sendall(data)
                tls.unwrap().close()
        except (OSError, ssl.SSLError) as error:
            self.error = error

    def join(self) -> Exception | None:
        self.thread.join(10)
        assert not self.thread.is_alive()
        return self.error


def accept_once(listening: socket.socket) -> Any:
    return lambda: listening.accept()[0]


def dial(port: int) -> Any:
    return lambda: socket.create_connection((LOOPBACK, port), 5)


def converse(c: Conn) -> None:
    """Data there and back."""
    c.send(b"over and out")
    got = b""
    while len(got) < 12:
        got += c.read().payload
    assert got == b"over and out"


# --- connecting -------------------------------------------------------------------------------------------------------


def start_connect(host: ScriptedHost, port: int, *pushes: dict[str, Any]) -> tuple[int, codec.Frame]:
    number, id = host.new_socket(), 0
    for push in pushes:
        answer = host.push(id=id, number=number, **push)
        assert answer.error == 0 and answer.payload == b"\0"
        id = answer.fields["proxy_id"]
    return host.connect(LOOPBACK, port, WINDOW, id, number)


def test_connect_is_answered_when_the_handshake_is_done(
    worker: Worker, host: ScriptedHost, server: socket.socket
) -> None:
    peer = Peer(accept_once(server), server_context(ISSUED), is_server=True)
    number, ack = start_connect(host, server.getsockname()[1], TLS)
    assert ack.error == 0
    c = Conn(host, number, ack.fields["proxy_id"], ack.fields["post_credits"], socket.socket())
    with c:
        converse(c)
        stats = worker.stats()
        assert (stats.ulp_handshakes, stats.ulp_handshakes_ok, stats.connects_ok) == (0, 1, 1)
        row = worker.connection()
        assert ffi.string(row.receive_ulps) == ffi.string(row.send_ulps) == b"tls"
        assert c.close().error == 0
    assert peer.join() is None, "close_notify came before FIN"


def test_a_connect_whose_handshake_fails(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    peer = Peer(accept_once(server), server_context(ISSUED), is_server=True)
    number, ack = start_connect(host, server.getsockname()[1], TLS | {"server_name": "somebody.else"})
    assert ack.error == errno.EKEYREJECTED
    id = ack.fields["proxy_id"]
    told = host.ulp_error(id, number)
    assert told.fault == "certificate" and told.text
    assert isinstance(peer.join(), ssl.SSLError), "our alert came through"
    stats = worker.stats()
    assert (stats.ulp_handshakes, stats.ulp_handshakes_failed, stats.connects_failed) == (0, 1, 1)
    _, ack = host.connect(LOOPBACK, server.getsockname()[1], WINDOW, id, number)
    assert ack.error == errno.EISCONN, "of no further use"
    host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE"))
    assert host.expect("XTS_REPLY_RECV").flags & flags("CLOSED")
    worker.wait(lambda s: s.connections == 0, "the connection did not end")


@pytest.mark.parametrize("worker", [200], indirect=True)
def test_a_peer_that_says_nothing(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    number, ack = start_connect(host, server.getsockname()[1], TLS)
    assert ack.error == errno.ETIMEDOUT
    assert host.ulp_error(ack.fields["proxy_id"], number).fault == "stalled"


def test_a_peer_that_goes_away_in_the_handshake(host: ScriptedHost, server: socket.socket) -> None:
    def accept_and_leave() -> None:
        server.accept()[0].close()

    threading.Thread(target=accept_and_leave).start()
    _, ack = start_connect(host, server.getsockname()[1], TLS)
    assert ack.error in (errno.EPROTO, errno.ECONNRESET, errno.EBADMSG)


def test_a_host_that_goes_away_in_the_handshake(worker: Worker, server: socket.socket) -> None:
    """Many times: what a thread has computed for the handshake may come back in the round that has closed it."""
    for _ in range(20):
        with worker.attach(features=FEATURES) as host:
            host.open()
            number = host.new_socket()
            id = host.push(number=number, **TLS).fields["proxy_id"]
            peer = Endpoint.of(LOOPBACK, server.getsockname()[1])
            host.send("XTS_CMD_CONNECT", id=id, xts_socket=number, post_credits=WINDOW, domain=4, peer=peer)
            worker.wait(lambda s: s.ulp_handshakes == 1, "no handshake has begun")
            assert host.push("LENGTH_PREFIXED", id, number, message=False).error == errno.EPROTOTYPE
            host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE", "ABORT"))
            while not (told := host.receive()).flags & flags("CLOSED"):
                assert told.name != "XTS_REPLY_CONNECT_ACK"
        worker.wait(lambda s: s.connections == 0 and s.ulp_handshakes == 0, "the connection did not end")


# --- pushed later -----------------------------------------------------------------------------------------------------


def upgrade(greeting: bytes, context: ssl.SSLContext) -> Any:
    """A peer's way to start TLS in the middle: says something, reads a line, says "go"."""

    def run(listening: socket.socket) -> socket.socket:
        sock, _ = listening.accept()
        sock.settimeout(5)
        sock.sendall(greeting)
        assert receive_exactly(sock, 9) == b"STARTTLS\n"
        sock.sendall(b"go\n")
        return sock

    return run


@pytest.mark.parametrize("halves", [False, True])
def test_starttls(worker: Worker, host: ScriptedHost, server: socket.socket, halves: bool) -> None:
    context = server_context(ISSUED)
    run = upgrade(b"hello\n", context)
    peer = Peer(lambda: run(server), context, is_server=True)
    number, ack = host.connect(LOOPBACK, server.getsockname()[1])
    with Conn(host, number, ack.fields["proxy_id"], ack.fields["post_credits"], socket.socket()) as c:
        assert c.read().payload == b"hello\n"
        c.send(b"STARTTLS\n")
        assert c.read().payload == b"go\n"
        for way in ("PUSH_ULP_RX", "PUSH_ULP_TX") if halves else ("PUSH_ULP",):
            answer = c.push(way=way, read_bytes=c.read_bytes, **TLS)
            assert answer.error == 0 and answer.payload == b"\1"
        c.send(b"over ")  # waits for the handshake
        frame = c.read()
        assert frame.fields["control_type"] == READY and not frame.payload
        c.send(b"and out")
        got = b""
        while len(got) < 12:
            got += c.read().payload
        assert got == b"over and out"
        c.close()
    assert peer.join() is None


def test_a_late_handshake_that_fails_resets(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server) as c:
        assert c.push(read_bytes=0, **TLS).payload == b"\1"
        c.send(b"never sent")
        c.peer.sendall(b"this is no TLS at all, whatever you may have hoped\n")
        frame = c.receive()
        while not frame.flags:
            frame = c.receive()
        assert frame.flags == flags("RESET") and frame.error == errno.EPROTO
        assert host.ulp_error(c.id, c.number).fault == "handshake"
        wait_for(lambda: c.peer.recv(65536) == b"", "no end of the stream")
        c.close()
    worker.wait(lambda s: s.connections == 0 and s.ulp_handshakes_failed == 1, "the connection did not end")


def test_closing_during_a_late_handshake(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    """What was sent before it still leaves; with nothing sent there is nothing to wait for."""
    context = server_context(ISSUED, num_tickets=0)  # which the peer could not write any more
    peer = Peer(accept_once(server), context, is_server=True)
    number, ack = host.connect(LOOPBACK, server.getsockname()[1])
    with Conn(host, number, ack.fields["proxy_id"], ack.fields["post_credits"], socket.socket()) as c:
        assert c.push(**TLS).error == 0
        c.send(b"last words")
        c.close()
    worker.wait(lambda s: s.connections == 0, "the orphan did not end")
    peer.join()
    assert peer.received == b"last words"
    with connected(host, server) as c:
        assert c.push(**TLS).error == 0
        c.close()
        worker.wait(lambda s: s.connections == 0, "the connection did not end")


# --- accepting --------------------------------------------------------------------------------------------------------


def listening(host: ScriptedHost, *pushes: dict[str, Any], credits: int = 10) -> tuple[int, int, int]:
    """A listener: XTS socket, proxy's identifier, port."""
    number = host.new_socket()
    host.send("XTS_CMD_BIND", xts_socket=number, domain=4, local=Endpoint.of(LOOPBACK, 0))
    ack = host.expect("XTS_REPLY_BIND_ACK")
    id, port = ack.fields["proxy_id"], ack.fields["local"].port
    for push in pushes:
        assert host.push(id=id, number=number, **push).error == 0
    host.send("XTS_CMD_LISTEN", id=id, xts_socket=number, post_credits=credits, backlog=1000)
    assert host.expect("XTS_REPLY_LISTEN_ACK").error == 0
    return number, id, port


OWN = {"ulp": "TLS", "message": False, "identity": "own"}


def take(host: ScriptedHost, listener: int, listener_id: int) -> Conn:
    frame = host.expect("XTS_REPLY_NEWCONN")
    assert frame.id == listener
    number = host.new_socket()
    host.send("XTS_CMD_NEWCONN_ACK", id=frame.fields["proxy_id"], xts_socket=number, post_credits=WINDOW)
    host.send("XTS_CMD_SEND", id=listener_id, post_credits=1)
    return Conn(host, number, frame.fields["proxy_id"], frame.fields["post_credits"], socket.socket())


def trusting() -> ssl.SSLContext:
    return client_context(AUTHORITY.certificate)


def test_a_connection_is_announced_when_the_handshake_is_done(worker: Worker, host: ScriptedHost) -> None:
    number, id, port = listening(host, OWN)
    silent = socket.create_connection((LOOPBACK, port))
    worker.wait(lambda s: s.ulp_handshakes == 1, "no handshake has begun")
    with pytest.raises(TimeoutError):
        host.receive(50)
    for _ in range(3):
        peer = Peer(dial(port), trusting(), is_server=False)
        with take(host, number, id) as c:
            c.send(b"echo")
            assert c.read().payload == b"echo"
            c.close()
        assert peer.join() is None
    silent.close()
    worker.wait(lambda s: s.ulp_handshakes == 0 and s.ulp_handshakes_failed == 1, "the silent one is still there")
    assert worker.stats().ulp_pushed[ulps.BY_NAME["TLS"].number] == 1 + 4
    assert worker.stats().connections == 0


def test_a_connection_whose_handshake_fails_is_never_announced(worker: Worker, host: ScriptedHost) -> None:
    number, id, port = listening(host, OWN)
    with socket.create_connection((LOOPBACK, port), 5) as rude:
        rude.sendall(b"GET / HTTP/1.0\r\n\r\n" * 100)
        wait_for(lambda: rude.recv(65536) == b"", "not closed")
    distrustful = Peer(dial(port), client_context(Authority().certificate), is_server=False)
    assert isinstance(distrustful.join(), ssl.SSLError)
    worker.wait(lambda s: s.ulp_handshakes_failed == 2 and s.connections == 0, "not ended")
    with pytest.raises(TimeoutError):
        host.receive(20)
    peer = Peer(dial(port), trusting(), is_server=False)
    with take(host, number, id) as c:
        c.send(b"still at work")
        assert c.read().payload == b"still at work"
        c.close()
    assert peer.join() is None


@pytest.mark.parametrize("worker", [300], indirect=True)
def test_slow_handshakes_time_out_and_are_bounded(worker: Worker, host: ScriptedHost) -> None:
    """However many do not go on, so many are waited for and no more, and not for long."""
    number, id, port = listening(host, OWN)
    with contextlib.ExitStack() as silent:
        for _ in range(300):
            silent.enter_context(socket.create_connection((LOOPBACK, port)))
        worker.wait(lambda s: s.ulp_handshakes == 256 or s.ulp_handshakes_failed, "not as many as there may be")
        assert worker.stats().connections <= 256
        peer = Peer(dial(port), trusting(), is_server=False)
        with take(host, number, id) as c:
            c.send(b"patience")
            assert c.read().payload == b"patience"
            c.close()
        assert peer.join() is None
        worker.wait(lambda s: s.ulp_handshakes_failed == 300 and s.connections == 0, "silent ones are left")


NEVER = 600_000  # in a test
HELLO = bytes.fromhex("16030100ff010000fb0303") + bytes(40)  # of a ClientHello, which goes on


def dial_from(source: str, port: int) -> Any:
    return lambda: socket.create_connection((LOOPBACK, port), 5, source_address=(source, 0))


def assert_served(host: ScriptedHost, number: int, id: int, port: int, source: str) -> None:
    peer = Peer(dial_from(source, port), trusting(), is_server=False)
    with take(host, number, id) as c:
        c.send(b"served")
        assert c.read().payload == b"served"
        c.close()
    assert peer.join() is None


@pytest.mark.parametrize("worker", [NEVER], indirect=True)
def test_silent_peers_give_way(worker: Worker, host: ScriptedHost) -> None:
    """However many: the next one comes in at once, from the same address or another."""
    number, id, port = listening(host, OWN)
    with contextlib.ExitStack() as silent:
        for _ in range(300):
            silent.enter_context(dial(port)())
        worker.wait(lambda s: s.ulp_handshakes == 256 and s.ulp_handshakes_failed == 44, "not as many as there may be")
        for source in (LOOPBACK, "127.0.0.2"):
            assert_served(host, number, id, port, source)
        stats = worker.stats()
        assert stats.ulp_handshakes == 255 and stats.ulp_handshakes_failed == 45  # of which the first left a place
        assert stats.ulp_faults[ulps.FAULTS["STALLED"][0]] == 45


def test_nothing_is_made_for_a_silent_peer() -> None:
    """Neither OpenSSL's part of the connection nor, for the first one, what all of them share."""
    config = make_config(NEVER)
    with Worker(ulp=config) as worker, worker.attach(features=FEATURES) as host, contextlib.ExitStack() as stack:
        _, _, port = listening(host.open(), OWN)
        silent = [stack.enter_context(dial(port)()) for _ in range(20)]
        worker.wait(lambda s: s.ulp_handshakes == 20, "they are not accepted")
        assert lib.xts_tls_contexts(config) == 0
        silent[0].sendall(HELLO)
        wait_for(lambda: lib.xts_tls_contexts(config) == 1, "it is not made after all")
    lib.xts_ulp_config_release(config)


@pytest.mark.parametrize("worker", [NEVER], indirect=True)
def test_a_source_has_a_quarter_of_the_room(worker: Worker, host: ScriptedHost) -> None:
    """Peers that have begun are not turned out, unless their address has more than its share and others wait."""
    number, id, port = listening(host, OWN)
    with contextlib.ExitStack() as begun:

        def begin(source: str) -> socket.socket:
            made: socket.socket = begun.enter_context(dial_from(source, port)())
            made.sendall(HELLO)
            return made

        few = [begin("127.0.0.2") for _ in range(10)]
        many = [begin("127.0.0.3") for _ in range(246)]
        worker.wait(lambda s: s.ulp_handshakes == 256, "not as many as there may be")
        assert worker.stats().ulp_handshakes_failed == 0
        assert_served(host, number, id, port, "127.0.0.4")
        many.append(begin("127.0.0.3"))  # has the place that is free again
        many.append(begin("127.0.0.3"))  # takes one of its own source's
        worker.wait(lambda s: s.ulp_handshakes_failed == 2 and s.ulp_handshakes == 256, "nobody gave way")
        for gone in many[:2]:
            with pytest.raises(ConnectionResetError):
                gone.recv(1)
        for kept in (few[0], many[2]):
            kept.setblocking(False)
            with pytest.raises(BlockingIOError):
                kept.recv(1)


@pytest.mark.parametrize("worker", [(NEVER, 100)], indirect=True)
def test_the_first_byte_comes_soon(worker: Worker, host: ScriptedHost) -> None:
    """Of those that have sent one the rest may take longer; and who connects to a server waits for it as before."""
    _, _, port = listening(host, OWN)
    with dial(port)() as silent, dial(port)() as begun, socket.create_server((LOOPBACK, 0)) as server:
        begun.sendall(HELLO)
        push = host.push(number=host.new_socket(), **TLS)
        host.send(
            "XTS_CMD_CONNECT",
            id=push.fields["proxy_id"],
            xts_socket=push.id,
            peer=Endpoint.of(LOOPBACK, server.getsockname()[1]),
            post_credits=WINDOW,
        )
        worker.wait(lambda s: s.ulp_handshakes_failed == 1 and s.ulp_handshakes == 2, "the silent one is still there")
        assert silent.recv(1) == b""
        with pytest.raises(TimeoutError):
            host.receive(200)
        assert worker.stats().ulp_handshakes == 2


def test_handshakes_are_done_while_credits_are_missing(worker: Worker, host: ScriptedHost) -> None:
    number, id, port = listening(host, OWN, credits=0)
    peer = Peer(dial(port), trusting(), is_server=False)
    worker.wait(lambda s: s.ulp_handshakes_ok == 1, "no handshake")
    with pytest.raises(TimeoutError):
        host.receive(20)
    host.send("XTS_CMD_SEND", id=id, post_credits=1)
    with take(host, number, id) as c:
        c.send(b"at last")
        assert c.read().payload == b"at last"
        c.close()
    assert peer.join() is None


@pytest.mark.parametrize("how", ["close", "die"])
def test_a_listener_that_goes_takes_what_it_has_not_announced(worker: Worker, how: str) -> None:
    with worker.attach(features=FEATURES) as host:
        host.open()
        _number, id, port = listening(host, OWN, credits=0)
        silent = socket.create_connection((LOOPBACK, port))
        done = Peer(dial(port), trusting(), is_server=False)
        worker.wait(lambda s: s.ulp_handshakes == 1 and s.ulp_handshakes_ok == 1, "no handshakes")
        if how == "close":
            host.send("XTS_CMD_SEND", id=id, flags=flags("CLOSE"))
            assert host.expect("XTS_REPLY_RECV").flags & flags("CLOSED")
        else:
            link_lib.xts_link_goodbye(host.link, 0)
            host.pump(0)
        worker.wait(lambda s: s.connections == 0 and s.listeners == 0 and s.ulp_handshakes == 0, "something is left")
        with pytest.raises(ConnectionResetError):
            silent.recv(1)
        assert isinstance(done.join(), OSError)
        silent.close()


def test_a_listener_without_handshakes(worker: Worker, host: ScriptedHost) -> None:
    number, id, port = listening(host, {"ulp": "LENGTH_PREFIXED"})
    with socket.create_connection((LOOPBACK, port), 5) as peer:
        peer.sendall(b"\0\0\0\5early")
        with take(host, number, id) as c:
            assert c.read_pdu() == b"early"
            c.send_pdu(b"late")
            assert receive_exactly(peer, 8) == b"\0\0\0\4late"
            assert ffi.string(worker.connection(1).receive_ulps) == b"length_prefixed"
            c.close()


def test_peek_mode_of_a_listener(host: ScriptedHost) -> None:
    number, id, port = listening(host)
    assert host.ioctl("PEEK_MODE", b"\1", id, number).error == 0
    peer = Peer(dial(port), trusting(), is_server=False)
    with take(host, number, id) as c:
        hello = c.read().payload
        assert hello[0] == 22, "a TLS record, and it stays where it is"
        assert c.push(read_bytes=c.read_bytes, **OWN).error == 0
        assert c.ioctl("END_PEEK_MODE", bytes(4)).error == 0
        c.read_bytes = 0
        assert c.read().fields["control_type"] == READY
        c.send(b"echo")
        assert c.read().payload == b"echo"
        c.close()
    assert peer.join() is None


# --- sharing and handing over -----------------------------------------------------------------------------------------


@pytest.fixture
def second(worker: Worker) -> Iterator[ScriptedHost]:
    with worker.attach(0x5678, features=FEATURES) as made:
        yield made.open()


def share(host: ScriptedHost, key: int, number: int, id: int = 0) -> codec.Frame:
    host.send("XTS_CMD_SHARE", id=id, xts_socket=number, token=1, key=key, keep_ms=10_000)
    return host.expect("XTS_REPLY_SHARE_ACK")


def test_a_shared_listener_shakes_hands_for_all_members(
    worker: Worker, host: ScriptedHost, second: ScriptedHost
) -> None:
    """What is pushed before sharing is every member's; one that is given back keeps its handshake."""
    number, id, port = listening(host, OWN, credits=0)
    assert share(host, 99, number, id).error == 0
    assert host.push("TLS", id, number, message=False).error == errno.EBUSY, "push first, then share"
    other = second.new_socket()
    joined = share(second, 99, other)
    assert joined.error == 0
    other_id = joined.fields["proxy_id"]
    peer = Peer(dial(port), trusting(), is_server=False)
    host.send("XTS_CMD_SEND", id=id, post_credits=1)
    frame = host.expect("XTS_REPLY_NEWCONN")
    assert worker.stats().ulp_handshakes_ok == 1
    host.send("XTS_CMD_NEWCONN_ACK", id=frame.fields["proxy_id"], error=errno.EAGAIN)
    worker.wait(lambda s: s.given_back == 1, "not given back")
    second.send("XTS_CMD_SEND", id=other_id, post_credits=1)
    with take(second, other, other_id) as c:
        c.send(b"handed on")
        assert c.read().payload == b"handed on"
        c.close()
    assert peer.join() is None
    assert worker.stats().ulp_handshakes_ok == 1, "there was one handshake"


def test_a_member_that_goes_leaves_handshakes_to_others(
    worker: Worker, host: ScriptedHost, second: ScriptedHost
) -> None:
    number, id, port = listening(host, OWN, credits=1)
    assert share(host, 99, number, id).error == 0
    other = second.new_socket()
    other_id = share(second, 99, other).fields["proxy_id"]
    sock = socket.create_connection((LOOPBACK, port), 5)
    worker.wait(lambda s: s.ulp_handshakes == 1, "no handshake has begun")
    link_lib.xts_link_goodbye(host.link, 0)
    host.pump(0)
    worker.wait(lambda s: s.channels_up == 1, "it has not gone")
    second.send("XTS_CMD_SEND", id=other_id, post_credits=1)
    peer = Peer(lambda: sock, trusting(), is_server=False)
    with take(second, other, other_id) as c:
        c.send(b"inherited")
        assert c.read().payload == b"inherited"
        c.close()
    assert peer.join() is None


def test_a_connection_changes_hands_with_what_is_pushed(
    worker: Worker, host: ScriptedHost, second: ScriptedHost, server: socket.socket
) -> None:
    """PDUs that TCP has not taken are moved, too, and leave through the same protocols."""
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    with connected(host, server, {"ulp": "LENGTH_PREFIXED"}) as c:
        sent = []
        while worker.channel().spill_bytes < 5000 or not sent:
            sent.append(b"%d" % len(sent) * 900)
            c.send_pdu(sent[-1])
        c.peer.sendall(prefixed(b"unread"))
        assert c.receive_data().payload == b"unread"
        host.send("XTS_CMD_PARK", id=c.id, xts_socket=c.number, token=5, key=7, keep_ms=10_000)
        while (frame := host.receive()).name != "XTS_REPLY_PARK_ACK":
            pass
        assert frame.error == 0
        number = second.new_socket()
        second.send("XTS_CMD_CLAIM", xts_socket=number, token=6, key=7, post_credits=WINDOW - 6, unread=6)
        ack = second.expect("XTS_REPLY_CLAIM_ACK")
        assert ack.error == 0 and ack.fields["post_credits"] < WINDOW
        d = Conn(second, number, ack.fields["proxy_id"], ack.fields["post_credits"], c.peer, read_bytes=6)
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(receive_exactly(c.peer, len(prefixed(*sent, b"more")))))
        reader.start()
        d.send_pdu(b"more")
        reader.join()
        assert got == [prefixed(*sent, b"more")]
        c.peer.sendall(prefixed(b"late"))
        assert d.read_pdu() == b"late"
        assert d.close().error == 0 and c.peer.recv(1) == b""


def test_a_connection_that_shakes_hands_yet_cannot_be_named(worker: Worker, host: ScriptedHost) -> None:
    """Its identifier can be guessed, and it has no socket of the host's: 0."""
    _, id, port = listening(host, OWN)
    with socket.create_connection((LOOPBACK, port)):
        worker.wait(lambda s: s.ulp_handshakes == 1, "no handshake has begun")
        assert host.push("LINES", id + 1, 0).error == errno.EBADF
        assert host.ioctl("PEEK_MODE", b"\1", id + 1, 0).error == errno.EBADF


def test_what_layers_hold_is_read_after_a_claim(
    host: ScriptedHost, second: ScriptedHost, server: socket.socket
) -> None:
    """The TCP socket has nothing more, so epoll says nothing: a layer has read ahead."""
    lines = [b"%03d" % i for i in range(100)]
    with connected(host, server, {"ulp": "LINES"}, window=table.ULP_WINDOW_MIN) as c:
        c.peer.sendall(b"".join(line + b"\n" for line in lines))
        got = [c.receive_data().payload for _ in range(table.ULP_WINDOW_MIN // (table.PDU_CREDITS + 3))]
        host.send("XTS_CMD_PARK", id=c.id, xts_socket=c.number, token=5, key=7, keep_ms=10_000)
        assert host.expect("XTS_REPLY_PARK_ACK").error == 0
        number, unread = second.new_socket(), 3 * len(got)
        second.send("XTS_CMD_CLAIM", xts_socket=number, token=6, key=7, post_credits=WINDOW - unread, unread=unread)
        ack = second.expect("XTS_REPLY_CLAIM_ACK")
        assert ack.error == 0
        d = Conn(second, number, ack.fields["proxy_id"], ack.fields["post_credits"], c.peer, read_bytes=unread)
        assert got + [d.read_pdu() for _ in lines[len(got) :]] == lines
        d.close("ABORT")


def test_what_only_this_host_knows_cannot_change_hands(host: ScriptedHost, server: socket.socket) -> None:
    with connected(host, server) as c:
        assert host.ioctl("PEEK_MODE", b"\1", c.id, c.number).error == 0
        host.send("XTS_CMD_PARK", id=c.id, xts_socket=c.number, token=5, key=7, keep_ms=10_000)
        assert host.expect("XTS_REPLY_PARK_ACK").error == errno.EOPNOTSUPP
        c.peer.sendall(b"as before")
        assert c.read().payload == b"as before"
