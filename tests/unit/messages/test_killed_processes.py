"""What an endpoint keeps of killed processes: bounded, by user, for a time, and only of those that were killed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from unit.messages.test_endpoint import Server, until
from xts_messages._native import ffi, lib
from xts_messages.attaching import killed_processes
from xts_messages.attaching.attach import attach, list_ended
from xts_messages.attaching.killed_processes import PROGRAMS_MAX, PROGRAMS_OF_A_USER_MAX, EndedProcesses
from xts_messages.attaching.status_page import Figures, create_status_page

FIGURES = Figures(0, 1, False, 100, 10, 5000, 6000, (1, *[0] * 31))


def write(status_fd: int, figures: Figures) -> None:
    native = ffi.new("struct xts_status_figures *")
    figures.write(native)
    at = ffi.sizeof("struct xts_status_page") + lib.XTS_STATUS_ENTRIES * ffi.sizeof("struct xts_status_entry")
    os.pwrite(status_fd, bytes(ffi.buffer(native)), int(at))


@contextmanager
def page(**changed: object) -> Iterator[int]:
    fd = create_status_page()
    write(fd, Figures(**{name: changed.get(name, getattr(FIGURES, name)) for name in Figures.__slots__}))
    yield fd
    os.close(fd)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def kept(clock: Clock) -> Iterator[EndedProcesses]:
    made = EndedProcesses(600.0, clock)
    yield made
    made.close()


@pytest.fixture
def dead() -> Iterator[int]:
    """A pidfd of a process that was killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        pidfd = os.pidfd_open(child.pid)
        child.kill()
    yield pidfd
    os.close(pidfd)


def listed(kept: EndedProcesses, uid: int = 0) -> list[tuple[int, int, int]]:
    """Process, stacks, bytes sent."""
    found = [ffi.from_buffer("struct xts_attach_ended *", data) for data in kept.listing(uid)]
    return [(one.pid, one.stacks, one.figures.sent_bytes) for one in found]


def test_stacks_of_a_program_are_one_and_programs_of_a_process_two(kept: EndedProcesses, dead: int) -> None:
    for changed in ({"stack": 0}, {"stack": 3, "sent_bytes": 11}, {"stack": 3, "sent_bytes": 20}, {"program": 2}):
        with page(**changed) as fd:
            kept.add(7, 0, "name", dead, fd)
    assert listed(kept) == [(7, 2, 120), (7, 1, 100)]


def test_each_user_sees_his_own(kept: EndedProcesses, dead: int) -> None:
    for uid in (1000, 1001):
        with page(program=uid) as fd:
            kept.add(uid, uid, "name", dead, fd)
    assert [pid for pid, *_ in listed(kept, 1000)] == [1000]
    assert [pid for pid, *_ in listed(kept, 1001)] == [1001]
    assert listed(kept, 1002) == []
    assert len(listed(kept, 0)) == 2


def test_bounded_in_number(kept: EndedProcesses, dead: int) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for number in range(1000):
        with page(program=number) as fd:
            kept.add(number, 1000, "name", dead, fd)
    assert [pid for pid, *_ in listed(kept)] == list(range(1000 - PROGRAMS_OF_A_USER_MAX, 1000))
    for uid in range(2000, 2000 + PROGRAMS_MAX):
        with page(program=uid) as fd:
            kept.add(uid, uid, "name", dead, fd)
    assert len(kept) == PROGRAMS_MAX
    assert listed(kept, 1000) == [], "who has the most gives way, then who is the oldest"
    assert len(listed(kept, 2000 + PROGRAMS_MAX - 1)) == 1
    kept.close()
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_bounded_in_time(kept: EndedProcesses, dead: int, clock: Clock) -> None:
    with page() as fd:
        kept.add(7, 0, "name", dead, fd)
    clock.now += 599
    assert len(listed(kept)) == 1
    clock.now += 1
    assert listed(kept) == []
    assert len(kept) == 0


def test_who_lives_on_is_forgotten(kept: EndedProcesses, clock: Clock) -> None:
    pidfd = os.pidfd_open(os.getpid())
    with page() as fd:
        kept.add(os.getpid(), 0, "name", pidfd, fd)
    os.close(pidfd)
    assert listed(kept) == []
    deadline = kept.deadline()
    assert deadline is not None
    clock.now = deadline
    kept.settle()
    assert len(kept) == 0


@pytest.mark.parametrize("status", [0, 3])
def test_who_exits_is_forgotten_where_the_kernel_tells(kept: EndedProcesses, status: int) -> None:
    child = subprocess.Popen([sys.executable, "-c", f"import sys; sys.exit({status})"])
    pidfd = os.pidfd_open(child.pid)
    child.wait()
    if killed_processes._exit_status(pidfd) is None:
        os.close(pidfd)
        pytest.skip("this kernel does not tell how a process has ended (Linux 6.15)")
    with page() as fd:
        kept.add(child.pid, 0, "name", pidfd, fd)
    os.close(pidfd)
    assert len(kept) == 0


def test_pages_that_are_not_kept(kept: EndedProcesses, dead: int) -> None:
    with page(closed=True) as fd:
        kept.add(7, 0, "name", dead, fd)
    empty = create_status_page()
    kept.add(7, 0, "name", dead, empty)
    os.pwrite(empty, b"\xff" * int(ffi.sizeof("struct xts_status_page")), 0)
    kept.add(7, 0, "name", dead, empty)
    os.close(empty)
    assert listed(kept) == []


def test_any_figures_can_be_listed(kept: EndedProcesses, dead: int) -> None:
    """They are a process's own words."""
    most = (1 << 64) - 1
    for stack in range(2):
        with page(stack=stack, sent_bytes=most, received_bytes=most, user_us=most, sockets=(most,) * 32) as fd:
            kept.add(7, 0, "\udcff\x1b[2J", dead, fd)
    assert len(listed(kept)) == 1


def test_a_thousand_killed_processes_leave_nothing_behind(tmp_path: Path) -> None:
    """Attached to an endpoint, each by a child of one process, which kills itself."""
    children = """
import os, sys
from xts_messages._native import lib
from xts_messages.attaching.attach import attach
for number in range(1000):
    if os.fork() == 0:
        held = attach(sys.argv[1], program=f"p{number}")
        held._native.figures.magic = lib.XTS_FIGURES_MAGIC
        os.kill(os.getpid(), 9)
    os.wait()
"""
    server = Server(str(tmp_path / "endpoint.sock"), ended_keep_s=600.0)
    server.keep_queues = False
    try:
        with attach(str(server.endpoint.path)):
            before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
            done = subprocess.run([sys.executable, "-c", children, str(server.endpoint.path)], check=True, timeout=60)
            assert done.returncode == 0
            until(lambda: len(server.released) == 1000)
            killed = list(list_ended(str(server.endpoint.path)))
            names = [one.program for one in killed]
            assert names == [f"p{number}" for number in range(1000 - PROGRAMS_OF_A_USER_MAX, 1000)]
            assert len(os.listdir("/proc/self/fd")) <= before + PROGRAMS_OF_A_USER_MAX  # noqa: PTH208
    finally:
        server.close()
