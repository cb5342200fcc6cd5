"""The message protocols through a whole proxy: HTTP/2 with nghttpd and h2load, gRPC with grpcio, DNS, NVMe/TCP; over
TLS that ends in the proxy where the protocol has it. The peers are the kernel's."""

from __future__ import annotations

import queue
import shutil
import socket as kernel
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dns.message
import google_crc32c
import grpc
import h2.config
import h2.connection
import h2.events
import pytest
import xts_socket
from beds.authority import Authority
from beds.grpc import PREFACE, GrpcApplication, Received, grpc_client, grpc_server
from oracles.h2_client import fetch
from xts_lab.free_ports import free_port
from xts_socket import Dns, Grpc, Http2, NvmeTcp, Tls
from xts_socket.control import DnsHeader, GrpcMessage, Http2Frame, NvmePdu

pytestmark = pytest.mark.usefixtures("xts_endpoint")

LOOPBACK = "127.0.0.1"
DEADLINE_S = 20.0
TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])


def connect(port: int, *layers: xts_socket.Layer, tls: bool = False) -> xts_socket.socket:
    """As soon as somebody listens. With TLS, ALPN is h2 and the certificate is checked."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            ours = xts_socket.create_connection(
                ("127.0.0.1", port),
                DEADLINE_S,
                tls=Tls(alpn="h2", server_hostname="localhost") if tls else None,
                push=layers,
            )
            break
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
    return ours


@contextmanager
def listening(*layers: xts_socket.Layer, tls: bool = False) -> Iterator[tuple[xts_socket.socket, int]]:
    """An offloaded listener, and its port."""
    identity = Tls(alpn="h2", identity="localhost") if tls else None
    with xts_socket.create_server((LOOPBACK, 0), tls=identity, push=layers) as listener:
        listener.settimeout(DEADLINE_S)
        yield listener, int(listener.getsockname()[1])


# --- HTTP/2 -----------------------------------------------------------------------------------------------------------


def application(*, client: bool) -> h2.connection.H2Connection:
    """Python's h2: it makes and understands frames. The preface is the proxy's."""
    made = h2.connection.H2Connection(h2.config.H2Configuration(client_side=client, header_encoding="utf-8"))
    if not client:
        made.receive_data(PREFACE)
    made.initiate_connection()
    return made


def exchange(ours: xts_socket.socket, frames: h2.connection.H2Connection) -> Iterator[h2.events.Event]:
    """Frames both ways until the peer says no more; yields the application's events."""
    while True:
        if data := frames.data_to_send().removeprefix(PREFACE):
            ours.send_pdu(data)
        pdu = ours.recv_pdu()
        if pdu is None:
            return
        assert isinstance(pdu.control, Http2Frame)
        assert pdu.control.length == len(pdu.data) - 9
        yield from frames.receive_data(pdu.data)


@TLS
@pytest.mark.skipif(shutil.which("nghttpd") is None, reason="nghttpd (package nghttp2-server) is not installed")
def test_nghttpd_serves_files(tmp_path: Path, xts_authority: Authority, tls: bool) -> None:
    files = {"small": b"hello\n", "large": bytes(range(256)) * 8000}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    port = free_port()
    credentials = []
    if tls:
        issued = xts_authority.issue("localhost")
        for name, content in (("key.pem", issued.key), ("certificate.pem", issued.certificate)):
            (tmp_path / name).write_bytes(content)
            credentials.append(str(tmp_path / name))
    command = ["nghttpd", f"--address={LOOPBACK}", f"--htdocs={tmp_path}", *([] if tls else ["--no-tls"]), str(port)]
    with subprocess.Popen([*command, *credentials]) as server:
        try:
            frames = application(client=True)
            with connect(port, Http2(), tls=tls) as ours:
                assert fetch(frames, files, exchange(ours, frames)) == list(files.values())
        finally:
            server.terminate()


@TLS
@pytest.mark.skipif(shutil.which("h2load") is None, reason="h2load (package nghttp2-client) is not installed")
def test_h2load_is_served(tls: bool) -> None:
    requests = 200
    with listening(Http2(), tls=tls) as (listener, port):
        url = f"http{'s' * tls}://{LOOPBACK}:{port}/"
        command = ["h2load", "-n", str(requests), "-c", "1", "-m", "20", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
            ours, _ = listener.accept()
            ours.settimeout(DEADLINE_S)
            frames = application(client=False)
            with ours:
                for event in exchange(ours, frames):
                    if isinstance(event, h2.events.RequestReceived):
                        assert event.stream_id
                        frames.send_headers(event.stream_id, [(":status", "200")])
                        frames.send_data(event.stream_id, b"body", end_stream=True)
            report, _ = load.communicate(timeout=DEADLINE_S)
    assert f"{requests} succeeded, 0 failed" in report


def test_a_frame_too_long_ends_in_a_reason() -> None:
    with kernel.create_server((LOOPBACK, 0)) as listener, connect(listener.getsockname()[1], Http2()) as ours:
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(DEADLINE_S)
            ours.send_pdu(bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            peer.sendall(b"\0\x40\x01" + bytes(6) + bytes(20000))
            with pytest.raises(OSError, match="16385"):
                ours.recv_pdu()
            error = ours.ulp_error()
            assert error is not None and error.fault == "too_long"
            told = b""
            while part := peer.recv(1000):
                told += part
            assert told[-17 + 3] == 7 and told[-1] == 6, "GOAWAY, FRAME_SIZE_ERROR"


# --- gRPC -------------------------------------------------------------------------------------------------------------

PAYLOADS = [b"", b"hello", bytes(range(256)) * 3000]


class OverSocket:
    """A socket's PDUs, for a GrpcApplication. A thread reads: only so windows open while a message is being sent."""

    def __init__(self, ours: xts_socket.socket) -> None:
        self.ours = ours
        self.arrived: queue.Queue[Received | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        try:
            while (pdu := self.ours.recv_pdu()) is not None:
                assert pdu.control is not None
                self.arrived.put((pdu.data, pdu.control.packed()))
        except OSError as error:
            print(f"the reader ends: {error}", file=sys.stderr)
        self.arrived.put(None)

    def send(self, data: bytes, control: bytes | None) -> None:
        self.ours.send_pdu(data, GrpcMessage.unpacked(control) if control else None)

    def receive(self) -> Received | None:
        return self.arrived.get(timeout=DEADLINE_S)


@TLS
def test_grpcio_serves_us(xts_authority: Authority, tls: bool) -> None:
    issued = xts_authority.issue("localhost")
    credentials = grpc.ssl_server_credentials([(issued.key, issued.certificate)]) if tls else None
    with grpc_server(credentials) as port, connect(port, Http2(), Grpc(), tls=tls) as ours:
        transport = OverSocket(ours)
        client = GrpcApplication(transport.send, transport.receive)
        for payload in PAYLOADS:
            assert client.call("/t.T/Backwards", [payload]) == [payload[::-1]]
        assert client.call("/t.T/Twice", PAYLOADS) == [p for payload in PAYLOADS for p in (payload, payload)]
        ours.shutdown(xts_socket.SHUT_RDWR)
        transport.reader.join(DEADLINE_S)


def test_we_serve_grpcio() -> None:
    with listening(Http2(), Grpc()) as (listener, port), grpc_client(port, PAYLOADS) as answers:
        ours, _ = listener.accept()
        with ours:
            ours.settimeout(DEADLINE_S)
            transport = OverSocket(ours)
            GrpcApplication(transport.send, transport.receive).serve()
            transport.reader.join(DEADLINE_S)
    assert answers == [p[::-1] for p in PAYLOADS] + [p for payload in PAYLOADS for p in (payload, payload)]


# --- DNS --------------------------------------------------------------------------------------------------------------


def test_dns_over_tls_with_padding(xts_authority: Authority) -> None:
    issued = xts_authority.issue("localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    issued.load_into(context)
    query = dns.message.make_query("example.com", "AAAA", use_edns=0)
    with kernel.create_server((LOOPBACK, 0)) as listener:
        listener.settimeout(DEADLINE_S)
        lengths: list[int] = []

        def serve() -> None:
            peer, _ = listener.accept()
            with context.wrap_socket(peer, server_side=True) as plain:
                stream = plain.makefile("rwb")
                length = int.from_bytes(stream.read(2), "big")
                lengths.append(length)
                answer = dns.message.make_response(dns.message.from_wire(stream.read(length))).to_wire()
                stream.write(len(answer).to_bytes(2, "big") + answer)
                stream.flush()
                plain.unwrap()

        server = threading.Thread(target=serve)
        server.start()
        layers = (Tls(server_hostname="localhost"), Dns(padding=128))
        with xts_socket.create_connection((LOOPBACK, listener.getsockname()[1]), DEADLINE_S, push=layers) as ours:
            ours.send_pdu(query.to_wire())
            pdu = ours.recv_pdu()
            assert pdu is not None
            assert pdu.control == DnsHeader(query.id, 0x8100)
            assert query.is_response(dns.message.from_wire(pdu.data))
        server.join(DEADLINE_S)
    assert lengths == [128]


# --- NVMe/TCP ---------------------------------------------------------------------------------------------------------


def nvme(kind: int, hlen: int, data: bytes = b"") -> bytes:
    """A PDU in its plain form, all zeros behind the common header."""
    return struct.pack("<BBBBI", kind, 0, hlen, hlen if data else 0, hlen + len(data)).ljust(hlen, b"\0") + data


def test_nvme_tcp_digests_are_made_and_checked_in_the_proxy() -> None:
    """Two offloaded sockets, host and controller, agree on digests; a peer of the kernel's then spoils one."""

    def initialize(kind: int) -> bytes:
        return struct.pack("<BBBBIHBBI", kind, 0, 128, 0, 128, 0, 0, 3, 0).ljust(128, b"\0")

    payload = bytes(range(256)) * 4000
    layer = NvmeTcp(negotiate=True, max_bytes=2 << 20)
    with listening(layer) as (listener, port), connect(port, layer) as host:
        controller, _ = listener.accept()
        with controller:
            controller.settimeout(DEADLINE_S)
            host.send_pdu(initialize(0))
            assert controller.recv_pdu() is not None
            controller.send_pdu(initialize(1))
            assert host.recv_pdu() is not None
            sender = threading.Thread(target=controller.send_pdu, args=(nvme(7, 24, payload),))
            sender.start()
            pdu = host.recv_pdu()
            sender.join(DEADLINE_S)
            assert pdu is not None
            assert pdu.data == nvme(7, 24, payload)
            assert isinstance(pdu.control, NvmePdu)
            assert pdu.control.header_verified and pdu.control.data_verified
    with kernel.create_server((LOOPBACK, 0)) as listener_kernel:
        with connect(listener_kernel.getsockname()[1], NvmeTcp(data_digest=True)) as host:
            peer, _ = listener_kernel.accept()
            with peer:
                head = struct.pack("<BBBBI", 7, 2, 24, 24, 24 + 1000 + 4).ljust(24, b"\0")
                digest = google_crc32c.value(bytes(1000)) ^ 1
                peer.sendall(head + bytes(1000) + digest.to_bytes(4, "little"))
                with pytest.raises(OSError, match="data digest"):
                    host.recv_pdu()
