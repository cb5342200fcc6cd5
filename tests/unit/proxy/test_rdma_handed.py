"""Queues over RDMA in an upgrade: the processes that look after them go from one proxy to the next."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from beds.operated_proxy import wait
from beds.ready import readable
from xts_proxy.queues import rdma_handed
from xts_proxy.queues.rdma_acceptor import Acceptor
from xts_proxy.queues.rdma_carrier import Carrier
from xts_proxy.queues.rdma_place import Place
from xts_proxy.supervisor.children import Child, Inherited


def has_its_name(pid: int) -> bool:
    """Popen() comes back before the kernel has written the name of the new program."""
    return Path(f"/proc/{pid}/comm").read_text() == "sleep\n"


@pytest.fixture
def running() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Four processes that wait: those of two queues."""
    with ExitStack() as undo:
        made = []
        for _ in range(4):
            process = undo.enter_context(subprocess.Popen(["sleep", "600"]))
            undo.callback(process.kill)
            made.append(process)
            wait(partial(has_its_name, process.pid), "sleep(1)")
        yield made


@pytest.fixture
def places(running: list[subprocess.Popen[bytes]]) -> Iterator[tuple[list[Place], list[socket.socket]]]:
    """The queues, and what their processes have of the sockets to them."""
    children = [Child(f"process {number}", one.pid, os.pidfd_open(one.pid)) for number, one in enumerate(running)]
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in children]
    made = []
    for number in range(2):
        ours, it = (pair[0] for pair in pairs[2 * number : 2 * number + 2]), children[2 * number : 2 * number + 2]
        made.append(Place(number, Acceptor(next(ours), it[0]), Carrier(next(ours), it[1]), device="rxe0"))
    made[1].peer, made[1].connections, made[1].refused = "192.168.100.1", 3, 2
    theirs = [pair[1] for pair in pairs]
    yield made, theirs
    for one in (*theirs, *(pair[0] for pair in pairs)):
        one.close()
    for child in children:
        if child.pidfd >= 0:
            os.close(child.pidfd)


def handed(places: list[Place]) -> dict[str, int]:
    """As they arrive in another process."""
    state_fd = rdma_handed.state_of(places)
    try:
        return {name: os.dup(fd) for name, fd in rdma_handed.descriptors_of(places, state_fd).items()}
    finally:
        os.close(state_fd)


def test_the_next_proxy_has_them(
    places: tuple[list[Place], list[socket.socket]], running: list[subprocess.Popen[bytes]]
) -> None:
    """It can talk to them, sees their ends, and knows what was known. The one before lets them go, and they live."""
    before, theirs = places
    after = rdma_handed.take(handed(before))
    known = [(one.number, one.device, one.peer, one.connections, one.refused, one.inherited) for one in after]
    assert known == [(0, "rxe0", "", 0, 0, True), (1, "rxe0", "192.168.100.1", 3, 2, True)]
    for place in before:
        place.leave()
        place.close()
    assert all(process.poll() is None for process in running)
    after[1].acceptor.end("enough")
    assert b"enough" in theirs[2].recv(1000)
    for place, first in zip(after, (0, 2), strict=True):
        assert [place.acceptor.child.pid, place.carrier.child.pid] == [one.pid for one in running[first : first + 2]]
        assert place.carrier.child.ended() is None
        assert place.carrier.child.name == "sleep"
        place.close()
    assert [process.wait() for process in running] == [-9] * 4
    assert all(readable(one) and not one.recv(1000) for one in theirs), "nobody has the other end"


def test_what_makes_no_sense_is_refused_and_nothing_is_left_open(
    places: tuple[list[Place], list[socket.socket]], running: list[subprocess.Popen[bytes]]
) -> None:
    came = handed(places[0])
    os.close(came.pop("carries 1"))
    opened = list(came.values())
    with pytest.raises(OSError, match="makes no sense"):
        rdma_handed.take(came)
    assert not came
    for fd in opened:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(fd)
    assert all(process.poll() is None for process in running)


def test_the_end_of_a_process_of_the_proxy_before_is_seen(running: list[subprocess.Popen[bytes]]) -> None:
    child = Inherited.of(os.pidfd_open(running[0].pid))
    assert child.ended() is None
    running[0].kill()
    assert child.ends_within(60)
    assert child.ended() == "it has ended"
    child.close()
    child.close()
