"""CRC32C: the vectors of RFC 3720 B.4, both ways of the code, and another implementation."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import google_crc32c
import pytest
from beds.native_core import NATIVE, compiler
from hypothesis import given
from hypothesis import strategies as st

#: RFC 3720 B.4; the digest in the order in which it is sent.
READ_10_PDU = bytes.fromhex(
    "01c00000 00000000 00000000 00000000 14000000 00000400 00000014 00000018 28000000 00000000 02000000 00000000"
)
VECTORS = {
    "zeros": (bytes(32), "aa36918a"),
    "ones": (b"\xff" * 32, "43aba862"),
    "incrementing": (bytes(range(32)), "4e79dd46"),
    "decrementing": (bytes(range(31, -1, -1)), "5cdb3f11"),
    "iSCSI SCSI Read (10) Command PDU": (READ_10_PDU, "563a96d9"),
}


@pytest.fixture(scope="module")
def code(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """crc32c.c by itself."""
    library: Path = tmp_path_factory.mktemp("crc32c") / "crc32c.so"
    flags = ["-std=gnu11", "-O2", "-shared", "-fPIC", f"-I{NATIVE}"]
    subprocess.run([compiler(), *flags, str(NATIVE / "common/crc32c.c"), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    for name in ("crc32c", "crc32c_by_table", "crc32c_by_instruction"):
        function = getattr(loaded, name)
        function.restype = ctypes.c_uint32
        function.argtypes = [ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t]
    loaded.crc32c_by_instruction.argtypes.append(ctypes.POINTER(ctypes.c_int))
    return loaded


def ways(code: ctypes.CDLL, crc: int, data: bytes, skip: int = 0) -> set[int]:
    """The digest by each way there is here; `skip` is the alignment of the data."""
    memory = ctypes.create_string_buffer(b"\0" * skip + data, skip + len(data) + 1)
    address = ctypes.addressof(memory) + skip
    found = {code.crc32c(crc, address, len(data)), code.crc32c_by_table(crc, address, len(data))}
    there = ctypes.c_int()
    value = code.crc32c_by_instruction(crc, address, len(data), ctypes.byref(there))
    return found | {value} if there.value else found


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_rfc_3720(code: ctypes.CDLL, name: str) -> None:
    data, digest = VECTORS[name]
    assert ways(code, 0, data) == {int.from_bytes(bytes.fromhex(digest), "little")}


@given(data=st.binary(max_size=300), cut=st.integers(0, 300), skip=st.integers(0, 7))
def test_ways_agree_whole_in_parts_and_unaligned(code: ctypes.CDLL, data: bytes, cut: int, skip: int) -> None:
    expected = {google_crc32c.value(data)}
    assert ways(code, 0, data, skip) == expected
    (first,) = ways(code, 0, data[:cut], skip)
    assert ways(code, first, data[cut:], skip) == expected
