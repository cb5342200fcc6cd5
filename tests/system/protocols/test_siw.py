"""MPA against the kernel's software iWARP (siw): rping's server reads memory of ours, and writes it back, over the
pushed protocol. The start-up frames and the segments in the FPDUs are of the tests."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from socket import SOCK_SEQPACKET
from time import monotonic, sleep

import pytest
import xts_socket
from beds.iwarp import CRC, ENHANCED, MARKERS, REJECTED, Memory, StartUp, start_up
from xts_socket import Mpa

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("xts_endpoint")]

ADDRESS, PORT = "10.87.1.1", 7174
DEADLINE_S = 60.0  # an emulated processor, which others use too
PING_BYTES_MAX = 60000
SEGMENT_BYTES = 8000
ADVERTISEMENT_BYTES = 16  # address, STag and size: what rping's messages are
#: RFC 6581, 4.1: one RDMA read at a time in each direction.
ONE_READ = struct.pack(">HH", 1, 1)


@pytest.fixture(scope="module", autouse=True)
def device() -> Iterator[None]:
    """siw on an interface of its own. Packets to the interface's address stay on loopback."""
    if not os.environ.get("XTS_VM"):
        pytest.skip("it makes an interface, which is for a virtual machine only: tests/vm/run runs this test")
    if subprocess.run(["modprobe", "siw"], capture_output=True, check=False).returncode:
        pytest.skip(f"this kernel ({os.uname().release}) has no siw: see tests/vm/siw")
    if shutil.which("rping") is None:
        pytest.skip("rping is not installed (rdmacm-utils)")
    subprocess.run(["modprobe", "-a", "ib_uverbs", "rdma_ucm", "dummy"], check=True)
    with ExitStack() as undo:
        for command, undone in (
            ("ip link add iwarp0 type dummy", "ip link del iwarp0"),
            (f"ip addr add {ADDRESS}/24 dev iwarp0", ""),
            ("ip link set iwarp0 up", ""),
            ("rdma link add siw0 type siw netdev iwarp0", "rdma link del siw0"),
        ):
            subprocess.run(command.split(), check=True)
            if undone:
                undo.callback(subprocess.run, undone.split(), check=True)
        yield


@contextmanager
def rping() -> Iterator[xts_socket.socket]:
    """A connection to rping's server, which serves one and ends with it."""
    # -q: it allows itself one RDMA read at a time. Otherwise the start-up has to say so, which revision 1 cannot.
    with subprocess.Popen(["rping", "-s", "-a", ADDRESS, "-p", str(PORT), "-S", str(PING_BYTES_MAX), "-q"]) as server:
        try:
            with connected() as socket:
                yield socket
        finally:
            server.terminate()


def connected() -> xts_socket.socket:
    """A socket that can make PDUs later: what is pushed comes after MPA's start-up."""
    give_up = monotonic() + DEADLINE_S
    while True:
        socket = xts_socket.socket(type=SOCK_SEQPACKET)
        socket.settimeout(DEADLINE_S)
        try:
            socket.connect((ADDRESS, PORT))
        except ConnectionRefusedError:
            socket.close()
            assert monotonic() < give_up, "rping does not listen"
            sleep(0.1)
        else:
            return socket


@pytest.mark.parametrize("crc", [True, False], ids=["CRC", "no CRC"])
@pytest.mark.parametrize("revision", [1, 2], ids=["revision 1", "revision 2"])
def test_memory_is_read_and_written(revision: int, *, crc: bool) -> None:
    flags = (CRC if crc else 0) | (ENHANCED if revision == 2 else 0)
    with rping() as socket:
        reply = start_up(socket, StartUp(flags, revision, ONE_READ if revision == 2 else b""))
        assert (reply.flags, reply.revision) == (flags, revision)
        socket.push(Mpa(no_crc=not crc))
        memory = Memory(socket, SEGMENT_BYTES)
        sizes = (1, 64, 1000, 16384, PING_BYTES_MAX)
        for size in sizes:
            # rping writes what it has read, up to the first zero.
            memory.out = bytes(random.choices(range(1, 256), k=size - 1)) + b"\0"
            memory.written = bytearray()
            for stag in (memory.STAG_OUT, memory.STAG_IN):
                memory.send(struct.pack(">QII", memory.BASE, stag, size))
                assert len(memory.receive()) == ADVERTISEMENT_BYTES
            assert memory.written == memory.out, size
        assert memory.reads == len(sizes)


def test_markers_are_refused() -> None:
    """siw has none: it refuses a connection that wants them."""
    with rping() as socket:
        reply = start_up(socket, StartUp(MARKERS | CRC, 1, b""))
        assert reply.flags == REJECTED | CRC
        assert socket.recv(1) == b""
