"""Connections under the interposer, and what is asked of sockets."""

from __future__ import annotations

import array
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import threading
import time
from collections.abc import Callable

from beds.libc_structs import Message, Vector
from beds.scripts import script
from system.interposer.programs.interposed import DEADLINE_S, HERE, SIOCATMARK, drain, errno_of, libc, pair, until
from xts_lab.free_ports import free_port

# --- connections --------------------------------------------------------------------------------------


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
def closing_all_descriptors_takes_no_time() -> None:
    """As every subprocess does, most of them without a socket: the table of a million is not walked for it."""
    begun = time.thread_time()
    for _ in range(100):
        os.closerange(500, 2**31 - 1)
    assert time.thread_time() - begun < 0.02


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
def bound_then_connected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        name = s.getsockname()
        s.connect(server.getsockname())
        assert s.getsockname() == name
        accepted, peer = server.accept()
        accepted.close()
        assert peer == name


@script("as the kernel")
def listening_without_bind() -> None:
    with socket.socket() as server:
        server.listen()
        assert server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) == 1
        port = server.getsockname()[1]
        assert port
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as accepted:
            client.send(b"x")
            assert accepted.recv(10) == b"x"


@script("as the kernel")
def a_wildcard_listener_serves() -> None:
    with socket.create_server(("", 0)) as server:
        with socket.create_connection(("127.0.0.1", server.getsockname()[1])) as client, server.accept()[0] as accepted:
            client.send(b"x")
            assert accepted.recv(10) == b"x"
        server.setblocking(False)
        assert errno_of(server.accept) == errno.EAGAIN


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
def fast_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as client:
        assert client.sendto(b"with the connect", socket.MSG_FASTOPEN, server.getsockname()) == 16
        with server.accept()[0] as accepted:
            assert accepted.recv(100) == b"with the connect"
        for words in ((b"x", socket.MSG_FASTOPEN), (b"", socket.MSG_FASTOPEN)):
            assert errno_of(lambda words=words: client.send(*words)) == errno.EISCONN  # type: ignore[misc]
        assert errno_of(lambda: client.sendto(b"x", socket.MSG_FASTOPEN, server.getsockname())) == errno.EISCONN


@script("as the kernel")
def fast_open_that_fails() -> None:
    address = struct.pack("=H", socket.AF_UNSPEC) + bytes(14)
    port = free_port()
    with socket.socket() as s:
        to_nobody = errno_of(lambda: libc("sendto", s.fileno(), b"x", 1, socket.MSG_FASTOPEN, address, len(address)))
        assert to_nobody == errno.EOPNOTSUPP
        assert errno_of(lambda: s.sendto(b"x", socket.MSG_FASTOPEN, (HERE, port))) == errno.ECONNREFUSED
        without_waiting = socket.MSG_FASTOPEN | socket.MSG_DONTWAIT
        assert errno_of(lambda: s.sendto(b"x", without_waiting, (HERE, port))) == errno.EINPROGRESS
        assert not fcntl.fcntl(s, fcntl.F_GETFL) & os.O_NONBLOCK


# --- options ------------------------------------------------------------------------------------------


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
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


@script("as the kernel")
def non_blocking_by_fcntl_before_and_after() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as s:
        fcntl.fcntl(s, fcntl.F_SETFL, os.O_NONBLOCK)
        assert s.connect_ex(server.getsockname()) == errno.EINPROGRESS
        fcntl.fcntl(s, fcntl.F_SETFL, 0)
        assert s.connect_ex(server.getsockname()) in (0, errno.EISCONN)
        fcntl.fcntl(s, fcntl.F_SETFL, os.O_NONBLOCK)
        assert fcntl.fcntl(s, fcntl.F_GETFL) == os.O_RDWR | os.O_NONBLOCK
        assert errno_of(lambda: fcntl.fcntl(s, fcntl.F_SETFL, os.O_DIRECT)) == errno.EINVAL
        assert fcntl.fcntl(s, fcntl.F_GETFL) == os.O_RDWR | os.O_NONBLOCK
        assert errno_of(lambda: s.recv(1)) == errno.EAGAIN
