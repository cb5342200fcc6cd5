"""Requests to the process with the private keys (dpu_proxy/native/keys/key_client.c): a process that is slow loses
nothing and nobody, and no answer goes to another request. The test is that process."""

from __future__ import annotations

import ctypes
import errno
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.native_core import PROXY_INCLUDES, TOP, compiler
from beds.ready import any_readable

NATIVE = TOP / "dpu_proxy" / "native"
REQUEST, ANSWER = struct.Struct("=III16sII"), struct.Struct("=Ii")  # struct key_request, key_answer
SIGN, FORGET = 4, 6
DEADLINE_S = 20
ASK_AGAIN_S = 0.2


class Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("late", "late_now", "unanswered")]


@dataclass(frozen=True)
class Asked:
    """A request as it came, and where."""

    sock: socket.socket
    sequence: int
    operation: int
    data: bytes

    def answer(self, data: bytes, sequence: int | None = None) -> None:
        self.sock.send(ANSWER.pack(self.sequence if sequence is None else sequence, 0) + data)


def take(sock: socket.socket) -> Asked:
    message = sock.recv(1 << 17)
    sequence, operation, *_ = REQUEST.unpack_from(message)
    return Asked(sock, sequence, operation, message[REQUEST.size :])


class Caller:
    """A thread that asks for something, as one of the handshake pool does."""

    def __init__(self, library: ctypes.CDLL, data: bytes, *, background: bool = True) -> None:
        self.result = 0
        self.answer = b""
        self._library, self._data, self._background = library, data, background
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        if self._background:
            self._library.key_in_background()
        out = ctypes.create_string_buffer(100)
        request = REQUEST.pack(0, SIGN, 7, b"", 0, 0)
        self.result = self._library.key_ask(request, self._data, len(self._data), out, len(out))
        self.answer = out.raw[: max(self.result, 0)]

    def done(self) -> bytes:
        """Its answer."""
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), "it waits"
        return self.answer


@dataclass
class Process:
    """The key process, its ends: one that is urgent, and one in the background."""

    library: ctypes.CDLL
    urgent: socket.socket
    background: socket.socket

    def counts(self) -> Counts:
        counts: Counts = self.library.key_counts()
        return counts

    def ask(self, data: bytes, **how: bool) -> Caller:
        return Caller(self.library, data, **how)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """With a library of its own, whose state is fresh."""
    if shutil.which(compiler()) is None:
        pytest.skip("no C compiler is installed")
    (tmp_path / "provider.c").write_text("int key_provider_load(void);\nint key_provider_load(void) { return 0; }\n")
    built = tmp_path / "keys.so"
    sources = [tmp_path / "provider.c", NATIVE / "keys" / "key_client.c"]
    command = [compiler(), "-shared", "-fPIC", "-O1", "-g", "-D_GNU_SOURCE", *PROXY_INCLUDES, "-o", built, *sources]
    subprocess.run([*command, "-lcrypto", "-lpthread"], check=True)
    library = ctypes.CDLL(str(built))
    library.key_ask.restype = ctypes.c_ssize_t
    library.key_ask.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
    library.key_counts.restype = Counts
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    with ExitStack() as stack:
        for _, its in pairs:
            its.settimeout(DEADLINE_S)
            stack.enter_context(its)
        numbers = (ctypes.c_int * 2)(*(ours.detach() for ours, _ in pairs))
        assert library.xts_keys_connect(numbers, 2) == 0
        yield Process(library, *(its for _, its in pairs))


def wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_each_gets_its_answer(process: Process) -> None:
    for urgent in (False, True):
        caller = process.ask(b"digest", background=not urgent)
        asked = take(process.urgent if urgent else process.background)
        assert asked.operation == SIGN and asked.data == b"digest"
        asked.answer(b"signature")
        assert caller.done() == b"signature"


def test_a_late_answer_is_nobody_elses(process: Process) -> None:
    """The background has no time: the request is made again over the urgent connection. What the background says of it
    at last comes over the connection of the next request, before its own answer."""
    first = process.ask(b"first")
    starved = take(process.background)
    again = take(process.urgent)
    assert again.data == starved.data == b"first" and again.sequence != starved.sequence
    again.answer(b"of the first")
    assert first.done() == b"of the first"
    second = process.ask(b"second")
    asked = take(process.background)
    starved.answer(b"of the first, late")
    asked.answer(b"of the second")
    assert second.done() == b"of the second"
    third = process.ask(b"third", background=False)
    asked = take(process.urgent)
    asked.answer(b"of nobody", sequence=asked.sequence - 1)
    asked.sock.send(b"short")
    asked.answer(b"of the third")
    assert third.done() == b"of the third"


def test_nothing_is_given_up_because_it_is_slow(process: Process) -> None:
    """Late ones are counted, while they wait and afterwards. All connections are in use again when all is over."""
    callers = [process.ask(b"%d" % i) for i in range(4)]
    wait(lambda: process.counts().late == 4)
    assert process.counts().late_now == 4 and process.counts().unanswered == 0
    process.urgent.setblocking(False)
    held = [process.background]
    answered = 0
    while answered < 4:  # whoever has waited for long enough asks over the urgent one, one after the other
        try:
            asked = take(process.urgent)
        except BlockingIOError:
            time.sleep(0.01)
            continue
        asked.answer(b"of " + asked.data)
        answered += 1
    assert [caller.done() for caller in callers] == [b"of %d" % i for i in range(4)]
    assert process.counts().late_now == 0 and process.counts().late == 4
    process.urgent.settimeout(DEADLINE_S)
    last = process.ask(b"last")
    while (asked := take(held[0])).data != b"last":
        asked.answer(b"late")
    asked.answer(b"of the last")
    assert last.done() == b"of the last"


def another(stack: ExitStack, process: Process) -> Process:
    """It has ended, and this one takes its place."""
    process.background.close()
    process.urgent.close()
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    for _, its in pairs:
        its.settimeout(DEADLINE_S)
        stack.enter_context(its)
    numbers = (ctypes.c_int * 2)(*(ours.detach() for ours, _ in pairs))
    assert process.library.xts_keys_renew(numbers, 2) == 0
    return Process(process.library, *(its for _, its in pairs))


def answered(process: Process, count: int) -> list[bytes]:
    """What so many requests have asked for, over both connections."""
    found: list[bytes] = []
    while len(found) < count:
        both = (process.urgent, process.background)
        ready = any_readable(both, DEADLINE_S)
        for sock in (one for one in both if one.fileno() in ready):
            asked = take(sock)
            asked.answer(b"of " + asked.data)
            found.append(asked.data)
    return found


def test_another_process_answers_what_one_has_not(process: Process) -> None:
    """Requests that it had, and those that came when it was gone. The numbers of descriptors stay."""
    with ExitStack() as stack:
        before = len(list(Path("/proc/self/fd").iterdir()))
        callers = [process.ask(b"a"), process.ask(b"b", background=False)]
        take(process.background)
        take(process.urgent)
        process.background.close()
        process.urgent.close()
        callers += [process.ask(b"c"), process.ask(b"d", background=False)]
        following = another(stack, process)
        assert set(answered(following, 4)) == {b"a", b"b", b"c", b"d"}
        assert [caller.done() for caller in callers] == [b"of a", b"of b", b"of c", b"of d"]
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        for urgent in (False, True):  # both are in use again
            caller = following.ask(b"e", background=not urgent)
            take(following.urgent if urgent else following.background).answer(b"of e")
            assert caller.done() == b"of e"
        assert following.counts().unanswered == 0


def test_what_has_ended_two_processes_is_not_asked_of_a_third(process: Process) -> None:
    with ExitStack() as stack:
        caller = process.ask(b"a", background=False)
        take(process.urgent)
        second = another(stack, process)
        take(second.urgent)
        second.background.close()
        second.urgent.close()
        caller.done()
        assert caller.result == -errno.EPIPE
        assert second.counts().unanswered == 1
        third = another(stack, second)
        caller = third.ask(b"b", background=False)
        assert answered(third, 1) == [b"b"]
        assert caller.done() == b"of b"


def test_who_waits_can_be_told_to_give_up(process: Process) -> None:
    """The pool ends, or begins again. The connection is as before."""
    caller = process.ask(b"a", background=False)
    asked = take(process.urgent)
    process.library.key_end_waits(True)
    caller.done()
    assert caller.result == -errno.ECANCELED
    process.library.key_end_waits(False)
    asked.answer(b"of a")
    caller = process.ask(b"b", background=False)
    take(process.urgent).answer(b"of b")
    assert caller.done() == b"of b"


def test_forgetting_keys_never_waits(process: Process) -> None:
    """Not for a process that is stopped either. Nothing is lost by that: what finds no room goes with the next."""
    for number in range(1, 1001):
        process.library.key_forget(number)
        process.library.key_send_forgotten()
    process.urgent.setblocking(False)
    forgotten: list[int] = []

    def collect() -> None:
        while True:
            try:
                asked = take(process.urgent)
            except BlockingIOError:
                return
            assert asked.operation == FORGET
            forgotten.extend(struct.unpack(f"={len(asked.data) // 4}I", asked.data))

    collect()
    assert 0 < len(forgotten) < 1000
    process.library.key_send_forgotten()
    collect()
    assert forgotten == list(range(1, 1001))
