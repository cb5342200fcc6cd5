"""Pushed protocols on the sockets that install() and offload() make; and what those say that stay with the kernel."""

from __future__ import annotations

import errno
import os
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import xts_socket
from beds.authority import Authority
from beds.patience import SLOWER
from beds.ulp_tls import client_context, server_context
from xts_lab.lab import Lab
from xts_socket import Lines, Reason, Tls, UlpError

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 20.0 * SLOWER
STANDARD = socket.socket
EVERYTHING = "use xts tcp_client *:*\nuse xts tcp_server *:*\n"
#: The server is at 127.0.0.1, and offloading is possible elsewhere only: sockets are not decided before they connect.
CLIENTS_STAY = "use xts tcp_client 192.0.2.1:*\nuse os tcp_client *:*\nuse os tcp_server *:*\n"
CLIENT = Tls(server_hostname="localhost")
SERVER = Tls(identity="localhost")


@pytest.fixture
def offloaded(rules: Callable[[str], Path]) -> Iterator[None]:
    with xts_socket.offload(rules(EVERYTHING)):
        yield


@contextmanager
def kernel_listener() -> Iterator[socket.socket]:
    with STANDARD() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(DEADLINE_S)
        yield listener


@contextmanager
def tls_echo(authority: Authority) -> Iterator[tuple[str, int]]:
    """Of one connection, by Python's ssl on the kernel's socket."""

    def serve() -> None:
        sock = STANDARD.accept(listener)[0]
        sock.settimeout(DEADLINE_S)
        with context.wrap_socket(sock, server_side=True) as tls:
            while data := tls.recv(1000):
                tls.sendall(data)

    context = server_context(authority.issue("localhost", "127.0.0.1"))
    with kernel_listener() as listener:
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()
        finally:
            serving.join()


def make(*arguments: int) -> Any:
    """What the standard module makes: it has more methods than the standard class."""
    return socket.socket(*arguments)


@pytest.mark.usefixtures("offloaded")
@pytest.mark.parametrize("before", [True, False])
def test_a_client_with_tls_in_the_proxy(xts_authority: Authority, before: bool) -> None:
    with tls_echo(xts_authority) as address, make() as sock:
        sock.settimeout(DEADLINE_S)
        if before:
            sock.push(CLIENT)
            assert sock.reason is None and sock.ulp_info() == [] and sock.tls is None and sock.ulp_error() is None
        sock.connect(address)
        if not before:
            sock.push(CLIENT)
        sock.do_handshake()
        sock.sendall(b"through the proxy's TLS")
        assert sock.recv(100) == b"through the proxy's TLS"
        assert sock.reason is Reason.NONE
        assert sock.tls.version() == "TLSv1.3"
        assert [info.layer for info in sock.ulp_info()] == [CLIENT]
        assert sock.ulp_error() is None
        sock.shutdown(socket.SHUT_WR)


@pytest.mark.usefixtures("offloaded")
@pytest.mark.parametrize("when", ["undecided", "bound"])
def test_a_listener_with_tls_in_the_proxy(when: str) -> None:
    def connect() -> None:
        context: ssl.SSLContext = client_context(None)
        raw = STANDARD()
        raw.settimeout(DEADLINE_S)
        raw.connect(listener.getsockname())
        with context.wrap_socket(raw, server_hostname="localhost") as tls:
            tls.sendall(b"hello")

    with make() as listener:
        if when == "undecided":
            listener.push(SERVER)
        listener.bind(("127.0.0.1", 0))
        if when == "bound":
            listener.push(SERVER)
        listener.listen()
        listener.settimeout(DEADLINE_S)
        client = threading.Thread(target=connect)
        client.start()
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.recv(5) == b"hello"
            assert accepted.tls.version() == "TLSv1.3"
        client.join()


@pytest.mark.usefixtures("offloaded")
def test_pdus() -> None:
    with kernel_listener() as listener, make(socket.AF_INET, socket.SOCK_SEQPACKET, socket.IPPROTO_TCP) as sock:
        assert sock.type == socket.SOCK_SEQPACKET
        with pytest.raises(OSError) as caught:
            sock.recv_pdu()
        assert caught.value.errno == errno.ENOTCONN
        sock.push(Lines())
        sock.settimeout(DEADLINE_S)
        sock.connect(listener.getsockname())
        assert sock.type == socket.SOCK_SEQPACKET and sock.reason is Reason.NONE
        peer, _ = STANDARD.accept(listener)
        with peer:
            peer.settimeout(DEADLINE_S)
            peer.sendall(b"one\ntwo\n")
            assert [sock.recv_pdu().data for _ in range(2)] == [b"one", b"two"]
            sock.send_pdu(b"three")
            assert peer.recv(100) == b"three\n"
            assert sock.send_pdu_part(b"four") == 4
            assert peer.recv(100) == b"four\n"


@pytest.mark.usefixtures("offloaded")
def test_peek_mode() -> None:
    with kernel_listener() as listener, make() as sock:
        sock.peek_mode()
        sock.settimeout(DEADLINE_S)
        sock.connect(listener.getsockname())
        peer, _ = STANDARD.accept(listener)
        with peer:
            peer.sendall(b"greeting and more")
            assert sock.recv(8, socket.MSG_WAITALL) == b"greeting"
            sock.end_peek_mode(9)
            assert sock.recv(8, socket.MSG_WAITALL) == b"and more"


@pytest.mark.usefixtures("offloaded")
def test_what_the_proxy_refuses_fails_the_connect() -> None:
    with kernel_listener() as listener, make() as sock:
        with pytest.raises(TypeError):
            sock.push("tls")
        sock.push(Tls(server_hostname="localhost", identity="nobody has it"))
        for _ in range(2):
            with pytest.raises(UlpError, match="nobody has it"):
                sock.connect(listener.getsockname())
        assert sock.connect_ex(listener.getsockname()) != 0
        assert sock.reason is None, "it is not left to the kernel"
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            STANDARD.accept(listener)
        before = xts_socket.reasons()
        assert sock.connect_ex(listener.getsockname()) != 0
        assert xts_socket.reasons() == before, "no socket has been offloaded"


def refused(call: Callable[..., object], *arguments: object) -> str:
    with pytest.raises(OSError) as caught:
        call(*arguments)
    assert caught.value.errno == errno.EOPNOTSUPP
    return str(caught.value)


def test_the_kernels_sockets_say_why(rules: Callable[[str], Path]) -> None:
    with xts_socket.offload(rules(CLIENTS_STAY)), kernel_listener() as listener, make() as sock:
        sock.connect(listener.getsockname())
        peer, _ = STANDARD.accept(listener)
        assert sock.reason is Reason.RULE
        for call, *arguments in (
            (sock.push, CLIENT),
            (sock.do_handshake,),
            (sock.peek_mode,),
            (sock.end_peek_mode, 1),
            (sock.recv_pdu,),
            (sock.send_pdu, b"x"),
            (sock.send_pdu_part, b"x"),
        ):
            assert "(RULE)" in refused(call, *arguments)
        assert sock.ulp_info() == [] and sock.ulp_error() is None and sock.tls is None
        sock.sendall(b"goes on")
        assert peer.recv(100) == b"goes on"
        peer.close()
        with make(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            assert "(PROTOCOL)" in refused(datagrams.push, CLIENT)


def test_what_was_pushed_does_not_stay_with_the_kernel(rules: Callable[[str], Path]) -> None:
    with xts_socket.offload(rules(CLIENTS_STAY)), kernel_listener() as listener:
        with make() as sock:
            sock.push(CLIENT)
            assert "(RULE)" in refused(sock.connect, listener.getsockname())
            assert sock.connect_ex(listener.getsockname()) == errno.EOPNOTSUPP
            assert "(RULE)" in refused(sock.listen)
        with make(socket.AF_INET, socket.SOCK_SEQPACKET, socket.IPPROTO_TCP) as sock:
            assert "SOCK_SEQPACKET" in refused(sock.connect, listener.getsockname())
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            STANDARD.accept(listener)


def test_a_bound_one_does_not_go_back_to_the_kernel(rules: Callable[[str], Path]) -> None:
    path = rules("use os tcp_client *:*\nuse xts tcp_server 127.0.0.2:*\nuse os tcp_server *:*\n")
    with xts_socket.offload(path), kernel_listener() as listener, make() as sock:
        sock.bind(("127.0.0.2", 0))
        sock.push(CLIENT)
        assert "(RULE)" in refused(sock.connect, listener.getsockname())
        assert sock.reason is Reason.NONE


def test_after_uninstall_there_are_none(rules: Callable[[str], Path]) -> None:
    with xts_socket.offload(rules(EVERYTHING)):
        pass
    with STANDARD() as sock:
        assert not hasattr(sock, "push")
    # A socket made while no rules are in force, by the class that install() had put in place.
    with xts_socket.offload(rules(EVERYTHING)):
        made = socket.socket
    with made() as sock:
        assert "no rules" in refused(sock.push, CLIENT)  # type: ignore[attr-defined]


HALF = """
import socket, sys, xts_socket
xts_socket.install()
listener = socket.socket()
if sys.argv[1] == "undecided":
    listener.peek_mode()
listener.bind(("", 0))
if sys.argv[1] == "bound":
    listener.peek_mode()
listener.listen()
print(socket.socket().connect_ex(("127.0.0.1", listener.getsockname()[1])))
if sys.argv[1] == "never":
    try:
        listener.peek_mode()
    except OSError as failure:
        assert "before listen" in str(failure), failure
    else:
        raise AssertionError("pushed onto one half")
"""


@pytest.mark.parametrize("when", ["never", "undecided", "bound"])
def test_a_wildcard_listener_with_protocols_is_the_devices_alone(when: str, lab: Lab) -> None:
    done: subprocess.CompletedProcess[Any] = lab.run("host", [sys.executable, "-c", HALF, when], capture_output=True)
    assert int(done.stdout) == (0 if when == "never" else errno.ECONNREFUSED), os.fsdecode(done.stderr)
