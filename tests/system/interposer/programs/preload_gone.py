"""Sockets that a process has not after fork or exec: the calls fail as ever, and the reason is told by number."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shlex
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from functools import partial

from beds.scripts import script
from system.interposer.programs.interposed import (
    ELSEWHERE,
    LOST,
    OFFLOADED,
    Report,
    errno_of,
    kind_of,
    libc,
    pair,
    wait_for_child,
)
from xts_socket.cli.processes import interposed

WRDE_SHOWERR = 1 << 4
SIOC_PEEK_MODE, SIOC_END_PEEK_MODE = 0x89EB, 0x89EC


def in_child(body: Callable[[], None]) -> None:
    pid = os.fork()
    if not pid:
        status = 1
        try:
            body()
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    wait_for_child(pid)


def shown(fd: int) -> tuple[str, str | None]:
    """What `xts status --processes` says of a descriptor of this process."""
    (process,) = (process for process in interposed.find() if process.pid == os.getpid())
    (entry,) = (entry for entry in process.descriptors if entry.fd == fd)
    return entry.kind, entry.reason_name


def is_elsewhere(s: socket.socket) -> None:
    """Its use fails, and is told once."""
    assert kind_of(s) == OFFLOADED and not Report.read().stayed
    for _ in range(2):
        assert errno_of(lambda: s.send(b"x")) == errno.ENOTCONN
        assert Report.read().stayed == {ELSEWHERE: 1}
    assert shown(s.fileno()) == ("gone", "ELSEWHERE")
    copy = s.dup()
    assert shown(copy.fileno()) == ("gone", "ELSEWHERE")
    copy.close()


@script("interposer")
def children_and_parent_use_it_by_turns() -> None:
    client, server = pair()
    for who in (b"the first", b"the second"):
        in_child(partial(client.sendall, who))
        assert server.recv(100) == who
    client.sendall(b"the parent")
    assert server.recv(100) == b"the parent"
    assert kind_of(client) == OFFLOADED and not Report.read().stayed
    client.close()


@script("interposer")
def a_child_that_touches_nothing_is_told_of_nothing() -> None:
    client, server = pair()
    in_child(lambda: client.sendall(b"the first"))

    def closes() -> None:
        client.close()
        assert not Report.read().stayed

    in_child(closes)
    client.close()
    assert not Report.read().stayed
    server.close()


@script("interposer")
def a_connection_in_peek_mode_stays_with_its_process() -> None:
    client, server = pair()
    fcntl.ioctl(client, SIOC_PEEK_MODE, struct.pack("=i", 1))
    in_child(lambda: is_elsewhere(client))
    server.sendall(b"greeting")
    assert client.recv(8, socket.MSG_WAITALL) == b"greeting"
    fcntl.ioctl(client, SIOC_END_PEEK_MODE, struct.pack("=I", 8))
    client.sendall(b"still mine")
    assert server.recv(100) == b"still mine"
    assert not Report.read().stayed


@script("interposer")
def a_connection_that_is_being_made_is_lost() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, socket.socket() as connecting:
        ignored = [socket.socket() for _ in range(4)]
        for s in ignored:
            s.setblocking(False)
            s.connect_ex(full.getsockname())
        connecting.setblocking(False)
        assert connecting.connect_ex(full.getsockname()) == errno.EINPROGRESS

        def child() -> None:
            assert errno_of(lambda: connecting.recv(1)) in (errno.ENETDOWN, errno.ENOTCONN)
            assert Report.read().stayed == {LOST: 1}
            assert shown(connecting.fileno()) == ("gone", "LOST")

        in_child(child)


AFTER_EXEC = """
import errno, os, socket, sys
sys.path[:0] = sys.argv[4:]
from system.interposer.programs.interposed import LOST, STAYED, Report, errno_of, kind_of
from system.interposer.programs.preload_gone import shown
peeking, kept = int(sys.argv[1]), int(sys.argv[2])
assert Report.read().stayed == {LOST: 1}, Report.read()
assert shown(peeking) == ("gone", "LOST") and kind_of(peeking) == STAYED
assert shown(kept) == ("offloaded", None)
s = socket.socket(fileno=peeking)
assert errno_of(lambda: s.recv(1)) == errno.ENOTCONN
os.write(kept, b"was kept")
"""


@script("interposer")
def what_exec_loses_is_told_to_the_next_program() -> None:
    peeking, _other = pair()
    kept, server = pair()
    for s in peeking, kept:
        os.set_inheritable(s.fileno(), True)

    def child() -> None:
        # The connection is the child's own, in peek mode: nobody can go on with it after exec.
        mine, _ = pair()
        os.set_inheritable(mine.fileno(), True)
        fcntl.ioctl(mine, SIOC_PEEK_MODE, struct.pack("=i", 1))
        arguments = [str(mine.fileno()), str(kept.fileno()), "", *sys.path]
        peeking.close()
        os.execv(sys.executable, [sys.executable, "-c", AFTER_EXEC, *arguments])

    in_child(child)
    kept.close()
    assert server.recv(100) == b"was kept"


SPAWNED = """
import errno, os, socket, sys
sys.path[:0] = sys.argv[3:]
from system.interposer.programs.interposed import LOST, Report, errno_of
from system.interposer.programs.preload_gone import shown
numbers = [int(number) for number in sys.argv[1].split(",")]
for number in numbers:
    assert shown(number) == ("gone", "LOST")
    assert errno_of(lambda: os.read(number, 1)) == errno.ENOTCONN
assert Report.read().stayed == {LOST: len(numbers)}
print("told")
"""


@script("interposer")
def a_program_started_past_us_is_told_what_it_lacks() -> None:
    """wordexp() makes its child inside the C library."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            bound.connect(listener.getsockname())
            sockets = (listener, client, server, bound)
            for s in sockets:
                os.set_inheritable(s.fileno(), True)
            numbers = ",".join(str(s.fileno()) for s in sockets)
            words = [sys.executable, "-c", SPAWNED, numbers, "", *sys.path]
            line = " ".join(shlex.quote(word) for word in words)
            words_of = (ctypes.c_size_t * 3)()  # wordexp_t: how many, which, room at their beginning
            assert libc("wordexp", f"$({line})".encode(), words_of, WRDE_SHOWERR) == 0
            assert (
                words_of[0] == 1 and ctypes.string_at(ctypes.c_void_p.from_address(words_of[1]).value or 0) == b"told"
            )
    assert not Report.read().stayed
    client.sendall(b"still the parent's")
    assert server.recv(100) == b"still the parent's"
