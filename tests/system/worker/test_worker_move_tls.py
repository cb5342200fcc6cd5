"""TLS connections that go to another worker, and on to the next: the same bytes, keys that have one owner, and no
nonce that is on the wire twice. The peer is Python's ssl, on bytes that the test has seen."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest
from beds.authority import Authority
from beds.examples import examples
from beds.moves import MOVE, Left, answer, ask, claim, moved, take, take_in, waits
from beds.scripted_host import WINDOW, Worker
from beds.ulp_tls import ONE_THREE, ONE_TWO, client_context, server_context, updates_keys
from beds.worker import FEATURES, LOOPBACK, Conn, server
from hypothesis import given
from hypothesis import strategies as st
from xts_messages.wire.codec import flags
from xts_proxy._native import ffi, lib
from xts_proxy.upgrade.handover import private_memory

__all__ = ["server"]

AUTHORITY = Authority()
ISSUED = AUTHORITY.issue("localhost", "127.0.0.1")
TLS = {"ulp": "TLS", "message": False, "server_name": "localhost"}
VERSIONS = pytest.mark.parametrize("version", [ONE_TWO, ONE_THREE], ids=["1.2", "1.3"])
CBC = "ECDHE-ECDSA-AES128-SHA256"
BIG = bytes(range(256)) * 4096
ALL = FEATURES | MOVE


def make_config() -> Any:
    limits = {"handshake_timeout_ms": 10_000, "pdu_bytes_max": 1 << 26, "buffered_bytes_max": 1 << 24}
    config = lib.xts_ulp_config_new(ffi.new("struct xts_ulp_limits *", limits))
    why = ffi.new("char[256]")
    own, key, roots = ISSUED.certificate, ISSUED.key, AUTHORITY.certificate
    settings, ciphers = ffi.new("struct xts_tls_settings *"), ffi.new("char[]", f"ECDHE+AESGCM:{CBC}".encode())
    lib.xts_tls_defaults(settings)
    settings.ciphers = ciphers
    assert lib.xts_tls_configure(config, settings, why, 256) == 0, ffi.string(why)
    nobody = ffi.NULL, 0, ffi.NULL, 0, why, 256
    assert lib.xts_tls_add_identity(config, b"own", own, len(own), key, len(key), *nobody) == 0
    assert lib.xts_tls_add_trust(config, b"default", roots, len(roots), *nobody) == 0
    return config


@contextlib.contextmanager
def worker_of(tenant: Any = None) -> Iterator[Worker]:
    """With a configuration of its own, as another process has one."""
    config = make_config()
    with Worker(ulp=config, tenant=tenant) as made:
        lib.xts_ulp_config_release(config)
        yield made


class Peer:
    """Python's ssl over the TCP connection; `wire`: all that has come over that."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, serves: bool) -> None:
        self.sock = sock
        self.wire = b""
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if serves else "localhost"
        self.tls = context.wrap_bio(self.incoming, self.outgoing, serves, name)

    def push(self) -> None:
        if data := self.outgoing.read():
            self.sock.sendall(data)

    def pull(self, timeout_s: float = 5.0) -> bool:
        """Some of what has come; False: nothing has, or the end."""
        if not select.select([self.sock], [], [], timeout_s)[0] or not (data := self.sock.recv(1 << 16)):
            return False
        self.wire += data
        self.incoming.write(data)
        return True

    def shake(self) -> bool:
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
            self.push()
            return True
        self.push()
        return False

    def send(self, data: bytes) -> None:
        self.tls.write(data)
        self.push()

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            try:
                data += self.tls.read(count - len(data))
            except ssl.SSLWantReadError:
                assert self.pull(), f"{len(data)} bytes, and no more"
        return data

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Types and bodies of what has come."""
        at = 0
        while at + 5 <= len(self.wire):
            size = int.from_bytes(self.wire[at + 3 : at + 5])
            yield self.wire[at], self.wire[at + 5 : at + 5 + size]
            at += 5 + size


class Moving:
    """A TLS connection and its peer, which goes from worker to worker."""

    def __init__(
        self,
        stack: contextlib.ExitStack,
        server: socket.socket,
        context: ssl.SSLContext,
        client: bool = True,
    ) -> None:
        self.stack = stack
        self.worker = stack.enter_context(worker_of())
        self.host = stack.enter_context(self.worker.attach(features=ALL)).open()
        number = self.host.new_socket()
        _, ack = self.host.connect(LOOPBACK, server.getsockname()[1], WINDOW, 0, number)
        sock, _ = server.accept()
        sock.settimeout(5)
        stack.callback(sock.close)
        self.connection = Conn(self.host, number, ack.fields["proxy_id"], ack.fields["post_credits"], sock)
        self.peer = Peer(sock, context, serves=client)
        push = TLS | {"role": 1} if client else {"ulp": "TLS", "message": False, "role": 2, "identity": "own"}
        assert self.connection.push(**push).error == 0
        while not self.peer.shake():
            assert self.peer.pull()
        if not client:
            self.peer.send(b"first")
        self.moves = 0
        if client:
            self.connection.send(b"first")
            assert self.peer.receive(5) == b"first"
        else:
            assert self.read(5) == b"first"

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            frame = self.connection.read()
            assert frame.name == "XTS_REPLY_RECV" or frame.fields["control_type"] >= 0xFF00, frame
            data += frame.payload if frame.name == "XTS_REPLY_RECV" else b""
        return data

    def move(self) -> None:
        following = self.stack.enter_context(worker_of(self.worker.tenant))
        left = moved(self.host, self.worker, following)
        assert left.private and left.reset == 0
        self.arrived(following, left)

    def arrived(self, following: Worker, left: Left) -> None:
        host = self.stack.enter_context(following.attach(features=ALL)).open()
        self.moves += 1
        number = 100 + self.moves
        id, credits = claim(host, left.ticket, self.connection.id, number)
        self.stack.callback(left.close)
        self.worker, self.host = following, host
        self.connection = Conn(host, number, id, credits, self.connection.peer)

    def both_ways(self, data: bytes = b"there and back") -> None:
        for at in range(0, len(data), 1 << 14):
            self.connection.send(data[at : at + (1 << 14)])
        assert self.peer.receive(len(data)) == data
        self.peer.send(data)
        assert self.read(len(data)) == data


def context_of(version: ssl.TLSVersion, *, client: bool = True) -> ssl.SSLContext:
    both = {"minimum_version": version, "maximum_version": version}
    made = server_context(ISSUED, **both) if client else client_context(AUTHORITY.certificate, **both)
    if version == ONE_TWO:
        made.set_ciphers("ECDHE+AESGCM")
    return made


ROLES = pytest.mark.parametrize("client", [True, False], ids=["client", "server"])


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as made:
        yield made


@VERSIONS
@ROLES
def test_it_moves_again_and_again(
    stack: contextlib.ExitStack, server: socket.socket, version: ssl.TLSVersion, client: bool
) -> None:
    """And no nonce is on the wire twice: in TLS 1.2 it is there to be seen, in 1.3 the peer counts."""
    moving = Moving(stack, server, context_of(version, client=client), client)
    for _ in range(4):
        moving.both_ways()
        moving.move()
    moving.both_ways(BIG[:100_000])
    nonces = [body[:8] for kind, body in moving.peer.records() if kind == 23]
    assert version == ONE_THREE or len(set(nonces)) == len(nonces) > 10
    bodies = [body for _, body in moving.peer.records()]
    assert len(set(bodies)) == len(bodies)


@VERSIONS
def test_what_is_sealed_and_not_sent_is_not_sealed_again(
    stack: contextlib.ExitStack, server: socket.socket, version: ssl.TLSVersion
) -> None:
    """The peer does not read: records wait, and what waits to become records, over several moves."""
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    moving = Moving(stack, server, context_of(version))
    sent = 0
    for _ in range(3):
        while sent < len(BIG):
            piece = min(moving.connection.held, 1 << 15, len(BIG) - sent)
            if not piece:
                with contextlib.suppress(TimeoutError):
                    moving.connection.receive(50)
                    continue
                break
            moving.connection.send(BIG[sent : sent + piece])
            sent += piece
        moving.move()
    assert sent > 200_000
    assert moving.peer.receive(sent) == BIG[:sent]
    moving.both_ways()


@VERSIONS
def test_a_record_that_has_come_in_part(
    stack: contextlib.ExitStack, server: socket.socket, version: ssl.TLSVersion
) -> None:
    moving = Moving(stack, server, context_of(version))
    moving.peer.tls.write(BIG[:16_000])
    record = moving.peer.outgoing.read()
    for at in range(0, len(record), 2000):
        moving.peer.sock.sendall(record[at : at + 2000])
        deadline = time.monotonic() + 0.02  # for the worker to take it; it is right without, too
        while time.monotonic() < deadline:
            time.sleep(0.005)
        if at % 6000 == 0 and at + 2000 < len(record):
            moving.move()
    assert moving.read(16_000) == BIG[:16_000]
    moving.both_ways()


@ROLES
@pytest.mark.parametrize("asks", [True, False])
def test_keys_change_afterwards(stack: contextlib.ExitStack, server: socket.socket, client: bool, asks: bool) -> None:
    """KeyUpdate of the peer, and our answer, behind a move, and before the next."""
    moving = Moving(stack, server, context_of(ONE_THREE, client=client), client)
    for _ in range(3):
        moving.move()
        updates_keys(moving.peer.tls, asks=asks)
        moving.both_ways()
    moving.move()
    moving.both_ways()


@VERSIONS
@pytest.mark.parametrize("who", ["host", "peer"])
def test_half_closed(stack: contextlib.ExitStack, server: socket.socket, version: ssl.TLSVersion, who: str) -> None:
    moving = Moving(stack, server, context_of(version))
    if who == "host":
        moving.connection.send(b"last", "FIN")
        assert moving.peer.receive(4) == b"last"
        moving.move()
        moving.peer.send(b"answer")
        assert moving.read(6) == b"answer"
        while moving.peer.pull():  # to the FIN
            pass
        assert moving.peer.tls.read(1) == b""  # behind close_notify
        return
    with contextlib.suppress(ssl.SSLWantReadError):
        moving.peer.tls.unwrap()
    moving.peer.push()
    while not moving.connection.receive().flags:  # the end of the stream
        pass
    moving.move()
    while not moving.connection.receive().flags:  # it is told again
        pass
    moving.connection.send(b"answer")
    assert moving.peer.receive(6) == b"answer"


def test_it_is_told_of_what_happens_between(stack: contextlib.ExitStack, server: socket.socket) -> None:
    """The peer resets the connection while no host has it."""
    moving = Moving(stack, server, context_of(ONE_THREE))
    following = stack.enter_context(worker_of(moving.worker.tenant))
    left = moved(moving.host, moving.worker, following)
    moving.peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    moving.peer.sock.close()
    moving.arrived(following, left)
    while not (frame := moving.connection.receive()).flags & flags("RESET"):
        pass
    assert frame.error == errno.ECONNRESET


def test_cbc_stays_and_is_named(stack: contextlib.ExitStack, server: socket.socket) -> None:
    context = context_of(ONE_TWO)
    context.set_ciphers(CBC)
    moving = Moving(stack, server, context)
    assert waits(moving.worker) == (errno.EBUSY, {"the cipher is not an AEAD": 1})
    moving.both_ways()
    assert ask(moving.worker, 1) == 0
    answer(moving.host)
    left = take(moving.worker)
    assert not left.descriptors and left.reset == 1
    left.close()


def test_nothing_of_a_key_lies_next_to_the_sockets(stack: contextlib.ExitStack, server: socket.socket) -> None:
    """What supervisors pass on has none of what workers keep: the private memory has it, and nobody after that."""
    moving = Moving(stack, server, context_of(ONE_THREE))
    moving.peer.send(b"SEALED-BY-A-PEER")
    assert moving.read(16) == b"SEALED-BY-A-PEER"
    assert ask(moving.worker) == 0
    answer(moving.host)
    left = take(moving.worker)
    private = os.pread(left.descriptors[-1], 1 << 20, 0)
    secrets = [private[at : at + 48] for at in range(0, len(private) - 48, 16)]
    assert private and not any(secret.strip(b"\0") and secret in left.records for secret in secrets)
    left.close()


@given(data=st.data())
@examples(40)
def test_what_comes_in_private_is_not_believed(data: st.DataObject) -> None:
    """Whatever the memory has in it: the worker goes on, and no descriptor is left."""
    with contextlib.ExitStack() as stack, socket.create_server((LOOPBACK, 0)) as listening:
        listening.settimeout(5)
        moving = Moving(stack, listening, context_of(ONE_THREE))
        following = stack.enter_context(worker_of(moving.worker.tenant))
        assert ask(moving.worker) == 0
        answer(moving.host)
        left = take(moving.worker)
        private = bytearray(os.pread(left.descriptors[-1], 1 << 20, 0))
        for _ in range(data.draw(st.integers(1, 4))):
            private[data.draw(st.integers(0, len(private) - 1))] = data.draw(st.integers(0, 255))
        private = private[: data.draw(st.integers(len(private) // 2, len(private)))]
        os.close(left.descriptors.pop())
        left.descriptors.append(private_memory())
        os.pwrite(left.descriptors[-1], private, 0)
        before = list(left.descriptors)
        taken = take_in(following, left.records, left.descriptors)
        left.descriptors = []
        assert taken in (0, 1)
        with pytest.raises(OSError):
            os.fstat(before[-1])
        left.close()


@pytest.mark.parametrize("what", ["pipe", "nothing", "socket"])
def test_what_is_no_private_memory_is_not_waited_for(
    stack: contextlib.ExitStack, server: socket.socket, what: str
) -> None:
    moving = Moving(stack, server, context_of(ONE_THREE))
    following = stack.enter_context(worker_of(moving.worker.tenant))
    assert ask(moving.worker) == 0
    answer(moving.host)
    left = take(moving.worker)
    os.close(left.descriptors.pop())
    if what == "pipe":
        out, into = os.pipe()
        stack.callback(os.close, into)
        left.descriptors.append(out)
    elif what == "socket":
        left.descriptors.append(socket.socket().detach())
    assert take_in(following, left.records, left.descriptors) == 0
    left.descriptors = []
    with pytest.raises(ConnectionResetError):
        while moving.peer.sock.recv(1000):
            pass
    left.close()
