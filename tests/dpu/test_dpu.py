"""The proxy on an emulated Arm machine, with its own kernel and the packages of arm64, and agent and programs on this
one: `tests/dpu/run`."""

from __future__ import annotations

import contextlib
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds import dpu_machine
from beds.authority import Authority
from beds.dpu_machine import DEVICE_ADDRESS, NET, SERVER_ADDRESS, Dpu
from beds.dpu_programs import PORT, ask, running, says, transferred, until, visit
from beds.name_server import IPV4, NameServer
from beds.patience import EMULATED
from xts_lab import netns

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(4800)]
LATE_PORT, TLS_PORT = 8091, 8443
AUTHORITY = Authority()
ISSUED = AUTHORITY.issue("localhost")
TLS = """
[[tls.identity]]
name = "web"
certificate = "/etc/xts/web.pem"
key = "/etc/xts/web.key"

[[tls.trust]]
name = "default"
file = "/etc/xts/roots.pem"
"""


def test_it_is_another_machine(dpu: Dpu) -> None:
    assert dpu.run("uname", "-m").strip() == "aarch64"
    status = dpu.status()
    assert status["proxy"]["queue"] == "afxdp", status
    assert dpu.run("systemctl", "is-active", "xts-proxy").strip() == "active"


@pytest.mark.parametrize("count", [1, 100_000, 8_000_000])
def test_bytes_there_and_back(dpu: Dpu, endpoint: str, server: None, count: int) -> None:
    assert transferred(dpu, endpoint, count) == "the same"


def test_a_server_of_the_host(dpu: Dpu, endpoint: str) -> None:
    with running(dpu, endpoint, "echo_server.py", DEVICE_ADDRESS, LATE_PORT) as process:
        assert says(process) == "up"
        assert [visit(LATE_PORT) for _ in range(5)] == [b"a visitor"] * 5


def test_datagrams(dpu: Dpu, endpoint: str, server: None) -> None:
    with running(dpu, endpoint, "ask_by_datagram.py", SERVER_ADDRESS, PORT) as process:
        assert [says(process) for _ in range(3)] == ["1 bytes", "1000 bytes", "8000 bytes"]


def test_several_programs(dpu: Dpu, relayed: str, server: None) -> None:
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(running(dpu, relayed, "ask.py", SERVER_ADDRESS, PORT)) for _ in range(4)]
        assert [says(process) for process in made] == ["there"] * 4
        for _ in range(3):
            assert [ask(process) for process in made] == ["answered"] * 4


def test_names(dpu: Dpu, endpoint: str) -> None:
    """The machine asks the name server that its own resolver asks."""
    with contextlib.ExitStack() as stack:
        with netns.inside(NET):
            stack.enter_context(NameServer(SERVER_ADDRESS, 53))
        dpu.write("/etc/resolv.conf", f"nameserver {SERVER_ADDRESS}\n")
        dpu.run("systemctl", "reload", "xts-proxy")
        process = stack.enter_context(running(dpu, endpoint, "look_up.py", "host.example.test"))
        assert says(process) == IPV4


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def identities(dpu: Dpu) -> None:
    """An identity that the proxy has, and roots that it trusts."""
    for name, data in (("web.pem", ISSUED.certificate), ("web.key", ISSUED.key), ("roots.pem", AUTHORITY.certificate)):
        dpu.write(f"/etc/xts/{name}", data.decode())
    dpu.run("chown", "root:xts", "/etc/xts/web.key")
    dpu.run("chmod", "0640", "/etc/xts/web.key")
    dpu.write(dpu_machine.CONFIGURATION, dpu.run("cat", dpu_machine.CONFIGURATION) + TLS)
    dpu.run("systemctl", "reload", "xts-proxy")


@contextlib.contextmanager
def tls_echo() -> Iterator[int]:
    """A server in the network, whose TLS is OpenSSL's: its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("certificate", "key")]
        for file, data in zip(files, (ISSUED.certificate, ISSUED.key), strict=True):
            file.write_bytes(data)
        context.load_cert_chain(files[0], files[1])
    with netns.inside(NET):
        listener = socket.create_server((SERVER_ADDRESS, 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                made, _ = listener.accept()
                with made, context.wrap_socket(made, server_side=True) as connection:
                    while data := connection.recv(1 << 16):
                        connection.sendall(data)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def test_tls_of_a_client(dpu: Dpu, endpoint: str, identities: None) -> None:
    with tls_echo() as port, running(dpu, endpoint, "tls_client.py", SERVER_ADDRESS, port) as process:
        assert says(process) == "TLSv1.3 user"
        assert [ask(process) for _ in range(3)] == ["answered"] * 3


def test_tls_of_a_server(dpu: Dpu, endpoint: str, identities: None) -> None:
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    with running(dpu, endpoint, "tls_server.py", DEVICE_ADDRESS, TLS_PORT) as process:
        assert says(process) == "up"
        with netns.inside(NET):
            made = socket.socket()
        made.settimeout(12 * EMULATED)
        made.connect((DEVICE_ADDRESS, TLS_PORT))
        with context.wrap_socket(made, server_hostname="localhost") as visitor:
            visitor.sendall(b"over TLS")
            assert visitor.recv(100) == b"over TLS"


# --- what ends, and comes back --------------------------------------------------------------------


def test_an_upgrade_ends_no_connection(dpu: Dpu, endpoint: str, server: None) -> None:
    """Of the program that has the queue."""
    with running(dpu, endpoint, "ask.py", SERVER_ADDRESS, PORT) as process:
        assert (says(process), ask(process)) == ("there", "answered")
        before = dpu.run("systemctl", "show", "--value", "--property=MainPID", "xts-proxy")
        dpu.run("xts-proxy", "--config", dpu_machine.CONFIGURATION, "upgrade", timeout_s=300)
        assert ask(process) == "answered", dpu.journal()
        assert dpu.run("systemctl", "show", "--value", "--property=MainPID", "xts-proxy") != before


def test_a_proxy_that_is_killed(dpu: Dpu, relayed: str, server: None) -> None:
    """systemd starts it again. Connections end with an errno, and the server of the host comes back by itself."""
    with (
        running(dpu, relayed, "echo_server.py", DEVICE_ADDRESS, LATE_PORT) as serving,
        running(dpu, relayed, "ask.py", SERVER_ADDRESS, PORT) as asking,
    ):
        assert (says(serving), says(asking)) == ("up", "there")
        dpu.run("systemctl", "kill", "--signal=KILL", "xts-proxy")
        assert ask(asking) in ("ECONNRESET", "ENETDOWN")
        until(lambda: visit(LATE_PORT) == b"a visitor", "answer of the server")
        assert serving.poll() is None
    assert transferred(dpu, relayed, 100_000) == "the same"


def test_a_program_that_is_killed(dpu: Dpu, endpoint: str, server: None) -> None:
    """The proxy hears of it over the wire, and its sockets end."""
    with running(dpu, endpoint, "ask.py", SERVER_ADDRESS, PORT) as process:
        assert (says(process), ask(process)) == ("there", "answered")
    until(lambda: not sum(worker["connections"] for worker in dpu.status()["workers"]), "end of its connection")
    assert transferred(dpu, endpoint, 1) == "the same"
