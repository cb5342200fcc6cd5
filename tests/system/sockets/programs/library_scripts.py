"""Programs that use libxts.so in ways the kernel has no counterpart for: `python library_scripts.py LIBRARY NAME`.

Each is a process of its own, since what is tested is the process as a whole: its attachment, its threads, its fork and
its exit. They assert; the exit status tells.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import re
import resource
import select
import socket
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from beds.calls import DEADLINE_S, EPOLL_CTL_ADD, Calls, address, reset, until
from beds.libc_structs import EpollEvent, PollFd
from beds.patience import SLOWER
from beds.scripts import apart, script, scripts

SCRIPTS = scripts("library")


class Info(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_size_t), ("queue_kind", ctypes.c_char * 16), ("interface", ctypes.c_char * 16),
        ("queue_id", ctypes.c_uint32), ("link_state", ctypes.c_uint32), ("link_error", ctypes.c_int32),
        ("frame_window", ctypes.c_uint32), ("frame_credits", ctypes.c_uint32), ("largest_message", ctypes.c_uint32),
        ("sockets", ctypes.c_uint32), ("features", ctypes.c_uint64), ("epoch", ctypes.c_uint64),
        *((name, ctypes.c_uint64) for name in ("sent_frames", "received_frames", "sent_acks", "received_acks", "kicks",
                                               "sleeps", "spins", "malformed")),
    )  # fmt: skip


def info(c: Calls) -> Info:
    out = Info(ctypes.sizeof(Info))
    c.call("get_info", ctypes.byref(out))
    return out


def last_error(c: Calls) -> str:
    function = c.native.xts_last_error
    function.restype = ctypes.c_char_p
    return str(function().decode())


def recv(c: Calls, s: int, size: int, flags: int = 0) -> bytes:
    buffer = ctypes.create_string_buffer(size)
    n = c.call("recv", s, buffer, size, flags)
    if n < 0:
        raise OSError(-n, os.strerror(-n))
    return buffer.raw[:n]


def send(c: Calls, s: int, data: bytes, flags: int = socket.MSG_NOSIGNAL) -> int:
    n = c.call("send", s, data, len(data), flags)
    if n < 0:
        raise OSError(-n, os.strerror(-n))
    return n


def echo_server() -> tuple[socket.socket, int]:
    """Echoes on any number of connections, until the process ends."""
    server = socket.create_server(("127.0.0.1", 0), backlog=1024)

    def serve() -> None:
        connections: dict[int, socket.socket] = {}
        poll = select.poll()
        poll.register(server, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == server.fileno():
                    peer, _ = server.accept()
                    connections[peer.fileno()] = peer
                    poll.register(peer, select.POLLIN)
                    continue
                try:
                    data = connections[fd].recv(65536)
                    connections[fd].sendall(data)
                except OSError:
                    data = b""
                if not data:
                    poll.unregister(fd)
                    connections.pop(fd).close()

    threading.Thread(target=serve, daemon=True).start()
    return server, int(server.getsockname()[1])


def cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


# --- mirrors, descriptors ----------------------------------------------------------------------------


def kernel_events(fd: int, wanted: int, timeout_ms: int = 0) -> int:
    poll = select.poll()
    poll.register(fd, wanted)
    found = poll.poll(timeout_ms)
    return found[0][1] if found else 0


@script("library")
def mirror_follows(c: Calls) -> None:
    """xts_fileno() shows what xts_poll() shows, while the application only sleeps in the kernel."""
    s, peer = c.connected()
    fd = c.call("fileno", s)
    assert fd >= 0 and c.call("fileno", s) == fd
    everything = select.POLLIN | select.POLLOUT
    assert kernel_events(fd, everything) == select.POLLOUT
    peer.sendall(b"ab")
    assert kernel_events(fd, select.POLLIN, 5000) == select.POLLIN
    assert recv(c, s, 1) == b"a"
    assert kernel_events(fd, everything) == everything
    assert recv(c, s, 10) == b"b"
    assert kernel_events(fd, everything) == select.POLLOUT
    c.call("fcntl", s, fcntl.F_SETFL, os.O_NONBLOCK)
    sent, chunk = 0, bytes(100_000)
    while kernel_events(fd, select.POLLOUT, 300):
        n = c.call("send", s, chunk, len(chunk), 0)
        sent += max(n, 0)
    received = 0
    while received < sent:
        received += len(peer.recv(1 << 20))
    assert kernel_events(fd, select.POLLOUT, 5000) == select.POLLOUT
    peer.shutdown(socket.SHUT_WR)
    assert kernel_events(fd, select.POLLIN | select.POLLRDHUP, 5000) & select.POLLRDHUP
    assert recv(c, s, 1) == b""
    c.call("shutdown", s, socket.SHUT_WR)
    assert kernel_events(fd, 0, 5000) & select.POLLHUP
    c.call("close", s)
    try:
        os.fstat(fd)
        raise AssertionError("the descriptor belongs to the socket")
    except OSError as error:
        assert error.errno == errno.EBADF


@script("library")
def mirror_of_connect_and_listener(c: Calls) -> None:
    listener = c.create()
    assert c.call("bind", listener, address(0), 16) == 0 and c.call("listen", listener, 5) == 0
    found = c.name("getsockname", listener)
    fd = c.call("fileno", listener)
    assert found and kernel_events(fd, select.POLLIN) == 0
    with socket.create_connection(found):
        assert kernel_events(fd, select.POLLIN, 5000) == select.POLLIN
        assert c.accept(listener) > 0
        assert kernel_events(fd, select.POLLIN) == 0
    s = c.create(flags=socket.SOCK_NONBLOCK)
    fd = c.call("fileno", s)
    assert c.call("connect", s, address(found[1]), 16) == -errno.EINPROGRESS
    assert kernel_events(fd, select.POLLOUT, 5000) == select.POLLOUT
    assert c.get(s, socket.SOL_SOCKET, socket.SO_ERROR) == 0
    s = c.create(flags=socket.SOCK_NONBLOCK)
    fd = c.call("fileno", s)
    c.call("connect", s, address(1), 16)
    assert kernel_events(fd, select.POLLOUT, 5000) & select.POLLOUT
    assert c.get(s, socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


@script("library")
def context_descriptor(c: Calls) -> None:
    """An application that sleeps in the kernel's epoll on xts_epoll_fd()."""
    s, peer = c.connected()
    c.native.xts_epoll_ctx_create.restype = ctypes.c_void_p
    ctx = ctypes.c_void_p(c.native.xts_epoll_ctx_create())
    assert c.call("epoll_ctl", ctx, EPOLL_CTL_ADD, s, ctypes.byref(EpollEvent(select.EPOLLIN, 7))) == 0
    fd = c.call("epoll_fd", ctx)
    events = (EpollEvent * 4)()
    assert kernel_events(fd, select.POLLIN, 5000)  # the first collection decides
    assert c.call("epoll", ctx, events, 4) == 0
    assert not kernel_events(fd, select.POLLIN, 50)
    for i in range(100):
        peer.sendall(b"%d" % i)
        while not c.call("epoll", ctx, events, 4):
            assert kernel_events(fd, select.POLLIN, 5000)
        assert events[0].data == 7
        assert recv(c, s, 10) == b"%d" % i
    # Another thread takes the frames: the descriptor becomes ready all the same.
    while c.call("epoll", ctx, events, 4):
        pass
    other, _ = c.connected()
    thread = threading.Thread(target=lambda: c.call("recv", other, ctypes.create_string_buffer(1), 1, 0))
    thread.start()
    for _ in range(100):
        peer.sendall(b"x")
        assert kernel_events(fd, select.POLLIN, 5000)
        while c.call("epoll", ctx, events, 4):
            recv(c, s, 10)
    c.call("shutdown", other, socket.SHUT_RD)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()


def never_accepting() -> tuple[list[socket.socket], int]:
    """A kernel listener that answers no more connects."""
    server = socket.create_server(("127.0.0.1", 0), backlog=0)
    sockets = [server]
    for _ in range(3):
        sockets.append(socket.socket())
        sockets[-1].setblocking(False)
        sockets[-1].connect_ex(server.getsockname())
    return sockets, server.getsockname()[1]


@script("library")
def doorbell_of_a_waiting_thread_stays_armed(c: Calls) -> None:
    """One thread waits in a call, another collects and then sleeps on a context's descriptor. The first would look by
    itself too, but only after a quarter of a second."""
    s, peer = c.connected()
    assert send(c, s, b"?") == 1  # an answer is awaited elsewhere: no spinning
    c.native.xts_epoll_ctx_create.restype = ctypes.c_void_p
    ctx = ctypes.c_void_p(c.native.xts_epoll_ctx_create())
    assert c.call("epoll_ctl", ctx, EPOLL_CTL_ADD, s, ctypes.byref(EpollEvent(select.EPOLLIN | select.EPOLLET, 7))) == 0
    fd = c.call("epoll_fd", ctx)
    events = (EpollEvent * 4)()
    kept, port = never_accepting()
    waits = []
    for _ in range(5):
        waiting = c.create()
        sleeps = info(c).sleeps
        while c.call("epoll", ctx, events, 4):
            pass
        thread = threading.Thread(target=lambda s: c.call("connect", s, address(port), 16), args=(waiting,))
        thread.start()
        until(lambda sleeps=sleeps: info(c).sleeps > sleeps)
        assert c.call("epoll", ctx, events, 4) == 0
        peer.sendall(b"x")
        began = time.monotonic()
        while not c.call("epoll", ctx, events, 4):
            assert kernel_events(fd, select.POLLIN, 5000)
        waits.append(time.monotonic() - began)
        c.call("close", waiting)
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    assert min(waits) < 0.1, waits
    for each in kept:
        each.close()


# --- threads, progress, fairness ---------------------------------------------------------------------


@script("library")
def threads_share_a_channel(c: Calls) -> None:
    _server, port = echo_server()
    failures: list[BaseException] = []

    def talk(seed: int) -> None:
        try:
            draw = random.Random(seed)
            for _ in range(3):
                s = c.call("socket", socket.AF_INET, socket.SOCK_STREAM, 0)
                assert c.call("connect", s, address(port), 16) == 0
                for _ in range(60):
                    data = draw.randbytes(draw.choice((1, 64, 3000, 70_000)))
                    assert send(c, s, data) == len(data)
                    assert recv(c, s, len(data), socket.MSG_WAITALL) == data
                assert c.call("close", s) == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=talk, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    assert not failures, failures
    until(lambda: info(c).sockets == 0)


@script("library")
def two_threads_on_one_socket(c: Calls) -> None:
    s, peer = c.connected()
    data = os.urandom(8 << 20)
    got = bytearray()

    def echo() -> None:
        while len(got) < len(data):
            peer.sendall(peer.recv(1 << 16))

    threading.Thread(target=echo, daemon=True).start()
    sender = threading.Thread(target=lambda: send(c, s, data))
    sender.start()
    while len(got) < len(data):
        got += recv(c, s, 1 << 16)
    sender.join(DEADLINE_S)
    assert not sender.is_alive() and bytes(got) == data


@script("library")
def slow_reader_stalls_nobody(c: Calls) -> None:
    """Connections nobody reads have their windows full, more frames than the link has; another goes on."""
    slow = [c.connected() for _ in range(40)]
    for _, peer in slow:
        peer.setblocking(False)
    payload, sent = os.urandom(200_000), []
    for _, peer in slow:
        count = 0
        for _ in range(50):
            try:
                count += peer.send(payload[count % 1000 :][:3000])
            except BlockingIOError:
                break
        sent.append(count)
    s, peer = c.connected()
    for _ in range(50):
        peer.sendall(payload[:60_000])
        assert recv(c, s, 60_000, socket.MSG_WAITALL) == payload[:60_000]
    for (s, _), count in zip(slow, sent, strict=True):
        assert len(recv(c, s, count, socket.MSG_WAITALL)) == count


@script("library")
def accepted_data_leaves_without_us(c: Calls) -> None:
    """Small sends beyond the frame window are accepted; then the application sleeps elsewhere."""
    pairs = [c.connected() for _ in range(30)]
    for s, _ in pairs:
        c.call("fcntl", s, fcntl.F_SETFL, os.O_NONBLOCK)
    expected = []
    for i, (s, _) in enumerate(pairs):
        mine = 0
        for _ in range(20):
            n = c.call("send", s, bytes([i]) * 100, 100, 0)
            if n < 0:
                assert n == -errno.EAGAIN
                break
            mine += n
        expected.append(mine)
    for (_, peer), mine in zip(pairs, expected, strict=True):
        received = 0
        while received < mine:
            received += len(peer.recv(65536))
    assert sum(expected) >= 100 * len(pairs)


@script("library")
def exit_delivers(c: Calls) -> None:
    """Everything sent before the exit arrives, then FIN: see the test, which reads it."""
    with socket.create_connection(("127.0.0.1", int(os.environ["PORT"]))):
        pass
    for _ in range(20):
        s = c.create()
        assert c.call("connect", s, address(int(os.environ["PORT"])), 16) == 0
        assert send(c, s, b"x" * 30_000) == 30_000


@script("library")
def idle_costs_nothing(c: Calls) -> None:
    server = socket.create_server(("127.0.0.1", 0), backlog=4096)
    port = server.getsockname()[1]
    pid = os.fork()
    if pid == 0:  # the peers' descriptors are a process of their own
        kept = []
        for _ in range(1000):
            kept.append(server.accept()[0])
        time.sleep(DEADLINE_S * 3)
        os._exit(0)
    try:
        first = c.create()
        assert c.call("connect", first, address(port), 16) == 0
        before = resident_bytes()
        sockets = [c.create() for _ in range(999)]
        for s in sockets:
            assert c.call("connect", s, address(port), 16) == 0
        each = (resident_bytes() - before) / len(sockets)
        assert each <= 1024, f"{each:.0f} bytes a connection"
        c.native.xts_epoll_ctx_create.restype = ctypes.c_void_p
        ctx = ctypes.c_void_p(c.native.xts_epoll_ctx_create())
        for s in sockets:
            assert c.call("epoll_ctl", ctx, EPOLL_CTL_ADD, s, ctypes.byref(EpollEvent(select.EPOLLIN, s))) == 0
        start = cpu_s()
        assert c.call("epoll_wait", ctx, (EpollEvent * 4)(), 4, 1000) == 0
        assert cpu_s() - start < 0.01 * SLOWER, f"{cpu_s() - start:.3f} s of CPU in a second of waiting"
        print(f"{each:.0f} bytes a connection, {cpu_s() - start:.4f} s of CPU in 1 s of waiting")
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def resident_bytes() -> int:
    """Exact, unlike statm's."""
    found = re.search(r"^Rss: +(\d+) kB", Path("/proc/self/smaps_rollup").read_text(), re.M)
    assert found
    return int(found[1]) * 1024


# --- fork, death -------------------------------------------------------------------------------------


@script("library")
def fork_gives_the_child_nothing(c: Calls) -> None:
    _server, port = echo_server()
    s = c.create()
    assert c.call("connect", s, address(port), 16) == 0
    mirror = c.call("fileno", s)
    epoch = info(c).epoch
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            assert c.call("send", s, b"x", 1, 0) == -errno.EBADF
            assert "belongs to the parent process" in last_error(c)
            assert c.call("close", s) == -errno.EBADF
            fds = (PollFd * 1)(PollFd(s, select.POLLIN, 0))
            assert c.call("poll", fds, ctypes.c_ulong(1), 0) == 1 and fds[0].revents == select.POLLNVAL
            server = socket.create_server(("127.0.0.1", 0))
            mine = c.create()
            assert mine != s
            assert c.call("connect", mine, address(server.getsockname()[1]), 16) == 0
            assert c.call("send", s, b"x", 1, 0) == -errno.EBADF
            assert "belongs to the parent process" in last_error(c)
            assert c.call("send", s + (5 << 20), b"x", 1, 0) == -errno.EBADF
            assert last_error(c) == os.strerror(errno.EBADF)
            peer, _ = server.accept()
            peer.sendall(b"child")
            assert kernel_events(c.call("fileno", mine), select.POLLIN, 5000)
            assert recv(c, mine, 10) == b"child"
            assert info(c).epoch != epoch
            status = 0
        except BaseException as error:
            os.write(tell, "".join(traceback.format_exception(error)).encode())
        os._exit(status)
    _, status = os.waitpid(pid, 0)
    os.close(tell)
    assert status == 0, os.read(told, 1000)
    assert send(c, s, b"still mine") == 10
    assert kernel_events(mirror, select.POLLIN, 5000)
    assert recv(c, s, 100, socket.MSG_WAITALL & 0) == b"still mine"


def connect_when_it_listens(port: int) -> socket.socket:
    end = time.monotonic() + 5
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=5)
        except ConnectionRefusedError:
            assert time.monotonic() < end
        time.sleep(0.01)


@script("library")
def proxy_dies(c: Calls) -> None:
    """Told by the test, through stdin and stdout, when the proxy goes and comes back."""
    s, peer = c.connected()
    unread, unread_peer = c.connected()
    unread_peer.sendall(b"came before")
    c.wait(unread, select.POLLIN)
    listener = c.create()
    c.call("bind", listener, address(0), 16)
    c.call("listen", listener, 5)
    fresh = c.create()
    mirrored = c.create(flags=socket.SOCK_NONBLOCK)
    fd, mirror = c.call("fileno", s), c.call("fileno", mirrored)
    results: dict[str, Any] = {}

    def waiting(name: str, *arguments: Any) -> threading.Thread:
        def run() -> None:
            results[name] = c.call(name, *arguments)

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    accepting = waiting("accept", listener, None, None)
    threads = [
        waiting("recv", s, ctypes.create_string_buffer(1), 1, 0),
        waiting("poll", (PollFd * 1)(PollFd(unread, select.POLLRDHUP, 0)), ctypes.c_ulong(1), -1),
    ]
    time.sleep(0.1)
    print("ready", flush=True)
    start = time.monotonic()
    assert sys.stdin.readline() == "killed\n"
    for thread in threads:
        thread.join(2)
        assert not thread.is_alive(), "a call still waits"
    assert time.monotonic() - start < 1.5
    assert accepting.is_alive(), "a listener is only as if its network were down"
    assert (results["recv"], results["poll"]) == (-errno.ECONNRESET, 1)
    assert kernel_events(fd, select.POLLIN, 1000)
    assert recv(c, unread, 100) == b"came before"
    assert c.call("recv", unread, ctypes.create_string_buffer(1), 1, 0) == -errno.ECONNRESET
    assert c.call("recv", unread, ctypes.create_string_buffer(1), 1, 0) == 0
    assert c.call("send", unread, b"x", 1, socket.MSG_NOSIGNAL) == -errno.EPIPE
    assert c.call("socket", 2, 1, 0) == -errno.ENETDOWN
    print("dead", flush=True)
    assert sys.stdin.readline() == "back\n"
    # The next channel has the mirrors of sockets that the dead one never knew, though nobody waits in the library.
    c.create()
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert c.call("connect", mirrored, address(server.getsockname()[1]), 16) == -errno.EINPROGRESS
        assert kernel_events(mirror, select.POLLOUT, 5000) == select.POLLOUT
    again, again_peer = c.connected()
    again_peer.sendall(b"hello")
    assert recv(c, again, 10) == b"hello"
    with connect_when_it_listens(c.name("getsockname", listener)[1]):
        accepting.join(5)
        assert results["accept"] > 0, results
    # A socket that the dead proxy never knew is as good as new.
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert c.call("connect", fresh, address(server.getsockname()[1]), 16) == 0
    for old in (s, unread, listener):
        assert c.call("close", old) == 0
    peer.close()


@script("library")
def no_proxy(c: Calls) -> None:
    assert c.call("socket", 2, 1, 0) == -errno.ENETDOWN
    assert c.call("get_info", ctypes.byref(Info(ctypes.sizeof(Info)))) == -errno.ENOTCONN


@script("library")
def many_connections_under_random_use(c: Calls) -> None:
    """Echo on many non-blocking connections through one context, with random sizes and closes; every byte checked."""
    _server, port = echo_server()
    seed = int(os.environ.get("SEED", "1"))
    draw = random.Random(seed)
    c.native.xts_epoll_ctx_create_flags.restype = ctypes.c_void_p
    ctx = ctypes.c_void_p(c.native.xts_epoll_ctx_create_flags(int(os.environ.get("BATCH", "0"))))
    live: dict[int, list[bytearray]] = {}  # socket: to send, expected back
    done = 0
    events = (EpollEvent * 64)()
    buffer = ctypes.create_string_buffer(1 << 17)
    end = time.monotonic() + 60
    while done < 300:
        assert time.monotonic() < end, f"stuck with seed {seed}: {[(len(a), len(b)) for a, b in live.values()]}"
        while len(live) < 40:
            s = c.call("socket", 2, 1 | socket.SOCK_NONBLOCK, 0)
            assert s > 0
            r = c.call("connect", s, address(port), 16)
            assert r in (0, -errno.EINPROGRESS)
            data = draw.randbytes(draw.choice((0, 1, 100, 5000, 150_000)))
            live[s] = [bytearray(data), bytearray(data)]
            event = EpollEvent(select.EPOLLIN | select.EPOLLOUT | select.EPOLLET, s)
            assert c.call("epoll_ctl", ctx, EPOLL_CTL_ADD, s, ctypes.byref(event)) == 0
        n = c.call("epoll_wait", ctx, events, 64, 5000)
        assert n > 0, n
        for i in range(n):
            s = int(events[i].data)
            to_send, expected = live[s]
            while to_send:
                size = min(len(to_send), draw.choice((1, 200, 70_000)))
                r = c.call("send", s, bytes(to_send[:size]), size, 0)
                if r == -errno.EAGAIN:
                    break
                assert r > 0, errno.errorcode[-r]
                del to_send[:r]
            while (r := c.call("recv", s, buffer, draw.choice((1, 1000, 1 << 17)), 0)) > 0:
                assert buffer.raw[:r] == expected[:r]
                del expected[:r]
            assert r == -errno.EAGAIN, r
            if not expected and not to_send:
                assert c.call("close", s) == 0
                del live[s]
                done += 1
    for s in live:
        c.call("close", s)
    c.call("flush")
    until(lambda: info(c).sockets == 0)


@script("library")
def reset_while_sending(c: Calls) -> None:
    s, peer = c.connected()
    threading.Timer(0.05, lambda: reset(peer)).start()
    data = bytes(1 << 20)
    end = time.monotonic() + DEADLINE_S
    while (r := c.call("send", s, data, len(data), socket.MSG_NOSIGNAL)) >= 0:
        assert time.monotonic() < end
    assert r in (-errno.ECONNRESET, -errno.EPIPE), r


def main() -> None:
    name = apart(sys.argv[2])
    SCRIPTS[name](Calls(sys.argv[1]))


if __name__ == "__main__":
    main()
