"""Calls to the workers' process: one deadline for the whole exchange, and no memory on its word."""

from __future__ import annotations

import errno
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from beds.few_descriptors import few_descriptors
from beds.ready import writable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from xts_proxy.workers import worker_methods
from xts_proxy.workers.calling import Answer, Caller, Message, serve

HEAD = struct.Struct("=QI")
BYTES_MAX = {"echo": 1 << 20, "short": 100, "fail": 100, "descriptor": 100}
SOON_S = 0.3


def answer_to(number: int, result: Any) -> bytes:
    body = msgspec.msgpack.encode(Answer(0, "", result))
    return HEAD.pack(number, len(body)) + body


@pytest.fixture
def pair() -> Iterator[tuple[Caller, socket.socket]]:
    """A caller, and the socket of the process that it calls."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Caller(ours, BYTES_MAX), theirs


def late(caller: Caller, *arguments: Any, method: str = "echo", patience_s: float = SOON_S) -> float:
    """How long a call takes that is not answered."""
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        caller.call(method, *arguments, patience_s=patience_s)
    return time.monotonic() - began


@pytest.mark.parametrize("bytes_sent", [0, 1, 11, 12, 13, 16])
def test_half_an_answer_does_not_block(pair: tuple[Caller, socket.socket], bytes_sent: int) -> None:
    caller, process = pair
    whole = answer_to(1, "there")
    process.sendall(whole[:bytes_sent])
    assert SOON_S <= late(caller) < SOON_S + 2
    assert caller.silent_since
    assert late(caller) < SOON_S  # at once: the answer to the first call is still missing
    process.sendall(whole[bytes_sent:] + answer_to(2, "again"))
    assert caller.call("echo") == ("again", [])  # the late one was skipped
    assert not caller.silent_since


def test_a_call_that_the_process_does_not_read(pair: tuple[Caller, socket.socket]) -> None:
    caller, process = pair
    large = b"x" * (8 << 20)
    assert SOON_S <= late(caller, large) < SOON_S + 2
    assert late(caller, large) < SOON_S
    served = threading.Thread(target=serve, args=(process, {"echo": lambda _, data: (len(data), [])}.get))
    served.start()
    try:
        while True:  # until all of the first call has gone and its answer come
            try:
                result, _ = caller.call("echo", b"abc", patience_s=5)
                break
            except TimeoutError:
                writable(caller._sock, 1)
        assert result == 3
    finally:
        caller._sock.close()
        served.join(10)


def peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_a_length_is_not_believed(pair: tuple[Caller, socket.socket]) -> None:
    """What a header announces takes no memory until it comes."""
    caller, process = pair
    before = peak_kib()
    caller._bytes_max = {"echo": 900 << 20}
    process.sendall(HEAD.pack(1, 800 << 20) + b"x")
    late(caller)
    assert peak_kib() - before < 100 << 10


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (HEAD.pack(1, 101) + b"x" * 101, "101 bytes, of which 100"),
        (HEAD.pack(1, 1), "broke off"),
        (answer_to(7, None), "call 7, not 1"),
        (HEAD.pack(1, 3) + b"\xc1\xc1\xc1", "malformed"),
        (HEAD.pack(1, 1) + b"\x05", "Expected"),
    ],
)
def test_a_process_that_breaks_a_rule_is_not_asked_again(
    pair: tuple[Caller, socket.socket], sent: bytes, why: str
) -> None:
    caller, process = pair
    process.sendall(sent)
    process.shutdown(socket.SHUT_WR)
    for _ in range(2):
        with pytest.raises(OSError, match=why) as caught:
            caller.call("short", patience_s=5)
        assert caught.value.errno == errno.EPIPE
    assert caller.broken


def test_the_end_of_the_process(pair: tuple[Caller, socket.socket]) -> None:
    caller, process = pair
    process.close()
    with pytest.raises(BrokenPipeError):
        caller.call("echo")


def served(run: Callable[[Caller], Any]) -> Any:
    """Runs it against a process (here: a thread) that answers."""

    def fail(_: list[int]) -> Any:
        raise OSError(errno.ENOSPC, "nothing left")

    def descriptor(came: list[int]) -> Any:
        number = os.fstat(came[0]).st_ino
        try:
            return number, came
        finally:
            closing.extend(came)

    closing: list[int] = []
    methods = {"echo": lambda _, data: (data, []), "fail": fail, "descriptor": descriptor}
    ours, theirs = socket.socketpair()
    with theirs:
        thread = threading.Thread(target=serve, args=(theirs, methods.__getitem__))
        thread.start()
        try:
            with ours:
                return run(Caller(ours, BYTES_MAX))
        finally:
            thread.join(10)
            for fd in closing:
                os.close(fd)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(max_size=5000) | st.integers(0, 1 << 40) | st.text(max_size=50), max_size=5))
def test_calls_are_answered_in_order(values: list[Any]) -> None:
    assert served(lambda caller: [caller.call("echo", value)[0] for value in values]) == values


def test_errors_and_descriptors() -> None:
    def run(caller: Caller) -> None:
        with pytest.raises(OSError, match="nothing left") as caught:
            caller.call("fail")
        assert caught.value.errno == errno.ENOSPC
        with Path(os.devnull).open("rb") as file:
            inode, came = caller.call("descriptor", descriptors=[file.fileno()])
            assert inode == os.fstat(file.fileno()).st_ino == os.fstat(came[0]).st_ino
            os.close(came[0])

    served(run)


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=300), st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_a_message_in_any_pieces(body: bytes, sizes: list[int]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        message = Message(len(body))
        left = memoryview(HEAD.pack(5, len(body)) + body + b"next")
        whole = False
        while not whole:
            for size in sizes:
                theirs.sendall(left[:size])
                left = left[size:]
                try:
                    whole = message.receive(ours)
                    break
                except BlockingIOError:
                    pass
        assert (message.number, bytes(message.body)) == (5, body)


def test_every_method_declares_how_long_its_answer_may_be() -> None:
    methods = {name.removeprefix("on_") for name in dir(worker_methods.Methods) if name.startswith("on_")}
    assert methods == set(worker_methods.ANSWER_BYTES_MAX)


def test_descriptors_that_do_not_go_in(pair: tuple[Caller, socket.socket]) -> None:
    """The call fails, in either direction, nothing stays open, and the next one is as ever."""
    caller, process = pair
    served = threading.Thread(target=serve, args=(process, {"descriptor": lambda came: (len(came), [0])}.get))
    message = Message(100)
    sender, receiver = socket.socketpair()
    with sender, receiver:
        socket.send_fds(sender, [HEAD.pack(1, 0)], [0, 1])
        before = len(list(Path("/proc/self/fd").iterdir()))
        with few_descriptors(os.getpid(), 1):
            assert message.receive(receiver)
        with pytest.raises(OSError, match="Too many open files"):
            message.check()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
    served.start()
    try:
        for _ in range(2):
            with few_descriptors(os.getpid(), 0), pytest.raises(OSError, match="Too many open files") as refused:
                caller.call("descriptor")
            assert refused.value.errno == errno.EMFILE and not caller.broken
        result, came = caller.call("descriptor")
        assert result == 0 and len(came) == 1
        os.close(came[0])
    finally:
        caller._sock.close()
        served.join(10)
