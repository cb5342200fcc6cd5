"""Memory for keys in a process of its own, made as the arguments say: what `CASES` has, which prints a line."""

from __future__ import annotations

import errno
import os
import resource
import struct
import sys
from pathlib import Path

from beds.ulp_tls import AUTHORITY, SERVER, TlsBed, client_context, counts, exchange
from beds.without_memfd_secret import without_memfd_secret
from xts_proxy._native import ffi, lib

NOBODY = 65534


def make(size: int) -> str:
    """Why the kernel gave nothing better."""
    why = ffi.new("char[]", 256)
    assert lib.xts_tls_key_memory_open(size, why, 256) == 0
    return ffi.string(why).decode()


def with_little_to_lock() -> None:
    """As a user whom the system allows 64 KiB."""
    if os.geteuid() == 0:
        os.setuid(NOBODY)
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))


def flags_of(size: int) -> set[str]:
    """What the kernel says of the map of this size (proc_pid_smaps(5))."""
    size_line = f"Size: {size >> 10:>18} kB"
    text = Path("/proc/self/smaps").read_text()
    (one,) = [part for part in text.split("VmFlags:")[:-1] if size_line in part]
    return set(text.split(one)[1].splitlines()[0].split(":")[1].split())


def made(size: int) -> None:
    why = make(size)
    print(counts()["key_memory_kind"], " ".join(sorted(flags_of(size) & {"dd", "dc", "wf", "lo"})), why, sep="|")


def full() -> None:
    """There is room for one direction: connections stay with OpenSSL, and keys of a host are refused."""
    make(2048)
    with TlsBed() as bed:
        bed.add_identity("server", SERVER)
        bed.push("TLS", identity="server")
        peer = bed.accept_from(client_context(AUTHORITY.certificate))
        exchange(bed, peer)
        assert counts()["kept_memory"] == 1 and counts()["carried_ours"] == 0
        out = ffi.new("char[]", 96)
        lib.ulp_stack_carrier(bed.stack, 1, out, 96)
        refused = counts()["key_memory_refused"]
    print(ffi.string(out).decode(), refused > 0, counts()["key_memory_used"], sep="|")


def tight() -> None:
    """There is room for a connection, and for contexts that all have in common: none of its own."""
    make(3584)
    with TlsBed() as bed:
        bed.add_identity("server", SERVER)
        bed.push("TLS", identity="server")
        peer = bed.accept_from(client_context(AUTHORITY.certificate))
        for _ in range(3):
            exchange(bed, peer)
        assert counts()["kept_memory"] == 0 and counts()["carried_ours"] == 1
        print(counts()["key_memory_used"], counts()["key_memory_refused"] > 0, sep="|")


def rests() -> None:
    """What a connection has of it: at work, 999 ms and a second after that, with its next record, and with a record in
    one direction only."""
    make(1 << 20)
    with TlsBed() as bed:
        bed.add_identity("server", SERVER)
        bed.push("TLS", identity="server")
        peer = bed.accept_from(client_context(AUTHORITY.certificate))
        exchange(bed, peer)
        used = [counts()["key_memory_used"]]
        for pause_ms in (999, 1):
            bed.now_ns += pause_ms * 1_000_000
            assert bed.read_all() == []
            used.append(counts()["key_memory_used"])
        exchange(bed, peer)
        used.append(counts()["key_memory_used"])
        bed.now_ns += 1_000_000_000
        assert bed.read_all() == []
        peer.send(b"one direction")
        assert [pdu.data for pdu in bed.read_all()] == [b"one direction"]
        used.append(counts()["key_memory_used"])
    print(*used, sep="|")


def pushed() -> None:
    """The reason that a host is told."""
    make(1024)
    info = struct.pack("<HH", 0x0304, 51) + bytes(8 + 16 + 4 + 8)
    with TlsBed() as bed:
        bed.start()
        try:
            bed.push("TLS_KEYS", 2, crypto_info=info, crypto=1)
        except OSError as error:
            print(error.errno == errno.ENOMEM, error.strerror, sep="|")


CASES = {
    "secret": lambda: made(37 << 20),
    "locked": lambda: (without_memfd_secret(), made(37 << 20)),
    "plain": lambda: (with_little_to_lock(), made(37 << 20)),
    "full": full,
    "rests": rests,
    "tight": tight,
    "pushed": pushed,
}
CASES[sys.argv[1]]()
