"""Waits of libxts for XTS sockets and kernel descriptors at once: `python mixed_scripts.py LIBRARY NAME`.

What the interposer builds poll, select and epoll from (host_lib/native/xts_private.h), used here without it.
Each script is a process of its own and asserts; the exit status tells.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from beds.calls import DEADLINE_S, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD, Calls
from beds.libc_structs import EpollEvent, PollFd
from beds.scripts import apart, script, scripts

SCRIPTS = scripts("mixed waits")
FOREVER = 2**64 - 1
IN, OUT, ET, ONESHOT = select.EPOLLIN, select.EPOLLOUT, select.EPOLLET, select.EPOLLONESHOT
Sleep = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_void_p, use_errno=True
)
Look = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, use_errno=True)


class KernelCalls(ctypes.Structure):
    _fields_ = (
        ("ppoll", Sleep),
        ("epoll_wait", Look),
        ("syscall", ctypes.c_void_p),
        ("sigaction", ctypes.c_void_p),
        ("getsockopt", ctypes.c_void_p),
    )


class PolledContext(ctypes.Structure):
    _fields_ = (("ectx", ctypes.c_void_p), ("events", ctypes.c_short), ("revents", ctypes.c_short))


def pair_of_pipes() -> tuple[int, int]:
    return os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)


def signals(*numbers: int) -> ctypes.Array[ctypes.c_ulong]:
    """A sigset_t."""
    mask = (ctypes.c_ulong * 16)()
    for number in numbers:
        mask[0] |= 1 << (number - 1)
    return mask


def later(delay_s: float, action: Callable[[], object]) -> None:
    threading.Timer(delay_s, action).start()


class Mixed(Calls):
    def __init__(self, library: str) -> None:
        super().__init__(library)
        self.native.xts_epoll_ctx_create.restype = ctypes.c_void_p
        self.native.xts_now_ns.restype = ctypes.c_uint64
        self.looks, self.sleeps = 0, 0
        libc = ctypes.CDLL(None, use_errno=True)

        def ppoll(fds: Any, count: int, timeout: Any, mask: Any) -> int:
            self.sleeps += 1
            return int(
                libc.ppoll(ctypes.c_void_p(fds), ctypes.c_ulong(count), ctypes.c_void_p(timeout), ctypes.c_void_p(mask))
            )

        def epoll_wait(fd: int, events: Any, count: int, timeout_ms: int) -> int:
            self.looks += 1
            return int(libc.epoll_wait(fd, ctypes.c_void_p(events), count, timeout_ms))

        self.counting = KernelCalls(Sleep(ppoll), Look(epoll_wait))

    def count_kernel_calls(self) -> None:
        """From now on libxts' looks at kernel sets, and its sleeps, are counted."""
        self.native.xts_use_kernel_calls(ctypes.byref(self.counting))

    def deadline(self, timeout_s: float | None) -> int:
        if timeout_s is None:
            return FOREVER
        return int(self.native.xts_now_ns()) + int(timeout_s * 1e9) if timeout_s else 0

    def poll(
        self,
        ours: dict[int, int],
        kernels: dict[int, int],
        timeout_s: float | None = 0,
        mask: Any = None,
        contexts: Any = (),
    ) -> tuple[int, dict[int, int], dict[int, int], list[int]]:
        """Result or minus errno, and what each is ready for."""
        fds = (PollFd * max(len(ours), 1))(*(PollFd(s, events, 0x7777) for s, events in ours.items()))
        others = (PollFd * max(len(kernels), 1))(*(PollFd(fd, events, 0x7777) for fd, events in kernels.items()))
        polled = (PolledContext * max(len(contexts), 1))(*(PolledContext(ctx, IN, 0x7777) for ctx in contexts))
        r = self.call(
            "poll_contexts", fds, ctypes.c_ulong(len(ours)), polled, ctypes.c_ulong(len(contexts)), others,
            ctypes.c_ulong(len(kernels)), ctypes.c_uint64(self.deadline(timeout_s)), mask,
        )  # fmt: skip
        return (
            r,
            {f.fd: f.revents for f in fds[: len(ours)]},
            {f.fd: f.revents for f in others[: len(kernels)]},
            [c.revents for c in polled[: len(contexts)]],
        )

    def context(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.native.xts_epoll_ctx_create())

    def add(self, ctx: ctypes.c_void_p, s: int, events: int, data: int, op: int = EPOLL_CTL_ADD) -> int:
        return self.call("epoll_ctl", ctx, op, s, ctypes.byref(EpollEvent(events, data)))

    def wait_set(
        self, ctx: ctypes.c_void_p, kernel_set: int, timeout_s: float | None = 0, *, most: int = 16, mask: Any = None,
        members: Any = None,
    ) -> list[tuple[int, int]] | int:  # fmt: skip
        """The events as (data, events), in order of data; or minus errno."""
        events = (EpollEvent * most)()
        r = self.call(
            "epoll_wait_mixed", ctx, kernel_set, members, events, most, ctypes.c_uint64(self.deadline(timeout_s)), mask
        )
        # Of select.epoll's the lower half is the descriptor, the upper anything.
        return r if r < 0 else sorted((e.data & 0xFFFFFFFF, e.events) for e in events[:r])


@script("mixed waits")
def poll_sees_both(c: Mixed) -> None:
    s, peer = c.connected()
    r, w = pair_of_pipes()
    assert c.poll({s: IN}, {r: IN}) == (0, {s: 0}, {r: 0}, [])
    os.write(w, b"x")
    assert c.poll({s: IN}, {r: IN}) == (1, {s: 0}, {r: IN}, [])
    assert c.poll({s: IN | OUT}, {r: IN, w: OUT}, None) == (3, {s: OUT}, {r: IN, w: OUT}, [])
    peer.sendall(b"y")
    c.wait(s, IN)
    assert c.poll({s: IN}, {r: IN}, None) == (2, {s: IN}, {r: IN}, [])
    os.read(r, 1)
    assert c.poll({s: IN}, {r: IN}, 5) == (1, {s: IN}, {r: 0}, [])
    assert c.poll({s: 0, -1: IN}, {r: 0, -1: IN}, 0.01) == (0, {s: 0, -1: 0}, {r: 0, -1: 0}, [])
    os.close(w)
    assert c.poll({0x3FFFFFFF: IN}, {r: IN, 9999: IN}, None)[0] == 3
    many = {os.dup(r): IN for _ in range(200)}
    assert c.poll({s: 0}, many, None) == (200, {s: 0}, dict.fromkeys(many, select.POLLHUP), [])


@script("mixed waits")
def either_ends_the_sleep(c: Mixed) -> None:
    s, peer = c.connected()
    r, w = pair_of_pipes()
    for asked in (False, True):  # with a request under way the wait begins with a spin
        later(0.03, lambda: os.write(w, b"x"))
        if asked:
            c.call("send", s, b"ask", 3, 0)
        assert c.poll({s: IN}, {r: IN}, DEADLINE_S) == (1, {s: 0}, {r: IN}, [])
        os.read(r, 1)
        later(0.03, lambda: peer.sendall(b"y"))
        assert c.poll({s: IN}, {r: IN}, DEADLINE_S) == (1, {s: IN}, {r: 0}, [])
        c.call("recv", s, ctypes.create_string_buffer(1), 1, 0)


@script("mixed waits")
def deadlines_are_kept(c: Mixed) -> None:
    s, _peer = c.connected()
    r, _w = pair_of_pipes()
    ctx, kernel_set = c.context(), select.epoll()
    kernel_set.register(r, IN)
    assert c.add(ctx, s, IN, 1) == 0
    for timeout_s in (0.0001, 0.0015, 0.02):
        begin = time.monotonic()
        assert c.poll({s: IN}, {r: IN}, timeout_s)[0] == 0
        assert time.monotonic() - begin >= timeout_s
        begin = time.monotonic()
        assert c.wait_set(ctx, kernel_set.fileno(), timeout_s) == []
        assert time.monotonic() - begin >= timeout_s


@script("mixed waits")
def signals_interrupt(c: Mixed) -> None:
    """EINTR whatever SA_RESTART says, and the mask is in force while the thread sleeps and only then."""
    s, _peer = c.connected()
    r, _w = pair_of_pipes()
    ctx, kernel_set = c.context(), select.epoll()
    kernel_set.register(r, IN)
    c.add(ctx, s, IN, 1)
    seen: list[int] = []
    signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    waits: tuple[Callable[[Any], Any], ...] = (
        lambda mask: c.poll({s: IN}, {r: IN}, DEADLINE_S, mask)[0],
        lambda mask: c.poll({}, {r: IN}, DEADLINE_S, mask)[0],
        lambda mask: c.wait_set(ctx, kernel_set.fileno(), DEADLINE_S, mask=mask),
    )
    for wait in waits:
        for restart in (False, True):
            signal.siginterrupt(signal.SIGALRM, not restart)
            signal.setitimer(signal.ITIMER_REAL, 0.03)
            assert wait(None) == -errno.EINTR
    assert len(seen) == 6
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    for wait in waits:
        signal.raise_signal(signal.SIGALRM)
        assert wait(signals()) == -errno.EINTR
    assert c.poll({s: IN}, {r: IN}, 0.01, signals(signal.SIGALRM))[0] == 0
    signal.raise_signal(signal.SIGALRM)
    assert c.poll({s: IN}, {r: IN}, 0.01, signals(signal.SIGALRM))[0] == 0
    assert c.poll({s: IN}, {r: IN}, 0, signals())[0] == -errno.EINTR
    assert c.poll({s: OUT}, {r: IN}, None, signals())[0] == 1
    assert len(seen) == 10


@script("mixed waits")
def sets_report_both(c: Mixed) -> None:
    s, peer = c.connected()
    r, w = pair_of_pipes()
    ctx, kernel_set = c.context(), select.epoll()
    kernel_set.register(r, IN)
    c.add(ctx, s, IN, 1)
    fd = kernel_set.fileno()
    assert c.wait_set(ctx, fd) == []
    os.write(w, b"x")
    assert c.wait_set(ctx, fd, None) == [(r, IN)]
    peer.sendall(b"y")
    c.wait(s, IN)
    assert c.wait_set(ctx, fd, None) == sorted([(1, IN), (r, IN)])
    os.read(r, 1)
    assert c.wait_set(ctx, fd, None) == [(1, IN)]
    c.call("recv", s, ctypes.create_string_buffer(1), 1, 0)
    later(0.03, lambda: os.write(w, b"x"))
    assert c.wait_set(ctx, fd, DEADLINE_S) == [(r, IN)]
    os.read(r, 1)
    later(0.03, lambda: peer.sendall(b"y"))
    assert c.wait_set(ctx, fd, DEADLINE_S) == [(1, IN)]
    kernel_set.modify(r, IN | ET | ONESHOT)
    os.write(w, b"x")
    assert c.wait_set(ctx, fd) == [(1, IN), (r, IN)]
    assert c.wait_set(ctx, fd) == [(1, IN)]
    assert c.wait_set(ctx, 9999) == [(1, IN)]
    assert c.wait_set(ctx, fd, most=0) == -errno.EINVAL
    kernel_set.close()
    c.call("recv", s, ctypes.create_string_buffer(1), 1, 0)
    assert c.wait_set(ctx, 9999, None) == -errno.EBADF


@script("mixed waits")
def nobody_starves(c: Mixed) -> None:
    """However few events a call may report, both kinds come to be reported."""
    pairs = [c.connected() for _ in range(5)]
    pipes = [pair_of_pipes() for _ in range(5)]
    ctx, kernel_set = c.context(), select.epoll()
    for i, (s, peer) in enumerate(pairs):
        c.add(ctx, s, IN, 1000 + i)
        peer.sendall(b"x")
        c.wait(s, IN)
    for r, w in pipes:
        kernel_set.register(r, IN)
        os.write(w, b"x")
    everything = {1000 + i for i in range(5)} | {r for r, _ in pipes}
    for most in (1, 2, 3, 7):
        seen: dict[int, int] = dict.fromkeys(everything, 0)
        for _ in range(40):
            events = c.wait_set(ctx, kernel_set.fileno(), None, most=most)
            assert isinstance(events, list) and len(events) == most
            for data, _events in events:
                seen[data] += 1
        assert min(seen.values()) >= 40 * most // 10 // 2, (most, seen)
    assert len(c.wait_set(ctx, kernel_set.fileno())) == 10  # type: ignore[arg-type]


@script("mixed waits")
def busy_sockets_do_not_hide_the_kernels(c: Mixed) -> None:
    """One socket is always ready before the wait would sleep: the pipe is seen all the same."""
    s, peer = c.connected()
    r, w = pair_of_pipes()
    peer.sendall(b"x")
    c.wait(s, IN)
    os.write(w, b"x")
    assert c.poll({s: IN}, {r: IN}, None) == (2, {s: IN}, {r: IN}, [])


@script("mixed waits")
def kernel_calls_are_few(c: Mixed) -> None:
    s, peer = c.connected()
    r, w = pair_of_pipes()
    ctx, kernel_set = c.context(), select.epoll()
    c.add(ctx, s, IN, 1)
    peer.sendall(b"y")
    c.wait(s, IN)
    members = (ctypes.c_uint32 * 1)(0)
    c.count_kernel_calls()
    for _ in range(10):  # nothing of the kernel's of interest: no system call
        assert c.wait_set(ctx, kernel_set.fileno(), None, members=members) == [(1, IN)]
        assert c.wait_set(ctx, -1, None) == [(1, IN)]
        assert c.poll({s: IN}, {}, None)[0] == 1
    assert (c.looks, c.sleeps) == (0, 0)
    kernel_set.register(r, IN)
    members[0] = 1
    for _ in range(10):
        assert c.wait_set(ctx, kernel_set.fileno(), None, members=members) == [(1, IN)]
    assert (c.looks, c.sleeps) == (10, 0)
    c.call("recv", s, ctypes.create_string_buffer(1), 1, 0)
    assert c.wait_set(ctx, kernel_set.fileno(), 0.001, members=members) == []
    assert c.looks == 10, "a wait that slept asked once more"
    os.write(w, b"x")
    events = c.wait_set(ctx, kernel_set.fileno(), None, members=members)
    assert (events, c.looks) == ([(r, IN)], 11), (events, c.looks)


@script("mixed waits")
def contexts_in_contexts(c: Mixed) -> None:
    s, peer = c.connected()
    inner, outer, outermost = c.context(), c.context(), c.context()
    event = EpollEvent(IN, 21)
    assert c.call("epoll_nest", outer, EPOLL_CTL_ADD, inner, 1, ctypes.byref(event)) == 0
    assert c.call("epoll_nest", outer, EPOLL_CTL_ADD, inner, 1, ctypes.byref(event)) == -errno.EEXIST
    assert c.call("epoll_nest", outer, EPOLL_CTL_DEL, inner, 2, None) == -errno.ENOENT
    assert c.call("epoll_nest", outermost, EPOLL_CTL_ADD, outer, 1, ctypes.byref(EpollEvent(IN, 22))) == 0
    assert c.add(inner, s, IN, 20) == 0
    assert c.wait_set(outer, -1) == c.wait_set(outermost, -1) == []
    assert c.poll({}, {}, 0, contexts=[inner.value, outermost.value])[3] == [0, 0]
    assert not c.call("epoll_is_ready", inner) & 1
    later(0.03, lambda: peer.sendall(b"x"))
    assert c.wait_set(outermost, -1, DEADLINE_S) == [(22, IN)]
    assert c.call("epoll_is_ready", inner) & 1
    assert c.wait_set(outer, -1) == [(21, IN)]
    assert c.wait_set(inner, -1) == [(20, IN)]
    assert c.poll({}, {}, None, contexts=[inner.value, outermost.value])[3] == [IN, IN]
    c.call("recv", s, ctypes.create_string_buffer(1), 1, 0)
    assert c.wait_set(outermost, -1) == c.wait_set(outer, -1) == []
    later(0.03, lambda: peer.sendall(b"x"))
    assert c.poll({}, {}, DEADLINE_S, contexts=[outer.value])[3] == [IN]
    c.native.xts_epoll_ctx_destroy(inner)
    assert c.wait_set(outermost, -1) == c.wait_set(outer, -1) == []
    c.native.xts_epoll_ctx_destroy(outermost)
    c.native.xts_epoll_ctx_destroy(outer)


@script("mixed waits")
def one_socket_by_several_keys(c: Mixed) -> None:
    s, peer = c.connected()
    ctx = c.context()

    def control(op: int, key: int, data: int, events: int = IN) -> int:
        return c.call("epoll_ctl_keyed", ctx, op, s, key, ctypes.byref(EpollEvent(events, data)))

    assert control(EPOLL_CTL_ADD, 5, 50) == control(EPOLL_CTL_ADD, 6, 60) == 0
    assert control(EPOLL_CTL_ADD, 6, 60) == -errno.EEXIST
    peer.sendall(b"x")
    c.wait(s, IN)
    assert c.wait_set(ctx, -1) == [(50, IN), (60, IN)]
    assert control(EPOLL_CTL_MOD, 5, 51, IN | ONESHOT) == 0
    assert c.wait_set(ctx, -1) == [(51, IN), (60, IN)]
    assert c.wait_set(ctx, -1) == [(60, IN)]
    assert control(EPOLL_CTL_DEL, 6, 0) == 0
    assert c.wait_set(ctx, -1) == []
    exclusive = select.EPOLLEXCLUSIVE
    assert control(EPOLL_CTL_ADD, 7, 70, IN | ONESHOT | exclusive) == -errno.EINVAL
    assert control(EPOLL_CTL_ADD, 7, 70, IN | exclusive) == 0
    assert control(EPOLL_CTL_MOD, 7, 70, IN) == control(EPOLL_CTL_MOD, 5, 70, IN | exclusive) == -errno.EINVAL
    c.call("close", s)
    assert c.wait_set(ctx, -1) == []


@script("mixed waits")
def threads_wait_together(c: Mixed) -> None:
    """Threads in mixed waits of all kinds at once, while sockets and pipes become ready: each gets its own."""
    failures: list[BaseException] = []

    def work(i: int, s: int, peer: socket.socket, r: int, w: int) -> None:
        try:
            ctx, kernel_set = c.context(), select.epoll()
            kernel_set.register(r, IN)
            c.add(ctx, s, IN, 1_000_000)
            for turn in range(150):
                use_socket = (turn ^ i) & 1
                if use_socket:
                    peer.sendall(b"x")
                else:
                    os.write(w, b"x")
                if turn % 3:
                    events = c.wait_set(ctx, kernel_set.fileno(), DEADLINE_S)
                    assert events == [(1_000_000 if use_socket else r, IN)], events
                else:
                    n, ours, kernels, _ = c.poll({s: IN}, {r: IN}, DEADLINE_S)
                    assert (n, bool(ours[s]), bool(kernels[r])) == (1, bool(use_socket), not use_socket)
                if use_socket:
                    assert c.call("recv", s, ctypes.create_string_buffer(1), 1, 0) == 1
                else:
                    os.read(r, 1)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i, *c.connected(), *pair_of_pipes())) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    assert not failures, failures


@script("mixed waits")
def a_kernel_event_hands_the_lead_over(c: Mixed) -> None:
    """The leader of the waiting threads ends for a pipe: another one takes the frames from then on."""
    s, peer = c.connected()
    other, other_peer = c.connected()
    r, w = pair_of_pipes()
    for _ in range(20):
        leader = threading.Thread(target=c.poll, args=({other: IN}, {r: IN}, DEADLINE_S))
        follower = threading.Thread(target=c.poll, args=({s: IN}, {}, DEADLINE_S))
        leader.start()
        time.sleep(0.005)
        follower.start()
        time.sleep(0.005)
        os.write(w, b"x")
        leader.join(DEADLINE_S / 2)
        assert not leader.is_alive()
        os.read(r, 1)
        peer.sendall(b"y")
        follower.join(DEADLINE_S / 2)
        assert not follower.is_alive()
        c.call("recv", s, ctypes.create_string_buffer(1), 1, 0)
    other_peer.close()


def main() -> None:
    name = apart(sys.argv[2])
    c = Mixed(sys.argv[1])
    try:
        SCRIPTS[name](c)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


if __name__ == "__main__":
    main()
