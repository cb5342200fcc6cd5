"""What an interface is like: as the kernel says, or nobody knows; never gone for lack of something to ask with."""

from __future__ import annotations

import errno
import os
import socket

import pytest
from beds.few_descriptors import few_descriptors
from xts_bpf.interface_state import read_state


def test_one_that_is_there() -> None:
    found = read_state("lo")
    assert found and (found.index, found.name, found.program_id) == (socket.if_nametoindex("lo"), "lo", 0)
    assert found.mac == bytes(6) and found.mtu > 0


def test_one_that_was_renamed() -> None:
    index = socket.if_nametoindex("lo")
    found = read_state("no-such0", index)
    assert found and (found.index, found.name) == (index, "lo")


def test_one_that_is_not_there() -> None:
    assert read_state("no-such0") is None
    assert read_state("no-such0", 1 << 20) is None


@pytest.mark.parametrize("free", [0, 1])
def test_without_descriptors_it_is_not_gone(free: int) -> None:
    with few_descriptors(os.getpid(), free), pytest.raises(OSError, match="Too many open files") as refused:
        read_state("lo")
    assert refused.value.errno == errno.EMFILE
    assert read_state("lo")
