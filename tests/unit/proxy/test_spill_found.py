"""The spill buffer of a process that has died, as the next one finds it: all of it, and whatever that one may have
written over it, nothing outside of lasting memory is read."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from beds.memory_sum import memory_sum
from beds.native_core import compiler
from hypothesis import given
from hypothesis import strategies as st

TOP = Path(__file__).resolve().parents[3]
WORKER = TOP / "dpu_proxy" / "native"
SOURCES = ("connection/spill.c", "ulp/lasting.c", "ulp/block_lists.c")
#: Of a block: next (8), used, room, number (4 each), and then the sum of these.
HEAD_BYTES = 20
MOST = 1 << 20


class Piece(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("bytes", ctypes.c_size_t)]


class Spill(ctypes.Structure):
    _fields_ = [
        *(("head", ctypes.c_void_p), ("tail", ctypes.c_void_p)),
        *(("offset", ctypes.c_uint32), ("bytes", ctypes.c_uint32)),
    ]


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Any:
    library = tmp_path_factory.mktemp("spill") / "spill.so"
    command = [compiler(), "-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", f"-I{WORKER}"]
    subprocess.run([*command, "-o", str(library), *(str(WORKER / name) for name in SOURCES)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.lasting_offset.argtypes = [ctypes.c_void_p]
    loaded.lasting_offset.restype = ctypes.c_uint64
    loaded.spill_found.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p]
    loaded.spill_found.restype = ctypes.c_void_p
    assert loaded.lasting_make() == 0
    return loaded


def append(native: Any, spill: Spill, data: bytes, number: int) -> None:
    piece = Piece(data, len(data))
    assert native.spill_append(ctypes.byref(spill), ctypes.byref(piece), 1, ctypes.c_uint32(number)) == 0


def write(at: int, content: bytes) -> None:
    ctypes.memmove(at, bytes(content), len(content))


def found(native: Any, first: int) -> tuple[int, bytes]:
    """The number of the first byte, and all of them."""
    number, count = ctypes.c_uint32(), ctypes.c_uint32()
    data = native.spill_found(native.lasting_offset(first), MOST, ctypes.byref(number), ctypes.byref(count))
    if not data:
        return number.value, b""
    copy = ctypes.string_at(data, count.value)
    ctypes.CDLL(None).free(ctypes.c_void_p(data))
    return number.value, copy


@given(st.lists(st.binary(min_size=1, max_size=5_000), min_size=1, max_size=6), st.integers(0, 1 << 32), st.data())
def test_what_waits_is_found_with_its_numbers(
    native: Any, pieces: list[bytes], first: int, draw: st.DataObject
) -> None:
    spill, all_of_it = Spill(), b"".join(pieces)
    for number, piece in enumerate(pieces):
        append(native, spill, piece, (first + len(b"".join(pieces[:number]))) & 0xFFFFFFFF)
    dropped = draw.draw(st.integers(0, len(all_of_it) - 1))
    native.spill_drop(ctypes.byref(spill), dropped)
    number, data = found(native, spill.head)
    taken = (first + dropped - number) & 0xFFFFFFFF  # the first block may begin before
    assert taken < len(data)
    assert data[taken:] == all_of_it[dropped:]
    native.spill_free(ctypes.byref(spill))


@given(
    st.lists(st.integers(1, 70_000), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, HEAD_BYTES - 1), st.binary(min_size=1, max_size=8)), max_size=3),
    st.booleans(),
)
def test_nothing_of_it_is_believed(
    native: Any, sizes: list[int], changes: list[tuple[int, bytes]], loops: bool
) -> None:
    """Of the first block's head any bytes are others; or the chain is a circle. Its sum is right."""
    spill = Spill()
    for size in sizes:
        append(native, spill, bytes(size), 0)
    head = ctypes.string_at(spill.head, HEAD_BYTES + 4)
    changed = bytearray(head[:HEAD_BYTES])
    if loops:
        changed[:8] = spill.head.to_bytes(8, "little")
    for at, value in changes:
        changed[at : at + len(value)] = value[: HEAD_BYTES - at]
    write(spill.head, bytes(changed) + memory_sum(changed).to_bytes(4, sys.byteorder))
    assert len(found(native, spill.head)[1]) <= MOST
    write(spill.head, head)
    native.spill_free(ctypes.byref(spill))


def test_what_was_written_over_is_not_found(native: Any) -> None:
    """By the fault of which the process has died: one bit of the head is another one."""
    spill = Spill()
    append(native, spill, bytes(100), 7)
    append(native, spill, bytes(50_000), 107)
    head = ctypes.string_at(spill.head, HEAD_BYTES + 4)
    assert len(found(native, spill.head)[1]) == 50_100
    for bit in range(8 * len(head)):
        changed = bytearray(head)
        changed[bit // 8] ^= 1 << bit % 8
        write(spill.head, changed)
        assert found(native, spill.head)[1] == b"", bit
    write(spill.head, head)
    native.spill_free(ctypes.byref(spill))
