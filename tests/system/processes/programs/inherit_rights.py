"""Who may use a socket: a process that has a descriptor of it, and nobody who knows a number."""

from __future__ import annotations

import ctypes
import os
import socket
import tempfile
from pathlib import Path

from beds.calls import Calls
from beds.scripts import script
from beds.stranger import label_of, numbers_in, opened_by
from system.processes.programs.inherit_exec import ExecSocket
from system.processes.programs.inherit_passing import Way, at_an_end, take_passed
from system.processes.programs.inheriting import Child, Signal, ask, listen, receive_exactly, workers
from system.sockets.programs.library_scripts import send

ENDPOINT = os.environ.get("XTS_ENDPOINT", "")
TCP_FASTOPEN_KEY = 33
CLONE_NEWUSER = 0x10000000


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
