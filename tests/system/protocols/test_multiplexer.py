"""One message socket over several connections, to peers of the kernel's and to memcached."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import socket as kernel
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import xts_socket
from beds.proxy_process import ProxyProcess
from xts_socket import LengthPrefixed, Multiplexer, Pdu, StreamParser
from xts_socket.multiplexer import Received

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 20.0
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close with a reset

Pair = tuple[xts_socket.socket, kernel.socket]


def framed(*pdus: bytes) -> bytes:
    return b"".join(len(pdu).to_bytes(4, "big") + pdu for pdu in pdus)


def receive(peer: kernel.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (part := peer.recv(size - len(got))):
        got += part
    return got


@contextmanager
def connected(count: int) -> Iterator[list[Pair]]:
    """Connections, and the kernel's sockets at their other ends."""
    with ExitStack() as open_ones, kernel.create_server(("127.0.0.1", 0)) as listener:
        pairs = []
        for _ in range(count):
            ours = xts_socket.create_connection(listener.getsockname(), DEADLINE_S, push=[LengthPrefixed()])
            open_ones.enter_context(ours)
            peer = open_ones.enter_context(listener.accept()[0])
            peer.settimeout(DEADLINE_S)
            pairs.append((ours, peer))
        yield pairs


def test_pdus_of_all_connections_come_with_where_they_came_from() -> None:
    with connected(3) as pairs, Multiplexer(*(ours for ours, _ in pairs), timeout=DEADLINE_S) as many:
        assert many.connections == [ours for ours, _ in pairs]
        pdus = [[b"%d %d" % (number, each) for each in range(50)] for number in range(3)]
        received_bytes = xts_socket.info().received_bytes + sum(len(pdu) for mine in pdus for pdu in mine)
        for (_, peer), mine in zip(pairs, pdus, strict=True):
            peer.sendall(framed(*mine))
        with selectors.DefaultSelector() as nothing_else:
            nothing_else.register(pairs[0][0], selectors.EVENT_WRITE)
            deadline = time.monotonic() + DEADLINE_S
            while xts_socket.info().received_bytes < received_bytes:  # until all have come, of each connection
                assert time.monotonic() < deadline
                nothing_else.select()
        got = [many.recv() for _ in range(150)]
        for number, (ours, _) in enumerate(pairs):
            mine = [each.pdu for each in got if each.sock is ours]
            assert mine == [Pdu(b"%d %d" % (number, each)) for each in range(50)], "in order for each"
        first = Counter(each.sock for each in got[:75])
        assert len(first) == 3 and max(first.values()) < 50, "in turn among those that have some"


def test_a_key_has_its_connection_and_keeps_it() -> None:
    with connected(4) as pairs, Multiplexer(timeout=DEADLINE_S) as many:
        for number, (ours, _) in enumerate(pairs):
            many.attach(ours, f"shard {number}")
        keys = [f"key {n}" for n in range(200)]
        before = {key: many.send(b"x", key) for key in keys}
        assert {many.send(b"x", key) for key in keys if before[key] is pairs[0][0]} == {pairs[0][0]}
        assert all(count > 20 for count in Counter(before.values()).values()) and len(set(before.values())) == 4
        many.detach(pairs[3][0])
        after = {key: many.send(b"x", key) for key in keys}
        moved = {key for key in keys if after[key] is not before[key]}
        assert moved == {key for key in keys if before[key] is pairs[3][0]}, "only the keys of who has gone move"
        many.attach(pairs[3][0], "shard 3")
        assert {key: many.send(b"x", key) for key in keys} == before
        assert many.send(b"x", b"k" * 1000) is many.send(b"x", b"k" * 1000)
        assert many.send(b"x", 7) is many.send(b"x", "7")
        with pytest.raises(TypeError):
            many.send(b"x", 1.5)  # type: ignore[arg-type]


def test_without_a_key_the_least_busy_takes_it() -> None:
    with connected(3) as pairs, Multiplexer(*(ours for ours, _ in pairs), timeout=DEADLINE_S) as many:
        socks = [ours for ours, _ in pairs]
        assert Counter(many.send(b"request") for _ in range(30)) == dict.fromkeys(socks, 10)
        pairs[1][1].sendall(framed(*[b"answer"] * 10))
        for _ in range(10):
            assert many.recv().sock is socks[1]
        assert {many.send(b"request") for _ in range(10)} == {socks[1]}, "it has nothing outstanding"


def test_a_failure_does_not_reach_the_others() -> None:
    with connected(3) as pairs, Multiplexer(*(ours for ours, _ in pairs), timeout=DEADLINE_S) as many:
        for _, peer in pairs:
            peer.sendall(framed(b"before"))
        time_out = time.monotonic() + DEADLINE_S
        (ends, resets, stays) = pairs
        ends[1].shutdown(kernel.SHUT_WR)
        got: list[Received] = [many.recv() for _ in range(4)]
        assert sum(each.pdu == Pdu(b"before") for each in got) == 3
        assert [(each.sock, each.error) for each in got if each.pdu is None] == [(ends[0], None)]
        resets[1].setsockopt(kernel.SOL_SOCKET, kernel.SO_LINGER, RESET)
        resets[1].close()
        found = many.recv()
        assert found.sock is resets[0] and found.pdu is None
        assert found.error is not None and found.error.errno == errno.ECONNRESET
        assert many.connections == [stays[0]] and many.send(b"request", "any") is stays[0]
        stays[1].sendall(framed(b"after"))
        assert many.recv() == Received(stays[0], Pdu(b"after")) and time.monotonic() < time_out
        stays[1].sendall((1 << 30).to_bytes(4, "big"))
        failed = many.recv()
        assert isinstance(failed.error, xts_socket.UlpError) and failed.error.fault == "too_long"
        for call in (many.recv, lambda: many.send(b"x"), lambda: many.send(b"x", "key")):
            with pytest.raises(OSError, match="no connection") as none:
                call()
            assert none.value.errno == errno.ENOTCONN
        for ours, _ in pairs:
            ours.close()


def test_waits_and_descriptor() -> None:
    with connected(2) as pairs, Multiplexer(*(ours for ours, _ in pairs), timeout=0.02) as many:
        with pytest.raises(TimeoutError):
            many.recv()
        many.settimeout(0)
        with pytest.raises(BlockingIOError):
            many.recv()
        with selectors.DefaultSelector() as selector:
            selector.register(many, selectors.EVENT_READ)
            with pytest.raises(BlockingIOError):  # a new descriptor may be readable for nothing, once
                many.recv()
            assert not selector.select(0)
            pairs[1][1].sendall(framed(b"one", b"two"))
            got = []
            while len(got) < 2:
                assert selector.select(DEADLINE_S)
                try:
                    while True:
                        got.append(many.recv())
                except BlockingIOError:
                    pass
            assert got == [Received(pairs[1][0], Pdu(b"one")), Received(pairs[1][0], Pdu(b"two"))]
        sent = Counter[xts_socket.socket]()
        many.settimeout(0.3)  # what goes on in buffers has ended when nothing moves for so long
        with pytest.raises(TimeoutError):
            while True:
                sent[many.send(bytes(30_000))] += 1
        many.settimeout(0)
        with pytest.raises(BlockingIOError):
            many.send(bytes(30_000), "key")
        many.settimeout(0.02)
        for key in (None, "key"):
            with pytest.raises(TimeoutError):
                many.send(bytes(30_000), key)
        many.settimeout(DEADLINE_S)
        reader = threading.Thread(target=receive, args=(pairs[0][1], sent[pairs[0][0]] * 30_004))
        reader.start()
        assert many.send(bytes(30_000)) is pairs[0][0]
        reader.join(DEADLINE_S)
        with pytest.raises(ValueError):
            many.settimeout(-1)


def test_a_pdu_longer_than_any_window() -> None:
    whole = os.urandom(6_000_000)
    with connected(2) as pairs, Multiplexer(*(ours for ours, _ in pairs), timeout=DEADLINE_S) as many:
        chosen = many.send(whole)
        other = many.send(b"does not wait")
        assert other is not chosen
        peers = dict(pairs)
        assert receive(peers[other], 17) == framed(b"does not wait")
        got: list[bytes] = []

        def answer() -> None:
            got.append(receive(peers[chosen], len(whole) + 4))
            peers[chosen].sendall(framed(b"thanks"))

        reader = threading.Thread(target=answer)
        reader.start()
        assert many.recv() == Received(chosen, Pdu(b"thanks")), "waiting for it sends the rest"
        reader.join(DEADLINE_S)
        assert got == [framed(whole)]


def test_what_cannot_be_attached() -> None:
    with connected(1) as pairs, Multiplexer(pairs[0][0]) as many:
        with xts_socket.socket() as stream:
            for refused, says in ((pairs[0][0], "already"), (stream, "SOCK_SEQPACKET")):
                with pytest.raises(ValueError, match=says):
                    many.attach(refused)
        with xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET) as unconnected:
            with pytest.raises(OSError) as failed:
                many.attach(unconnected)
            assert failed.value.errno == errno.ENOTCONN
            with pytest.raises(KeyError):
                many.detach(unconnected)
    assert pairs[0][0].number == -1, "closed with it"


# --- memcached ------------------------------------------------------------------------------------------

#: Its binary protocol: the header has 24 bytes and tells at 8 how long the rest is.
MEMCACHED = StreamParser(offset=8, width=4, adjustment=24, magic_offset=0, magic=b"\x81")
HEADER = struct.Struct("!BBHBBHIIQ")
GET, SET, STAT = 0x00, 0x01, 0x10
MISSING = 1


def request(opcode: int, opaque: int, key: bytes = b"", value: bytes = b"") -> bytes:
    extras = bytes(8) if opcode == SET else b""
    body = extras + key + value
    return HEADER.pack(0x80, opcode, len(key), len(extras), 0, 0, len(body), opaque, 0) + body


def answer(pdu: Pdu | None) -> tuple[int, int, bytes]:
    """(opaque, status, value)"""
    assert pdu is not None
    magic, _, key_bytes, extras_bytes, _, status, body_bytes, opaque, _ = HEADER.unpack_from(pdu.data)
    assert magic == 0x81 and len(pdu.data) == HEADER.size + body_bytes
    return opaque, status, pdu.data[HEADER.size + extras_bytes + key_bytes :]


@contextmanager
def memcached() -> Iterator[tuple[str, int]]:
    """A server of one's own; its address."""
    if shutil.which("memcached") is None:
        pytest.skip("memcached is not installed")
    with kernel.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    with subprocess.Popen(["memcached", "-u", "nobody", "-l", address[0], "-p", str(address[1]), "-U", "0"]) as server:
        try:
            deadline = time.monotonic() + DEADLINE_S
            while True:
                try:
                    kernel.create_connection(address, DEADLINE_S).close()
                    break
                except ConnectionRefusedError:
                    assert server.poll() is None and time.monotonic() < deadline
                    time.sleep(0.01)
            yield address
        finally:
            server.kill()  # it takes a second over anything else


def test_memcached_over_several_connections() -> None:
    with memcached() as address, Multiplexer(timeout=DEADLINE_S) as many:
        for _ in range(4):
            many.attach(xts_socket.create_connection(address, DEADLINE_S, push=[MEMCACHED]))
        values = {n: os.urandom(n * 997 % 60_000) for n in range(200)}
        used = Counter(many.send(request(SET, n, b"key %d" % n, value)) for n, value in values.items())
        assert len(used) == 4
        assert {answer(many.recv().pdu)[:2] for _ in values} == {(n, 0) for n in values}
        for n in values:
            many.send(request(GET, n, b"key %d" % n))
        got = dict((opaque, value) for opaque, status, value in (answer(many.recv().pdu) for _ in values) if not status)
        assert got == values


def test_the_example(xts_endpoint: ProxyProcess) -> None:
    example = Path(__file__).resolve().parents[3] / "host_lib" / "examples" / "memcached_many.py"
    with memcached() as one, memcached() as other:
        done = subprocess.run(
            [sys.executable, "-W", "error", str(example), *("{}:{}".format(*each) for each in (one, other))],
            env=os.environ | {"XTS_ENDPOINT": xts_endpoint.endpoint},
            capture_output=True,
            text=True,
            check=False,
            timeout=DEADLINE_S,
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert sorted(line.split(" from ")[0] for line in lines) == sorted(f"key {n} KEY {n}" for n in range(20))
        assert {line.rpartition(" ")[2] for line in lines} == {str(one[1]), str(other[1])}


def test_keys_find_the_memcached_that_has_them() -> None:
    with ExitStack() as servers, Multiplexer(timeout=DEADLINE_S) as many:
        for number in range(3):
            address = servers.enter_context(memcached())
            many.attach(xts_socket.create_connection(address, DEADLINE_S, push=[MEMCACHED]), f"cache {number}")
        keys = [b"key %d" % n for n in range(100)]
        used = Counter(many.send(request(SET, n, key, key), key) for n, key in enumerate(keys))
        assert len(used) == 3 and {answer(many.recv().pdu)[1] for _ in keys} == {0}
        for n, key in enumerate(keys):
            many.send(request(GET, n, key), key)
        assert sorted(answer(many.recv().pdu) for _ in keys) == [(n, 0, key) for n, key in enumerate(keys)]
        for n, key in enumerate(keys):
            many.send(request(GET, n, key), key + b" elsewhere")
        assert MISSING in {answer(many.recv().pdu)[1] for _ in keys}, "the key decides"
