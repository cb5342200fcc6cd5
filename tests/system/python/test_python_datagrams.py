"""Datagram sockets of `xts_socket`, and of the standard module under install(): as `socket.socket` has them."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import xts_socket
from beds.patience import SLOWER
from xts_socket import Reason

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 10.0 * SLOWER
EVERYTHING = "use xts udp_sender *:*\nuse xts udp_receiver *:*\nuse xts udp_connect *:*\n"


@pytest.fixture
def installed(rules: Callable[[str], Path]) -> Iterator[None]:
    assert xts_socket.install(rules(EVERYTHING))
    try:
        yield
    finally:
        xts_socket.uninstall()


def made(module: Any, family: int = socket.AF_INET) -> Any:
    s = module.socket(family, socket.SOCK_DGRAM)
    s.settimeout(DEADLINE_S)
    return s


@pytest.mark.parametrize("module", [socket, xts_socket])
@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_all_ways_to_send_and_receive(module: Any, family: int, host: str) -> None:
    with made(module, family) as a, made(module, family) as b:
        a.bind((host, 0))
        assert a.type == socket.SOCK_DGRAM
        assert b.sendto(b"to", a.getsockname()) == 2
        assert a.recvfrom(10) == (b"to", (host, b.getsockname()[1], *a.getsockname()[2:]))
        b.connect(a.getsockname())
        assert b.getpeername() == a.getsockname()
        assert b.send(b"0123456789") == 10
        assert a.recvmsg(4) == (b"0123", [], socket.MSG_TRUNC, b.getsockname())
        assert b.sendmsg([b"ab", b"cd"]) == 4
        buffer = bytearray(10)
        assert a.recvfrom_into(buffer) == (4, b.getsockname()) and buffer.startswith(b"abcd")
        assert a.sendmsg([b"back"], [], 0, b.getsockname()) == 4
        assert b.recvmsg_into([buffer]) == (4, [], 0, a.getsockname())
        b.sendall(b"")
        assert a.recv(10) == b""
        b.sendall(b"x" * 30_000)
        assert a.recv(30_000) == b"x" * 30_000
        a.settimeout(0.01)
        with pytest.raises(TimeoutError):
            a.recvfrom(1)
        a.settimeout(0)
        with pytest.raises(BlockingIOError):
            a.recvfrom(1)
        with pytest.raises(OSError) as caught:
            b.send(bytes(65_536))
        assert caught.value.errno == errno.EMSGSIZE
        for call in (a.listen, a.accept):
            with pytest.raises(OSError) as caught:
                call()
            assert caught.value.errno == errno.EOPNOTSUPP


@pytest.mark.parametrize("flags", [socket.MSG_TRUNC, socket.MSG_TRUNC | socket.MSG_PEEK])
def test_the_length_of_a_longer_one_is_not_its_data(flags: int) -> None:
    with made(xts_socket) as a, made(xts_socket) as b:
        a.bind(("127.0.0.1", 0))
        for _ in range(3):
            b.sendto(b"x" * 100_00, a.getsockname())
        assert a.recv(4, flags) == b"xxxx"
        assert a.recvfrom(4, flags)[0] == b"xxxx"
        assert a.recv_into(bytearray(4), 4, flags) == 100_00


def test_control_data() -> None:
    with made(xts_socket) as a, made(xts_socket) as b:
        a.bind(("127.0.0.1", 0))
        a.setsockopt(socket.IPPROTO_IP, 12, 1)  # IP_RECVTTL
        b.sendmsg([b"x"], [(socket.IPPROTO_IP, socket.IP_TTL, (9).to_bytes(4, "little"))], 0, a.getsockname())
        _, control, _, _ = a.recvmsg(10, 100)
        assert control == [(socket.IPPROTO_IP, socket.IP_TTL, (9).to_bytes(4, "little"))]


@pytest.mark.usefixtures("installed")
def test_install_decides_by_each_call() -> None:
    with made(socket) as a, made(socket) as b, made(socket) as c:
        a.bind(("127.0.0.1", 0))
        assert a.reason is Reason.NONE
        assert b.reason is c.reason is None
        b.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 50_000)
        b.sendto(b"x", a.getsockname())
        assert b.reason is Reason.NONE
        assert b.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 100_000
        assert a.recvfrom(10) == (b"x", ("127.0.0.1", b.getsockname()[1]))
        c.connect(a.getsockname())
        assert c.reason is Reason.NONE
        c.send(b"y")
        assert a.recv(10) == b"y"


def test_receivers_may_stay(rules: Callable[[str], Path]) -> None:
    with xts_socket.offload(rules("use xts udp_connect *:*\nuse xts udp_sender *:*\n")):
        with made(socket) as a, made(socket) as b, made(socket) as unsaid:
            a.bind(("127.0.0.1", 0))
            port = a.getsockname()[1]
            a.close()
            with made(socket) as receiver:
                receiver.bind(("127.0.0.1", port))
                assert receiver.reason is Reason.RULE
                b.bind(("0.0.0.0", 0))
                assert b.reason is None
                b.connect(receiver.getsockname())
                assert b.reason is Reason.NONE
                b.send(b"x")
                data, source = receiver.recvfrom(10)
                assert data == b"x" and source == b.getsockname()
                unsaid.bind(("127.0.0.1", 0))
                receiver.sendto(b"question", unsaid.getsockname())
                assert unsaid.recvfrom(10)[0] == b"question"
                assert unsaid.reason is Reason.RULE


def test_by_default_they_are_the_kernels(rules: Callable[[str], Path]) -> None:
    with xts_socket.offload(rules("")), made(socket) as a:
        a.bind(("127.0.0.1", 0))
        a.sendto(b"x", a.getsockname())
        assert a.recv(10) == b"x"
        assert a.reason is Reason.PROTOCOL


class Echo(asyncio.DatagramProtocol):
    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.transport.sendto(data[::-1], addr)


class Client(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.got: asyncio.Queue[bytes | Exception] = asyncio.Queue()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.got.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        self.got.put_nowait(exc)


@pytest.mark.usefixtures("installed")
def test_datagram_endpoints_of_asyncio() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        server, _ = await loop.create_datagram_endpoint(Echo, local_addr=("127.0.0.1", 0))
        name = server.get_extra_info("sockname")
        transport, client = await loop.create_datagram_endpoint(Client, remote_addr=name)
        async with asyncio.timeout(DEADLINE_S):
            for size in (1, 1000, 60_000):
                transport.sendto(b"a" + b"b" * size)
                assert await client.got.get() == b"b" * size + b"a"
            server.close()
            await asyncio.sleep(0)
            error: Any = None
            while not isinstance(error, ConnectionRefusedError):
                transport.sendto(b"nobody there")
                error = await client.got.get()
        transport.close()

    asyncio.run(main())
