"""Waits that signals and time end; waits by the number of the system call."""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from beds.scripts import script
from system.waiting.programs.wait_bed import (
    IN,
    LIBC,
    Run,
    alarm_after,
    handling_alarms,
)

SA_RESTORER = 0x04000000


class Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


@script("waits")
def signals_interrupt(c: Run) -> None:
    s, _ = c.connected()
    r, _ = c.pipe()
    e = c.epoll()
    e.register(s, IN)
    e.register(r, IN)
    fds = (ctypes.c_uint64 * 2)(s.fileno() | 1 << 32, r | 1 << 32)
    bits = (ctypes.c_ulong * 16)()
    event = (ctypes.c_uint8 * 24)()
    empty = (ctypes.c_ulong * 16)()
    full = (ctypes.c_ulong * 16)(1 << (signal.SIGALRM - 1))
    limit = Timespec(2, 0)

    def with_bits(call: Callable[[], int]) -> int:
        bits[s.fileno() // 64] |= 1 << s.fileno() % 64
        return call()

    waits: dict[str, Callable[[Any], int]] = {
        "poll": lambda _: LIBC.poll(fds, 2, 2000),
        "ppoll": lambda mask: LIBC.ppoll(fds, 2, ctypes.byref(limit), mask),
        "select": lambda _: with_bits(lambda: LIBC.select(s.fileno() + 1, bits, None, None, None)),
        "pselect": lambda mask: with_bits(
            lambda: LIBC.pselect(s.fileno() + 1, bits, None, None, ctypes.byref(limit), mask)
        ),
        "epoll_wait": lambda _: LIBC.epoll_wait(e.fileno(), event, 2, -1),
        "epoll_pwait": lambda mask: LIBC.epoll_pwait(e.fileno(), event, 2, 2000, mask),
        "epoll_pwait2": lambda mask: LIBC.epoll_pwait2(e.fileno(), event, 2, ctypes.byref(limit), mask),
    }
    for name, wait in waits.items():
        for restart in (False, True):
            with alarm_after(0.03, restart) as seen:
                c.note(name, [wait(None), errno.errorcode[ctypes.get_errno()], len(seen)])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    for name in ("ppoll", "pselect", "epoll_pwait", "epoll_pwait2"):
        with alarm_after(0.03, True) as seen:
            c.note(name + " unblocks", [waits[name](empty), errno.errorcode[ctypes.get_errno()], len(seen)])
        limit.sec, limit.nsec = 0, 50_000_000
        if name != "epoll_pwait":
            with alarm_after(0.01, True) as seen:
                c.note(name + " blocks", [waits[name](full), len(seen)])
                signal.sigtimedwait({signal.SIGALRM}, 1)
        limit.sec, limit.nsec = 2, 0
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})


def fill(s: socket.socket) -> int:
    """Until not a byte more is taken, for a while. How many bytes."""
    count, part = 0, 1 << 16
    s.setblocking(False)
    writable = select.poll()
    writable.register(s, select.POLLOUT)
    while part:
        try:
            count += s.send(bytes(part))
        except BlockingIOError:
            if not writable.poll(200):
                part //= 16
    s.setblocking(True)
    return count


@script("waits")
def calls_are_made_again(c: Run) -> None:
    """Or not: as the handler says that ran, whatever others are installed. Never with a timeout."""
    s, end = c.connected()
    full, full_end = c.connected()
    listener = c.listening()
    port = listener.getsockname()[1]
    buffer = (ctypes.c_uint8 * 8)()
    part = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 1)
    message = (ctypes.c_uint64 * 7)(0, 0, ctypes.addressof(part), 1)
    calls: dict[str, tuple[socket.socket, Callable[[], int], Callable[[], object]]] = {
        "recv": (s, lambda: LIBC.recv(s.fileno(), buffer, 1, 0), lambda: c.behind_a_signal("send", end, "x")),
        "read": (s, lambda: LIBC.read(s.fileno(), buffer, 1), lambda: c.behind_a_signal("send", end, "x")),
        "recvmsg": (s, lambda: LIBC.recvmsg(s.fileno(), message, 0), lambda: c.behind_a_signal("send", end, "x")),
        "accept": (
            listener,
            lambda: LIBC.accept(listener.fileno(), None, None),
            lambda: c.behind_a_signal("connect", port),
        ),
        "send": (
            full,
            lambda: LIBC.send(full.fileno(), buffer, 1, 0),
            lambda: c.behind_a_signal("drain", full_end, fill(full)),
        ),
    }
    signal.signal(signal.SIGUSR2, lambda *_: None)
    for name, (sock, call, prepare) in calls.items():
        for restart, other_restarts, timeout_s in ((False, True, 0), (True, False, 0), (True, True, 5)):
            signal.siginterrupt(signal.SIGUSR2, not other_restarts)
            limit = struct.pack("ll", timeout_s, 0)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO if name == "send" else socket.SO_RCVTIMEO, limit)
            with handling_alarms(restart) as seen:
                prepare()
                r = call()
            c.note(name, [restart, timeout_s, r >= 0 or errno.errorcode[ctypes.get_errno()], len(seen)])
            if r < 0:
                r = call()  # what had been prepared
                c.note(name, r >= 0)
            if name == "accept":
                os.close(r)
    signal.signal(signal.SIGUSR2, signal.SIG_DFL)


@script("waits")
def handlers_are_told(c: Run) -> None:
    """What sigaction() says is installed is what the program has installed."""
    c.connected()
    old = (ctypes.c_uint64 * 19)()
    flags = 0xFFFFFFFF

    def installed() -> list[object]:
        LIBC.sigaction(int(signal.SIGUSR2), None, old)
        return [old[0] == mine, old[17] & flags & ~SA_RESTORER if old[0] > 1 else old[0]]

    for kind in ("signal", "sysv_signal", "sigset"):
        seen: list[int] = []

        @ctypes.CFUNCTYPE(None, ctypes.c_int)
        def handler(number: int, seen: list[int] = seen) -> None:
            seen.append(number)

        mine = ctypes.cast(handler, ctypes.c_void_p).value
        getattr(LIBC, kind)(int(signal.SIGUSR2), handler)
        c.note(kind, installed())
        LIBC.siginterrupt(int(signal.SIGUSR2), 1)
        c.note(kind, installed())
        os.kill(os.getpid(), signal.SIGUSR2)
        c.note(kind, [len(seen), *installed()])
        LIBC.siginterrupt(int(signal.SIGUSR2), 0)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        c.note(kind, installed())
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    ctypes.set_errno(0)
    c.note("SIGKILL", [LIBC.sigaction(int(signal.SIGKILL), old, None), ctypes.get_errno()])
    c.note("no signal", [LIBC.sigaction(65, None, old), ctypes.get_errno()])


@script("waits")
def timeouts(c: Run) -> None:
    s, _ = c.connected()
    e = c.epoll()
    e.register(s, IN)
    fds = (ctypes.c_uint64 * 1)(s.fileno() | 1 << 32)
    event = (ctypes.c_uint8 * 12)()
    for sec, nsec in ((0, 300_000), (0, 20_000_000), (-1, 0), (0, 1_000_000_000), (0, -1), (0, 0)):
        limit = Timespec(sec, nsec)
        reference = ctypes.byref(limit)
        waits: dict[str, Callable[[], int]] = {
            "ppoll": partial(LIBC.ppoll, fds, 1, reference, None),
            "epoll_pwait2": partial(LIBC.epoll_pwait2, e.fileno(), event, 1, reference, None),
        }
        for name, wait in waits.items():
            ctypes.set_errno(0)
            begin = time.monotonic()
            r = wait()
            took = time.monotonic() - begin
            c.note(name, [sec, nsec, r, ctypes.get_errno(), took >= sec + nsec / 1e9 or r < 0, took < 1])


@script("waits")
def system_calls_by_number(c: Run) -> None:
    if os.uname().machine != "x86_64":
        c.note("numbers", "of another machine")
        return
    s, end = c.connected()
    e = LIBC.syscall(291, 0)
    c.kept.callback(os.close, e)
    event = (ctypes.c_uint8 * 12)(1)
    c.note("epoll_ctl", LIBC.syscall(233, e, 1, s.fileno(), event))
    c.note("nothing", LIBC.syscall(232, e, event, 1, 0))
    c.later(end, "hello")
    c.note("epoll_wait", LIBC.syscall(232, e, event, 1, 5000))
    buffer = ctypes.create_string_buffer(10)
    c.note("read", [LIBC.syscall(0, s.fileno(), buffer, 10), buffer.raw[:5].decode()])
    c.note("write", LIBC.syscall(1, s.fileno(), b"abc", 3))
    c.note("peer", c.peer.ask("recv", end, 3))
    copy = LIBC.syscall(32, s.fileno())
    c.note("sendto", LIBC.syscall(44, copy, b"def", 3, 0, None, 0))
    c.note("peer", c.peer.ask("recv", end, 3))
    c.note("close", [LIBC.syscall(3, copy), LIBC.syscall(3, copy), ctypes.get_errno()])
    new = LIBC.syscall(41, socket.AF_INET, socket.SOCK_STREAM, 0)
    where = (
        socket.AF_INET.to_bytes(2, "little") + c.peer.ask("port").to_bytes(2, "big") + bytes([127, 0, 0, 1]) + bytes(8)
    )
    c.note("connect", LIBC.syscall(42, new, where, 16))
    c.note("write", LIBC.syscall(1, new, b"xyz", 3))
    c.note("peer", c.peer.ask("recv", c.peer.ask("accept"), 3))
    os.close(new)
