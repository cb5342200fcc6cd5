"""Scripts of calls that only the interposer has, run on the kernel's sockets and under it: select, sendfile, splice,
vectors with an offset, ioctls, and what the kernel refuses in their arguments.

`python interposed_calls.py [SCRIPT …]` prints a JSON object, script name -> trace.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import select
import signal
import socket
import sys
import tempfile
from typing import Any

from beds.calls import Calls, address, print_traces
from beds.datagram_calls import datagram
from beds.libc_structs import PollFd, Vector
from beds.scripts import script, scripts
from system.sockets.programs.call_arguments import PLAIN

SCRIPTS = scripts("interposed calls")
NOWAIT, NOAPPEND = 8, 0x20  # RWF_NOWAIT, RWF_NOAPPEND


@script("interposed calls")
def more_descriptors_than_the_limit(c: Calls) -> None:
    """The array is shorter than its length says, and the kernel does not read it."""
    s, _peer = c.connected()
    fd, moment = PollFd(s, select.POLLIN, 0), (ctypes.c_long * 2)(0, 1000)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (before[0], 64, 20):
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
        for count in (limit + 1, limit + 100_000, 2**32, 2**60):
            c.do("poll", ctypes.byref(fd), ctypes.c_ulong(count), 1)
            c.do("ppoll", ctypes.byref(fd), ctypes.c_ulong(count), ctypes.byref(moment), None)
        many = (PollFd * limit)(*[PollFd(s, select.POLLOUT, 0)] * limit)
        c.do("poll", many, ctypes.c_ulong(limit), 0)
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@script("interposed calls")
def arguments_of_polls(c: Calls) -> None:
    s, _peer = c.connected()
    fd = PollFd(s, select.POLLIN | select.POLLOUT, 0)
    for bad in PLAIN[1:]:
        pointer = ctypes.c_void_p(bad)
        c.do("ppoll", ctypes.byref(fd), ctypes.c_ulong(1), None, pointer)
        c.do("ppoll", pointer, ctypes.c_ulong(1), None, None)


@script("interposed calls")
def arguments_of_selects(c: Calls) -> None:
    s, _peer = c.connected()
    long_bits = 64
    bits = (ctypes.c_ulong * 16)()
    bits[s // long_bits] |= 1 << s % long_bits
    none = (ctypes.c_long * 2)(0, 0)
    # (Not the timeouts: the C library itself reads them.)
    for bad in PLAIN[1:]:
        pointer = ctypes.c_void_p(bad)
        for sets in ((pointer, None, None), (None, pointer, None), (bits, None, pointer)):
            c.do("select", s + 1, *sets, ctypes.byref(none))
    for count in (-1, -(2**31), 0):
        c.do("select", count, None, bits, None, ctypes.byref(none))


@script("interposed calls")
def sets_shorter_than_they_say(c: Calls) -> None:
    """The kernel reads no more of them than its own table has descriptors."""
    s, _peer = c.connected()
    page = mmap.mmap(-1, 2 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(page))
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    at = start + mmap.PAGESIZE - 128
    for count in (1024, 100_000, 2**31 - 1):
        ctypes.memset(at, 0, 128)
        (ctypes.c_ulong * 16).from_address(at)[s // 64] |= 1 << s % 64
        c.do("select", count, None, ctypes.c_void_p(at), None, (ctypes.c_long * 2)(0, 0))


@script("interposed calls")
def arguments_of_vectors(c: Calls) -> None:
    s, peer = c.connected()
    peer.sendall(b"0123456789")
    c.wait(s, select.POLLIN)
    room = ctypes.create_string_buffer(b"data", 4)
    good = Vector(ctypes.addressof(room), 4)
    for call in ("writev", "readv"):
        for bad in PLAIN:
            c.do(call, s, ctypes.c_void_p(bad), 1)
            c.do(call, s, ctypes.c_void_p(bad), 0)
            c.do(call, s, ctypes.byref(Vector(bad, 100)), 1)
        for count in (-1, 1025, 2**31 - 1):
            c.do(call, s, ctypes.byref(good), count)
    for bad in PLAIN:
        c.do("write", s, ctypes.c_void_p(bad), 4)
        c.do("write", s, ctypes.c_void_p(bad), 0)
        c.do("read", s, ctypes.c_void_p(bad), 0)
        c.do("read", s, ctypes.c_void_p(bad), 4)
    c.recv(s, 20)


def _kernel_takes(flag: int) -> bool:
    file = os.memfd_create("any")
    try:
        os.pwritev(file, [b"data"], 0, flag)
    except OSError:
        return False
    finally:
        os.close(file)
    return True


@script("interposed calls")
def flags_of_vectors(c: Calls) -> None:
    """HIPRI, DSYNC, SYNC, APPEND mean nothing on a socket."""
    s, peer = c.connected()
    room = ctypes.create_string_buffer(b"data", 4)
    good = Vector(ctypes.addressof(room), 4)
    newer = (NOAPPEND, 16 | NOAPPEND) if _kernel_takes(NOAPPEND) else ()
    for flags in (0, 1, 2, 4, 16, 31, NOWAIT, *newer, 1 << 20, 1 << 30):
        n = c.do("pwritev2", s, ctypes.byref(good), 1, ctypes.c_long(-1), flags)
        c.note("peer", peer.recv(99).decode() if n > 0 else "")
        peer.sendall(b"answer")
        c.wait(s, select.POLLIN)
        c.do("preadv2", s, ctypes.byref(good), 1, ctypes.c_long(-1), flags)
        c.note("data", room.raw.hex())
        c.recv(s, 10, socket.MSG_DONTWAIT)
        room.raw = b"data"
        c.do("pwritev2", s, ctypes.byref(good), 1, ctypes.c_long(0), flags)
    c.do("preadv2", s, ctypes.byref(good), 1, ctypes.c_long(-1), NOWAIT)
    for call in ("preadv2", "pwritev2"):
        c.do(call, s, ctypes.byref(good), 1, ctypes.c_long(-2), NOWAIT)


# --- sendfile and splice -------------------------------------------------------------------------------


@script("interposed calls")
def sources_of_sendfile(c: Calls) -> None:
    c.native.sendfile.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    s, peer = c.connected()
    reads, _writes = os.pipe()
    unix, _ = socket.socketpair()
    with tempfile.TemporaryFile() as file:
        file.write(b"in a file")
        file.flush()
        sources = {
            name: os.open(name, os.O_RDONLY) for name in ("/dev/zero", "/dev/null", "/dev/full", "/", "/proc/self/maps")
        }
        sources |= {"pipe": reads, "unix": unix.fileno(), "event": os.eventfd(1), "file": file.fileno()}
        sources |= {"memory": os.memfd_create("m"), "nothing": 12_345, "write only": os.open("/dev/zero", os.O_WRONLY)}
        os.write(sources["memory"], b"in memory")
        for name, source in sources.items():
            for at in (None, 0, 3, -1):
                where = None if at is None else ctypes.byref(ctypes.c_long(at))
                n = c.call("sendfile", s, source, where, 5)
                c.note(name, [at, n])
                c.note("peer", peer.recv(n, socket.MSG_WAITALL).hex() if n > 0 and "/proc" not in name else "")
                if n > 0 and "/proc" in name:
                    peer.recv(n, socket.MSG_WAITALL)
        for bad in PLAIN[1:]:
            c.do("sendfile", s, file.fileno(), ctypes.c_void_p(bad), 5)
        for name in ("file", "memory", "/dev/null", "/", "write only", "pipe"):
            for at in (0, 5, 2**62, -1):
                for count in (0, 2**63 - 1, 2**63, 2**64 - 1):
                    if at or count != 2**63 - 1:
                        c.do("sendfile", s, sources[name], ctypes.byref(ctypes.c_long(at)), count)


@script("interposed calls")
def sendfile_from_a_socket(c: Calls) -> None:
    """A pipe takes it, as with splice(), and nothing else."""
    c.native.sendfile.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    s, peer = c.connected()
    listener, fresh = c.create(), c.create()
    c.bind(listener, 0)
    c.do("listen", listener, 1)
    reads, writes = os.pipe()
    read_only, write_only = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_WRONLY)
    peer.sendall(b"0123456789")
    c.wait(s, select.POLLIN)
    for into in (writes, reads, read_only, write_only, s, os.memfd_create("m"), 12_345):
        for count in (0, 3):
            n = c.call("sendfile", into, s, None, count)
            c.note("taken", [n, os.read(reads, n).hex() if n > 0 else ""])
        for where in (ctypes.byref(ctypes.c_long(0)), *map(ctypes.c_void_p, PLAIN[1:])):
            c.note("with an offset", c.call("sendfile", into, s, where, 3))
    for other in (listener, fresh):
        c.note("without a peer", c.call("sendfile", writes, other, None, 3))
    os.set_blocking(writes, False)
    c.note("the rest", [c.call("sendfile", writes, s, None, 1000), os.read(reads, 1000).hex()])
    peer.close()
    c.wait(s, select.POLLIN)
    c.note("the end", c.call("sendfile", writes, s, None, 3))
    os.write(writes, bytes(1 << 20))  # as much as goes in
    c.note("a full pipe", c.call("sendfile", writes, s, None, 3))
    os.close(reads)
    c.note("nobody reads", c.call("sendfile", writes, s, None, 3))


@script("interposed calls")
def into_a_pipe_that_nobody_reads(c: Calls) -> None:
    c.native.splice.restype = ctypes.c_ssize_t
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    s, peer = c.connected()
    reads, writes = os.pipe()
    for flags in (0, 2):  # SPLICE_F_NONBLOCK
        peer.sendall(b"some")
        c.wait(s, select.POLLIN)
        c.do("splice", s, None, writes, None, ctypes.c_size_t(10), flags)
        c.note("piped", os.read(reads, 10).hex())
    os.close(reads)
    for flags in (0, 2):
        c.do("splice", s, None, writes, None, ctypes.c_size_t(10), flags)
    peer.sendall(b"some")
    c.wait(s, select.POLLIN)
    c.do("splice", s, None, writes, None, ctypes.c_size_t(10), 0)
    c.recv(s, 10, socket.MSG_DONTWAIT)
    for bad in PLAIN[1:]:
        c.do("splice", s, ctypes.c_void_p(bad), writes, None, ctypes.c_size_t(10), 0)
        c.do("splice", s, None, writes, ctypes.c_void_p(bad), ctypes.c_size_t(10), 0)


@script("interposed calls")
def flags_of_splice(c: Calls) -> None:
    c.native.splice.restype = ctypes.c_ssize_t
    s, peer = c.connected()
    reads, writes = os.pipe()
    peer.sendall(b"0123456789")
    c.wait(s, select.POLLIN)
    os.write(writes, b"in a pipe")
    for flags in (1, 4, 8, 15, 16, 1 << 31, -1):
        c.do("splice", s, None, writes, None, ctypes.c_size_t(1), flags)
        c.do("splice", reads, None, s, None, ctypes.c_size_t(1), flags)
    c.note("peer", peer.makefile("rb", buffering=4).read(4).hex())


# --- ioctls ---------------------------------------------------------------------------------------------

#: Questions of netdevice(7), arp(7) and socket(7), which change nothing.
QUESTIONS = {
    "SIOCGIFNAME": 0x8910, "SIOCGIFCONF": 0x8912, "SIOCGIFFLAGS": 0x8913, "SIOCGIFADDR": 0x8915,
    "SIOCGIFDSTADDR": 0x8917, "SIOCGIFBRDADDR": 0x8919, "SIOCGIFNETMASK": 0x891B, "SIOCGIFMETRIC": 0x891D,
    "SIOCGIFMTU": 0x8921, "SIOCGIFHWADDR": 0x8927, "SIOCGIFINDEX": 0x8933, "SIOCGIFPFLAGS": 0x8935,
    "SIOCGIFCOUNT": 0x8938, "SIOCGIFTXQLEN": 0x8942, "SIOCETHTOOL": 0x8946, "SIOCGARP": 0x8954, "SIOCGRARP": 0x8961,
    "SIOCGIFMAP": 0x8970, "SIOCGIFVLAN": 0x8982, "FIOGETOWN": 0x8903, "SIOCGPGRP": 0x8904, "SIOCPROTOPRIVATE": 0x89E5,
    "TCGETS": 0x5401, "TIOCGWINSZ": 0x5413, "FIGETBSZ": 2, "FIOQSIZE": 0x5460, "unknown": 0x12345678,
    "unknown of sockets": 0x89AF,
}  # fmt: skip


def _question(name: str) -> Any:
    """Memory for an answer, with what the request asks about: the loopback interface."""
    room = ctypes.create_string_buffer(4096)
    if name == "SIOCGIFCONF":
        ctypes.memmove(room, (ctypes.c_long * 2)(1024, ctypes.addressof(room) + 1024), 16)
    elif name == "SIOCGIFNAME":
        ctypes.memmove(ctypes.addressof(room) + 16, (ctypes.c_int * 1)(1), 4)
    elif name.startswith("SIOC"):
        room.value = b"lo"
    return room


@script("interposed calls")
def questions_about_this_host(c: Calls) -> None:
    """Any socket serves to ask them."""
    (connected, _peer), listener, u = c.connected(), c.create(), datagram(c)
    c.bind(listener, 0)
    c.do("listen", listener, 1)
    c.do("connect", u, address(9), 16)
    for name, request in QUESTIONS.items():
        for s in (connected, listener, u):
            room = _question(name)
            r = c.call("ioctl", s, ctypes.c_ulong(request), room)
            c.note(name, [r, room.raw[:40].hex() if r >= 0 and name != "SIOCGIFCONF" else ""])
    for request in (QUESTIONS["SIOCGIFADDR"], QUESTIONS["FIOGETOWN"]):
        for bad in PLAIN:
            c.do("ioctl", connected, ctypes.c_ulong(request), ctypes.c_void_p(bad))


def main() -> None:
    print_traces(SCRIPTS, "kernel", sys.argv[1:] or SCRIPTS)


if __name__ == "__main__":
    main()
