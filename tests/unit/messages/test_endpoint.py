"""Attaching: the client of attach.c against the server of endpoint.py, over shared memory."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from unit.messages.test_relatives_files import File as RelativesFile
from xts_messages._native import ffi, lib
from xts_messages.attaching import endpoint, endpoint_listener
from xts_messages.attaching.attach import attach, list_attachments, list_queues
from xts_messages.attaching.attach_messages import RELATIVES, RELATIVES_OVER
from xts_messages.attaching.attachments import Attached, Grant, NotReady, Peer, Queues
from xts_messages.attaching.endpoint import Endpoint
from xts_messages.attaching.status_page import read_status_page
from xts_messages.queues.queue import Queue
from xts_messages.queues.queue_kinds import PROXY
from xts_messages.queues.shm import create_shm


class Server:
    """An endpoint in a thread that grants shared memory."""

    def __init__(self, path: str, **options: Any) -> None:
        self.queues: list[Queue] = []
        self.released: list[Attached] = []
        self.attached: list[Attached] = []
        self.not_ready = False
        self.error: OSError | None = None
        self.spoil: Callable[[Any], None] = lambda reply: None
        self.extra_fd = False
        self.stop = False
        self.keep_queues = True
        self.endpoint = Endpoint(path, self.allocate, self.attached.append, self.released.append, **options)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.stop:
            self.endpoint.process(0.01)
            if not self.not_ready:
                self.endpoint.retry()

    def allocate(self, peer: Peer, epoch: int) -> Grant:
        if self.error:
            raise self.error
        if self.not_ready:
            raise NotReady
        area = create_shm(min(peer.frame_window_max or 16, 16))
        if self.keep_queues:
            self.queues.append(area.open(PROXY))
        os.close(area.proxy_bell)
        area.geometry.queue_id = len(self.queues)
        self.spoil(area.geometry)
        extra = (os.dup(area.memfd),) if self.extra_fd else ()
        return Grant(area.geometry, (area.memfd, area.host_bell, *extra), tag=self.queues[-1] if self.queues else None)

    def close(self) -> None:
        self.stop = True
        self.thread.join()
        self.endpoint.close()
        for end in self.queues:
            end.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    served = Server(str(tmp_path / "endpoint.sock"))
    yield served
    served.close()


def until(condition: Callable[[], object], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def count_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_frame_crosses_after_attaching(server: Server) -> None:
    with attach(str(server.endpoint.path), program="tester") as attachment:
        assert attachment.epoch
        attachment.queue.send(b"h" * 60)
        assert bytes(server.queues[0].wait(1000)) == b"h" * 60
        server.queues[0].send(b"p" * 61_440)
        assert bytes(attachment.queue.wait(1000)) == b"p" * 61_440
        until(lambda: server.attached)
        assert server.attached[0].peer.program == "tester"
        assert (server.attached[0].peer.pid, server.attached[0].peer.uid) == (os.getpid(), os.getuid())
        assert server.attached[0].epoch == attachment.epoch
        assert server.released == []
    until(lambda: server.released)
    with pytest.raises(BrokenPipeError):
        server.queues[0].wait(1000)


def test_no_descriptor_is_left_behind(server: Server) -> None:
    with attach(str(server.endpoint.path)):
        pass
    until(lambda: len(server.released) == 1)
    server.queues[0].close()
    before = count_descriptors()
    with attach(str(server.endpoint.path)) as attachment:
        assert not os.get_inheritable(attachment.fileno())
        assert not os.get_inheritable(attachment.queue.fileno())
    until(lambda: len(server.released) == 2)
    server.queues[1].close()
    assert count_descriptors() == before


@pytest.mark.parametrize("told_by", [RELATIVES, RELATIVES_OVER])
def test_files_of_relatives_come_by_one_word(server: Server, told_by: bytes) -> None:
    """An older library sends them to an agent by another one: its proxy may be older, too."""
    server.endpoint._wants_relatives, server.endpoint._told_by = True, told_by
    other = RELATIVES if told_by == RELATIVES_OVER else RELATIVES_OVER
    with attach(str(server.endpoint.path)) as attachment, socket.socket(fileno=os.dup(attachment.fileno())) as says:
        for word in (other, told_by, other):
            file = RelativesFile()
            file.slot(0)
            file.entry(0, 0)
            socket.send_fds(says, [word], [file.fd])
            os.close(file.fd)
        until(lambda: server.endpoint._relatives.count)
        with attach(str(server.endpoint.path)):  # all has been read by then
            assert server.endpoint._relatives.count == 1


def test_the_window_asked_for_is_the_most(server: Server) -> None:
    with attach(str(server.endpoint.path), frame_window_max=4) as attachment:
        assert attachment.queue.frame_window == 4


def test_no_server(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        attach(str(tmp_path / "nothing.sock"))
    stale = tmp_path / "stale.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(stale))
    with pytest.raises(ConnectionRefusedError):
        attach(str(stale))


def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "mute.sock"))
        listener.listen()
        begin = time.monotonic()
        with pytest.raises(TimeoutError):
            attach(str(tmp_path / "mute.sock"), timeout_ms=50)
        assert 0.04 < time.monotonic() - begin < 2


ATTACHES = """
import os
from xts_messages.attaching.attach import attach
os.environ.clear()
try:
    with attach() as attachment:
        print(attachment.queue.kind)
except OSError as error:
    print(error.errno)
"""


def test_environment_of_the_start(server: Server) -> None:
    path = str(server.endpoint.path)
    for settings, outcome in (
        ({"XTS_ENDPOINT": path}, "shm"),
        ({"XTS_ENDPOINT": "/nonexistent", "XTS_QUEUE": f"shm:{path}"}, "shm"),
        ({"XTS_ENDPOINT": path, "XTS_QUEUE": "carrier-pigeon:3"}, str(errno.EOPNOTSUPP)),
    ):
        command = [sys.executable, "-c", ATTACHES]
        found = subprocess.run(command, env=os.environ | settings, stdout=subprocess.PIPE, text=True, check=True)
        assert found.stdout.strip() == outcome


def test_a_refusal_carries_errno_and_reason(server: Server) -> None:
    server.error = OSError(errno.ENOSPC, "all 8 queues are in use")
    with pytest.raises(OSError, match="all 8 queues are in use") as refused:
        attach(str(server.endpoint.path))
    assert refused.value.errno == errno.ENOSPC


def test_a_grant_that_is_not_ready_is_waited_for(server: Server) -> None:
    server.not_ready = True
    timer = threading.Timer(0.1, lambda: setattr(server, "not_ready", False))
    timer.start()
    with attach(str(server.endpoint.path)) as attachment:
        assert attachment.queue.kind == "shm"
    timer.join()


def test_a_grant_that_never_comes(server: Server) -> None:
    server.not_ready = True
    with pytest.raises(BlockingIOError, match="no queue became free"):
        attach(str(server.endpoint.path))
    server.not_ready = False


def test_who_waits_is_told_and_waits_for_longer_than_for_a_silent_server(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "NEWS_S", 0.02)
    server.not_ready = True
    timer = threading.Timer(0.6, lambda: setattr(server, "not_ready", False))
    timer.start()
    with attach(str(server.endpoint.path), timeout_ms=200) as attachment:
        assert attachment.queue.kind == "shm"
    timer.join()


def test_an_older_client_is_not_told(server: Server) -> None:
    server.not_ready = True
    request = ffi.new("struct xts_attach_request *", {"magic": lib.XTS_ATTACH_MAGIC, "version": lib.XTS_ATTACH_VERSION})
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(str(server.endpoint.path))
        client.send(bytes(ffi.buffer(request)))
        client.settimeout(5)
        refusal = ffi.from_buffer("struct xts_attach_reply *", client.recv(4096))
        assert (refusal.magic, refusal.error) == (lib.XTS_ATTACH_MAGIC, errno.EAGAIN)


def test_a_server_that_ends_while_one_waits(tmp_path: Path) -> None:
    news = ffi.new("struct xts_attach_waiting *", (lib.XTS_ATTACH_WAITING_MAGIC, lib.XTS_ATTACH_VERSION, 3, 0))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "endless.sock"))
        listener.listen()

        def talk() -> None:
            with listener.accept()[0] as accepted:
                for _ in range(5):
                    accepted.send(bytes(ffi.buffer(news)))

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(ConnectionError):
            attach(str(tmp_path / "endless.sock"), timeout_ms=5000)
        thread.join()


def test_as_long_as_others_are_served_nobody_is_refused(tmp_path: Path) -> None:
    """A grant is ready each 50 ms; ten processes ask at once, and each would be refused after 200 ms without any."""
    server = Server(str(tmp_path / "endpoint.sock"), grant_wait_s=0.2)
    ready_at = time.monotonic() + 0.05
    plain = server.allocate

    def slowly(peer: Peer, epoch: int) -> Grant:
        nonlocal ready_at
        if time.monotonic() < ready_at:
            raise NotReady
        ready_at = time.monotonic() + 0.05
        return plain(peer, epoch)

    server.endpoint._allocate = slowly
    outcomes: list[str] = []

    def ask() -> None:
        try:
            with attach(str(server.endpoint.path)):
                outcomes.append("attached")
        except OSError as error:
            outcomes.append(str(error))

    try:
        threads = [threading.Thread(target=ask) for _ in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        server.close()
    assert outcomes == ["attached"] * 10


MANY = """
import socket, sys
from xts_messages._native import ffi, lib
request = ffi.new("struct xts_attach_request *", {"magic": lib.XTS_ATTACH_MAGIC, "version": lib.XTS_ATTACH_VERSION})
held = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(50)]
for s in held:
    s.connect(sys.argv[1])
    s.send(bytes(ffi.buffer(request)))
for _ in range(3000):  # and connections for nothing
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(sys.argv[1])
print("waiting", flush=True)
sys.stdin.read()
"""


def test_a_user_with_many_requests_does_not_keep_others_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to be somebody else for a moment")
    monkeypatch.setattr(endpoint, "WAIT_MAX_S", 30.0)
    path = Path(tempfile.mkdtemp(prefix="xts-unit-"))
    path.chmod(0o755)
    server = Server(str(path / "endpoint.sock"), grant_wait_s=20.0)
    told = threading.Event()
    plain, serve = server.allocate, server.endpoint._serve
    grants = 0  # how many are ready
    between_turns = threading.Lock()  # one that gets ready while turns are given is for whoever is asked next

    def turns() -> None:
        with between_turns:
            serve()

    def one_by_one(peer: Peer, epoch: int) -> Grant:
        nonlocal grants
        if not grants:
            raise NotReady
        grants -= 1
        return plain(peer, epoch)

    server.endpoint._allocate = one_by_one
    monkeypatch.setattr(server.endpoint, "_serve", turns)
    command = [sys.executable, "-c", MANY, str(server.endpoint.path)]
    with subprocess.Popen(command, user=65534, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as many:
        try:
            assert many.stdout and many.stdout.readline() == "waiting\n"
            with between_turns:
                grants = 1
            until(lambda: len(server.attached) == 1)  # the user's first one

            def ask() -> None:
                with attach(str(server.endpoint.path)):
                    told.set()

            thread = threading.Thread(target=ask)
            thread.start()
            until(lambda: any(c.uid == 0 for c in server.endpoint._turns))
            until(lambda: len(server.endpoint._turns) == 50)
            with between_turns:
                grants = 1
            thread.join(10)
            assert told.is_set(), "root's request came last, and is next: the other user had its turn"
            until(lambda: [attached.peer.uid for attached in server.attached] == [65534, 0])
            many.kill()
            until(lambda: not server.endpoint._connections)
            assert not server.endpoint._unsettled
        finally:
            many.kill()
            server.close()
            path.rmdir()


@pytest.mark.parametrize(
    "field, value",
    [
        ("kind", 9),
        ("kind", 1),
        ("magic", 1),
        ("version", 1),
        ("shm_slots", 10**9),
        ("slot_bytes", 4096),
        ("largest_message", 2**32 - 1),
        ("frame_window", 65_535),
        ("error", -5),
        ("error", 70_000),
    ],
)
def test_a_server_that_lies(server: Server, field: str, value: int) -> None:
    server.spoil = lambda reply: setattr(reply, field, value)
    before = count_descriptors()
    with pytest.raises(OSError) as refused:
        attach(str(server.endpoint.path))
    assert refused.value.errno == errno.EPROTO
    until(lambda: len(server.released) == 1)
    server.queues.pop().close()
    assert count_descriptors() == before


def test_descriptors_that_were_not_asked_for(server: Server) -> None:
    server.extra_fd = True
    with pytest.raises(OSError) as refused:
        attach(str(server.endpoint.path))
    assert refused.value.errno == errno.EPROTO


@pytest.mark.parametrize(
    "data", [b"", b"x", b"\0" * 80, struct.pack("=II", 0x58545341, 99).ljust(80, b"\0"), b"A" * 4000]
)
def test_a_client_that_talks_nonsense_is_refused(server: Server, data: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(5)
        client.connect(str(server.endpoint.path))
        client.send(data)
        answer = client.recv(4096)
        if data:
            reply = ffi.from_buffer("struct xts_attach_reply *", answer)
            assert reply.error == errno.EPROTONOSUPPORT
            assert client.recv(10) == b""
    with attach(str(server.endpoint.path)):
        pass


def test_a_client_that_never_asks_is_dropped(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "ASK_S", 0.5)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(5)
        client.connect(str(server.endpoint.path))
        assert client.recv(10) == b""


def test_a_client_that_leaves_without_reading_its_grant(server: Server) -> None:
    """Its end then shows as ECONNRESET, not as end of file."""
    for count in range(1, 4):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(server.endpoint.path))
            client.send(struct.pack("=II", 0x58545341, 2).ljust(80, b"\0"))
            until(lambda: len(server.attached) == count)  # noqa: B023
        until(lambda: len(server.released) == count)  # noqa: B023
    with attach(str(server.endpoint.path)):
        pass


def test_a_server_without_descriptors_turns_clients_away_and_recovers(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(5)
    client.connect(str(server.endpoint.path))
    lowest_free = os.dup(0)
    os.close(lowest_free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
        with contextlib.suppress(OSError):
            client.send(struct.pack("=II", 0x58545341, 2).ljust(80, b"\0"))
        with contextlib.suppress(ConnectionError):
            while client.recv(4096):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    client.close()
    with attach(str(server.endpoint.path)):
        pass


def test_a_process_that_ends_while_there_are_no_descriptors_is_released(server: Server) -> None:
    """It is not listed as killed, and that is all."""
    server.endpoint.keep_ended(60)
    attachment = attach(str(server.endpoint.path))
    until(lambda: server.attached)
    before = len(server.released)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        attachment.close()
        until(lambda: len(server.released) == before + 1)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert not server.endpoint.attachments


def test_what_is_kept_for_a_lack_of_descriptors_is_had_back_later(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes the one that is free for a moment. Until there is one again nobody is accepted, and
    nothing else is closed in its place."""
    monkeypatch.setattr(endpoint_listener, "RESERVE_S", 0.01)
    endpoint, real = server.endpoint, os.eventfd
    tries: list[int] = []

    def full(*arguments: int) -> int:
        tries.append(1)
        raise OSError(errno.ENFILE, "no file table")

    def accepts(*arguments: object) -> None:
        raise OSError(errno.ENFILE, "no file table")

    listener = endpoint._listener.socket

    class Full:
        accept = accepts

        def __getattr__(self, name: str) -> object:
            return getattr(listener, name)

    monkeypatch.setattr(os, "eventfd", full)
    endpoint._listener.socket = Full()  # type: ignore[assignment]
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.connect(str(endpoint.path))
    until(lambda: len(tries) > 3)
    assert endpoint._listener._reserve == -1
    endpoint._listener.socket = listener
    monkeypatch.setattr(os, "eventfd", real)
    until(lambda: endpoint._listener._reserve >= 0)
    client.close()
    with attach(str(endpoint.path)):
        pass


CHILD = """
import os, sys, time
from xts_messages.attaching.attach import attach
a = attach(sys.argv[1])
if os.fork() == 0:
    time.sleep(30)
    os._exit(0)
print("up", flush=True)
time.sleep(30)
"""


def test_a_death_is_noticed_although_a_forked_child_lives(server: Server) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(server.endpoint.path)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdout
        assert child.stdout.readline() == b"up\n"
        begin = time.monotonic()
        child.kill()
        until(lambda: server.released)
        assert time.monotonic() - begin < 1
        os.killpg(child.pid, 9)


ECHO = """
import sys
from xts_messages.attaching.attach import attach
with attach(sys.argv[1]) as a:
    for _ in range(int(sys.argv[2])):
        frame = a.queue.wait(10_000)
        data = bytes(frame)
        frame.recycle()
        a.queue.send(data)
"""


def test_two_processes_that_sleep_miss_no_wakeup(server: Server) -> None:
    rounds = 3000
    with subprocess.Popen([sys.executable, "-c", ECHO, str(server.endpoint.path), str(rounds)]) as child:
        until(lambda: server.queues)
        for number in range(rounds):
            server.queues[0].send(struct.pack("=I", number).ljust(60, b"."))
            frame = server.queues[0].wait(10_000)
            assert struct.unpack_from("=I", bytes(frame)) == (number,)
            frame.recycle()
        assert child.wait(10) == 0
    assert server.queues[0].stats.wakeups > 0


def test_one_user_cannot_take_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to be somebody else for a moment")
    monkeypatch.setattr(endpoint, "UNSETTLED_MAX", 64)
    path = Path(tempfile.mkdtemp(prefix="xts-unit-"))
    path.chmod(0o755)
    server = Server(str(path / "endpoint.sock"))
    try:
        script = (
            "import socket, sys\n"
            "held = [socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(80)]\n"
            "for s in held: s.connect(sys.argv[1])\n"
            "ended = 0\n"
            "for s in held[64:]: s.settimeout(5); ended += b'requests waiting' in s.recv(999) and not s.recv(1)\n"
            "print(ended)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(server.endpoint.path)],
            user=65534,
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert done.stdout.strip() == "16"
        with attach(str(server.endpoint.path)):
            pass
    finally:
        server.close()
        path.rmdir()


def test_listing(server: Server) -> None:
    path = str(server.endpoint.path)
    assert list(list_attachments(path)) == []
    with attach(path, program="one") as one, attach(path, program="two") as two:
        one.status.used = 1
        one.status.entry[0].sent_bytes = 77
        listed = list(list_attachments(path))
        assert [(item.kind, item.program, item.epoch) for item in listed] == [
            ("shm", "one", one.epoch),
            ("shm", "two", two.epoch),
        ]
        assert {item.pid for item in listed} == {os.getpid()}
        page = read_status_page(listed[0].status_fd)
        assert len(page) == ffi.sizeof("struct xts_status_page") + ffi.sizeof("struct xts_status_entry")
        assert ffi.from_buffer("struct xts_status_page *", page).entry[0].sent_bytes == 77
        for item in listed:
            os.close(item.status_fd)


class TestSocketFile:
    def make(self, path: Path) -> Endpoint:
        def allocate(peer: Peer, epoch: int) -> Grant:
            raise NotReady

        return Endpoint(str(path), allocate)

    def test_mode_and_removal(self, tmp_path: Path) -> None:
        path = tmp_path / "endpoint.sock"
        with self.make(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert list(tmp_path.iterdir()) == []

    def test_a_stale_file_is_replaced(self, tmp_path: Path) -> None:
        path = tmp_path / "endpoint.sock"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(path))
        with self.make(path), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))

    def test_one_that_is_served_is_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "endpoint.sock"
        with self.make(path):
            me = Path("/proc/self/comm").read_text().strip()
            with pytest.raises(
                OSError, match=rf"is served by {me} \(process {os.getpid()}\): stop that, or"
            ) as refused:
                self.make(path)
            assert refused.value.errno == errno.EADDRINUSE
            assert path.exists()

    def test_a_file_is_never_overwritten(self, tmp_path: Path) -> None:
        path = tmp_path / "endpoint.sock"
        path.write_text("precious")
        with pytest.raises(OSError, match="is not a socket"):
            self.make(path)
        assert path.read_text() == "precious"

    def test_a_successor_keeps_its_file(self, tmp_path: Path) -> None:
        path = tmp_path / "endpoint.sock"
        first = self.make(path)
        path.unlink()
        with self.make(path):
            first.close()
            assert path.exists()


def test_a_process_that_ended_meanwhile_gets_nothing(server: Server, tmp_path: Path) -> None:
    """Its child has the connection. What was read in /proc of its number may be of another process."""
    server.not_ready = True
    program = """
import os, socket, sys
from xts_messages._native import ffi, lib
request = ffi.new("struct xts_attach_request *", {"magic": lib.XTS_ATTACH_MAGIC, "version": lib.XTS_ATTACH_VERSION})
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
connection.send(bytes(ffi.buffer(request)))
if os.fork() == 0:
    sys.stdin.readline()
    answer = connection.recv(4096)
    reply = ffi.from_buffer("struct xts_attach_reply *", answer) if answer else None
    print(reply.error if reply else "end", flush=True)
"""
    command = [sys.executable, "-c", program, str(server.endpoint.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        assert process.wait(20) == 0  # the child lives
        server.not_ready = False
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline().strip() not in ("", "0")
    assert not server.attached


def test_a_process_without_a_number_is_served_by_an_older_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another PID namespace, before Linux 6.5: its connection tells of its end."""
    monkeypatch.setattr(endpoint, "SO_PEERPIDFD", 9999)
    monkeypatch.setattr(endpoint, "_credentials", lambda _: (0, os.getuid(), os.getgid()))
    server = Server(str(tmp_path / "endpoint.sock"))
    try:
        with attach(str(server.endpoint.path)) as attachment:
            until(lambda: server.attached)
            assert server.attached[0].peer.pid == 0
            (listed,) = list_attachments(str(server.endpoint.path))
            assert listed.pid == 0
            os.close(listed.status_fd)
            assert not server.released
        attachment.close()
        until(lambda: server.released)
    finally:
        server.close()


def test_what_there_is_to_be_had(tmp_path: Path) -> None:
    offered = [Queues("xts0", 3, 200, 2), Queues("a-name-of-15-let", 0, 0, 0)]
    served = Server(str(tmp_path / "offering.sock"), queues=lambda: offered)
    try:
        path = str(served.endpoint.path)
        found = list(list_queues(path))
        assert [(one.interface, one.queues, one.relayed, one.used) for one in found] == [
            ("xts0", 3, 200, 2),
            ("a-name-of-15-le", 0, 0, 0),
        ]
    finally:
        served.close()
