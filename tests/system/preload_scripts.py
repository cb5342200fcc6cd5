"""Programs for the interposer: `python preload_scripts.py NAME`. What they assert is what the kernel does: those of
KERNEL run without the interposer too. The others look at what the interposer alone can tell.

A process of its own each, for the whole process is concerned: its descriptors, streams, threads, signals.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import faulthandler
import fcntl
import hashlib
import mmap
import os
import platform
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from libc_structs import Message, Vector
from xts_socket.cli import processes

DEADLINE_S = 10.0
LIBC = ctypes.CDLL(None, use_errno=True)
SIOCATMARK = 0x8905
F_SETOWN = 8
SYS_CLOSE = {"x86_64": 3, "aarch64": 57}[platform.machine()]

KERNEL: dict[str, Callable[[], None]] = {}
OURS: dict[str, Callable[[], None]] = {}


def kernel(function: Callable[[], None]) -> Callable[[], None]:
    KERNEL[function.__name__] = function
    return function


def ours(function: Callable[[], None]) -> Callable[[], None]:
    OURS[function.__name__] = function
    return function


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "did not come true"
        time.sleep(0.002)


def errno_of(call: Callable[[], object]) -> int:
    """The errno a call fails with; 0: it does not."""
    try:
        call()
    except OSError as e:
        assert e.errno is not None
        return e.errno
    return 0


def libc(name: str, *arguments: object) -> int:
    """A call of the C library's. Raises OSError."""
    ctypes.set_errno(0)
    result = getattr(LIBC, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return int(result)


def pair(family: int = socket.AF_INET) -> tuple[socket.socket, socket.socket]:
    """A client and what a server accepted. Under the rules of the test, both are offloaded."""
    host = "127.0.0.1" if family == socket.AF_INET else "::1"
    with socket.create_server((host, 0), family=family) as server:
        client = socket.create_connection(server.getsockname()[:2])
        return client, server.accept()[0]


def drain(s: socket.socket) -> bytes:
    data = b""
    while part := s.recv(65536):
        data += part
    return data


# --- what the interposer tells ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """The status page of this process."""

    offloaded: int
    unseen: int
    stayed: dict[int, int]
    entries: dict[int, tuple[int, int, int]]  # by descriptor: kind, flags, reason

    @staticmethod
    def memfd() -> int:
        for link in Path("/proc/self/fd").iterdir():
            try:
                if str(link.readlink()).startswith("/memfd:xts-preload"):
                    return int(link.name)
            except FileNotFoundError:
                continue
        raise AssertionError("there is no status page")

    @classmethod
    def read(cls) -> Report:
        fd = os.open(f"/proc/self/fd/{cls.memfd()}", os.O_RDONLY)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as page:
            data = bytes(page)
        os.close(fd)
        magic, version, count, pid = struct.unpack_from("=4I", data)
        assert (magic, version, pid) == (0x58545352, 2, os.getpid())
        offloaded, unseen, *stayed = struct.unpack_from("=34Q", data, 312)
        size = (len(data) - 584) // count if len(data) % 4096 else 64
        entries = {}
        for fd in range(count):
            kind, flags, reason = struct.unpack_from("=BBH", data, 584 + fd * size)
            if kind:
                entries[fd] = (kind, flags, reason)
        return cls(offloaded, unseen, {i: n for i, n in enumerate(stayed) if n}, entries)


UNDECIDED, STAYED, OFFLOADED, INTERNAL = 1, 2, 3, 5
RULE, PROTOCOL, NO_ENDPOINT, OPTION, RAW, INHERITED, FASTOPEN = 1, 2, 4, 7, 10, 11, 13


def kind_of(s: socket.socket | int) -> int:
    fd = s if isinstance(s, int) else s.fileno()
    return Report.read().entries.get(fd, (0, 0, 0))[0]


def reason_of(s: socket.socket) -> int:
    return Report.read().entries[s.fileno()][2]


# --- connections -----------------------------------------------------------------------------------------


@kernel
def echo_both_families() -> None:
    for family in (socket.AF_INET, socket.AF_INET6):
        client, server = pair(family)
        with client, server:
            assert client.getpeername() == server.getsockname()
            assert server.getpeername() == client.getsockname()
            sent = os.urandom(300_000)
            feeding = threading.Thread(target=lambda c=client, d=sent: (c.sendall(d), c.shutdown(socket.SHUT_WR)))
            feeding.start()
            assert drain(server) == sent
            feeding.join()
            server.sendall(b"back")
            server.close()
            assert drain(client) == b"back"


@kernel
def every_way_to_send_and_receive() -> None:
    client, server = pair()
    with client, server:
        a, b = client.fileno(), server.fileno()
        sent = b""
        for call in (
            client.send,
            lambda d: client.sendto(d, server.getsockname()),
            lambda d: client.sendmsg([d[:3], d[3:]]),
            lambda d: os.write(a, d),
            lambda d: os.writev(a, [d[:5], d[5:]]),
            lambda d: libc("write", a, d, len(d)),
            lambda d: libc("dprintf", a, b"%s", d),
        ):
            data = f"message {len(sent)};".encode()
            assert call(data) == len(data)
            sent += data
        end = time.monotonic() + DEADLINE_S
        while len(server.recv(4096, socket.MSG_PEEK)) < len(sent):
            assert time.monotonic() < end
        got = server.recv(7)
        got += os.read(b, 7)
        two = [bytearray(3), bytearray(4)]
        assert os.readv(b, two) == 7
        got += b"".join(two)
        got += server.recvfrom(7)[0]
        part = server.recvmsg(7)
        assert part[1:3] == ([], 0)
        got += part[0]
        into = bytearray(7)
        assert server.recv_into(into) == 7
        got += into + server.recv(4096)
        assert got == sent
        assert os.read(b, 0) == b""
        assert errno_of(lambda: os.pread(b, 1, 0)) == errno.ESPIPE
        assert errno_of(lambda: os.pwrite(b, b"x", 0)) == errno.ESPIPE


def messages(buffers: list[ctypes.Array[ctypes.c_char]]) -> ctypes.Array[Message]:
    out = (Message * len(buffers))()
    for message, buffer in zip(out, buffers, strict=True):
        message.header.vectors = ctypes.pointer(Vector(ctypes.cast(buffer, ctypes.c_void_p), len(buffer)))
        message.header.count = 1
    return out


@kernel
def many_messages_at_once() -> None:
    client, server = pair()
    with client, server:
        out = messages([ctypes.create_string_buffer(bytes([65 + i]) * 10, 10) for i in range(5)])
        assert libc("sendmmsg", client.fileno(), out, 5, 0) == 5
        assert [m.bytes for m in out] == [10] * 5
        until(lambda: len(server.recv(100, socket.MSG_PEEK)) == 50)
        buffers = [ctypes.create_string_buffer(20) for _ in range(5)]
        into = messages(buffers)
        assert libc("recvmmsg", server.fileno(), into, 5, socket.MSG_DONTWAIT, None) == 3
        assert b"".join(b.raw[: m.bytes] for b, m in zip(buffers[:3], into[:3], strict=True)) == b"".join(
            bytes([65 + i]) * 10 for i in range(5)
        )
        assert errno_of(lambda: libc("recvmmsg", server.fileno(), into, 5, socket.MSG_DONTWAIT, None)) == errno.EAGAIN
        vector = Vector(ctypes.cast(ctypes.create_string_buffer(b"v" * 8, 8), ctypes.c_void_p), 8)
        assert libc("pwritev2", client.fileno(), ctypes.byref(vector), 1, ctypes.c_long(-1), 0) == 8
        assert errno_of(lambda: libc("pwritev2", client.fileno(), ctypes.byref(vector), 1, ctypes.c_long(5), 0)) == (
            errno.ESPIPE
        )
        until(lambda: len(server.recv(100, socket.MSG_PEEK)) == 8)
        assert libc("preadv2", server.fileno(), ctypes.byref(vector), 1, ctypes.c_long(-1), 0) == 8


@kernel
def connect_without_waiting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s:
        s.setblocking(False)
        assert s.connect_ex(server.getsockname()) == errno.EINPROGRESS
        poll = select.poll()
        poll.register(s, select.POLLOUT)
        assert poll.poll(DEADLINE_S * 1000) == [(s.fileno(), select.POLLOUT)]
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        assert s.connect_ex(server.getsockname()) in (0, errno.EISCONN)
        assert s.connect_ex(server.getsockname()) == errno.EISCONN
        assert errno_of(lambda: s.recv(1)) == errno.EAGAIN


@kernel
def closing_all_descriptors_takes_no_time() -> None:
    """As every subprocess does, most of them without a socket: the table of a million is not walked for it."""
    begun = time.thread_time()
    for _ in range(100):
        os.closerange(500, 2**31 - 1)
    assert time.thread_time() - begun < 0.02


@kernel
def the_end_is_noticed_without_waiting() -> None:
    """By who only ever sends, asks for the peer's name, or shuts down: none of them polls or receives."""
    notices: tuple[tuple[int, Callable[[socket.socket], int]], ...] = (
        (errno.ECONNRESET, lambda s: errno_of(lambda: s.send(b"x"))),
        (errno.ENOTCONN, lambda s: errno_of(s.getpeername)),
        (errno.ENOTCONN, lambda s: errno_of(lambda: s.shutdown(socket.SHUT_WR))),
    )
    for expected, look in notices:
        client, server = pair()
        with server:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
            until(lambda look=look, server=server, expected=expected: look(server) == expected)


@kernel
def connect_refused() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        with socket.socket() as s:
            assert s.connect_ex(holder.getsockname()) == errno.ECONNREFUSED
            assert errno_of(s.getpeername) == errno.ENOTCONN
        with socket.socket() as s:
            s.setblocking(False)
            assert s.connect_ex(holder.getsockname()) == errno.EINPROGRESS
            poll = select.poll()
            poll.register(s, select.POLLOUT)
            assert poll.poll(DEADLINE_S * 1000)[0][1] & select.POLLERR
            assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
            assert s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


@kernel
def addresses_that_are_none() -> None:
    with socket.socket() as s:
        for name in ("bind", "connect"):
            assert errno_of(lambda name=name: libc(name, s.fileno(), None, 16)) == errno.EFAULT
            short = struct.pack("=H6x", socket.AF_INET)
            assert errno_of(lambda name=name, short=short: libc(name, s.fileno(), short, 8)) == errno.EINVAL
        v6 = struct.pack("=HHI16sI", socket.AF_INET6, 0, 0, bytes(16), 0)
        assert errno_of(lambda: libc("bind", s.fileno(), v6, len(v6))) == errno.EAFNOSUPPORT
        assert errno_of(lambda: libc("connect", s.fileno(), v6, len(v6))) == errno.EAFNOSUPPORT
        assert errno_of(lambda: s.bind(("192.0.2.77", 0))) == errno.EADDRNOTAVAIL
        s.bind(("127.0.0.1", 0))
        assert errno_of(lambda: s.bind(("127.0.0.1", 0))) == errno.EINVAL
        with socket.socket() as other:
            assert errno_of(lambda: other.bind(s.getsockname())) == errno.EADDRINUSE


@kernel
def bound_then_connected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        name = s.getsockname()
        s.connect(server.getsockname())
        assert s.getsockname() == name
        accepted, peer = server.accept()
        accepted.close()
        assert peer == name


@kernel
def listening_without_bind() -> None:
    with socket.socket() as server:
        server.listen()
        assert server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        port = server.getsockname()[1]
        assert port
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as accepted:
            client.send(b"x")
            assert accepted.recv(10) == b"x"


@kernel
def a_wildcard_listener_serves() -> None:
    with socket.create_server(("", 0)) as server:
        with socket.create_connection(("127.0.0.1", server.getsockname()[1])) as client, server.accept()[0] as accepted:
            client.send(b"x")
            assert accepted.recv(10) == b"x"
        server.setblocking(False)
        assert errno_of(server.accept) == errno.EAGAIN


@kernel
def accepted_sockets_have_their_own_flags() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        clients = [socket.create_connection(server.getsockname()) for _ in range(3)]
        server.setblocking(False)
        until(lambda: bool(select.select([server], [], [], 0)[0]))
        for flags in (0, os.O_NONBLOCK, os.O_CLOEXEC):
            until(lambda: bool(select.select([server], [], [], 0)[0]))
            fd = libc("accept4", server.fileno(), None, None, flags)
            assert bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK) == (flags == os.O_NONBLOCK)
            assert bool(fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC) == (flags == os.O_CLOEXEC)
            assert os.fstat(fd).st_mode & 0o170000 == 0o140000
            os.close(fd)
        assert errno_of(lambda: libc("accept4", server.fileno(), None, None, 1)) == errno.EINVAL
        for client in clients:
            client.close()


@kernel
def shutdown_each_way() -> None:
    client, server = pair()
    with client, server:
        client.shutdown(socket.SHUT_WR)
        assert server.recv(1) == b""
        server.send(b"still")
        assert client.recv(10) == b"still"
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        assert errno_of(lambda: client.send(b"x")) == errno.EPIPE
    with socket.socket() as s:
        assert errno_of(lambda: s.shutdown(socket.SHUT_WR)) == errno.ENOTCONN


@kernel
def writing_to_a_closed_connection_raises_sigpipe() -> None:
    seen: list[int] = []
    signal.signal(signal.SIGPIPE, lambda number, _: seen.append(number))
    client, server = pair()
    with client:
        client.shutdown(socket.SHUT_WR)
        assert errno_of(lambda: os.write(client.fileno(), b"x")) == errno.EPIPE
        until(lambda: seen == [signal.SIGPIPE])
        assert errno_of(lambda: client.send(b"x", socket.MSG_NOSIGNAL)) == errno.EPIPE
        assert errno_of(lambda: os.writev(client.fileno(), [b"x"])) == errno.EPIPE
        until(lambda: seen == [signal.SIGPIPE] * 2)
    server.close()


@kernel
def fast_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        assert client.sendto(b"with the connect", socket.MSG_FASTOPEN, server.getsockname()) == 16
        with server.accept()[0] as accepted:
            assert accepted.recv(100) == b"with the connect"


# --- options ---------------------------------------------------------------------------------------------


@kernel
def options_are_kept_over_the_decision() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 77)
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 78)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 50_000))
        s.connect(server.getsockname())
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        assert s.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 78
        start = time.monotonic()
        assert errno_of(lambda: s.recv(1)) == errno.EAGAIN
        assert time.monotonic() - start > 0.03


@kernel
def what_a_socket_is() -> None:
    client, server = pair()
    with client, server:
        for s in (client, server):
            get = s.getsockopt
            assert get(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
            assert get(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
            assert get(socket.SOL_SOCKET, socket.SO_PROTOCOL) == socket.IPPROTO_TCP
            assert get(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 0
            assert get(socket.SOL_SOCKET, socket.SO_ERROR) == 0
            assert get(socket.IPPROTO_TCP, socket.TCP_INFO, 104)[0] == 1  # established
            assert not os.isatty(s.fileno())
            assert errno_of(lambda s=s: os.lseek(s.fileno(), 0, os.SEEK_CUR)) == errno.ESPIPE
            assert errno_of(lambda s=s: os.fsync(s.fileno())) == errno.EINVAL


@kernel
def ioctls() -> None:
    client, server = pair()
    with client, server:
        client.send(b"12345")
        until(lambda: bool(select.select([server], [], [], 0)[0]))
        value = array.array("i", [0])
        fcntl.ioctl(server, termios.FIONREAD, value)
        assert value[0] == 5
        fcntl.ioctl(server, SIOCATMARK, value)
        assert value[0] == 0
        assert libc("sockatmark", server.fileno()) == 0
        fcntl.ioctl(server, termios.FIONBIO, array.array("i", [1]))
        assert fcntl.fcntl(server, fcntl.F_GETFL) & os.O_NONBLOCK
        server.recv(5)
        assert errno_of(lambda: server.recv(1)) == errno.EAGAIN
        fcntl.ioctl(server, termios.FIONBIO, array.array("i", [0]))
        assert not fcntl.fcntl(server, fcntl.F_GETFL) & os.O_NONBLOCK
        fcntl.ioctl(client, termios.FIOCLEX)
        assert fcntl.fcntl(client, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        assert errno_of(lambda: fcntl.ioctl(client, termios.TCGETS, bytes(64))) == errno.ENOTTY


@kernel
def non_blocking_by_fcntl_before_and_after() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s:
        fcntl.fcntl(s, fcntl.F_SETFL, os.O_NONBLOCK)
        assert s.connect_ex(server.getsockname()) == errno.EINPROGRESS
        fcntl.fcntl(s, fcntl.F_SETFL, 0)
        assert s.connect_ex(server.getsockname()) in (0, errno.EISCONN)
        fcntl.fcntl(s, fcntl.F_SETFL, os.O_NONBLOCK)
        assert fcntl.fcntl(s, fcntl.F_GETFL) == os.O_RDWR | os.O_NONBLOCK
        assert errno_of(lambda: s.recv(1)) == errno.EAGAIN


# --- descriptors -----------------------------------------------------------------------------------------


@kernel
def duplicates_are_one_socket() -> None:
    client, server = pair()
    with server:
        fds = [client.detach()]
        fds += [
            os.dup(fds[0]),
            fcntl.fcntl(fds[0], fcntl.F_DUPFD, 100),
            fcntl.fcntl(fds[0], fcntl.F_DUPFD_CLOEXEC, 200),
        ]
        os.dup2(fds[0], 300)
        fds.append(300)
        assert fds[2] >= 100
        assert fcntl.fcntl(fds[3], fcntl.F_GETFD) & fcntl.FD_CLOEXEC
        for fd in fds:
            os.write(fd, b"1")
        fcntl.fcntl(fds[0], fcntl.F_SETFL, os.O_NONBLOCK)
        assert fcntl.fcntl(300, fcntl.F_GETFL) & os.O_NONBLOCK
        for fd in fds[:-1]:
            os.close(fd)
            assert errno_of(lambda fd=fd: os.write(fd, b"x")) == errno.EBADF
        os.write(300, b"end")
        os.close(300)
        assert drain(server) == b"1" * len(fds) + b"end"


@kernel
def duplicates_made_before_connecting() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        s = socket.socket()
        copy = socket.socket(fileno=os.dup(s.fileno()))
        copy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        s.connect(server.getsockname())
        assert copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        s.close()
        with server.accept()[0] as accepted, copy:
            copy.send(b"by the copy")
            assert accepted.recv(100) == b"by the copy"


@kernel
def duplicating_onto_others() -> None:
    client, server = pair()
    other, peer = pair()
    with client, server, peer:
        os.dup2(client.fileno(), other.fileno())
        assert drain(peer) == b""  # its last descriptor has gone
        other.send(b"a")
        assert server.recv(1) == b"a"
        with tempfile.TemporaryFile() as file:
            os.dup2(file.fileno(), other.fileno())
            os.write(other.fileno(), b"into the file")
            assert os.pread(file.fileno(), 100, 0) == b"into the file"
        assert os.dup2(client.fileno(), client.fileno()) == client.fileno()
        assert errno_of(lambda: libc("dup2", client.fileno(), -1)) == errno.EBADF
        assert errno_of(lambda: libc("dup3", client.fileno(), client.fileno(), 0)) == errno.EINVAL
    other.close()


@kernel
def ranges_are_closed() -> None:
    client, server = pair()
    copy = os.dup2(client.detach(), 500)
    libc("close_range", copy, copy, 4)  # CLOSE_RANGE_CLOEXEC
    assert fcntl.fcntl(copy, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    os.write(copy, b"x")
    plain = os.open("/dev/null", os.O_RDONLY)
    os.dup2(plain, 501)
    libc("close_range", 500, 600, 0)
    assert errno_of(lambda: os.fstat(500)) == errno.EBADF
    assert errno_of(lambda: os.fstat(501)) == errno.EBADF
    assert errno_of(lambda: libc("close_range", 6, 5, 0)) == errno.EINVAL
    again, server2 = pair()
    os.closerange(3, 4000)
    with socket.create_server(("127.0.0.1", 0)) as fresh, socket.create_connection(fresh.getsockname()) as s:
        s.send(b"the rest works on")
        assert fresh.accept()[0].recv(100) == b"the rest works on"
    for s in (again, server2, server):
        s.detach()


@kernel
def closefrom_spares_what_is_not_the_programs() -> None:
    client, server = pair()
    LIBC.closefrom(3)
    for s in (client, server):
        assert errno_of(lambda s=s: s.send(b"x")) == errno.EBADF
        s.detach()
    client, server = pair()
    client.send(b"x")
    assert server.recv(1) == b"x"


# --- files, pipes, streams -------------------------------------------------------------------------------


def receive_hash(s: socket.socket, out: list[bytes]) -> None:
    digest = hashlib.sha256()
    while part := s.recv(1 << 16):
        digest.update(part)
    out.append(digest.digest())


@kernel
def sendfile_as_the_kernel_does_it() -> None:
    client, server = pair()
    data = os.urandom(1_000_000)
    out: list[bytes] = []
    reader = threading.Thread(target=receive_hash, args=(server, out))
    reader.start()
    with client, tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        file.seek(10)
        sent = 0
        while sent < 500_000:
            sent += os.sendfile(client.fileno(), file.fileno(), sent, 500_000 - sent)
        assert file.tell() == 10  # an offset given leaves the file's own
        os.lseek(file.fileno(), 500_000, os.SEEK_SET)
        while n := libc("sendfile", client.fileno(), file.fileno(), None, ctypes.c_size_t(1 << 20)):
            sent += n
            assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == sent
        assert sent == len(data)
        client.shutdown(socket.SHUT_WR)
        reader.join()
        assert out == [hashlib.sha256(data).digest()]
        _, write_end = os.pipe()
        for bad in (client.fileno(), write_end):
            assert errno_of(lambda bad=bad: os.sendfile(client.fileno(), bad, 0, 10)) != 0
        assert errno_of(lambda: os.sendfile(client.fileno(), 999, 0, 10)) == errno.EBADF
    server.close()


@kernel
def sendfile_without_waiting() -> None:
    client, server = pair()
    data = os.urandom(30_000_000)
    out: list[bytes] = []
    with client, tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        client.setblocking(False)
        sent = 0
        blocked = 0
        reader = threading.Thread(target=receive_hash, args=(server, out))
        while sent < len(data):
            try:
                sent += os.sendfile(client.fileno(), file.fileno(), sent, len(data) - sent)
            except BlockingIOError:
                if not blocked:
                    reader.start()
                blocked += 1
                select.select([], [client], [], DEADLINE_S)
        client.shutdown(socket.SHUT_WR)
        reader.join()
    assert out == [hashlib.sha256(data).digest()]
    server.close()


@kernel
def splice_through_a_pipe() -> None:
    one, two = pair()
    three, four = pair()
    data = os.urandom(400_000)
    out: list[bytes] = []
    reader = threading.Thread(target=receive_hash, args=(four, out))
    writer = threading.Thread(target=lambda: (one.sendall(data), one.close()))
    reader.start()
    writer.start()
    read_end, write_end = os.pipe()
    with two, three:
        while n := libc("splice", two.fileno(), None, write_end, None, ctypes.c_size_t(65536), 0):
            while n:
                n -= libc("splice", read_end, None, three.fileno(), None, ctypes.c_size_t(n), 0)
        three.shutdown(socket.SHUT_WR)
        reader.join()
        writer.join()
        assert out == [hashlib.sha256(data).digest()]
        nonblock = 2
        call = ("splice", read_end, None, three.fileno(), None, ctypes.c_size_t(100))
        assert errno_of(lambda: libc(*call, nonblock)) == errno.EAGAIN
        os.close(write_end)
        offset = ctypes.c_long(0)
        bad = ("splice", read_end, None, three.fileno(), ctypes.byref(offset), ctypes.c_size_t(100), 0)
        assert errno_of(lambda: libc(*bad)) == errno.EINVAL
        bad = ("splice", read_end, ctypes.byref(offset), three.fileno(), None, ctypes.c_size_t(100), 0)
        assert errno_of(lambda: libc(*bad)) == errno.ESPIPE
        neither = ("splice", two.fileno(), None, three.fileno(), None, ctypes.c_size_t(100), 0)
        assert errno_of(lambda: libc(*neither)) == errno.EINVAL
    os.close(read_end)
    four.close()


@kernel
def streams_on_sockets() -> None:
    client, server = pair()
    LIBC.fdopen.restype = ctypes.c_void_p
    fd = os.dup(client.fileno())
    stream = ctypes.c_void_p(LIBC.fdopen(fd, b"r+"))
    assert stream.value
    assert LIBC.fileno(stream) == fd
    LIBC.fprintf(stream, b"hello %d\n", 5)
    assert LIBC.fflush(stream) == 0
    assert server.recv(100) == b"hello 5\n"
    server.sendall(b"a line\nand more\n")
    line = ctypes.create_string_buffer(100)
    assert LIBC.fgets(line, 100, stream)
    assert line.value == b"a line\n"
    assert LIBC.fclose(stream) == 0
    assert errno_of(lambda: os.fstat(fd)) == errno.EBADF
    client.close()
    server.close()


@kernel
def standard_output_becomes_a_socket() -> None:
    client, server = pair()
    before = os.dup(1)
    os.dup2(client.fileno(), 1)
    client.close()
    LIBC.puts(b"through stdio")
    LIBC.fflush(None)
    assert server.recv(100) == b"through stdio\n"
    os.dup2(before, 1)
    assert drain(server) == b""
    LIBC.puts(b"as before")
    LIBC.fflush(None)


# --- threads and signals ---------------------------------------------------------------------------------


@kernel
def threads_share_sockets() -> None:
    client, server = pair()
    count, size = 8, 50_000
    with client, server:

        def feed(byte: int) -> None:
            for _ in range(size // 1000):
                client.sendall(bytes([byte]) * 1000)

        feeding = [threading.Thread(target=feed, args=(i,)) for i in range(count)]
        for thread in feeding:
            thread.start()
        counts = [0] * count
        left = count * size
        while left:
            data = server.recv(65536)
            left -= len(data)
            for i in range(count):
                counts[i] += data.count(i)
        assert counts == [size] * count
        for thread in feeding:
            thread.join()


@kernel
def a_handler_uses_a_pipe_while_the_thread_waits() -> None:
    client, server = pair()
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    seen: list[int] = []
    signal.signal(signal.SIGALRM, lambda number, _: (seen.append(number), server.send(b"woken")))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    assert client.recv(100) == b"woken"
    assert seen
    assert os.read(read_end, 1) == bytes([signal.SIGALRM])
    signal.set_wakeup_fd(-1)


# --- processes ------------------------------------------------------------------------------------------


def wait_for_child(pid: int) -> None:
    assert os.waitpid(pid, 0)[1] == 0


@kernel
def a_child_accepts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        pid = os.fork()
        if not pid:
            accepted, _ = server.accept()
            accepted.sendall(b"from the child")
            accepted.shutdown(socket.SHUT_WR)
            accepted.recv(1)
            os._exit(0)
        with socket.create_connection(server.getsockname()) as client:
            assert drain(client) == b"from the child"
        wait_for_child(pid)


@kernel
def a_child_goes_on_with_a_connection() -> None:
    client, server = pair()
    pid = os.fork()
    if not pid:
        client.sendall(b"from the child")
        os._exit(0)
    client.close()
    assert drain(server) == b"from the child"
    wait_for_child(pid)
    server.close()


@kernel
def a_daemon_takes_only_what_it_uses() -> None:
    """daemon(3): who has inherited a connection leaves at once, and it is its child's; the other end stays."""
    client, server = pair()
    pid = os.fork()
    if not pid:
        client.sendall(b"before, ")
        libc("daemon", 0, 0)
        client.sendall(b"after")
        os._exit(0)
    client.close()
    assert drain(server) == b"before, after"
    wait_for_child(pid)
    server.close()


@kernel
def exec_keeps_a_connection() -> None:
    client, server = pair()
    os.set_inheritable(client.fileno(), True)
    pid = os.fork()
    if not pid:
        os.execv(
            sys.executable, [sys.executable, "-c", f"import os; os.write({client.fileno()}, b'from the new program')"]
        )
    client.close()
    assert drain(server) == b"from the new program"
    wait_for_child(pid)
    server.close()


@kernel
def every_way_to_exec() -> None:
    """Each with the socket inherited; the shell says into it which one it was."""
    shell = b"/bin/sh"
    shell_fd = os.open(shell, os.O_RDONLY | os.O_CLOEXEC)

    def text(*items: bytes) -> ctypes.Array[ctypes.c_char_p]:
        return (ctypes.c_char_p * (len(items) + 1))(*items, None)

    environment = text(*(name + b"=" + value for name, value in os.environb.items()))
    for name in ("execl", "execlp", "execle", "execv", "execvp", "execve", "execvpe", "fexecve", "execveat"):
        client, server = pair()
        os.set_inheritable(client.fileno(), True)
        pid = os.fork()
        if not pid:
            words = (b"sh", b"-c", b"echo %s >&%d" % (name.encode(), client.fileno()))
            first: tuple[object, ...] = (shell_fd,) if name == "fexecve" else (b"sh",) if "p" in name else (shell,)
            if name == "execveat":
                first = (-100, shell)  # AT_FDCWD
            if name.startswith("execl"):
                libc(name, *first, *words, None, *([environment] if name == "execle" else []))
            else:
                takes_environment = name not in ("execv", "execvp")
                libc(name, *first, text(*words), *([environment] if takes_environment else []), 0)
        client.close()
        assert drain(server) == name.encode() + b"\n"
        wait_for_child(pid)
        server.close()
    os.close(shell_fd)


@kernel
def standard_output_becomes_a_file_again() -> None:
    LIBC.freopen.restype = ctypes.c_void_p

    def stdout() -> ctypes.c_void_p:
        return ctypes.c_void_p.in_dll(LIBC, "stdout")

    client, server = pair()
    kept = os.dup(1)
    os.dup2(client.fileno(), 1)
    client.close()
    libc("fputs", b"to the socket", stdout())
    with tempfile.NamedTemporaryFile() as file:
        assert LIBC.freopen(file.name.encode(), b"w", stdout())
        assert drain(server) == b"to the socket"
        libc("fputs", b"to the file", stdout())
        assert libc("fflush", stdout()) == 0
        assert file.read() == b"to the file"
        os.write(1, b", both ways")
        assert file.read() == b", both ways"
    os.dup2(kept, 1)
    server.close()


@kernel
def a_subprocess_with_a_socket_for_standard_output() -> None:
    client, server = pair()
    done = subprocess.Popen([sys.executable, "-c", "import os; os.write(1, b'written')"], stdout=client)
    assert done.wait(DEADLINE_S) == 0
    client.close()
    assert drain(server) == b"written"
    client, server = pair()
    done = subprocess.Popen(["sh", "-c", "read line; echo got $line"], stdin=client, stdout=client)
    server.sendall(b"a line\n")
    client.close()
    assert drain(server) == b"got a line\n"
    assert done.wait(DEADLINE_S) == 0


@kernel
def an_exec_that_fails_changes_nothing() -> None:
    client, server = pair()
    os.set_inheritable(client.fileno(), True)
    assert errno_of(lambda: os.execv("/nonexistent", ["x"])) == errno.ENOENT
    client.sendall(b"still here")
    assert server.recv(100) == b"still here"


@kernel
def unix_sockets_pass_descriptors() -> None:
    one, two = socket.socketpair()
    read_end, write_end = os.pipe()
    socket.send_fds(one, [b"x"], [write_end])
    _, fds, _, _ = socket.recv_fds(two, 10, 1)
    os.write(fds[0], b"passed")
    assert os.read(read_end, 10) == b"passed"


# --- what only the interposer does -----------------------------------------------------------------------


@ours
def everything_is_reported() -> None:
    client, server = pair()
    before = Report.read()
    assert kind_of(client) == kind_of(server) == OFFLOADED
    assert before.offloaded == 3
    with socket.socket() as fresh, socket.socket(type=socket.SOCK_DGRAM) as datagrams:
        assert kind_of(fresh) == UNDECIDED
        assert (kind_of(datagrams), reason_of(datagrams)) == (STAYED, PROTOCOL)
        assert Report.read().stayed == {PROTOCOL: 1}
    client.close()
    assert client.fileno() not in Report.read().entries


def shown(fd: int) -> tuple[str, str, int | None]:
    """What `xts status --processes` says of a descriptor of this process: addresses, and the line of the rules."""
    (process,) = (process for process in processes.find() if process.pid == os.getpid())
    (entry,) = (entry for entry in process.descriptors if entry.fd == fd)
    return entry.local, entry.peer, entry.rule_line


def address(name: tuple[str, int]) -> str:
    return f"{name[0]}:{name[1]}"


@ours
def addresses_are_reported() -> None:
    """Of accepted sockets and duplicates too, and in a forked child."""
    client, server = pair()
    other = client.dup()
    ends = address(client.getsockname()), address(client.getpeername())
    expected = {
        client.fileno(): (ends[1], 1),
        other.fileno(): (ends[1], 1),
        server.fileno(): (ends[0], 2),
    }

    def as_expected() -> bool:
        return {fd: shown(fd)[1:] for fd in expected} == expected and shown(server.fileno())[0] == ends[1]

    assert as_expected()
    pid = os.fork()
    if not pid:
        os._exit(0 if as_expected() else 1)
    wait_for_child(pid)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert shown(listener.fileno()) == (address(listener.getsockname()), "*", 2)


@ours
def a_program_that_writes_over_its_arguments() -> None:
    """setproctitle() as nginx has it: the page keeps the name under which the rules were asked."""
    name = ctypes.c_char_p.in_dll(LIBC, "program_invocation_short_name")
    assert name.value
    before = name.value.decode()
    title = ctypes.create_string_buffer(b"another title")
    name.value = ctypes.cast(title, ctypes.c_char_p).value
    client, server = pair()
    with client, server:
        (process,) = (process for process in processes.find() if process.pid == os.getpid())
        assert process.program == before


@ours
def internal_descriptors_are_protected() -> None:
    client, server = pair()
    page = Report.memfd()
    assert errno_of(lambda: os.close(page)) == errno.EBADF
    assert errno_of(lambda: os.dup(page)) == errno.EBADF
    assert errno_of(lambda: os.dup2(client.fileno(), page)) == errno.EBUSY
    inside = {fd for fd, entry in Report.read().entries.items() if entry[0] == 5}
    assert len(inside) >= 4  # the page, the placeholder, the attachment, the queue, a bell
    for fd in inside:
        assert errno_of(lambda fd=fd: os.close(fd)) == errno.EBADF
    os.closerange(max(client.fileno(), server.fileno()) + 1, 5000)
    client.send(b"x")
    assert server.recv(1) == b"x"


@ours
def offloaded_descriptors_are_not_passed() -> None:
    client, server = pair()
    one, two = socket.socketpair()
    with client, server:
        assert errno_of(lambda: socket.send_fds(one, [b"x"], [client.fileno()])) == errno.EOPNOTSUPP
        assert Report.read().unseen == 1
        actions = [(os.POSIX_SPAWN_DUP2, client.fileno(), 1)]
        raised = errno_of(lambda: os.posix_spawn("/bin/true", ["true"], {}, file_actions=actions))
        assert raised == errno.EOPNOTSUPP
        assert Report.read().unseen == 2
    two.close()


@ours
def reasons_of_staying() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.socket() as s:
            s.setsockopt(socket.IPPROTO_TCP, 30, 1)  # TCP_FASTOPEN_CONNECT
            s.connect(server.getsockname())
            assert (kind_of(s), reason_of(s)) == (STAYED, FASTOPEN)
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            s.connect(server.getsockname())
            assert (kind_of(s), reason_of(s)) == (STAYED, OPTION)
        with socket.socket() as s:
            fcntl.fcntl(s, F_SETOWN, os.getpid())
            assert (kind_of(s), reason_of(s)) == (STAYED, OPTION)
        LIBC.fdopen.restype = ctypes.c_void_p
        with socket.socket() as s:
            assert LIBC.fdopen(os.dup(s.fileno()), b"r+")
            assert (kind_of(s), reason_of(s)) == (STAYED, RAW)


@ours
def other_streams_on_sockets_cannot_become_files() -> None:
    LIBC.fdopen.restype = LIBC.freopen.restype = ctypes.c_void_p
    client, server = pair()
    stream = LIBC.fdopen(client.detach(), b"w")
    libc("fputs", b"to the socket", ctypes.c_void_p(stream))
    ctypes.set_errno(0)
    assert LIBC.freopen(b"/dev/null", b"w", ctypes.c_void_p(stream)) is None
    assert ctypes.get_errno() == errno.EOPNOTSUPP
    assert Report.read().unseen == 1
    assert drain(server) == b"to the socket"
    server.close()


@ours
def duplicates_stay_with_what_they_are_of() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
            before = s.dup()  # undecided yet
            s.connect(server.getsockname())
            after = s.dup()
            for each in (s, before, after):
                assert (kind_of(each), reason_of(each)) == (STAYED, OPTION)
        before.close()
        with after, server.accept()[0] as accepted:
            after.send(b"x")
            assert accepted.recv(1) == b"x"
        assert Report.read().stayed == {OPTION: 1}


@ours
def a_clone_on_its_parents_memory_is_a_fork() -> None:
    """As vfork() and posix_spawn() call it: the child's close must not be the parent's."""
    client, server = pair()

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def child(_: int) -> int:
        os.write(client.fileno(), b"from the child")
        os.close(client.fileno())
        return 7

    stack = ctypes.create_string_buffer(1 << 16)
    flags = 0x100 | 0x4000 | signal.SIGCHLD  # CLONE_VM, CLONE_VFORK
    pid = libc("clone", child, ctypes.c_void_p(ctypes.addressof(stack) + len(stack)), flags, None)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert kind_of(client) == OFFLOADED
    client.close()
    assert drain(server) == b"from the child"
    server.close()


@ours
def rules_decide() -> None:
    """Under rules that offload clients only, but for one port."""
    kernel_port, other_port = (int(port) for port in sys.argv[2:4])
    with socket.socket() as server, socket.socket() as other:
        for s, port in ((server, kernel_port), (other, other_port)):
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            s.bind(("127.0.0.1", port))
            s.listen()
            assert (kind_of(s), reason_of(s)) == (STAYED, RULE)
        with socket.create_connection(server.getsockname()) as client, server.accept()[0] as accepted:
            assert (kind_of(client), reason_of(client)) == (STAYED, RULE)
            assert (kind_of(accepted), reason_of(accepted)) == (STAYED, RULE)
            client.send(b"x")
            assert accepted.recv(1) == b"x"
        with socket.create_connection(other.getsockname()) as client:
            assert kind_of(client) == OFFLOADED


@ours
def bound_offloaded_goes_back_to_the_kernel() -> None:
    """Under rules that offload servers and leave clients to the kernel."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s:
        s.bind(("127.0.0.2", 0))
        assert kind_of(s) == OFFLOADED
        s.connect(server.getsockname())
        assert (kind_of(s), reason_of(s)) == (STAYED, RULE)
        with server.accept()[0] as accepted:
            s.send(b"x")
            assert accepted.recv(1) == b"x"
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s, select.epoll() as e:
        s.bind(("127.0.0.2", 0))
        e.register(s, select.EPOLLIN | select.EPOLLET)
        s.connect(server.getsockname())
        assert kind_of(s) == STAYED
        with server.accept()[0] as accepted:
            e.poll(0)  # an edge from before it was connected, perhaps
            accepted.send(b"x")
            assert e.poll(DEADLINE_S) == [(s.fileno(), select.EPOLLIN)]
            assert e.poll(0) == []
            e.unregister(s)


@ours
def without_a_proxy_it_is_the_kernels() -> None:
    client, server = pair()
    with client, server:
        assert (kind_of(client), reason_of(client)) == (STAYED, NO_ENDPOINT)
        client.send(b"x")
        assert server.recv(1) == b"x"


@ours
def chroot_before_the_first_socket() -> None:
    """The endpoint's path does not exist in there."""
    with tempfile.TemporaryDirectory() as folder:
        pid = os.fork()
        if not pid:
            proc = os.open("/proc/self/fd", os.O_RDONLY)
            os.chroot(folder)
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                os.fchdir(proc)
                os.chroot("../../..")
                os._exit(0 if (kind_of(s), reason_of(s)) == (STAYED, NO_ENDPOINT) else 1)
        wait_for_child(pid)


@ours
def the_capture_is_protected() -> None:
    """XTS_PCAP's file is ours: a program that closes all it has does not stop it."""
    capture = Path(os.environ["XTS_PCAP"])
    client, server = pair()
    (fd,) = (int(link.name) for link in Path("/proc/self/fd").iterdir() if link.exists() and link.samefile(capture))
    assert kind_of(fd) == INTERNAL
    assert errno_of(lambda: os.close(fd)) == errno.EBADF
    before = capture.stat().st_size
    client.send(b"x")
    assert server.recv(1) == b"x"
    until(lambda: capture.stat().st_size > before)


@ours
def strict_without_a_proxy() -> None:
    with socket.socket() as s:
        assert errno_of(lambda: s.bind(("127.0.0.1", 0))) == errno.ENETDOWN
        assert s.connect_ex(("127.0.0.1", 1)) == errno.ENETDOWN
        assert kind_of(s) == UNDECIDED
    with socket.socket(type=socket.SOCK_DGRAM) as s:
        s.bind(("127.0.0.1", 0))


@ours
def a_number_closed_past_us_is_no_trap() -> None:
    client, server = pair()
    fd = client.detach()
    LIBC.syscall(SYS_CLOSE, fd)
    with contextlib.ExitStack() as held:
        while (s := held.enter_context(socket.socket())).fileno() != fd:
            assert s.fileno() < fd
        assert kind_of(s) == UNDECIDED
    server.close()


@ours
def a_file_with_a_number_closed_past_us() -> None:
    """Whatever gives the number out again, the file is what is read and written."""
    with tempfile.NamedTemporaryFile() as file:
        path = file.name.encode()
        LIBC.fopen.restype = ctypes.c_void_p
        mask = ctypes.create_string_buffer(128)
        two = (ctypes.c_int * 2)()
        makers: dict[str, Callable[[], object]] = {
            **{name: partial(libc, name, path, os.O_RDWR) for name in ("open", "open64", "__open_2", "__open64_2")},
            **{
                name: partial(libc, name, -100, path, os.O_RDWR)
                for name in ("openat", "openat64", "__openat_2", "__openat64_2")
            },
            **{name: partial(libc, name, path, 0o600) for name in ("creat", "creat64")},
            **{name: partial(getattr(LIBC, name), path, b"r") for name in ("fopen", "fopen64")},
            "pipe": partial(libc, "pipe", two),
            "pipe2": partial(libc, "pipe2", two, os.O_NONBLOCK),
            "socketpair": partial(libc, "socketpair", socket.AF_UNIX, socket.SOCK_STREAM, 0, two),
            "eventfd": partial(libc, "eventfd", 1, 0),
            "memfd_create": partial(libc, "memfd_create", b"x", 0),
            "timerfd_create": partial(libc, "timerfd_create", time.CLOCK_MONOTONIC, 0),
            "signalfd": partial(libc, "signalfd", -1, mask, 0),
            "inotify_init": partial(libc, "inotify_init"),
            "inotify_init1": partial(libc, "inotify_init1", 0),
            "epoll_create1": partial(libc, "epoll_create1", 0),
            "dup": partial(libc, "dup", 0),
            "fcntl": partial(libc, "fcntl", 0, fcntl.F_DUPFD, 0),
        }
        server = socket.create_server(("127.0.0.1", 0))
        for name, make in makers.items():
            client = socket.create_connection(server.getsockname())
            fd = client.detach()
            assert kind_of(fd) == OFFLOADED
            LIBC.syscall(SYS_CLOSE, fd)
            made = make()
            assert Path(f"/proc/self/fd/{fd}").exists(), name
            assert kind_of(fd) in (0, 4), name
            if name in ("open", "memfd_create"):
                assert os.write(fd, b"in the file") == 11
                assert os.pread(fd, 20, 0) == b"in the file"
            server.accept()[0].close()
            if not name.startswith("fopen"):
                os.close(fd)
            assert made is not None
        server.close()


@ours
def raw_calls_are_refused() -> None:
    client, server = pair()
    with client, server:
        buffer = ctypes.create_string_buffer(10)
        ctypes.set_errno(0)
        read = ctypes.CDLL("libc.so.6", use_errno=True).pread
        assert read(client.fileno(), buffer, 1, 0) == -1


@ours
def a_handler_that_interrupts_a_call_on_an_offloaded_socket() -> None:
    client, server = pair()
    other, peer = pair()
    read_end, write_end = os.pipe()
    found: list[int] = []

    # A handler of the C library's: it runs at once, in the middle of the interrupted recv().
    @ctypes.CFUNCTYPE(None, ctypes.c_int)
    def handler(_number: int) -> None:
        if found or errno_of(client.getsockname) != errno.EDEADLK:
            return  # the thread is not in its recv() yet
        found.append(errno_of(lambda: other.send(b"x")))
        other.close()
        os.write(write_end, b"a pipe works")

    LIBC.signal(signal.SIGUSR1, handler)
    main_thread = threading.get_ident()

    def interrupt() -> None:
        while not found:
            signal.pthread_kill(main_thread, signal.SIGUSR1)
            time.sleep(0.01)
        assert os.read(read_end, 100) == b"a pipe works"
        server.send(b"done")

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    assert client.recv(10) == b"done"
    interrupting.join()
    assert found[0] == errno.EDEADLK
    assert Report.read().unseen >= 2
    assert drain(peer) == b""  # the close was carried out


@ours
def exhausted_descriptors() -> None:
    client, server = pair()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        waiting = socket.create_connection(listener.getsockname())
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        held = []
        while not errno_of(lambda: held.append(os.open("/dev/null", os.O_RDONLY))):
            pass
        assert errno_of(listener.accept) == errno.EMFILE
        assert errno_of(lambda: os.dup(client.fileno())) == errno.EMFILE
        os.close(held.pop())
        with listener.accept()[0] as accepted, waiting:
            waiting.send(b"still there")
            assert accepted.recv(100) == b"still there"
    client.send(b"x")
    assert server.recv(1) == b"x"


def main() -> None:
    faulthandler.dump_traceback_later(40, exit=True)
    (KERNEL | OURS)[sys.argv[1]]()


if __name__ == "__main__":
    main()
