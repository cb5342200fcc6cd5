"""The Python socket's options, the paper's functions, and the attachment. See test_python_socket.py."""

from __future__ import annotations

import errno
import select
import socket as kernel
import struct
import time
from contextlib import ExitStack

import pytest
import xts_socket as socket
from beds.proxy_process import ProxyProcess
from beds.python_socket import DEADLINE_S, Pair, receive_all

pytestmark = pytest.mark.usefixtures("xts_endpoint")


# --- options ------------------------------------------------------------------------------------------


def test_options(pair: Pair) -> None:
    sock = pair.offloaded
    for level, option in ((socket.IPPROTO_TCP, socket.TCP_NODELAY), (socket.SOL_SOCKET, socket.SO_KEEPALIVE)):
        assert sock.getsockopt(level, option) == 0
        sock.setsockopt(level, option, 1)
        assert sock.getsockopt(level, option) != 0
        sock.setsockopt(level, option, struct.pack("i", 0))
        assert sock.getsockopt(level, option, 4) == bytes(4)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 17)
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 17
    assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[0] == 1  # TCP_ESTABLISHED
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN) == socket.AF_INET
    with pytest.raises(OSError) as caught:
        sock.setsockopt(socket.IPPROTO_TCP, 9999, 1)
    assert caught.value.errno == errno.ENOPROTOOPT
    with pytest.raises(OSError, match="out of range"):
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE, 1025)
    with pytest.raises(TypeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, None)
    with pytest.raises(TypeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, "1")


# --- the paper's functions, and the attachment --------------------------------------------------------


def test_the_paper_s_functions(listener: kernel.socket) -> None:
    s = socket.xts_socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    socket.xts_bind(s, ("127.0.0.1", 0))
    socket.xts_connect(s, listener.getsockname())
    peer, address = listener.accept()
    with peer:
        assert socket.xts_getsockname(s) == address
        assert socket.xts_getpeername(s) == listener.getsockname()
        assert socket.xts_send(s, b"one ") == 4
        assert socket.xts_sendto(s, b"two ", 0, ("127.0.0.1", 1)) == 4
        assert socket.xts_sendmsg(s, [b"thr", b"ee"]) == 5
        socket.xts_close(s)
        assert receive_all(peer) == b"one two three"


def test_the_paper_s_functions_listening() -> None:
    listening = socket.xts_socket()
    socket.xts_setsockopt(listening, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    assert socket.xts_getsockopt(listening, socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
    socket.xts_bind(listening, ("127.0.0.1", 0))
    socket.xts_listen(listening, 5)
    ectx = socket.xts_epoll_ctx_create()
    socket.xts_epoll_ctl(ectx, 1, listening, select.EPOLLIN)
    assert socket.xts_epoll(ectx) == []
    with kernel.create_connection(socket.xts_getsockname(listening)) as peer:
        assert select.select([socket.xts_fileno(listening)], [], [], DEADLINE_S)[0]
        assert socket.xts_epoll(ectx) == [(listening, select.EPOLLIN)]
        s, address = socket.xts_accept(listening)
        assert address == peer.getsockname()
        peer.sendall(b"abcdef")
        assert socket.xts_recv(s, 2) == b"ab"
        assert socket.xts_recvfrom(s, 2) == (b"cd", None)
        buffer = bytearray(8)
        assert socket.xts_recvmsg(s, [buffer]) == (2, [], 0) and buffer[:2] == b"ef"
        assert socket.xts_fcntl(s, 4, 0o4000) == 0  # F_SETFL, O_NONBLOCK
        assert socket.xts_fcntl(s, 3) & 0o4000  # F_GETFL
        with pytest.raises(BlockingIOError):
            socket.xts_recv(s, 1)
        peer.sendall(b"queued")
        assert select.select([socket.xts_fileno(s)], [], [], DEADLINE_S)[0]
        assert socket.xts_ioctl(s, 0x541B, bytes(4)) == struct.pack("i", 6)  # FIONREAD
        assert socket.xts_ioctl(s, 0x5421, struct.pack("i", 0)) == bytes(4)  # FIONBIO
        socket.xts_close(s)
        with pytest.raises(OSError):
            socket.xts_recv(s, 1)
    socket.xts_epoll_ctx_destroy(ectx)
    socket.xts_close(listening)


def test_info_tells_of_the_attachment(pair: Pair, xts_endpoint: ProxyProcess) -> None:
    before = socket.info()
    assert before.queue_kind == "shm" and before.link_state == "up" and before.link_error == 0
    assert before.sockets >= 1 and before.frame_window >= 4 and before.largest_message >= 3840
    pair.offloaded.sendall(b"x")
    assert pair.peer_receives(1) == b"x"
    assert socket.info().sent_frames > before.sent_frames
    with pytest.raises(OSError) as caught:
        socket.configure(spin_us=10)
    assert caught.value.errno == errno.EBUSY


def test_an_option_does_not_wait_for_a_connect_on_its_way() -> None:
    with ExitStack() as stack:
        full = stack.enter_context(kernel.socket())
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # a full backlog: further connects stay unanswered
            client = stack.enter_context(kernel.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        ours = stack.enter_context(socket.socket())
        ours.setblocking(False)
        assert ours.connect_ex(full.getsockname()) == errno.EINPROGRESS
        begun = time.monotonic()
        ours.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert time.monotonic() - begun < 1.0  # the connect itself takes seconds to minutes
        assert ours.connect_ex(full.getsockname()) == errno.EALREADY
