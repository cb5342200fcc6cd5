"""What `xts status` shows of pushed protocols: the layers of each socket, and how TLS encrypts it; never a key."""

from __future__ import annotations

import json
import os
import socket as kernel
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pytest
import xts_socket
from beds.authority import Authority
from beds.classic_bpf import SO_ATTACH_FILTER, SO_DETACH_FILTER, Program, of_length
from beds.proxy_process import ProxyProcess
from beds.ulp_tls import client_context, server_context
from system.tls.programs.ktls_scripts import SOL_TLS, TCP_ULP, TLS_RX, TLS_TX, info
from xts_messages._native import ffi, lib
from xts_messages.attaching.attach import attach, list_attachments
from xts_messages.attaching.status_page import Filter, read_status_page
from xts_socket import LengthPrefixed, Lines, Tls
from xts_socket.cli import main
from xts_socket.cli.device import proxy_side
from xts_socket.cli.sockets import attached

pytestmark = pytest.mark.usefixtures("xts_endpoint")

DEADLINE_S = 20.0
BY = {1: "user", 2: "kernel", 3: "device"}
KEY = bytes.fromhex("5afe0123456789abcdef5afe76543210")


def entry_of(sock: xts_socket.socket) -> attached.Entry:
    """What others see of this process's socket."""
    (process,) = (process for process in attached.ask(os.environ["XTS_ENDPOINT"]) if process.pid == os.getpid())
    (entry,) = (entry for entry in process.entries if entry.xts_socket == sock.number)
    return entry


def until(sock: xts_socket.socket, condition: Callable[[attached.Entry], bool]) -> attached.Entry:
    """The socket's entry as soon as it is so; what has come is looked at meanwhile, as each call does."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition(entry := entry_of(sock)):
        assert time.monotonic() < deadline, entry
        sock.ulp_info()
    return entry


@contextmanager
def tls_server(authority: Authority) -> Iterator[tuple[str, int]]:
    """Of one connection: shakes hands and waits for its end."""
    context = server_context(authority.issue("localhost", "127.0.0.1"))

    def serve() -> None:
        sock, _ = listener.accept()
        sock.settimeout(DEADLINE_S)
        with context.wrap_socket(sock, server_side=True) as tls, suppress(ssl.SSLError):
            tls.recv(1)

    with kernel.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()
        finally:
            serving.join()


def check_tls(sock: xts_socket.socket) -> None:
    entry = until(sock, lambda entry: entry.tls is not None)
    assert entry.receive_layers == entry.send_layers == ("TLS",)
    tls, encryption = sock.tls, entry.tls
    assert tls is not None and encryption is not None
    (layer,) = sock.ulp_info()
    info = layer.info
    assert (encryption.version, encryption.cipher) == (tls.version(), info["cipher"])
    assert (encryption.send, encryption.receive) == (BY[int(info["crypto_send"])], BY[int(info["crypto_receive"])])


def test_tls_pushed_before_connecting(xts_authority: Authority) -> None:
    with (
        tls_server(xts_authority) as address,
        xts_socket.create_connection(address, DEADLINE_S, push=(Tls(server_hostname="localhost"),)) as sock,
    ):
        check_tls(sock)


@pytest.mark.parametrize("version", [0x0303, 0x0304])
def test_tls_pushed_onto_a_connection(xts_authority: Authority, version: int) -> None:
    with tls_server(xts_authority) as address, xts_socket.create_connection(address, DEADLINE_S) as sock:
        assert entry_of(sock).receive_layers == entry_of(sock).send_layers == ()
        assert entry_of(sock).tls is None
        sock.push(Tls(server_hostname="localhost", max_version=version))
        check_tls(sock)
        entry = entry_of(sock)
        assert entry.tls is not None and entry.tls.version == {0x0303: "TLSv1.2", 0x0304: "TLSv1.3"}[version]


def test_tls_of_an_accepted_connection(xts_authority: Authority) -> None:
    def connect() -> None:
        context: ssl.SSLContext = client_context(None)
        with (
            kernel.create_connection(address, DEADLINE_S) as raw,
            context.wrap_socket(raw, server_hostname="localhost") as tls,
        ):
            tls.recv(1)

    with xts_socket.socket() as listener:
        listener.push(Tls(identity="localhost"))
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(DEADLINE_S)
        address = listener.getsockname()
        peer = threading.Thread(target=connect)
        peer.start()
        accepted, _ = listener.accept()
        with accepted:
            check_tls(accepted)
        peer.join()
        entry = entry_of(listener)
        assert (entry.receive_layers, entry.send_layers, entry.tls) == (("TLS",), ("TLS",), None)


@contextmanager
def plain(kind: int = kernel.SOCK_STREAM) -> Iterator[xts_socket.socket]:
    with kernel.create_server(("127.0.0.1", 0)) as listener, xts_socket.socket(kernel.AF_INET, kind) as sock:
        sock.settimeout(DEADLINE_S)
        sock.connect(listener.getsockname())
        with listener.accept()[0]:
            yield sock


def test_keys_of_the_hosts() -> None:
    keys = info(0x0304, key=0)
    keys = keys[:12] + KEY + keys[12 + len(KEY) :]
    with plain() as sock:
        sock.setsockopt(kernel.IPPROTO_TCP, TCP_ULP, b"tls")
        sock.setsockopt(SOL_TLS, TLS_TX, keys)
        entry = until(sock, lambda entry: entry.tls is not None)
        assert (entry.receive_layers, entry.send_layers) == ((), ("TLS_KEYS",))
        assert entry.tls is not None and entry.tls.send in BY.values() and entry.tls.receive is None
        assert (entry.tls.version, entry.tls.cipher) == ("TLSv1.3", "AES_GCM_128")
        sock.setsockopt(SOL_TLS, TLS_RX, keys)
        entry = until(sock, lambda entry: entry.tls is not None and entry.tls.receive is not None)
        assert entry.receive_layers == ("TLS_KEYS",)
        for page in pages():
            assert KEY not in page


def pages() -> Iterator[bytes]:
    for listing in list_attachments(os.environ["XTS_ENDPOINT"]):
        try:
            yield read_status_page(listing.status_fd)
        finally:
            os.close(listing.status_fd)


def test_layers_of_one_direction_and_one_on_the_other(capsys: pytest.CaptureFixture[str]) -> None:
    with plain(kernel.SOCK_SEQPACKET) as sock, plain(kernel.SOCK_SEQPACKET) as other:
        sock.push(Lines(), direction="receive")
        other.push(LengthPrefixed(), direction="send")
        entry = entry_of(sock)
        assert (entry.receive_layers, entry.send_layers, entry.tls) == (("LINES",), (), None)
        assert entry_of(other).send_layers == ("LENGTH_PREFIXED",)
        assert main(["status", "--pid", str(os.getpid())]) == 0
        table = capsys.readouterr().out
        assert "in lines, out -" in table and "in -, out length_prefixed" in table


def test_the_table_and_json(xts_authority: Authority, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: str) -> str:
        assert main(["status", "--pid", str(os.getpid()), *arguments]) == 0
        return capsys.readouterr().out

    with plain():
        assert "Layers" not in said()  # nobody has any
    with (
        tls_server(xts_authority) as address,
        xts_socket.create_connection(address, DEADLINE_S, push=(Tls(server_hostname="localhost"),)) as sock,
    ):
        check_tls(sock)
        encryption = entry_of(sock).tls
        assert encryption is not None
        (line,) = (line for line in said("-v").splitlines() if f"{sock.number:#x}" in line)
        assert f"{encryption.version} {encryption.cipher} ({encryption.send})" in line
        assert line.split()[5] == "tls"
        (process,) = json.loads(said("--json"))["processes"]
        (shown,) = (one for one in process["entries"] if one["xts_socket"] == sock.number)
        assert shown["receive_layers"] == shown["send_layers"] == ["TLS"]
        assert shown["tls"] == {
            "version": encryption.version,
            "cipher": encryption.cipher,
            "send": encryption.send,
            "receive": encryption.receive,
        }


def test_filters_of_datagram_sockets(capsys: pytest.CaptureFixture[str]) -> None:
    """A program's own; tests/system/operate/test_proxy_filter.py has one of the operator's."""

    def said(*arguments: str) -> str:
        assert main(["status", "--pid", str(os.getpid()), *arguments]) == 0
        return capsys.readouterr().out

    def datagrams() -> xts_socket.socket:
        made = xts_socket.socket(kernel.AF_INET, kernel.SOCK_DGRAM)
        made.bind(("127.0.0.1", 0))
        return made

    three, five = Program(of_length(3)), Program(of_length(5))
    with datagrams() as sock, datagrams() as other:
        assert "Filter" not in said()  # nobody has any
        sock.setsockopt(kernel.SOL_SOCKET, SO_ATTACH_FILTER, three.raw)
        assert (entry_of(sock).filter, entry_of(other).filter) == (Filter(None, 3), None)
        (line,) = (line for line in said("-v").splitlines() if f"{sock.number:#x}" in line)
        assert "own, 3 instructions" in line
        (process,) = json.loads(said("--json"))["processes"]
        shown = {one["xts_socket"]: one["filter"] for one in process["entries"]}
        assert (shown[sock.number], shown[other.number]) == ({"name": None, "instructions": 3}, None)
        sock.setsockopt(kernel.SOL_SOCKET, SO_DETACH_FILTER, 0)
        assert entry_of(sock).filter is None
        other.setsockopt(kernel.SOL_SOCKET, SO_ATTACH_FILTER, five.raw)
        assert entry_of(other).filter == Filter(None, 5)
    with datagrams() as third:  # in the place of one of them
        assert entry_of(third).filter is None


def test_numbers_that_nobody_knows_are_shown_as_they_are() -> None:
    raw: Any = ffi.new("struct xts_status_entry *")
    raw.state, raw.receive_ulps[0], raw.tls_version, raw.tls_cipher, raw.tls_send = 3, 200, 0x0305, 0xFEFE, 9
    head = ffi.new("struct xts_status_page *")
    head.magic, head.version, head.used = lib.XTS_STATUS_MAGIC, lib.XTS_STATUS_VERSION, 1
    _, (entry,) = attached.read_page(bytes(ffi.buffer(head)) + bytes(ffi.buffer(raw)))
    assert entry.receive_layers == ("200",)
    assert entry.tls == attached.Encryption("0x0305", "0xfefe", "9", None)


@pytest.mark.parametrize("content", ["random", "zeros", "ones"])
def test_a_page_of_garbage_hides_no_other_process(content: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A process writes its page itself, and may write anything; root sees those of all users."""
    with plain(), closing(attach(os.environ["XTS_ENDPOINT"], program="garbage")) as attachment:
        page = ffi.buffer(attachment.status, 16384)
        page[:] = {"random": os.urandom(16384), "zeros": bytes(16384), "ones": b"\xff" * 16384}[content]
        ours, strange = sorted(
            attached.ask(os.environ["XTS_ENDPOINT"]), key=lambda process: process.program == "garbage"
        )
        assert ours.fault is None and ours.entries
        assert (strange.pid, strange.link_state, strange.entries) == (os.getpid(), "unreadable", ())
        assert "not a status page" in str(strange.fault)
        assert main(["status"]) == 0
        assert "unreadable" in capsys.readouterr().out
        assert main(["status", "--json"]) == 0
        assert {process["fault"] is None for process in json.loads(capsys.readouterr().out)["processes"]} == {
            True,
            False,
        }


def test_csv_and_rates(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three looks, as --watch makes them; something is sent before each."""
    with plain() as sock:

        def sleep(_: float) -> None:
            sock.sendall(bytes(1000))
            looked.append(1)
            if len(looked) == 3:
                raise KeyboardInterrupt

        def said(*arguments: str) -> list[str]:
            looked.clear()
            assert main(["status", "--pid", str(os.getpid()), "--watch", "0.1", *arguments]) == 130
            return capsys.readouterr().out.splitlines()

        looked: list[int] = []
        monkeypatch.setattr("xts_messages.terminal.command_line.time.sleep", sleep)
        head, *rows = said("--csv")
        number = head.split(",").index("sent_bytes_per_s")
        mine = [row.split(",") for row in rows if f",{sock.number}," in row]
        assert mine[0][number] == "" and float(mine[2][number]) > 0
        first, _, last = (json.loads(line) for line in said("--json"))
        assert "rates" not in first["processes"][0]
        assert last["processes"][0]["rates"]["sent_bytes_per_s"] > 0
        assert sum("Sent/s" in line for line in said()) == 4, "two tables, from the second look on"


def test_routes_of_the_device(xts_endpoint: ProxyProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """As a running proxy tells them, and what is said where it is not there."""
    assert main(["status", "--routes", "--json", "--control", xts_endpoint.control]) == 0
    told = json.loads(capsys.readouterr().out)
    default = [route for route in told["routes"] if route["destination"] == "0.0.0.0/0"]
    kernels = subprocess.run(["ip", "-4", "route", "show", "default"], capture_output=True, text=True, check=True)
    assert bool(default) == bool(kernels.stdout)
    assert all(route["interface"] in kernels.stdout for route in default)
    assert main(["status", "--routes", "--control", xts_endpoint.control]) == 0
    assert "Gateway" in capsys.readouterr().out
    route = proxy_side.ask_route(xts_endpoint.control, "", "127.0.0.1:80").route
    assert route is not None and route.interface == "lo"
    with pytest.raises(OSError, match="not an endpoint"):
        proxy_side.ask_route(xts_endpoint.control, "", "nobody")
    assert main(["status", "--routes", "--control", "/nowhere/proxy.sock"]) == 1
    assert "no proxy at /nowhere/proxy.sock" in capsys.readouterr().err
