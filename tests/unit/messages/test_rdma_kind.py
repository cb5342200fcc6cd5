"""The kind `rdma` where there is no RDMA: it is known by name, and says what is missing. tests/vm has what it does."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from xts_messages._native import ffi, lib
from xts_messages.queues import rdma
from xts_messages.queues.queue_kinds import HOST, RDMA, QueueEnd, kind_name, outlives_its_server

NOT_LOADED = """
import os
from xts_messages.queues.queue_kinds import RDMA, open_ends
try:
    open_ends(RDMA, ifindex=1)
except OSError as failure:
    print(failure.errno)
print("ibverbs" in open("/proc/self/maps").read())
"""


def test_it_has_a_name_and_is_loaded_by_nobody_who_does_not_ask() -> None:
    assert (kind_name(RDMA), outlives_its_server(RDMA)) == ("rdma", True)
    done = subprocess.run([sys.executable, "-c", NOT_LOADED], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(errno.EOPNOTSUPP), "False"]


def test_without_the_library_it_says_so(tmp_path: Path) -> None:
    """In a process of its own, for a library that is loaded stays."""
    script = (
        "import pathlib, sys\nfrom xts_messages.queues import rdma\nrdma.LIBRARY = pathlib.Path(sys.argv[1])\n"
        "try:\n    rdma.RdmaEnd(1)\nexcept OSError as failure:\n    print(failure.strerror)\n"
    )
    empty = tmp_path / "libxts-rdma.so"
    for place, said in ((tmp_path / "absent.so", "install xts-rdma"), (empty, "install libibverbs1")):
        empty.touch()
        command = [sys.executable, "-c", script, str(place)]
        assert said in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(not rdma.LIBRARY.exists(), reason="built without libibverbs (libibverbs-dev)")
def test_an_interface_without_a_device_is_named() -> None:
    try:
        rdma.load()
    except OSError as failure:
        pytest.skip(str(failure))
    with pytest.raises(OSError, match="no RDMA device at this interface") as refused:
        rdma.RdmaEnd(socket.if_nametoindex("lo"))
    assert refused.value.errno == errno.ENODEV
    with pytest.raises(OSError, match="No such device"):
        rdma.RdmaEnd(999_999)


@pytest.mark.skipif(not rdma.LIBRARY.exists(), reason="built without libibverbs (libibverbs-dev)")
def test_descriptors_of_no_end_are_refused() -> None:
    try:
        rdma.load()
    except OSError as failure:
        pytest.skip(str(failure))
    geometry = ffi.new("struct xts_attach_reply *", {"kind": RDMA, "frame_window": 16, "largest_message": 61440})
    geometry.slot_bytes, geometry.rx_chunks, geometry.tx_slots = 61440, 48, 64
    with pytest.raises(OSError, match="adopting") as refused:
        QueueEnd(geometry, (0, 1)).adopt(HOST)
    assert refused.value.errno == errno.EBADF
    geometry.tx_slots = 63
    with pytest.raises(OSError, match="adopting") as refused:
        QueueEnd(geometry, (0, 1)).adopt(HOST)
    assert refused.value.errno == errno.EINVAL
    assert lib.xts_rdma_step(0, ffi.new("struct xts_rdma_step *")) == -errno.EBADF
