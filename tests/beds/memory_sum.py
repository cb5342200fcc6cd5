"""Sums of what lies in memory that outlives a worker, as dpu_proxy/native/worker/memory_sum.h makes them."""

from __future__ import annotations

import struct
import sys


def memory_sum(data: bytes) -> int:
    found, words = 0xCBF29CE484222325, len(data) // 8 * 8
    for word in (*(word for (word,) in struct.iter_unpack("=Q", data[:words])), *data[words:]):
        found = (found ^ word) * 0x100000001B3 % (1 << 64)
    return found >> 32


def sum_of_words(*words: int) -> int:
    return memory_sum(b"".join(word.to_bytes(8, sys.byteorder) for word in words))


def summed_count(count: int) -> int:
    """memory_summed()"""
    return sum_of_words(count) << 32 | count
