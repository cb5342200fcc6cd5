"""One lab a queue kind for all tests of real programs, and a web site."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.authority import self_signed
from beds.lab import raise_or_skip
from beds.real_programs import DPU4, DPU6, KERN4, KERN6, NET4, NET6, Bed, Site
from xts_lab.lab import Lab
from xts_lab.privilege import afxdp_unavailable

#: A program hardly notices the kind of queue, and each takes its time: on every change over AF_XDP where there is one,
#: and over shared memory as a long test.
QUEUES = [
    pytest.param("shm", marks=[] if afxdp_unavailable() else pytest.mark.long),
    pytest.param("afxdp", marks=pytest.mark.afxdp),
]
if os.environ.get("XTS_PROGRAMS_KERNEL"):  # does a test hold without us? The same programs on the lab's `kern`
    QUEUES = [pytest.param("kernel")]
LARGE_BYTES = 16 << 20
PROCESSES = 24  # attached at a time: nginx, reloaded, has its old workers and the new ones


@pytest.fixture(scope="session", params=QUEUES)
def program_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab of this run's own."""
    lab = raise_or_skip("shm" if request.param == "kernel" else request.param, "p", PROCESSES)
    try:
        yield lab
    finally:
        lab.down()


@pytest.fixture
def bed(program_lab: Lab, tmp_path: Path, request: pytest.FixtureRequest) -> Bed:
    """The lab with a folder of this test's own."""
    return Bed(program_lab, tmp_path, request.node.callspec.params["program_lab"])


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """Files to serve and a certificate of its own authority."""
    root = tmp_path_factory.mktemp("site")
    large = root / "large.bin"
    large.write_bytes(os.urandom(1 << 20) * (LARGE_BYTES >> 20))
    with large.open("r+b") as file:  # no two blocks are equal
        for at in range(0, LARGE_BYTES, 1 << 16):
            file.seek(at)
            file.write(at.to_bytes(8, "big"))
    (root / "small.txt").write_text("a small file\n")
    (root / "index.html").write_text("<p>" + "x" * 590 + "</p>\n")
    made = self_signed(NET4, NET6, DPU4, DPU6, KERN4, KERN6, "127.0.0.1").write(root.parent, "site")
    return Site(root, large, hashlib.sha256(large.read_bytes()).hexdigest(), made.certificate, made.key)
