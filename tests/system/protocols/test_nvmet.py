"""NVMe/TCP against the kernel's own controller (nvmet-tcp), with each pair of digests: what is written through the
pushed protocol is what the namespace's file has, and what is read back."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
import xts_socket
from beds.nvme_host import DATA_DIGEST, HEADER_DIGEST, NvmeError, NvmeQueue
from xts_socket import NvmeTcp

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("xts_endpoint")]

LOOPBACK, PORT = "127.0.0.1", 4420
SUBSYSTEM = "nqn.2014-08.test:xts"
CONFIG = Path("/sys/kernel/config")
FILE_BYTES = 16 << 20
#: Most data that nvmet takes in a capsule, unless its port is configured otherwise. All writes up to this have to be in
#: their capsules: for these nvmet of Linux 6.1 never sends an R2T, whatever the SGL says.
IN_CAPSULE_BYTES = 16 << 10
LONGEST_BYTES = 1 << 20
PDU_HEADER_BYTES = 24
DEADLINE_S = 60.0  # an emulated processor, which others use too

DIGESTS = pytest.mark.parametrize(
    "digests",
    [0, HEADER_DIGEST, DATA_DIGEST, HEADER_DIGEST | DATA_DIGEST],
    ids=["no digests", "header digests", "data digests", "both digests"],
)


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file that namespace 1 of a controller on loopback is made of, on a tmpfs, which gives it blocks of 4096."""
    if not os.environ.get("XTS_VM"):
        pytest.skip("makes a controller in the kernel: tests/vm/run runs this test where that is nobody else's")
    if subprocess.run(["modprobe", "nvmet-tcp"], capture_output=True, check=False).returncode:
        pytest.skip(f"this kernel ({os.uname().release}) has no nvmet-tcp: tests/vm/run runs this test where there is")
    folder = tmp_path_factory.mktemp("nvmet")
    subsystem, port = CONFIG / "nvmet/subsystems" / SUBSYSTEM, CONFIG / "nvmet/ports/1"
    namespace, link = subsystem / "namespaces/1", port / "subsystems" / SUBSYSTEM
    with ExitStack() as undo:
        for kind, place in (("tmpfs", folder), ("configfs", CONFIG)):
            if kind == "tmpfs" or not (CONFIG / "nvmet").is_dir():
                subprocess.run(["mount", "-t", kind, "none", place], check=True)
                undo.callback(subprocess.run, ["umount", place], check=True)
        file = folder / "blocks"
        file.write_bytes(bytes(FILE_BYTES))
        for directory in (subsystem, namespace, port):
            directory.mkdir()
            undo.callback(directory.rmdir)
        (subsystem / "attr_allow_any_host").write_text("1")
        (namespace / "device_path").write_text(str(file))
        (namespace / "buffered_io").write_text("1")
        (namespace / "enable").write_text("1")
        for name, value in (("trtype", "tcp"), ("adrfam", "ipv4"), ("traddr", LOOPBACK), ("trsvcid", str(PORT))):
            (port / f"addr_{name}").write_text(value)
        link.symlink_to(subsystem)
        undo.callback(link.unlink)
        yield file


def open_queue(digests: int, part_bytes: int | None = None) -> NvmeQueue:
    """A connection for a queue. Data of 1 MiB, with their header, are longer than a PDU may be by default."""
    layer = NvmeTcp(negotiate=True, max_bytes=LONGEST_BYTES + PDU_HEADER_BYTES)
    socket = xts_socket.create_connection((LOOPBACK, PORT), DEADLINE_S, push=(layer,))
    return NvmeQueue(socket, digests, part_bytes=part_bytes)


class Queues(NamedTuple):
    """An enabled controller's."""

    admin: NvmeQueue
    io: NvmeQueue
    block_bytes: int


def connect(undo: ExitStack, digests: int, part_bytes: int | None = None) -> Queues:
    admin, io = (undo.enter_context(open_queue(digests, part_bytes)) for _ in range(2))
    controller = admin.connect(0, SUBSYSTEM)
    admin.enable()
    assert io.connect(1, SUBSYSTEM, controller) == controller
    return Queues(admin, io, admin.block_bytes(1))


@DIGESTS
def test_blocks_are_read_back_as_they_were_written(blocks: Path, digests: int) -> None:
    with ExitStack() as undo:
        queues = connect(undo, digests)
        at = 0
        for size in (4 << 10, 8 << 10, IN_CAPSULE_BYTES, 20 << 10, 64 << 10, 256 << 10, LONGEST_BYTES):
            data, count, sent = os.urandom(size), size // queues.block_bytes, queues.io.data_pdus_sent
            queues.io.write(at, count, data, in_capsule=size <= IN_CAPSULE_BYTES)
            assert queues.io.data_pdus_sent == sent + (size > IN_CAPSULE_BYTES), size
            assert queues.io.read(at, count, size) == data, size
            assert blocks.read_bytes()[at * queues.block_bytes :][:size] == data, size
            at += count
        assert queues.io.verified == {(bool(digests & HEADER_DIGEST), bool(digests & DATA_DIGEST))}


@pytest.mark.parametrize("digests", [0, HEADER_DIGEST], ids=["no digests", "header digests"])
def test_data_are_sent_in_several_pdus(blocks: Path, digests: int) -> None:
    """Not with data digests: nvmet of Linux 6.1 compares the first PDU's with that of all data of the command."""
    with ExitStack() as undo:
        queues = connect(undo, digests, part_bytes=48 << 10)
        data = os.urandom(256 << 10)
        queues.io.write(3, len(data) // queues.block_bytes, data, in_capsule=False)
        assert queues.io.data_pdus_sent == 6
        assert blocks.read_bytes()[3 * queues.block_bytes :][: len(data)] == data


def test_a_refused_write_leaves_the_queue_usable(blocks: Path) -> None:
    """Code 0x0f: the length of the data is not that of the blocks, as with 512 bytes where a block has 4096."""
    with ExitStack() as undo:
        queues = connect(undo, HEADER_DIGEST | DATA_DIGEST)
        size = queues.block_bytes
        before = blocks.read_bytes()
        with pytest.raises(NvmeError, match="code 0x0f"):
            queues.io.write(0, 1, bytes(size // 8), in_capsule=True)
        assert blocks.read_bytes() == before
        queues.io.write(0, 1, bytes(size), in_capsule=True)
        assert queues.io.read(0, 1, size) == bytes(size)
