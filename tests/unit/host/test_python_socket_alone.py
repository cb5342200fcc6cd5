"""The Python socket without a proxy: arguments, address forms, import cost, errors when nobody is there."""

from __future__ import annotations

import ast
import errno
import json
import os
import socket as kernel
import struct
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import xts_socket
from hypothesis import given
from hypothesis import strategies as st
from xts_messages._native import ffi, lib
from xts_socket import _address, _message
from xts_socket.cli.sockets import attached

NOWHERE = "/nonexistent/xts/endpoint.sock"


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


# --- importing ----------------------------------------------------------------------------------------------------


def test_import_brings_no_heavy_module() -> None:
    code = "import sys, xts_socket; print(*sys.modules)"
    loaded = set(run_python(code).stdout.split())
    assert "xts_socket._native" in loaded
    heavy = {"asyncio", "rich", "msgspec", "pyroute2", "dataclasses", "logging", "cffi", "ctypes", "subprocess"}
    assert not loaded & heavy


def test_public_names_are_all_there() -> None:
    for name in xts_socket.__all__:
        assert hasattr(xts_socket, name), name
    tree = ast.parse(Path(xts_socket.__file__ or "").read_text())
    imported = {alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert imported - {"annotations", "Any", "__version__"} <= set(xts_socket.__all__)


def test_stands_in_for_the_standard_module() -> None:
    for name in (
        "AF_INET6",
        "SO_DOMAIN",
        "TCP_DEFER_ACCEPT",
        "IPV6_RECVPKTINFO",
        "MSG_TRUNC",
        "SOL_TCP",
        "AI_CANONNAME",
    ):
        assert getattr(xts_socket, name) == getattr(kernel, name)
    assert xts_socket.error is OSError and xts_socket.timeout is TimeoutError
    assert xts_socket.gaierror is kernel.gaierror
    assert xts_socket.socketpair is kernel.socketpair and xts_socket.CMSG_LEN is kernel.CMSG_LEN
    with pytest.raises(AttributeError):
        getattr(xts_socket, "nonsense")  # noqa: B009 - as a name it would be an error of types


# --- nobody there -------------------------------------------------------------------------------------------------


def test_without_an_endpoint_there_is_no_socket_and_the_error_says_where() -> None:
    code = (
        "import xts_socket\n"
        "try: xts_socket.socket()\n"
        "except OSError as error: print(error.errno, error.strerror)\n"
        "try: xts_socket.create_connection(('127.0.0.1', 9))\n"
        "except OSError as error: print(error.errno)\n"
        "try: xts_socket.info()\n"
        "except OSError as error: print(error.errno)\n"
        "try: xts_socket.create_server(('127.0.0.1', 0), dualstack_ipv6=True)\n"
        "except ValueError as error: print(error)\n"
    )
    done = run_python(code, XTS_ENDPOINT=NOWHERE)
    first, second, third, fourth = done.stdout.splitlines()
    assert "dualstack_ipv6 not supported" in fourth
    assert first.startswith(str(errno.ENETDOWN)) and NOWHERE in first and "xts doctor" in first
    assert (second, third) == (str(errno.ENETDOWN), str(errno.ENOTCONN))
    assert done.stderr == ""


def test_kinds_of_sockets_that_are_not_offloaded() -> None:
    code = (
        "import socket, xts_socket\n"
        "inet = socket.AF_INET\n"
        "for kind in ((socket.AF_UNIX,), (inet, socket.SOCK_RAW), (inet, socket.SOCK_DGRAM, socket.IPPROTO_TCP)):\n"
        "    try: xts_socket.socket(*kind)\n"
        "    except OSError as error: print(error.errno)\n"
    )
    done = run_python(code, XTS_ENDPOINT=NOWHERE)
    assert [int(line) for line in done.stdout.split()] == [
        errno.EAFNOSUPPORT,
        errno.ESOCKTNOSUPPORT,
        errno.EPROTONOSUPPORT,
    ]


@pytest.mark.parametrize(
    ("call", "raised"),
    [
        ("socket(fileno=-1)", ValueError),
        ("socket(fileno=1.5)", TypeError),
        ("socket(fileno=12345)", OSError),
        ("socket('inet')", TypeError),
        ("create_connection(('nonexistent.invalid', 1))", kernel.gaierror),
        ("create_connection('host')", ValueError),
    ],
)
def test_bad_arguments(call: str, raised: type[Exception]) -> None:
    """None of these gets as far as making a socket, which would settle this process's endpoint for good."""
    with pytest.raises(raised):
        eval(call, vars(xts_socket))


# --- addresses ----------------------------------------------------------------------------------------------------

ports = st.integers(0, 0xFFFF)
ipv4 = st.ip_addresses(v=4).map(str)
ipv6 = st.ip_addresses(v=6).map(lambda address: kernel.inet_ntop(kernel.AF_INET6, address.packed))


@given(ipv4, ports)
def test_ipv4_addresses_come_back(host: str, port: int) -> None:
    sockaddr = _address.encode(kernel.AF_INET, (host, port), "connect")
    assert len(sockaddr) == 16
    assert _address.decode(sockaddr) == (host, port)


@given(ipv6, ports, st.integers(0, 0xFFFFF), st.integers(0, 0xFFFFFFFF))
def test_ipv6_addresses_come_back(host: str, port: int, flowinfo: int, scope_id: int) -> None:
    sockaddr = _address.encode(kernel.AF_INET6, (host, port, flowinfo, scope_id), "connect")
    assert len(sockaddr) == 28
    assert _address.decode(sockaddr) == (host, port, flowinfo, scope_id)


@given(st.binary(max_size=64))
def test_any_sockaddr_is_decoded_or_none(sockaddr: bytes) -> None:
    assert _address.decode(sockaddr) is None or sockaddr[0] in (kernel.AF_INET, kernel.AF_INET6)


def test_hosts() -> None:
    def host(family: int, name: str | bytes | bytearray) -> object:
        return (_address.decode(_address.encode(family, (name, 80), "bind")) or ("none",))[0]

    assert host(kernel.AF_INET, "") == "0.0.0.0"
    assert host(kernel.AF_INET6, "") == "::"
    assert host(kernel.AF_INET, "<broadcast>") == "255.255.255.255"
    assert host(kernel.AF_INET, "localhost") == "127.0.0.1"
    assert host(kernel.AF_INET, b"127.0.0.1") == host(kernel.AF_INET, bytearray(b"127.0.0.1")) == "127.0.0.1"
    assert host(kernel.AF_INET, "127.1") == "127.0.0.1"
    with pytest.raises(kernel.gaierror):
        host(kernel.AF_INET, "nonexistent.invalid")
    with pytest.raises(kernel.gaierror):
        host(kernel.AF_INET, "::1")


BAD_ADDRESSES = [
    (kernel.AF_INET, "127.0.0.1:80"),
    (kernel.AF_INET, None),
    (kernel.AF_INET, ["127.0.0.1", 80]),
    (kernel.AF_INET, ("127.0.0.1",)),
    (kernel.AF_INET, ("127.0.0.1", 80, 0)),
    (kernel.AF_INET, ("127.0.0.1", "80")),
    (kernel.AF_INET, ("127.0.0.1", 80.0)),
    (kernel.AF_INET, ("127.0.0.1", -1)),
    (kernel.AF_INET, ("127.0.0.1", 65536)),
    (kernel.AF_INET, (127, 80)),
    (kernel.AF_INET, ("127.0.0.1\0", 80)),
    (kernel.AF_INET6, ("::1",)),
    (kernel.AF_INET6, ("::1", 80, 0, 0, 0)),
    (kernel.AF_INET6, ("::1", 80, 0x100000)),
    (kernel.AF_INET6, ("::1", 80, -1)),
    (kernel.AF_INET6, ("::1", 80, "0")),
]


@pytest.mark.parametrize(("family", "address"), BAD_ADDRESSES, ids=repr)
def test_bad_addresses_raise_what_the_standard_socket_raises(family: int, address: object) -> None:
    with kernel.socket(family) as reference:
        with pytest.raises((TypeError, OverflowError, ValueError)) as expected:
            reference.bind(address)  # type: ignore[arg-type]
    with pytest.raises(expected.type):
        _address.encode(family, address, "bind")


# --- ancillary data -----------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 100), st.binary(max_size=40)), max_size=5))
def test_ancillary_data_comes_back(items: list[tuple[int, int, bytes]]) -> None:
    packed = _message.pack_ancillary(items)
    message = _message.Message([], packed, b"", False)
    assert message.ancillary() == items


def test_a_message_counts_its_buffers() -> None:
    buffers = [b"abc", bytearray(5), memoryview(b"12345678")[2:4]]
    message = _message.Message(buffers, b"", b"", False)
    assert (message.bytes, message.header.msg_iovlen, message.header.msg_controllen) == (10, 3, 0)
    message.release()
    buffers[1].extend(b"more")  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="read-write"):
        _message.Message([b"read-only"], 0, None, True)
    for wrong in (object(), (1, 2), (1, 2, b"", 3), (1.0, 2, b""), (1, 2, "text")):
        with pytest.raises(TypeError):
            _message.pack_ancillary([wrong])  # type: ignore[list-item]


# --- the command --------------------------------------------------------------------------------------------------


def xts(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_python(f"import sys; from xts_socket.cli import main; sys.exit(main({list(arguments)!r}))")


@pytest.mark.parametrize("verb", ["run", "status", "doctor", "ping", "rules"])
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    done = xts(verb, "--help")
    assert done.returncode == 0 and f"xts {verb}" in done.stdout
    assert "example:" in done.stdout or "examples:" in done.stdout


def test_a_status_page_is_read_entry_by_entry() -> None:
    head = ffi.new("struct xts_status_page *")
    head.magic, head.version, head.used, head.sockets = lib.XTS_STATUS_MAGIC, lib.XTS_STATUS_VERSION, 3, 2
    entries = ffi.new("struct xts_status_entry[]", 3)
    entries[0].state, entries[0].xts_socket, entries[0].local.ip_version = 3, 7, 4
    entries[0].local.port, entries[0].local.address = 80, [10, 0, 0, 1] + [0] * 12
    entries[2].state, entries[2].peer.ip_version, entries[2].peer.scope_id = 200, 6, 3
    page, found = attached.read_page(bytes(ffi.buffer(head)) + bytes(ffi.buffer(entries)))
    assert page.sockets == 2
    assert [(entry.state, entry.xts_socket, entry.local, entry.peer) for entry in found] == [
        ("ESTAB", 7, "10.0.0.1:80", "*"),
        ("200", 0, "*", "[::%3]:0"),
    ]


@given(st.binary(max_size=400), st.integers(0, 0xFFFFFFFF))
def test_whatever_a_process_wrote_into_its_status_page(rest: bytes, used: int) -> None:
    with pytest.raises(OSError):
        attached.read_page(rest)
    page = struct.pack("=IIII", lib.XTS_STATUS_MAGIC, lib.XTS_STATUS_VERSION, lib.XTS_STATUS_ENTRIES, used) + rest
    with suppress(OSError):
        _, entries = attached.read_page(page)
        assert len(entries) <= len(page) // ffi.sizeof("struct xts_status_entry")


def test_without_an_endpoint_status_and_ping_say_so() -> None:
    for verb in ("status", "ping"):
        done = xts(verb, "--endpoint", NOWHERE)
        assert done.returncode == 1 and NOWHERE in done.stderr and done.stdout == ""


def test_doctor_without_an_endpoint_fails_and_says_what_to_do() -> None:
    done = xts("doctor", "--json", "--endpoint", NOWHERE)
    report = json.loads(done.stdout)
    assert done.returncode == 1 and not report["works"] and done.stderr == ""
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["endpoint"]["level"] == "fail" and checks["endpoint"]["mend"]
    assert {"kernel", "AF_XDP", "memory locking", "BPF", "libxdp", "libbpf", "bcc", "kernel TLS"} <= set(checks)
    assert any(name.startswith("RDMA") for name in checks)
    assert all(check["level"] in ("ok", "warn", "fail") and check["found"] for check in report["checks"])
