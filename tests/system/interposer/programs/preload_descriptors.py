"""Descriptors under the interposer: duplicates, files, streams; and the threads and signals that meet there."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import hashlib
import os
import select
import signal
import socket
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from beds.scripts import script
from system.interposer.programs.interposed import DEADLINE_S, LIBC, drain, errno_of, libc, pair, until

# --- descriptors --------------------------------------------------------------------------------------


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
def closefrom_spares_what_is_not_the_programs() -> None:
    client, server = pair()
    LIBC.closefrom(3)
    for s in (client, server):
        assert errno_of(lambda s=s: s.send(b"x")) == errno.EBADF
        s.detach()
    client, server = pair()
    client.send(b"x")
    assert server.recv(1) == b"x"


# --- files, pipes, streams ----------------------------------------------------------------------------


def receive_hash(s: socket.socket, out: list[bytes]) -> None:
    digest = hashlib.sha256()
    while part := s.recv(1 << 16):
        digest.update(part)
    out.append(digest.digest())


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
def streams_on_sockets() -> None:
    client, server = pair()
    LIBC.fdopen.restype = ctypes.c_void_p
    fd = os.dup(client.fileno())
    stream = ctypes.c_void_p(LIBC.fdopen(fd, b"r+"))
    line = ctypes.create_string_buffer(100)
    assert stream.value
    assert LIBC.fileno(stream) == fd
    for call in (lambda: libc("fseek", stream, ctypes.c_long(0), os.SEEK_CUR), lambda: libc("fgetpos", stream, line)):
        assert errno_of(call) == errno.ESPIPE
    LIBC.fprintf(stream, b"hello %d\n", 5)
    assert LIBC.fflush(stream) == 0
    assert server.recv(100) == b"hello 5\n"
    server.sendall(b"a line\nand more\n")
    assert LIBC.fgets(line, 100, stream)
    assert line.value == b"a line\n"
    assert LIBC.fclose(stream) == 0
    assert errno_of(lambda: os.fstat(fd)) == errno.EBADF
    client.close()
    server.close()


@script("as the kernel")
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


# --- threads and signals ------------------------------------------------------------------------------


@script("as the kernel")
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


@script("as the kernel")
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


def _sleeps(thread: int) -> bool:
    return Path(f"/proc/self/task/{thread}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"


def _errno_of_a_wait_that_is_ended(close: Callable[[int], object]) -> int:
    client, server = pair()
    fd, ends = client.detach(), list[int]()
    waits = threading.Thread(target=lambda: ends.append(errno_of(lambda: os.read(fd, 1))))
    waits.start()
    until(lambda: _sleeps(waits.native_id or os.getpid()))
    close(fd)
    waits.join(DEADLINE_S)
    server.close()
    return ends[0]


@script("interposer")
def a_closed_number_ends_its_waits() -> None:
    """The kernel's wait goes on, as the socket lives as long as somebody waits for it."""
    assert _errno_of_a_wait_that_is_ended(os.close) == errno.EBADF
    assert _errno_of_a_wait_that_is_ended(lambda fd: os.dup2(0, fd)) == errno.EBADF
