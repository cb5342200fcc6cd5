"""Receive callbacks in Python, of datagrams and of PDUs: who is asked, when and where, and what packets are worth."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xts_socket
from xts_socket import LengthPrefixed, Packet, PacketVerdict, aio

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 10.0
SO_TIMESTAMPNS, IP_RECVTTL = 35, 12
DROP, RECV, HOLD = PacketVerdict


@pytest.fixture
def pair() -> Iterator[tuple[xts_socket.socket, socket.socket]]:
    """An offloaded datagram socket, and a peer of the kernel's that is connected to it."""
    with xts_socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s, socket.socket(type=socket.SOCK_DGRAM) as peer:
        s.settimeout(DEADLINE_S)
        s.bind(("127.0.0.1", 0))
        peer.connect(s.getsockname())
        yield s, peer


@pytest.fixture
def messages() -> Iterator[tuple[xts_socket.socket, Callable[[bytes], None]]]:
    """An offloaded message socket, and what its peer sends a PDU by."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with xts_socket.create_connection(address, DEADLINE_S, push=[LengthPrefixed()]) as ours:
            peer, _ = listener.accept()
            with peer:
                peer.settimeout(DEADLINE_S)
                yield ours, lambda data: peer.sendall(len(data).to_bytes(4, "big") + data)


def by_first_byte(packet: Packet) -> PacketVerdict:
    return {b"d": DROP, b"q": RECV}.get(bytes(packet.data[:1]), HOLD)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# --- datagrams --------------------------------------------------------------------------------------------------------


def test_each_verdict_does_what_it_says(pair: tuple[Any, socket.socket]) -> None:
    s, peer = pair
    kept: list[Packet] = []

    def look(packet: Packet) -> PacketVerdict:
        verdict = by_first_byte(packet)
        if verdict is HOLD:
            kept.append(packet)
        return verdict

    s.set_receive_callback(look)
    sent = [kind + b"x" * size for size in (0, 10, 5000, 60_000) for kind in (b"d", b"k", b"q")]
    for data in sent:
        peer.send(data)
        if data[:1] == b"q":
            assert s.recv(70_000) == data
    assert [packet.data for packet in kept] == [data for data in sent if data[:1] == b"k"]
    s.set_receive_callback(None)
    peer.send(b"dropped no more")
    assert s.recv(100) == b"dropped no more"


def test_what_a_callback_sees(pair: tuple[Any, socket.socket]) -> None:
    s, peer = pair
    s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    s.setsockopt(socket.IPPROTO_IP, IP_RECVTTL, 1)
    seen: list[Any] = []

    def look(packet: Packet) -> PacketVerdict:
        assert packet.data.readonly and packet.stamp_ns is not None
        kinds = sorted((level, kind) for level, kind, _ in packet.ancdata)
        seen.append((bytes(packet.data), packet.address, packet.segment_bytes, kinds, packet.stamp_ns))
        return RECV

    s.set_receive_callback(look)
    before = time.time_ns()
    peer.send(b"look")
    assert s.recvfrom(10) == (b"look", peer.getsockname())
    ((data, address, segment_bytes, kinds, stamp_ns),) = seen  # once, though recv() was called twice inside
    assert (data, address, segment_bytes) == (b"look", peer.getsockname(), 0)
    assert kinds == [(socket.IPPROTO_IP, socket.IP_TTL), (socket.SOL_SOCKET, SO_TIMESTAMPNS)]
    assert before <= stamp_ns <= time.time_ns()


def test_a_packet_ends_with_its_callback_unless_it_is_kept(pair: tuple[Any, socket.socket]) -> None:
    s, peer = pair
    seen: list[tuple[Packet, memoryview, memoryview]] = []

    def look(packet: Packet) -> PacketVerdict:
        seen.append((packet, packet.data, packet.data[1:]))
        return by_first_byte(packet)

    s.set_receive_callback(look)
    for data in (b"drop", b"keep", b"queue"):
        peer.send(data)
    assert s.recv(10) == b"queue"
    for packet, view, _ in (seen[0], seen[2]):
        assert packet.released
        for use in (lambda p=packet: p.data, lambda p=packet: p.address, lambda v=view: v[0], packet.__enter__):
            with pytest.raises(ValueError, match="released"):
                use()
    with seen[1][0] as packet:
        assert packet.data == b"keep" and "4 bytes" in repr(packet)
        export = memoryview(packet.data).cast("c")  # of the same buffer: no hindrance
        assert export[0] == b"k"
    assert packet.released and "released" in repr(packet)
    packet.release()
    del packet, view, export
    gc.collect()
    assert [bytes(part) for _, _, part in seen] == [b"rop", b"eep", b"ueue"]  # a slice keeps its memory


def test_what_is_kept_takes_credits(pair: tuple[Any, socket.socket]) -> None:
    s, peer = pair
    kept: list[Packet] = []
    s.set_receive_callback(lambda packet: kept.append(packet) or HOLD)  # type: ignore[func-returns-value]

    def fill() -> int:
        before = -1
        while before != len(kept):
            before = len(kept)
            for _ in range(20):
                peer.send(bytes(10_000))
            for _ in range(20):
                s.getsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST)  # a round trip
            s.run_receive_callback()
        return len(kept)

    assert 10 <= fill() <= 22  # of the window's 212,992 bytes
    for packet in kept:
        packet.release()
    kept.clear()
    assert 10 <= fill() <= 22
    kept.clear()  # the end of the objects is as good
    assert 10 <= fill() <= 22
    s.close()
    for packet in kept:
        packet.release()  # of a socket that is closed


def test_an_exception_is_reported_and_nothing_is_lost(
    pair: tuple[Any, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    s, peer = pair
    reported: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: reported.append((args.exc_type, args.object.callback)))

    def fails(packet: Packet) -> PacketVerdict:
        raise LookupError(packet)

    def says_nothing(_: Packet) -> Any:
        return None

    for callback, kind in ((fails, LookupError), (says_nothing, TypeError)):
        s.set_receive_callback(callback)
        peer.send(b"still here")
        assert s.recv(100) == b"still here" and reported.pop() == (kind, callback)

    def interrupted(_: Packet) -> PacketVerdict:
        raise KeyboardInterrupt

    s.set_receive_callback(interrupted)
    peer.send(b"and this")
    with pytest.raises(KeyboardInterrupt):
        s.recv(100)
    assert s.recv(100) == b"and this" and not reported


def test_a_callback_may_use_sockets_and_be_interrupted(pair: tuple[Any, socket.socket]) -> None:
    """No lock is held: it sends, makes, closes and collects sockets; a signal handler may do the same."""
    s, peer = pair
    handled: list[Any] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: handled.append(xts_socket.info().sockets))

    def look(packet: Packet) -> PacketVerdict:
        s.sendto(b"got " + bytes(packet.data), packet.address)
        with xts_socket.socket(type=socket.SOCK_DGRAM) as other:
            other.bind(("127.0.0.1", 0))
        signal.raise_signal(signal.SIGUSR1)
        with pytest.raises(OSError) as caught:
            s.recv(10)
        assert caught.value.errno == errno.EDEADLK
        return by_first_byte(packet)

    s.set_receive_callback(look)
    try:
        for data in (b"drop", b"queue"):
            peer.send(data)
        assert s.recv(10) == b"queue" and len(handled) == 2
        assert [peer.recv(20) for _ in range(2)] == [b"got drop", b"got queue"]
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("verdict", list(PacketVerdict))
def test_a_callback_may_close_its_socket_or_take_itself_away(verdict: PacketVerdict) -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as peer:
        s = xts_socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.settimeout(DEADLINE_S)
        s.bind(("127.0.0.1", 0))

        def once(_: Packet) -> PacketVerdict:
            s.set_receive_callback(None)
            return verdict

        s.set_receive_callback(once)
        for data in (b"first", b"second"):
            peer.sendto(data, s.getsockname())
        assert s.recv(10) == (b"first" if verdict is RECV else b"second")

        def closes(_: Packet) -> PacketVerdict:
            s.close()
            return verdict

        s.set_receive_callback(closes)
        peer.sendto(b"third", s.getsockname())
        with pytest.raises(OSError) as caught:
            while True:
                assert s.recv(10) == b"second"
        assert caught.value.errno == errno.EBADF


def test_what_is_dropped_does_not_make_a_call_longer(pair: tuple[Any, socket.socket]) -> None:
    s, peer = pair
    s.set_receive_callback(lambda _: DROP)
    s.settimeout(0.05)
    ended = threading.Event()

    def flood() -> None:
        while not ended.is_set():
            peer.send(b"unwanted")

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        with pytest.raises(TimeoutError):
            s.recv(10)
    finally:
        ended.set()
        thread.join()
    s.settimeout(0)
    with pytest.raises(BlockingIOError):
        s.recv(10)


def test_threads_get_each_datagram_once_and_in_order(pair: tuple[Any, socket.socket]) -> None:
    s, peer = pair
    asked: list[bytes] = []
    busy = threading.Lock()

    def look(packet: Packet) -> PacketVerdict:
        assert busy.acquire(blocking=False), "two at a time"
        time.sleep(0)  # lets others run
        asked.append(bytes(packet.data))
        busy.release()
        return DROP if packet.data[0] % 2 else RECV

    got: list[bytes] = []

    def receive() -> None:
        while (data := s.recv(10)) != b"\xfe":
            got.append(data)
        peer.send(b"\xfe")  # for the next thread

    s.set_receive_callback(look)
    threads = [threading.Thread(target=receive) for _ in range(4)]
    for thread in threads:
        thread.start()
    sent = [bytes([i % 250]) for i in range(500)]
    for at in range(0, len(sent), 20):
        for data in sent[at : at + 20]:
            peer.send(data)
        wait_for(lambda at=at: len(asked) == at + 20)  # type: ignore[misc]
    peer.send(b"\xfe")
    for thread in threads:
        thread.join(DEADLINE_S)
    assert asked[: len(sent)] == sent
    assert sorted(got) == sorted(data for data in sent if not data[0] % 2)


# --- without a receive call -------------------------------------------------------------------------------------------


def test_polling_asks(pair: tuple[Any, socket.socket]) -> None:
    s, peer = pair
    kept: list[Packet] = []
    s.set_receive_callback(lambda packet: kept.append(packet) or HOLD)  # type: ignore[func-returns-value]
    with xts_socket.epoll() as polled:
        polled.register(s, select.EPOLLIN)
        peer.send(b"one")
        while not kept:
            assert polled.poll(DEADLINE_S)
    peer.send(b"two")
    while len(kept) < 2:  # the same by the descriptor
        assert select.select([s], [], [], DEADLINE_S)[0]
        s.run_receive_callback()
    assert [packet.data for packet in kept] == [b"one", b"two"]
    s.setblocking(False)
    with pytest.raises(BlockingIOError):
        s.recv(10)


def test_event_loops_ask() -> None:
    class Protocol(asyncio.DatagramProtocol):
        def __init__(self) -> None:
            self.got: asyncio.Queue[bytes] = asyncio.Queue()

        def datagram_received(self, data: bytes, addr: Any) -> None:
            self.got.put_nowait(data)

    async def main(make: Callable[..., Any]) -> list[bytes]:
        s = xts_socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.setblocking(False)
        s.bind(("127.0.0.1", 0))
        s.set_receive_callback(by_first_byte)
        transport, protocol = await make(Protocol, sock=s)
        with socket.socket(type=socket.SOCK_DGRAM) as peer:
            for data in (b"drop", b"queue", b"keep", b"quit"):
                peer.sendto(data, s.getsockname())
            found = [await asyncio.wait_for(protocol.got.get(), DEADLINE_S) for _ in range(2)]
        transport.close()
        return found

    async def standard(*arguments: Any, **more: Any) -> Any:
        return await asyncio.get_running_loop().create_datagram_endpoint(*arguments, **more)

    assert asyncio.run(main(standard)) == [b"queue", b"quit"]
    with asyncio.Runner(loop_factory=aio.EventLoop) as runner:
        assert runner.run(main(aio.create_datagram_endpoint)) == [b"queue", b"quit"]


def test_others_of_the_same_socket_ask_too(pair: tuple[Any, socket.socket]) -> None:
    s, peer = pair
    s.set_receive_callback(by_first_byte)
    with s.dup() as other:
        for data in (b"drop", b"q1", b"drop", b"q2"):
            peer.send(data)
        assert other.recv(10) == b"q1"
        assert xts_socket.xts_recv(s.number, 10) == b"q2"
    peer.send(b"drop")
    peer.send(b"q3")
    assert s.recvmsg(10)[0] == b"q3"


# --- PDUs -------------------------------------------------------------------------------------------------------------


def test_pdus(messages: tuple[Any, Callable[[bytes], None]]) -> None:
    s, send = messages
    kept: list[Packet] = []

    def look(packet: Packet) -> PacketVerdict:
        assert packet.address == s.getpeername() and packet.stamp_ns is None
        verdict = by_first_byte(packet)
        if verdict is HOLD:
            kept.append(packet)
        return verdict

    s.set_receive_callback(look)
    sent = [kind + os.urandom(size) for size in (0, 10, 5000, 30_000) for kind in (b"d", b"k", b"q", b"d")]
    for data in (*sent, b"quit"):
        send(data)
    queued = [data for data in sent if data[:1] == b"q"]
    assert [s.recv_pdu().data for _ in range(5)] == [*queued, b"quit"]
    assert [packet.data for packet in kept] == [data for data in sent if data[:1] == b"k"]
    for data in (b"drop", b"queued"):
        send(data)
    assert [s.recv(2), s.recv(10)] == [b"qu", b"eued"]  # asked once about all of it
    s.set_receive_callback(None)
    send(b"drop no more")
    assert s.recv_pdu().data == b"drop no more"


def test_kept_pdus_take_credits_and_give_them_back(messages: tuple[Any, Callable[[bytes], None]]) -> None:
    """Many times the window goes through, kept and dropped by turns."""
    s, send = messages
    kept: list[Packet] = []
    seen = 0

    def look(packet: Packet) -> PacketVerdict:
        nonlocal seen
        seen += 1
        if packet.data == b"quit":
            return RECV
        if seen % 2:
            return DROP
        kept.append(packet)
        if len(kept) > 3:
            kept.pop(0).release()
        return HOLD

    s.set_receive_callback(look)

    def flow() -> None:
        for _ in range(1000):
            send(bytes(20_000))
        send(b"quit")

    thread = threading.Thread(target=flow)
    thread.start()
    assert s.recv_pdu().data == b"quit" and seen == 1001
    thread.join(DEADLINE_S)


def test_stream_sockets_have_none() -> None:
    with xts_socket.socket() as s:
        with pytest.raises(OSError) as caught:
            s.set_receive_callback(by_first_byte)
        assert caught.value.errno == errno.EOPNOTSUPP
        with pytest.raises(TypeError, match="callable"):
            s.set_receive_callback("no function")  # type: ignore[arg-type]


def test_the_example_program() -> None:
    example = Path(__file__).resolve().parents[3] / "host_lib" / "examples" / "receive_callback.py"
    with socket.socket(type=socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(example), str(port), "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "bound\n"
        with socket.socket(type=socket.SOCK_DGRAM) as client:
            for word in (b"no", b"urgent: now?", b"what?", b"never", b"where?"):
                client.sendto(word, ("127.0.0.1", port))
        said, _ = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0
    *lines, last = said.splitlines()
    assert sorted(lines) == ["kept: urgent: now?", "queued: what?", "queued: where?"] and last == "2 dropped"
