"""Pushed protocols in Python, through a proxy over shared memory: PDUs, errors, peek mode. The peers are the
kernel's."""

from __future__ import annotations

import asyncio
import errno
import os
import selectors
import socket as kernel
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import trio
import xts_socket
import xts_socket.trio
from xts_messages.wire.ulps import ULPS
from xts_socket import Dns, DnsHeader, Http2, Http2Frame, LengthPrefixed, Lines, Pdu, StreamParser, aio

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 20.0
SIZES = (0, 1, 5, 1000, 70_000, 400_000, 3, 0, 900_000)


def framed(*pdus: bytes) -> bytes:
    return b"".join(len(pdu).to_bytes(4, "big") + pdu for pdu in pdus)


@contextmanager
def listening() -> Iterator[kernel.socket]:
    with kernel.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        yield listener


def receive(peer: kernel.socket, size: int) -> bytes:
    got = b""
    while len(got) < size and (part := peer.recv(size - len(got))):
        got += part
    return got


@contextmanager
def connected(
    *layers: xts_socket.Layer, timeout: float = DEADLINE_S
) -> Iterator[tuple[xts_socket.socket, kernel.socket]]:
    """An offloaded socket with these protocols, and the kernel's at the other end."""
    with listening() as listener, xts_socket.create_connection(listener.getsockname(), timeout, push=layers) as ours:
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(DEADLINE_S)
            yield ours, peer


@contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[None]:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join(DEADLINE_S)
    assert not thread.is_alive() and not failures, failures


def test_pdus_of_all_sizes_both_ways() -> None:
    pdus = [os.urandom(size) for size in SIZES]
    with connected(LengthPrefixed()) as (ours, peer):
        assert ours.type == xts_socket.SOCK_SEQPACKET
        with in_thread(lambda: peer.sendall(framed(*pdus))):
            assert [ours.recv_pdu() for _ in pdus] == [Pdu(pdu) for pdu in pdus]
        sent = framed(*pdus)
        got: list[bytes] = []
        with in_thread(lambda: got.append(receive(peer, len(sent)))):
            for pdu in pdus:
                ours.send_pdu(pdu)
        assert got == [sent]
        peer.shutdown(kernel.SHUT_WR)
        assert ours.recv_pdu() is None and ours.ulp_error() is None


def test_the_calls_of_sockets_tell_where_a_pdu_ends() -> None:
    with connected(LengthPrefixed()) as (ours, peer):
        peer.sendall(framed(b"hello", b"", b"world"))
        data, ancillary, flags, _ = ours.recvmsg(3)
        assert (data, ancillary) == (b"hel", []) and flags & xts_socket.MSG_TRUNC and not flags & xts_socket.MSG_EOR
        data, _, flags, _ = ours.recvmsg(100, 100)
        assert data == b"lo" and flags & xts_socket.MSG_EOR and not flags & xts_socket.MSG_TRUNC
        data, _, flags, _ = ours.recvmsg(100)
        assert data == b"" and flags & xts_socket.MSG_EOR
        assert ours.recv(100) == b"world"
        ours.send(b"one ", xts_socket.MSG_MORE)
        ours.send(b"PDU")
        assert receive(peer, 11) == framed(b"one PDU")


# --- connecting with protocols ----------------------------------------------------------------------------------------


def sent_by(work: Callable[[], Any]) -> int:
    """How many messages the library has sent to the proxy."""
    before = xts_socket.info().sent_frames
    work()
    return xts_socket.info().sent_frames - before


def test_connecting_with_protocols_is_one_message() -> None:
    with listening() as listener:
        for timeout in (DEADLINE_S, None, 0):
            with xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET) as ours:
                ours.settimeout(timeout)

                def connect(ours: xts_socket.socket = ours) -> None:
                    with suppress(BlockingIOError):
                        ours.connect_with(listener.getsockname(), LengthPrefixed())

                assert sent_by(connect) == 1
                peer, _ = listener.accept()
                with peer, selectors.DefaultSelector() as selector:
                    selector.register(ours, selectors.EVENT_WRITE)
                    assert selector.select(DEADLINE_S)
                    ours.send_pdu(b"question")
                    assert receive(peer, 12) == framed(b"question")
                    assert [info.layer for info in ours.ulp_info()] == [LengthPrefixed()]


def test_what_the_proxy_refuses_is_an_error_of_connecting() -> None:
    unknown = xts_socket.BpfParser(program="nobody knows it")
    with listening() as listener:
        with xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET) as ours:
            with pytest.raises(xts_socket.UlpError) as refused:
                ours.connect_with(listener.getsockname(), unknown)
            assert refused.value.fault == "push" and "nobody knows it" in str(refused.value)
            for again in (lambda: ours.connect(listener.getsockname()), ours.listen):
                with pytest.raises(OSError, match="Invalid"):
                    again()
        with xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET) as ours:
            ours.setblocking(False)
            with suppress(BlockingIOError):
                ours.connect_with(listener.getsockname(), unknown)
            with selectors.DefaultSelector() as selector:
                selector.register(ours, selectors.EVENT_WRITE)
                assert selector.select(DEADLINE_S)
            assert ours.getsockopt(xts_socket.SOL_SOCKET, xts_socket.SO_ERROR) == refused.value.errno
            found = ours.ulp_error()
            assert found is not None and found.args == refused.value.args
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_parameters_too_long_for_one_message_go_before_it() -> None:
    tls = xts_socket.Tls(server_hostname="a." * 100 + "test", alpn=("b" * 100, "c" * 90), verify=False)
    with listening() as listener, xts_socket.socket() as ours:
        ours.settimeout(DEADLINE_S)

        def connect() -> None:
            with pytest.raises(xts_socket.UlpError, match="TLS is pushed already"):
                ours.connect_with(listener.getsockname(), tls, tls, tls)

        assert sent_by(connect) > 2


# --- pushing onto a connection ----------------------------------------------------------------------------------------


def test_a_push_onto_a_connection_takes_what_is_unread() -> None:
    with connected() as (stream, peer):
        assert stream.type == xts_socket.SOCK_STREAM
        with pytest.raises(xts_socket.UlpError) as refused:
            stream.push(Lines())
        assert refused.value.errno == errno.EPROTOTYPE and refused.value.fault == "push"
        assert "LINES" in str(refused.value)
        found = stream.ulp_error()
        assert found is not None and found.errno == errno.EPROTOTYPE and found.fault == "push"
        peer.sendall(b"still bytes")
        assert stream.recv(100) == b"still bytes"
    with listening() as listener:
        with xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET) as ours:
            ours.settimeout(DEADLINE_S)
            ours.connect(listener.getsockname())
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"READY\n" + framed(b"first") + framed(b"second")[:6])
                assert receive_from(ours, 6) == b"READY\n"
                ours.send(b"GO\n")
                ours.push(LengthPrefixed())
                peer.sendall(framed(b"second")[6:])
                assert [ours.recv_pdu(), ours.recv_pdu()] == [Pdu(b"first"), Pdu(b"second")]
                ours.send_pdu(b"answer")
                assert receive(peer, 13) == b"GO\n" + framed(b"answer")


def receive_from(ours: xts_socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        got += ours.recv(size - len(got))
    return got


def test_each_side_has_its_own() -> None:
    with connected(StreamParser(offset=0, width=2, adjustment=2)) as (ours, peer):
        ours.push(LengthPrefixed(width=1), direction="send")
        peer.sendall(b"\0\3abc\0\0")
        assert [ours.recv_pdu(), ours.recv_pdu()] == [Pdu(b"\0\3abc"), Pdu(b"\0\0")]
        ours.send_pdu(b"xyz")
        assert receive(peer, 4) == b"\3xyz"
        assert [(each.layer.PROTOCOL, each.receive, each.send) for each in ours.ulp_info()] == [
            ("STREAM_PARSER", True, False),
            ("LENGTH_PREFIXED", False, True),
        ]
        assert ours.tls is None
        for call in (
            lambda: ours.push(StreamParser(offset=0, width=1), direction="send"),
            lambda: ours.push(LengthPrefixed(), direction="sideways"),  # type: ignore[arg-type]
        ):
            with pytest.raises(ValueError, match=r"side"):
                call()
        for wrong in ((), ("tls",)):
            with pytest.raises(TypeError):
                ours.push(*wrong)  # type: ignore[arg-type]


def test_connections_of_a_listener_have_its_protocols() -> None:
    with xts_socket.create_server(("127.0.0.1", 0), push=[LengthPrefixed(width=2)]) as listener:
        listener.settimeout(DEADLINE_S)
        with kernel.create_connection(listener.getsockname(), DEADLINE_S) as peer:
            ours, _ = listener.accept()
            with ours:
                assert ours.type == xts_socket.SOCK_SEQPACKET
                peer.sendall(b"\0\5hello")
                assert ours.recv_pdu() == Pdu(b"hello")
                assert [each.layer for each in ours.ulp_info()] == [LengthPrefixed(width=2)]
                with ours.dup() as other:
                    assert [each.layer for each in other.ulp_info()] == [LengthPrefixed(width=2)]


@pytest.mark.parametrize("call", ["recv", "recv_pdu", "handshake"])
def test_what_a_protocol_finds_wrong_is_said(call: str) -> None:
    with connected(LengthPrefixed(max_bytes=1000)) as (ours, peer):
        peer.sendall(framed(b"good") + (5000).to_bytes(4, "big"))
        assert ours.recv_pdu() == Pdu(b"good")
        with pytest.raises(xts_socket.UlpError) as failed:
            if call == "handshake":
                deadline = time.monotonic() + DEADLINE_S
                while time.monotonic() < deadline:
                    ours.do_handshake()
            ours.recv(100) if call == "recv" else ours.recv_pdu()
        assert failed.value.errno == errno.EMSGSIZE and failed.value.fault == "too_long"
        assert "5000" in str(failed.value) and "1000" in str(failed.value)
        kept = ours.ulp_error()
        assert kept is not None and kept.strerror == failed.value.strerror


def test_the_end_inside_a_pdu() -> None:
    with connected(LengthPrefixed()) as (ours, peer):
        peer.sendall(framed(b"whole") + framed(b"begun")[:6])
        peer.shutdown(kernel.SHUT_WR)
        assert ours.recv_pdu() == Pdu(b"whole")
        with pytest.raises(xts_socket.UlpError) as failed:
            ours.recv_pdu()
        assert failed.value.errno == errno.EBADMSG and failed.value.fault == "truncated"


def test_waits() -> None:
    whole = os.urandom(900_000)
    with connected(LengthPrefixed(), timeout=0.05) as (ours, peer):
        with pytest.raises(TimeoutError):
            ours.recv_pdu()
        peer.setblocking(False)
        unsent = memoryview(framed(whole))
        got = None
        deadline = time.monotonic() + DEADLINE_S
        while got is None and time.monotonic() < deadline:  # in parts, a time-out at least between the first two
            if unsent:
                with suppress(BlockingIOError):
                    unsent = unsent[peer.send(unsent[:300_000]) :]
            try:
                got = ours.recv_pdu()
            except TimeoutError:
                continue
        assert got == Pdu(whole)
        peer.setblocking(True)
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            ours.recv_pdu()
        sent = 0
        with pytest.raises(BlockingIOError) as full:
            while True:
                ours.send_pdu(bytes(10_000))
                sent += 1
        assert not getattr(full.value, "characters_written", 0), "a short PDU is sent whole or not at all"
        with selectors.DefaultSelector() as selector:
            selector.register(ours, selectors.EVENT_WRITE)
            assert receive(peer, sent * 10_004) == framed(bytes(10_000)) * sent
            assert selector.select(DEADLINE_S)
        left = memoryview(whole)
        with in_thread(lambda: receive(peer, len(whole) + 4)), selectors.DefaultSelector() as selector:
            selector.register(ours, selectors.EVENT_WRITE)
            while left:
                try:
                    left = left[ours.send_pdu_part(left) :]
                except BlockingIOError:
                    assert selector.select(DEADLINE_S)


def test_peek_mode() -> None:
    with listening() as listener:
        with xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET) as ours:
            ours.settimeout(DEADLINE_S)
            ours.peek_mode()
            ours.connect(listener.getsockname())
            peer, _ = listener.accept()
            with peer:
                peer.sendall(b"hello lines\n" + framed(b"pdu"))
                assert receive_from(ours, 19).startswith(b"hello lines\n")
                ours.push(LengthPrefixed())
                with pytest.raises(OSError, match="Invalid") as refused:
                    ours.end_peek_mode(1000)
                assert refused.value.errno == errno.EINVAL
                ours.end_peek_mode(12)
                assert ours.recv_pdu() == Pdu(b"pdu")
                peer.sendall(framed(b"next"))
                assert ours.recv_pdu() == Pdu(b"next")
                for wrong in (-1, 1 << 32):
                    with pytest.raises(ValueError):
                        ours.end_peek_mode(wrong)


def test_what_the_proxy_offers() -> None:
    known = {ulp.name: ulp for ulp in ULPS}
    offers = xts_socket.ulps()
    assert {"LENGTH_PREFIXED"} <= {offer.name for offer in offers}
    for offer in offers:
        assert offer.name is not None
        ulp = known[offer.name]
        assert (offer.number, offer.version, offer.receive, offer.send) == (
            *(ulp.number, ulp.version, ulp.receive, ulp.send),
        )


def test_pdus_on_asyncio() -> None:
    async def main() -> None:
        with listening() as listener:
            listener.setblocking(False)
            loop = asyncio.get_running_loop()
            ours = xts_socket.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET)
            with ours:
                ours.setblocking(False)
                await aio.sock_connect(ours, listener.getsockname())
                peer, _ = await loop.sock_accept(listener)
                with peer:
                    peer.setblocking(False)
                    await aio.sock_push(ours, LengthPrefixed())
                    big = os.urandom(900_000)
                    for pdu in (b"one", b"", big):
                        sending = asyncio.ensure_future(aio.sock_send_pdu(ours, pdu))
                        assert await receive_later(loop, peer, len(pdu) + 4) == framed(pdu)
                        await sending
                        answering = asyncio.ensure_future(loop.sock_sendall(peer, framed(pdu)))
                        assert await aio.sock_recv_pdu(ours) == Pdu(pdu)
                        await answering
                    peer.shutdown(kernel.SHUT_WR)
                    assert await aio.sock_recv_pdu(ours) is None

    asyncio.run(asyncio.wait_for(main(), DEADLINE_S))


async def receive_later(loop: asyncio.AbstractEventLoop, peer: kernel.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        got += await loop.sock_recv(peer, size - len(got))
    return got


def test_pdus_on_trio() -> None:
    async def main() -> None:
        with trio.fail_after(DEADLINE_S), listening() as listener:
            ours = xts_socket.trio.socket(xts_socket.AF_INET, xts_socket.SOCK_SEQPACKET)
            with ours:
                await ours.push(LengthPrefixed())
                await ours.connect(listener.getsockname())
                peer, _ = listener.accept()
                with peer:
                    await ours.send_pdu(b"hello")
                    assert receive(peer, 9) == framed(b"hello")
                    peer.sendall(framed(b"world"))
                    assert await ours.recv_pdu() == Pdu(b"world")

    trio.run(main)


def test_what_a_layer_tells_of_each_pdu() -> None:
    headers = bytes.fromhex("000003 01 05 00000001") + b"abc"
    with connected(Http2()) as (ours, peer):
        peer.sendall(headers)
        assert ours.recv_pdu() == Pdu(headers, Http2Frame(length=3, type=1, flags=5, stream=1))
        peer.sendall(headers)
        data, ancillary, flags, _ = ours.recvmsg(100, 100)
        assert data == headers and ancillary == [(0x5854, 8, headers[:9])] and flags & xts_socket.MSG_EOR
        ours.send_pdu(headers)
        assert receive(peer, 24 + len(headers)) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + headers
    query = bytes.fromhex("1234 0100 0001 0000 0000 0000 00 0001 0001")
    with connected(Dns()) as (ours, peer):
        peer.sendall(len(query).to_bytes(2, "big") + query)
        assert ours.recv_pdu() == Pdu(query, DnsHeader(id=0x1234, flags=0x0100))
        ours.send_pdu(query, DnsHeader(id=0x1234, flags=0x0100))
        assert receive(peer, len(query) + 2)[2:] == query
