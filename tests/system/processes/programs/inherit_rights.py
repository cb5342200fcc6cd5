"""Who may use a socket: a process that has a descriptor of it, and nobody who knows a number."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from beds.calls import Calls, until
from beds.scripts import script
from beds.stranger import label_of, numbers_in, opened_by
from system.processes.programs.inherit_exec import ExecSocket
from system.processes.programs.inherit_passing import Way, at_an_end, take_passed
from system.processes.programs.inheriting import (
    PATIENCE_S,
    Child,
    Signal,
    accept,
    ask,
    listen,
    receive_exactly,
    refused,
    serve_names,
    workers,
)
from system.sockets.programs.library_scripts import recv, send

ENDPOINT = os.environ.get("XTS_ENDPOINT", "")
TCP_FASTOPEN_KEY = 33
CLONE_NEWUSER = 0x10000000
HALF_OF = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
SHARED_BYTES = 8192  # the slots of processes, and some entries


@script("inherit")
def an_accepted_connection_joins_nothing(c: Calls) -> None:
    """The kernel's half of a listener is its carrier, and the connections that it accepts inherit what is attached."""
    s, port = listen(c)
    with socket.create_server(("127.0.0.1", 0)) as half:
        carrier = c.call("pass", s, half.fileno())
        assert carrier >= 0
        client = socket.create_connection(half.getsockname())
        accepted, _ = half.accept()
        with client, accepted:
            label = label_of(accepted.fileno())
            assert len(label) > 100, "it is inherited"
            keys = accepted.getsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_KEY, 32)
            assert opened_by(ENDPOINT, numbers_in(label) + numbers_in(keys)) == []
            out = ExecSocket()
            assert c.call("take_passed", accepted.fileno(), True, ctypes.byref(out)) == 0
            # The listener itself does: the search would have found it.
            keys = socket.socket(fileno=os.dup(carrier)).getsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_KEY, 32)
            assert len(opened_by(ENDPOINT, numbers_in(keys))) == 1

    def serve(_: int) -> None:
        taken = take_passed(c, carrier)
        while True:
            connection = c.call("accept4", taken, None, None, 0)
            assert c.call("send", connection, b"worker", 6, 0) == 6
            assert c.call("close", connection) == 0

    with workers(c, s, 1, serve):
        assert c.call("close", s) == 0
        assert ask(port) == b"worker"


def names() -> set[str]:
    """Of Unix sockets, as every user can read them."""
    lines = Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]
    return {fields[7] for line in lines if len(fields := line.split(maxsplit=7)) == 8}


@script("inherit")
def a_passed_connection_has_no_name(c: Calls) -> None:
    """There is nothing that a stranger could bind, connect to or fill, whoever has it and while it is on its way."""
    way, has, leaves = Way(), Signal(), Signal()

    def body(s: int) -> None:
        assert send(c, s, b"x") == 1
        has.tell()
        leaves.wait()
        assert c.call("close", s) == 0

    child = at_an_end(c, way, body)
    s, peer = c.connected()
    before, ours = names(), {f"@{os.urandom(9).hex()}"}
    with socket.socket(socket.AF_UNIX) as named:
        named.bind(next(iter(ours)).replace("@", "\0"))
        carrier = c.call("pass", s, -1)
        assert ours <= names(), "they would be seen"
        assert not {name for name in names() - before - ours if "xts" in name}
        assert socket.socket(fileno=os.dup(carrier)).getsockname() == ""
        way.give(c, s)
        has.wait()
        assert c.call("close", s) == 0
        os.close(carrier)
        assert not {name for name in names() - before - ours if "xts" in name}
    leaves.tell()
    child.wait()
    assert receive_exactly(peer, 1) == b"x" and peer.recv(1) == b""


@script("inherit")
def without_proc_a_passed_connection_ends_no_earlier(c: Calls) -> None:
    """Processes then share a deed, and none of them can know that it is the last."""
    way, used, leaves = Way(), Signal(), Signal()
    with tempfile.TemporaryDirectory() as empty:

        def body() -> None:
            c.connected()  # attaches
            if os.geteuid():
                assert c.native.unshare(CLONE_NEWUSER) == 0
            os.chroot(empty)
            s = way.take(c)
            assert send(c, s, b"a") == 1
            used.tell()
            leaves.wait()
            assert send(c, s, b"b") == 1
            assert c.call("close", s) == 0

        child = Child(c, body)
        s, peer = c.connected()
        way.give(c, s)
        used.wait()
        assert send(c, s, b"A") == 1
        assert c.call("close", s) == 0
        leaves.tell()
        assert receive_exactly(peer, 3) == b"aAb"
        child.wait()


# --- keys ---------------------------------------------------------------------------------------------


def files_of(pid: int | str, name: str) -> list[Path]:
    """The memfds of a process with that name."""
    found = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            if str(entry.readlink()).startswith(f"/memfd:{name}"):
                found.append(entry)
    return found


def waits(signal: Signal) -> Callable[[], None]:
    def body() -> None:
        signal.wait()

    return body


class Reader:
    """Reads the files by which processes share sockets, in a process of its own that has nothing to do with them: who
    has such a file, and opens and closes it once more, gives up its locks on it. Made before any connection."""

    def __init__(self, c: Calls) -> None:
        self.here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.here.settimeout(PATIENCE_S)

        def read() -> None:
            self.here.close()
            while asked := there.recv(20):
                found = [number.to_bytes(8, "little") for number in self._numbers(int(asked))]
                there.send(b"".join(found) or b"none")

        self.child = Child(c, read)
        there.close()

    @staticmethod
    def _numbers(pid: int) -> set[int]:
        """All that a key could be (their first pages: tests have few connections)."""
        files = files_of(pid, "xts-relatives") + files_of(pid, "xts-deed")
        return {number for path in files for number in numbers_in(path.read_bytes()[:SHARED_BYTES])} - {0}

    def numbers(self, pid: int = 0) -> list[int]:
        self.here.send(b"%d" % (pid or os.getpid()))
        data = self.here.recv(1 << 17)
        return [] if data == b"none" else sorted(number for (number,) in struct.iter_unpack("<Q", data))

    def keys(self, pid: int = 0) -> list[int]:
        return opened_by(ENDPOINT, self.numbers(pid))


def occurrences(pid: int, number: int) -> int:
    """How often the number is in the memory of a process, where it is writable."""
    found = 0
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            place, rights = line.split()[:2]
            start, end = (int(part, 16) for part in place.split("-"))
            if rights.startswith("rw"):
                with suppress(OSError, OverflowError):  # memory of a device
                    memory.seek(start)
                    found += memory.read(end - start).count(number.to_bytes(8, "little"))
    return found


@script("inherit")
def a_child_that_has_closed_everything_has_no_key(c: Calls) -> None:
    """It was privileged, and gives that up: what is found in it later opens nothing."""
    reader = Reader(c)
    s, peer = c.connected()
    begun, closes, closed, ends = (Signal() for _ in range(4))

    def body() -> None:
        begun.tell()
        closes.wait()
        assert c.call("close", s) == 0
        closed.tell()
        ends.wait()

    other_ends = Signal()
    other, child = Child(c, waits(other_ends)), Child(c, body)
    begun.wait()
    (key,) = reader.keys()
    assert key in reader.keys(child.pid) and occurrences(child.pid, key)
    closes.tell()
    closed.wait()
    assert not occurrences(child.pid, key)
    assert not reader.numbers(child.pid)
    assert not any(name in Path(f"/proc/{child.pid}/maps").read_text() for name in ("xts-relatives", "xts-deed"))
    until(lambda: not opened_by(ENDPOINT, [key]))
    assert len(reader.keys()) == 1, "it has another one"
    ends.tell()
    child.wait()
    other_ends.tell()
    other.wait()
    assert send(c, s, b"x") == 1 and peer.recv(1) == b"x"


@script("inherit")
def a_key_from_before_opens_nothing_when_a_process_has_left(c: Calls) -> None:
    """Those that still have the connection go on by turns, whether they have used it before or not."""
    reader = Reader(c)
    s, peer = c.connected()
    leaves, left, turn, done = (Signal() for _ in range(4))

    def leaver() -> None:
        leaves.wait()
        assert c.call("close", s) == 0
        left.tell()
        leaves.wait()

    def user() -> None:
        turn.wait()
        assert send(c, s, b"child") == 5
        done.tell()
        turn.wait()
        assert send(c, s, b"again") == 5

    user_child, leaving = Child(c, user), Child(c, leaver)
    (before,) = reader.keys()
    leaves.tell()
    left.wait()
    until(lambda: not opened_by(ENDPOINT, [before]))
    turn.tell()
    done.wait()
    assert send(c, s, b"parent") == 6
    turn.tell()
    user_child.wait()
    leaves.tell()
    leaving.wait()
    assert receive_exactly(peer, 16) == b"childparentagain"
    assert c.call("close", s) == 0
    assert peer.recv(1) == b""


@script("inherit")
def a_process_that_was_passed_a_connection_leaves(c: Calls) -> None:
    """The key is another one then, also for the process that it goes to next."""
    reader = Reader(c)
    first, second, begun, leaves, left = Way(), Way(), Signal(), Signal(), Signal()

    def leaver(s: int) -> None:
        assert send(c, s, b"x") == 1
        begun.tell()
        leaves.wait()
        assert c.call("close", s) == 0
        left.tell()
        leaves.wait()

    def user(s: int) -> None:
        assert send(c, s, b"y") == 1
        assert c.call("close", s) == 0

    leaving, using = at_an_end(c, first, leaver), at_an_end(c, second, user)
    s, peer = c.connected()
    first.give(c, s)
    begun.wait()
    carrier = c.call("pass", s, -1)
    before = reader.keys(leaving.pid)
    assert len(before) == 1
    leaves.tell()
    left.wait()
    assert send(c, s, b"z") == 1  # it had the connection last, and keeps it until another one needs it
    until(lambda: not reader.numbers(leaving.pid))
    until(lambda: not opened_by(ENDPOINT, before))
    socket.send_fds(second.here, [b"x"], [carrier])  # it was made before the key was renewed
    os.close(carrier)
    using.wait()
    assert receive_exactly(peer, 3) == b"xzy"
    leaves.tell()
    leaving.wait()
    assert c.call("close", s) == 0
    assert peer.recv(1) == b""


@script("inherit")
def what_a_child_never_had_it_cannot_end(c: Calls) -> None:
    """Whatever it writes into the files that it shares with its parent."""
    first, first_peer = c.connected()
    garbles, garbled, ends = Signal(), Signal(), Signal()

    def hostile() -> None:
        garbles.wait()
        for path in files_of("self", "xts-relatives"):
            size = path.stat().st_size
            for fill in (b"\0", b"\xff"):
                with path.open("r+b") as file:
                    for at in range(0, size, 1 << 16):
                        file.seek(at)
                        file.write(fill * min(1 << 16, size - at))
            garbled.tell()
        ends.wait()

    child = Child(c, hostile)
    second, second_peer = c.connected()
    other = Child(c, waits(ends))
    garbles.tell()
    garbled.wait()
    time.sleep(0.3)  # three looks at who has what
    assert send(c, second, b"x") == 1 and second_peer.recv(1) == b"x"
    ends.tell(b"xx")
    child.wait()
    other.wait()
    second_peer.sendall(b"y")
    assert recv(c, second, 1) == b"y"
    assert c.call("close", second) == 0 and second_peer.recv(1) == b""
    assert first >= 0 and first_peer


def keys_of_listener(reader: Reader, c: Calls, s: int, pid: int = 0) -> list[int]:
    """Also those that a carrier shows."""
    carrier = c.call("pass", s, -1)
    assert carrier >= 0
    shown = numbers_in(label_of(carrier))
    os.close(carrier)
    return opened_by(ENDPOINT, sorted({*reader.numbers(pid), *shown}))


def key_of_listener(reader: Reader, c: Calls, s: int) -> int:
    """While it is being renewed, the old one opens nothing any more and the new one is not known yet."""
    found: list[int] = []

    def there_is_one() -> bool:
        found[:] = keys_of_listener(reader, c, s)
        return len(found) == 1

    until(there_is_one)
    return found[0]


@script("inherit")
def a_child_that_has_closed_a_listener_cannot_join_it(c: Calls) -> None:
    """What it knew of it is good for nothing then; the parent and another child, which joins later, go on."""
    reader = Reader(c)
    s, port = listen(c)
    begun, closes, closed, ends, joins = (Signal() for _ in range(5))

    def leaver() -> None:
        begun.tell()
        closes.wait()
        assert c.call("close", s) == 0
        closed.tell()
        ends.wait()

    def later() -> None:
        joins.wait()
        serve_names(c, s, b"later", 1)

    other, child = Child(c, later), Child(c, leaver)
    begun.wait()
    key = key_of_listener(reader, c, s)
    assert key in reader.numbers(child.pid) and occurrences(child.pid, key)
    closes.tell()
    closed.wait()
    assert not occurrences(child.pid, key) and not reader.numbers(child.pid)
    until(lambda: not opened_by(ENDPOINT, [key]))
    joins.tell()
    assert ask(port) == b"later"
    other.wait()
    ends.tell()
    child.wait()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        connection = accept(c, s)
        assert send(c, connection, b"x") == 1 and client.recv(1) == b"x"
    assert c.call("close", s) == 0
    until(lambda: refused(port))


@script("inherit")
def a_listener_on_its_way_while_its_key_is_renewed(c: Calls) -> None:
    """It is received with the new key, whether the carrier is the kernel's half of it or not."""
    reader, way = Reader(c), Way()
    s, port = listen(c)
    closes, closed, leaves, gives = Signal(), Signal(), Signal(), Signal()

    def leaver() -> None:
        closes.wait()
        assert c.call("close", s) == 0
        closed.tell()
        leaves.wait()

    def receiver() -> None:
        gives.wait()
        serve_names(c, way.take(c), b"got it", 1)

    receiving = Child(c, receiver)
    with socket.create_server(("127.0.0.1", 0)) as half:
        find = HALF_OF(lambda number: half.fileno() if number == s else -1)
        c.native.xts_on_halves(find)
        for kernel_fd in (-1, half.fileno()):
            leaving = Child(c, leaver)
            carrier = c.call("pass", s, kernel_fd)
            key = key_of_listener(reader, c, s)
            closes.tell()
            closed.wait()
            until(lambda key=key: not opened_by(ENDPOINT, [key]))  # type: ignore[misc]
            leaves.tell()
            leaving.wait()
            if kernel_fd >= 0:
                receiving = Child(c, receiver)
            socket.send_fds(way.here, [b"x"], [carrier])
            os.close(carrier)
            gives.tell()
            assert ask(port) == b"got it"
            receiving.wait()
    assert c.call("close", s) == 0
    until(lambda: refused(port))
