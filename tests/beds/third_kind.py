"""A kind of queue that the product does not have (native/queue_packets.c), added by the registry alone."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from xts_messages._native import ffi, lib
from xts_messages.queues.queue import Queue, check
from xts_messages.queues.queue_kinds import HOST, PROXY, SHM, QueueEnd, QueueOptions, open_ends

from beds.native_core import NATIVE, compiler

SOURCE = Path(__file__).parent / "native" / "queue_packets.c"
PACKETS = 200
#: The kinds that need no interface.
KINDS = (SHM, PACKETS)


@cache
def add() -> None:
    """Adds it to this process, once."""
    folder = Path(tempfile.mkdtemp(prefix="xts-kind-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = folder / "kind.so"
    warnings = ["-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wshadow"]
    how = ["-shared", "-fPIC", "-O1", "-g", "-std=gnu11", "-D_GNU_SOURCE", f"-I{NATIVE}"]
    subprocess.run([compiler(), *how, *warnings, str(SOURCE), "-o", str(made)], check=True)
    address = ctypes.addressof(ctypes.c_char.in_dll(ctypes.CDLL(str(made)), "xts_queue_packets"))
    check(lib.xts_queue_kind_add(ffi.cast("struct xts_queue_kind *", address)), "adding a kind")


def open_queue(kind: int, options: QueueOptions) -> tuple[QueueEnd, QueueEnd]:
    """Both ends, not in use yet."""
    if kind == PACKETS:
        add()
    return open_ends(kind, options)


_SMALL = QueueOptions(16)


def open_pair(kind: int, options: QueueOptions = _SMALL) -> tuple[Queue, Queue]:
    """Both ends in this process, the host's and the proxy's."""
    host, proxy = open_queue(kind, options)
    shared = set(host.descriptors) & set(proxy.descriptors)
    one = QueueEnd(host.geometry, tuple(_copy(fd, shared) for fd in host.descriptors)).adopt_or_close(HOST)
    try:
        return one, proxy.adopt_or_close(PROXY)
    except OSError:
        one.close()
        raise


def _copy(fd: int, shared: set[int]) -> int:
    return os.dup(fd) if fd in shared else fd
