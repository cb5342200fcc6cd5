"""The memory of AF_XDP queues: in huge pages or not, and where it cannot be locked."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from beds.few_descriptors import few_descriptors
from beds.veth_wire import Wire
from xts_bpf.device import open_device_queues
from xts_bpf.program import SteerProgram
from xts_messages.queues.afxdp import LastWord, has_huge_pages, open_socket
from xts_messages.queues.queue_kinds import QueueOptions
from xts_messages.services import privilege

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

HUGE, OPEN = Path("/proc/sys/vm/nr_hugepages"), Path("/proc/self/fd")
OPTIONS = QueueOptions(frame_window=16, huge_pages=True)


@contextmanager
def huge_pages(count: int) -> Iterator[int]:
    """This machine has so many more while it lasts; yields how many there are."""
    before = int(HUGE.read_text())
    try:
        HUGE.write_text(str(before + count))
    except OSError:
        pytest.skip("no huge pages can be had here")
    try:
        yield int(HUGE.read_text()) - before
    finally:
        HUGE.write_text(str(before))


def test_a_queue_in_huge_pages_carries_frames_and_the_last_word(wire: Wire) -> None:
    with huge_pages(16) as count, ExitStack() as stack:
        if count < 16:
            pytest.skip(f"only {count} huge pages can be had here")
        with wire.inside(wire.device):
            device = stack.enter_context(open_device_queues(wire.device_if, 1, wire.host_mac, options=OPTIONS))
        with wire.inside(wire.host):
            stack.enter_context(SteerProgram(wire.host_if, wire.device_mac))
            xsk = stack.enter_context(open_socket(wire.host_if, 0, OPTIONS))
            last = stack.enter_context(LastWord(xsk))
        assert has_huge_pages(xsk.umem_fd)
        xsk.set_addresses(wire.host_mac, wire.device_mac)
        host = stack.enter_context(xsk.adopt())
        head = wire.device_mac + wire.host_mac + b"\x85\x5b"
        for frame in (head + os.urandom(61_426), head + os.urandom(50)):
            host.send(frame)
            received = device.queues[0].wait(2000)
            assert bytes(received) == frame
            received.recycle()
        word = head + b"goodbye".ljust(46, b"\0")
        last.send(word)
        received = device.queues[0].wait(2000)
        assert bytes(received) == word
        received.recycle()


def test_small_pages_where_there_are_no_huge_ones(wire: Wire) -> None:
    if int(HUGE.read_text()):
        pytest.skip("somebody has set huge pages aside")
    with wire.inside(wire.host), open_socket(wire.host_if, 0, OPTIONS) as xsk:
        assert not has_huge_pages(xsk.umem_fd)


def test_a_node_that_there_is_not_is_only_a_wish(wire: Wire) -> None:
    for node in (1, 900):
        with wire.inside(wire.host), open_socket(wire.host_if, node % 4, QueueOptions(numa_node=node)):
            pass


@pytest.mark.parametrize("huge", [False, True], ids=["small pages", "huge pages"])
def test_memory_that_cannot_be_locked(wire: Wire, huge: bool) -> None:
    """Without CAP_IPC_LOCK the limit counts: the error names it, and nothing is left open."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            with wire.inside(wire.host):
                resource.setrlimit(resource.RLIMIT_MEMLOCK, (1 << 20, 1 << 20))
                privilege.confine(privilege.NET_ADMIN, privilege.NET_RAW)
                before = len(list(OPEN.iterdir()))
                try:
                    open_socket(wire.host_if, 0, QueueOptions(huge_pages=huge))
                except OSError as error:
                    named = error.errno == errno.ENOBUFS and "RLIMIT_MEMLOCK, 1024 KiB" in str(error)
                    status = 0 if named and len(list(OPEN.iterdir())) == before else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with wire.inside(wire.host), open_socket(wire.host_if, 0, patience_s=1.0):
        pass


@pytest.mark.parametrize("free", range(6))
def test_what_cannot_be_opened_for_lack_of_descriptors_leaves_nothing_open(wire: Wire, free: int) -> None:
    """One that stayed open would keep the queue busy for ever."""
    with wire.inside(wire.host), ExitStack() as stack:
        stack.enter_context(SteerProgram(wire.host_if, wire.device_mac))
        before = len(list(OPEN.iterdir()))
        with few_descriptors(os.getpid(), free), suppress(OSError):
            xsk = open_socket(wire.host_if, 0, QueueOptions(frame_window=16))
            with xsk, suppress(OSError):
                LastWord(xsk).close()
        assert len(list(OPEN.iterdir())) == before
