"""Scripts of calls by number, syscall(2), run on the kernel's sockets and under the interposer.

`python calls_by_number.py [SCRIPT …]` prints a JSON object, script name -> trace.
"""

from __future__ import annotations

import ctypes
import os
import platform
import select
import socket
import sys
from typing import Any

from beds.calls import Calls, print_traces
from beds.libc_structs import PollFd, Vector
from beds.scripts import script, scripts
from system.sockets.programs.call_arguments import PLAIN, Protected, header

SCRIPTS = scripts("calls by number")
#: x86-64, arm64
NUMBERS = {
    "select": (23, None), "pselect6": (270, 72), "ppoll": (271, 73), "epoll_pwait": (281, 22),
    "preadv2": (327, 286), "pwritev2": (328, 287), "splice": (275, 76), "sendmsg": (46, 211), "recvmsg": (47, 212),
    "fstat": (5, 80), "newfstatat": (262, 79), "statx": (332, 291),
    "execve": (59, 221), "execveat": (322, 281), "clone3": (435, 435), "exit_group": (231, 94),
}  # fmt: skip
EMPTY_PATH = 0x1000


def by_number(c: Calls, name: str, *arguments: Any) -> None:
    number = NUMBERS[name][platform.machine() != "x86_64"]
    if number is not None:
        c.native.syscall.restype = ctypes.c_long
        full = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
        c.result(name, c.call("syscall", ctypes.c_long(number), *full))


def _set_of(s: int) -> Any:
    bits = (ctypes.c_ulong * 16)()
    bits[s // 64] = 1 << s % 64
    return bits


def _moment(seconds: int = 0, fraction: int = 0) -> Any:
    return (ctypes.c_long * 2)(seconds, fraction)


@script("calls by number")
def waits(c: Calls) -> None:
    s, peer = c.connected()
    for _ in range(2):
        for name in ("select", "pselect6"):
            for k in range(3):
                bits = _set_of(s)
                sets = [bits if each == k else None for each in range(3)]
                by_number(c, name, s + 1, *sets, _moment(), None)
                c.note("set", bits[s // 64] != 0)
        fd = PollFd(s, select.POLLIN | select.POLLOUT, 0)
        by_number(c, "ppoll", ctypes.byref(fd), 1, _moment(), None, 8)
        c.note("events", fd.revents)
        peer.sendall(b"x")
        c.wait(s, select.POLLIN)


@script("calls by number")
def arguments_of_waits_by_number(c: Calls) -> None:
    s, _peer = c.connected()
    fd, hidden = PollFd(s, select.POLLOUT, 0), Protected()
    events = ctypes.create_string_buffer(64)
    handle = c.native.epoll_create1(0)
    for bad in (*PLAIN[1:], hidden.address):
        pointer = ctypes.c_void_p(bad)
        for name in ("select", "pselect6"):
            by_number(c, name, s + 1, None, _set_of(s), None, pointer, None)
        by_number(c, "pselect6", s + 1, None, _set_of(s), None, _moment(), pointer)
        by_number(c, "pselect6", s + 1, None, _set_of(s), None, _moment(), (ctypes.c_ulong * 2)(bad, 8))
        by_number(c, "ppoll", ctypes.byref(fd), 1, pointer, None, 8)
        by_number(c, "ppoll", ctypes.byref(fd), 1, _moment(), pointer, 8)
        by_number(c, "epoll_pwait", handle, events, 1, 0, pointer, 8)
    mask = (ctypes.c_ulong * 16)()
    for size in (0, 4, 16):
        by_number(c, "ppoll", ctypes.byref(fd), 1, _moment(), mask, size)
        by_number(
            c, "pselect6", s + 1, None, _set_of(s), None, _moment(), (ctypes.c_ulong * 2)(ctypes.addressof(mask), size)
        )
    by_number(c, "pselect6", s + 1, None, _set_of(s), None, _moment(), (ctypes.c_ulong * 2)(ctypes.addressof(mask), 8))
    by_number(c, "pselect6", s + 1, None, _set_of(s), None, _moment(), (ctypes.c_ulong * 2)(0, 77))
    for moment in (_moment(-1), _moment(0, -1), _moment(0, 10**9)):
        by_number(c, "pselect6", s + 1, None, _set_of(s), None, moment, None)
        by_number(c, "ppoll", ctypes.byref(fd), 1, moment, None, 8)


@script("calls by number")
def data_by_number(c: Calls) -> None:
    s, peer = c.connected()
    reads, writes = os.pipe()
    room = ctypes.create_string_buffer(b"data", 4)
    piece = Vector(ctypes.addressof(room), 4)
    by_number(c, "pwritev2", s, ctypes.byref(piece), 1, -1, -1, 0)
    c.note("peer", peer.recv(9).hex())
    peer.sendall(b"01234567")
    c.wait(s, select.POLLIN)
    by_number(c, "preadv2", s, ctypes.byref(piece), 1, -1, -1, 8)
    c.note("data", room.raw.hex())
    by_number(c, "splice", s, None, writes, None, 4, 0)
    by_number(c, "splice", reads, None, s, None, 4, 0)
    c.note("peer", peer.recv(9).hex())


@script("calls by number")
def files_by_number(c: Calls) -> None:
    """Each way to ask for a connection's number in its file system has the same answer."""
    s, _peer = c.connected()
    made = os.fstat(s).st_ino
    for name, at, *arguments in (
        ("fstat", 8),
        ("newfstatat", 8, b"", EMPTY_PATH),
        ("statx", 32, b"", EMPTY_PATH, 0x100),
    ):
        room = ctypes.create_string_buffer(256)
        place = [room] if name != "newfstatat" else [arguments[0], room, arguments[1]]
        by_number(c, name, s, *(place if name != "statx" else [*arguments, room]))
        c.note("is the same", int.from_bytes(room.raw[at : at + 8], sys.byteorder) == made)
    by_number(c, "fstat", s, None)
    by_number(c, "newfstatat", s, b"not there", ctypes.create_string_buffer(256), EMPTY_PATH)


@script("calls by number")
def over_a_unix_socket(c: Calls) -> None:
    """A descriptor that passes is the same socket."""
    s, peer = c.connected()
    here, there = socket.socketpair()
    room = ctypes.create_string_buffer(64)
    at = ctypes.addressof(room)
    room.raw = bytes(header_of_rights(s)).ljust(64, b"\0")
    made = header(at + 32, 1, control=at, control_bytes=24)
    by_number(c, "sendmsg", here.fileno(), ctypes.byref(made), 0)
    got = header(at + 32, 1, control=at, control_bytes=24)
    by_number(c, "recvmsg", there.fileno(), ctypes.byref(got), 0)
    passed = ctypes.c_int.from_address(at + 16).value
    c.note("is another", passed != s)
    c.close(s)
    c.send(passed, b"passed")
    c.note("peer", peer.recv(9).hex())


def header_of_rights(s: int) -> Any:
    class Rights(ctypes.Structure):
        _fields_ = (("size", ctypes.c_size_t), ("level", ctypes.c_int), ("kind", ctypes.c_int), ("fd", ctypes.c_int))

    return Rights(20, socket.SOL_SOCKET, socket.SCM_RIGHTS, s)


def _strings(*texts: str) -> Any:
    return (ctypes.c_char_p * (len(texts) + 1))(*[text.encode() for text in texts], None)


@script("calls by number")
def a_new_program(c: Calls) -> None:
    """It has the connection, and nothing that was sent before is lost."""
    program = b"/bin/sh"
    for name in ("execve", "execveat"):
        s, peer = c.connected()
        os.set_inheritable(s, True)
        arguments = _strings("sh", "-c", f"echo from the program >&{s}")
        environment = _strings(*[f"{key}={value}" for key, value in os.environ.items()])
        sys.stdout.flush()
        child = os.fork()
        if not child:
            c.send(s, b"before. ")
            if name == "execve":
                by_number(c, name, program, arguments, environment)
            else:
                by_number(c, name, os.open(program, os.O_PATH), b"", arguments, environment, EMPTY_PATH)
            os._exit(9)
        c.note("status", os.waitpid(child, 0)[1])
        c.close(s)
        c.note("peer", peer.makefile().read())


@script("calls by number")
def an_end(c: Calls) -> None:
    s, peer = c.connected()
    child = os.fork()
    if not child:
        c.send(s, bytes(200_000))
        by_number(c, "exit_group", 3)
    c.close(s)
    c.note("peer", len(peer.makefile("rb").read()))
    c.note("status", os.waitpid(child, 0)[1])


@script("calls by number")
def arguments_of_processes(c: Calls) -> None:
    """The program goes on."""
    c.connected()
    hidden, true = Protected(), b"/bin/true"
    for bad in (*PLAIN[1:], hidden.address):
        pointer = ctypes.c_void_p(bad)
        by_number(c, "clone3", pointer, 88)
        for call in (c.do, lambda name, *arguments: by_number(c, name, *arguments)):
            call("execve", true, _strings("true"), pointer)
            call("execve", true, _strings("true"), (ctypes.c_void_p * 2)(bad, None))
            call("execve", true, pointer, _strings())
            call("execve", pointer, _strings("true"), _strings())
    c.do(
        "posix_spawn", ctypes.byref(ctypes.c_int()), true, None, None, _strings("true"), ctypes.c_void_p(hidden.address)
    )


def main() -> None:
    print_traces(SCRIPTS, "kernel", sys.argv[1:] or SCRIPTS)


if __name__ == "__main__":
    main()
