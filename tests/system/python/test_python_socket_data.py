"""The Python socket: sending and receiving, and its files. See test_python_socket.py."""

from __future__ import annotations

import array
import errno
import hashlib
import io
import random
import socket as kernel
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import xts_socket as socket
from beds.python_socket import DEADLINE_S, LARGE, Pair, data_of, fill, receive_all

pytestmark = pytest.mark.usefixtures("xts_endpoint")


# --- data ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview, lambda data: array.array("B", data)])
def test_anything_with_a_buffer_is_sent(pair: Pair, make: Callable[[bytes], Any]) -> None:
    data = data_of(1000)
    assert pair.offloaded.send(make(data)) == 1000
    pair.offloaded.sendall(make(data))
    assert pair.peer_receives(2000) == data * 2


def test_other_things_are_not_sent(pair: Pair) -> None:
    for wrong in ("text", 5, None, [b"x"]):
        with pytest.raises(TypeError):
            pair.offloaded.send(wrong)
        with pytest.raises(TypeError):
            pair.offloaded.sendall(wrong)
    with pytest.raises(TypeError):
        pair.offloaded.recv("1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="negative"):
        pair.offloaded.recv(-1)


def test_receiving_into_buffers(pair: Pair) -> None:
    pair.peer.sendall(b"0123456789")
    buffer = bytearray(b"." * 8)
    assert pair.offloaded.recv_into(memoryview(buffer)[2:], 3) == 3
    assert buffer == b"..012..."
    assert pair.offloaded.recv_into(buffer) == 7
    assert buffer == b"3456789."
    with pytest.raises(ValueError, match="too small"):
        pair.offloaded.recv_into(buffer, 9)
    with pytest.raises(TypeError):
        pair.offloaded.recv_into(b"read-only")
    pair.peer.sendall(b"abc")
    assert pair.offloaded.recvfrom(10) == (b"abc", None)
    pair.peer.sendall(b"def")
    assert pair.offloaded.recv(0) == b""
    assert pair.offloaded.recvfrom_into(buffer) == (3, None)


def test_an_error_does_not_hold_the_buffer(pair: Pair) -> None:
    pair.offloaded.setblocking(False)
    buffer = bytearray(10)
    with pytest.raises(BlockingIOError) as caught:
        pair.offloaded.recv_into(buffer)
    buffer.extend(b"grows")
    assert caught.value.errno == errno.EAGAIN
    fill(pair.offloaded)
    for call in (pair.offloaded.send, pair.offloaded.sendall, lambda data: pair.offloaded.sendmsg([data])):
        with pytest.raises(BlockingIOError) as caught:
            while True:
                call(buffer)
        buffer.extend(b"again")


def test_flags(pair: Pair) -> None:
    pair.peer.sendall(b"abcdef")
    assert pair.offloaded.recv(3, socket.MSG_PEEK) == b"abc"
    assert pair.offloaded.recv(6, socket.MSG_WAITALL) == b"abcdef"
    with pytest.raises(BlockingIOError):
        pair.offloaded.recv(1, socket.MSG_DONTWAIT)
    assert pair.offloaded.send(b"held, ", socket.MSG_MORE) == 6
    assert pair.offloaded.send(b"sent", socket.MSG_NOSIGNAL) == 4
    assert pair.peer_receives(10) == b"held, sent"
    assert pair.offloaded.sendto(b"address unused", ("127.0.0.1", 1)) == 14
    assert pair.peer_receives(14) == b"address unused"


def test_waitall_gathers_what_comes_in_pieces(pair: Pair, in_thread: Callable[..., threading.Thread]) -> None:
    data = data_of(300_000)

    def send_pieces() -> None:
        for at in range(0, len(data), 10_000):
            pair.peer.sendall(data[at : at + 10_000])

    in_thread(send_pieces)
    assert pair.offloaded.recv(len(data), socket.MSG_WAITALL) == data


def test_scatter_and_gather(pair: Pair) -> None:
    assert pair.offloaded.sendmsg([b"one ", bytearray(b"two "), memoryview(b"three")]) == 13
    assert pair.peer_receives(13) == b"one two three"
    assert pair.offloaded.sendmsg([]) == 0
    pair.peer.sendall(b"one two three")
    head, rest = bytearray(4), bytearray(20)
    got, ancillary, flags, _ = pair.offloaded.recvmsg_into([head, rest])
    assert (got, ancillary, flags) == (13, [], 0)
    assert head == b"one " and rest[:9] == b"two three"
    pair.peer.sendall(b"again")
    assert pair.offloaded.recvmsg(100, 64)[:3] == (b"again", [], 0)


@pytest.mark.parametrize("timeout", [None, DEADLINE_S], ids=["blocking", "timeout"])
def test_large_transfers_arrive_whole(
    pair: Pair, in_thread: Callable[..., threading.Thread], timeout: float | None
) -> None:
    pair.offloaded.settimeout(timeout)
    out, back = data_of(LARGE, 1), data_of(LARGE, 2)
    digests: dict[str, str] = {}

    def peer() -> None:
        def receive() -> None:
            digests["out"] = hashlib.sha256(receive_all(pair.peer)).hexdigest()

        receiving = threading.Thread(target=receive)
        receiving.start()
        pair.peer.sendall(back)
        pair.peer.shutdown(kernel.SHUT_WR)
        receiving.join()

    def send() -> None:
        pair.offloaded.sendall(out)
        pair.offloaded.shutdown(socket.SHUT_WR)

    threads = [in_thread(peer), in_thread(send)]
    digests["back"] = hashlib.sha256(receive_all(pair.offloaded)).hexdigest()
    for thread in threads:
        thread.join(60)
    assert digests == {"out": hashlib.sha256(out).hexdigest(), "back": hashlib.sha256(back).hexdigest()}


def test_receiving_in_every_size(pair: Pair, in_thread: Callable[..., threading.Thread]) -> None:
    data = data_of(4 << 20)
    in_thread(pair.peer.sendall, data)
    choose = random.Random(3)
    received = bytearray()
    while len(received) < len(data):
        size = choose.choice([1, 7, 1000, 65536, 262144, 262145, 1 << 20])
        if choose.random() < 0.5:
            received += pair.offloaded.recv(size)
        else:
            buffer = bytearray(size)
            received += buffer[: pair.offloaded.recv_into(buffer)]
    assert received == data


def test_sendfile(pair: Pair, tmp_path: Path, in_thread: Callable[..., threading.Thread]) -> None:
    data = data_of(3_000_000)
    path = tmp_path / "data"
    path.write_bytes(data)
    received: list[bytes] = []
    with path.open("rb") as file:
        receiving = in_thread(lambda: received.append(pair.peer_receives(len(data) + 1000)))
        assert pair.offloaded.sendfile(file) == len(data)
        assert file.tell() == len(data)
        assert pair.offloaded.sendfile(file, 500, 1000) == 1000
        assert file.tell() == 1500
        receiving.join(DEADLINE_S)
        assert received == [data + data[500:1500]]
        pair.offloaded.setblocking(False)
        with pytest.raises(ValueError, match="non-blocking"):
            pair.offloaded.sendfile(file)
    with path.open("r", encoding="latin-1") as text, pytest.raises(ValueError, match="binary"):
        pair.offloaded.sendfile(text)  # type: ignore[arg-type]


# --- files --------------------------------------------------------------------------------------------


def test_makefile_reads_and_writes_lines(pair: Pair) -> None:
    with pair.offloaded.makefile("rw", encoding="utf-8", newline="\n") as file:
        file.write("Grüße\nzweite\n")
        file.flush()
        assert pair.peer_receives(15) == "Grüße\nzweite\n".encode()
        pair.peer.sendall(b"Antwort\nnoch")
        pair.peer.shutdown(kernel.SHUT_WR)
        assert file.readlines() == ["Antwort\n", "noch"]
        assert file.mode == "rw"


def test_makefile_keeps_the_socket_open(pair: Pair) -> None:
    reader, writer = pair.offloaded.makefile("rb"), pair.offloaded.makefile("wb")
    pair.offloaded.close()
    assert pair.offloaded.number >= 0
    writer.write(b"buffered")
    writer.close()
    assert pair.peer_receives(8) == b"buffered"
    pair.peer.sendall(b"to the file")
    assert reader.read(11) == b"to the file"
    reader.close()
    assert pair.offloaded.number == -1
    assert pair.peer.recv(1) == b""


def test_makefile_kinds(pair: Pair) -> None:
    raw = pair.offloaded.makefile("rb", buffering=0)
    assert isinstance(raw, io.RawIOBase)
    pair.peer.sendall(b"raw")
    assert raw.read(10) == b"raw"
    raw.close()
    with pair.offloaded.makefile("rwb") as both:
        assert isinstance(both, io.BufferedRWPair)
    with pytest.raises(ValueError, match="invalid mode"):
        pair.offloaded.makefile("a")
    with pytest.raises(ValueError, match="unbuffered"):
        pair.offloaded.makefile("r", buffering=0)


def test_makefile_times_out_like_the_standard_one(pair: Pair) -> None:
    pair.offloaded.settimeout(0.05)
    with pair.offloaded.makefile("rb") as file:
        with pytest.raises(TimeoutError):
            file.read(1)
        with pytest.raises(OSError, match="timed out"):
            file.read(1)
