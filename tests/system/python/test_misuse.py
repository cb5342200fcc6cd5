"""What xts_socket says of a caller's mistake: what was wrong, where, and what to do. A keyword that there is not, an
argument of a wrong type, a call at the wrong time."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import xts_socket as x
from beds.proxy_process import ProxyProcess
from xts_socket import Http2, Lines, Tls
from xts_socket.multiplexer import Multiplexer

pytestmark = pytest.mark.usefixtures("xts_endpoint")
ANY: Any = x  # arguments that are wrong on purpose


@dataclass(frozen=True, slots=True)
class Bed:
    """A stream with something to read, a UDP socket, and one that is not connected."""

    stream: Any
    datagrams: Any
    fresh: Any


@pytest.fixture
def bed(xts_endpoint: ProxyProcess) -> Iterator[Bed]:
    with (
        x.create_server(("127.0.0.1", 0)) as server,
        x.create_connection(server.getsockname(), timeout=20) as client,
        server.accept()[0] as peer,
        x.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams,
        x.socket() as fresh,
    ):
        peer.sendall(b"hello")
        yield Bed(client, datagrams, fresh)


Call = Callable[[Bed], object]
SERVER = ("127.0.0.1", 0)

KEYWORDS: dict[str, tuple[Call, str]] = {
    "Tls": (
        lambda _: ANY.Tls(server_hostnam="x"),
        "Tls() has no argument server_hostnam: did you mean server_hostname?",
    ),
    "Lines": (lambda _: ANY.Lines(delimeter=b";"), "Lines() has no argument delimeter: did you mean delimiter?"),
    "far": (lambda _: ANY.Http2(zzz=1), "Http2() has no argument zzz: it has role, max_frame_bytes"),
    "position": (lambda _: ANY.Tls("example.org"), "Tls() takes its arguments by name: server_hostname=…, alpn=…"),
    "create_connection": (
        lambda _: ANY.create_connection(SERVER, tsl=True),
        "create_connection() has no argument tsl: did you mean tls?",
    ),
    "create_server": (
        lambda _: ANY.create_server(SERVER, reuse_prt=True),
        "create_server() has no argument reuse_prt: did you mean reuse_port?",
    ),
    "configure": (lambda _: ANY.configure(stack=3), "configure() has no argument stack: did you mean stacks?"),
    "dev": (lambda _: ANY.dev(table="x"), "dev() has no argument table: did you mean tables?"),
    "install": (lambda _: ANY.install(rule="x"), "install() has no argument rule: did you mean rules?"),
    "offload": (lambda _: ANY.offload(strct=True), "offload() has no argument strct: did you mean strict?"),
    "ssl_context": (lambda _: ANY.ssl_context(tsl=Tls()), "ssl_context() has no argument tsl: did you mean tls?"),
    "wrap_ssl": (
        lambda bed: ANY.wrap_ssl(bed.stream, None, server_hostnam="x"),
        "wrap_ssl() has no argument server_hostnam: did you mean server_hostname?",
    ),
    "Stack": (lambda _: ANY.Stack(endpont="/x"), "Stack() has no argument endpont: did you mean endpoint?"),
    "push": (
        lambda bed: bed.stream.push(Tls(), directon="send"),
        "push() has no argument directon: did you mean direction?",
    ),
}

TYPES: dict[str, tuple[Call, str]] = {
    "tls of a client": (
        lambda _: ANY.create_connection(SERVER, tls="yes"),
        "tls: Tls() or a bool is wanted, not 'yes'",
    ),
    "tls of a server": (lambda _: ANY.create_server(SERVER, tls=True), "tls: Tls(identity=…) is wanted, not True"),
    "push": (
        lambda _: ANY.create_connection(SERVER, push=Lines()),
        "push: a list of protocols, as [Lines()], is wanted",
    ),
    "a class": (
        lambda bed: bed.stream.push(Tls),
        "push() takes protocols of xts_socket, Tls() for instance, not <class",
    ),
    "control": (lambda bed: _pdus().send_pdu(b"x", "y"), "control: control data of xts_socket"),
    "spin_us": (lambda _: ANY.configure(spin_us="x"), "configure(spin_us=…): a number from 0 to 4294967295 is wanted"),
    "negative": (lambda _: ANY.configure(window_bytes=-1), "configure(window_bytes=…): a number from 0 to"),
    "pcap": (lambda _: ANY.configure(pcap=5), "configure(pcap=…): a path is wanted, not 5"),
    "rules": (lambda _: ANY.install(5), "rules: the path of a file is wanted, not 5"),
    "tables": (lambda _: _entered(ANY.dev(5)), "dev(tables=…): a text or the path of a file is wanted, not 5"),
    "context": (lambda bed: ANY.wrap_ssl(bed.stream, None), "wrap_ssl(context=…): an ssl.SSLContext is wanted"),
    "ssl_context": (lambda _: ANY.ssl_context("x"), "tls: Tls() or True is wanted, not 'x'"),
    "Stack": (lambda _: ANY.Stack(5), "Stack(endpoint=…): a path is wanted, not 5"),
    "stack_of": (lambda _: ANY.stack_of(5), "stack_of(): a socket of xts_socket is wanted, not 5"),
    "epoll": (lambda _: ANY.epoll().register("x"), "epoll: a socket of xts_socket, or its number, is wanted"),
    "Multiplexer": (lambda _: Multiplexer(ANY.Tls()), "Multiplexer: a socket of xts_socket is wanted, not Tls("),
    "callback": (lambda bed: bed.datagrams.set_receive_callback(5), "a receive callback has to be callable"),
}

STATES: dict[str, tuple[Call, str]] = {
    "AF_UNIX": (lambda _: x.socket(socket.AF_UNIX), "an XTS socket is of AF_INET or AF_INET6, not of family 1"),
    "SOCK_RAW": (lambda _: x.socket(socket.AF_INET, socket.SOCK_RAW), "an XTS socket is of type SOCK_STREAM"),
    "protocol": (
        lambda _: x.socket(socket.AF_INET, socket.SOCK_STREAM, 17),
        "has the protocol IPPROTO_TCP or 0, not 17",
    ),
    "recv_pdu": (lambda bed: bed.stream.recv_pdu(), "recv_pdu() is for sockets of type SOCK_SEQPACKET"),
    "recv_pdu of a fresh one": (lambda bed: bed.fresh.recv_pdu(), "recv_pdu() is for sockets of type SOCK_SEQPACKET"),
    "send_pdu": (lambda bed: bed.stream.send_pdu(b"x"), "send_pdu() is for sockets of type SOCK_SEQPACKET"),
    "send_pdu_part": (lambda bed: bed.stream.send_pdu_part(b"x"), "send_pdu_part() is for sockets of type SOCK_SEQ"),
    "configure": (lambda _: x.configure(spin_us=3), "attached to an offload proxy already: configure before the first"),
    "end_peek_mode": (lambda bed: bed.stream.end_peek_mode(1), "the socket is not in peek mode: begin it before"),
    "push on UDP": (lambda bed: bed.datagrams.push(Tls()), "protocols are pushed onto connections, and this is a UDP"),
    "callback": (
        lambda bed: bed.stream.set_receive_callback(print),
        "asked about datagrams and PDUs, and this is a str",
    ),
}


def _pdus() -> Any:
    return x.socket(socket.AF_INET, socket.SOCK_SEQPACKET)


def _entered(manager: Any) -> None:
    with manager:
        pass


@pytest.mark.parametrize("name", KEYWORDS)
def test_a_keyword_that_there_is_not(name: str, bed: Bed) -> None:
    call, sentence = KEYWORDS[name]
    with pytest.raises(TypeError) as raised:
        call(bed)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_argument_of_a_wrong_type(name: str, bed: Bed) -> None:
    call, sentence = TYPES[name]
    with pytest.raises(TypeError) as raised:
        call(bed)
    assert sentence in str(raised.value)


@pytest.mark.parametrize("name", STATES)
def test_at_the_wrong_time(name: str, bed: Bed) -> None:
    call, sentence = STATES[name]
    with pytest.raises(OSError) as raised:
        call(bed)
    assert sentence in raised.value.reason  # type: ignore[attr-defined]
    assert sentence in str(raised.value)


BEFORE = {
    "x.info()": "is not attached to an offload proxy (yet): make an XTS socket",
    "x.configure(stacks='many')": 'stacks is "many": expected process, thread or a number',
    "x.configure(window_bytes=1)": "window_bytes is 1: expected 2 to 1073741824, or 0 for the default",
    "x.configure(window_bytes_max=2**31)": "window_bytes_max is 2147483648: expected 2 to 1073741824, or 0",
    "x.configure(frame_window=129)": "frame_window is 129: expected 4 to 128, or 0 for the default",
    "x.configure(frame_window=3)": "frame_window is 3: expected 4 to 128",
    "x.configure(dead_ms=499)": "dead_ms is 499: expected 500 to 4294967295",
    "x.configure(stacks=0)": 'stacks is "0": expected process, thread or a number',
    "x.configure(endpoint='/' + 200 * 'x')": "endpoint has 201 bytes: expected at most",
}


@pytest.mark.parametrize("call", BEFORE)
def test_before_any_socket(call: str) -> None:
    program = f"import xts_socket as x\ntry: {call}\nexcept OSError as error: print(error.reason, error, sep='|')"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XTS_")}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    reason, text = done.stdout.split("|")
    assert BEFORE[call] in reason and reason in text


def test_layers_are_what_they_were() -> None:
    assert Http2(role="client") == Http2(role="client")
    assert Tls(alpn="h2").alpn == ("h2",)


#: Of the package's own names: those that take positions only, as their counterparts in C, and classes of errors and
#: of what the package makes itself.
POSITIONS = re.compile(r"xts_|.*Error$|SocketIO|WithReason|Packet|Pdu|.*Record(Type|Header)$|Http2Frame|.*Message$")
MADE_HERE = {
    "DnsHeader",
    "NvmePdu",
    "Info",
    "Interface",
    "LayerInfo",
    "Offer",
    "Reason",
    "TlsConnection",
    "Layer",
    "epoll",
}
WITHOUT = {"info", "reasons", "uninstall", "interfaces", "ulps", "stack_of", "Multiplexer", "epoll"}


def own_names() -> list[str]:
    names = {name for name in x.__all__ if not hasattr(socket, name)}
    return sorted(
        name for name in names - MADE_HERE - WITHOUT if callable(getattr(x, name)) and not POSITIONS.match(name)
    )


@pytest.mark.parametrize("name", own_names())
def test_each_of_its_own_names(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) has no argument zzz: "):
        getattr(x, name)(zzz=1)


@pytest.mark.parametrize("name", ["create_connection", "create_server", "connect_accepted_socket", "start_tls"])
def test_asyncio(name: str) -> None:
    with pytest.raises(TypeError, match=rf"{name}\(\) has no argument tsl: (did you mean (tls|ssl)|it has transport)"):
        asyncio.run(getattr(x.aio, name)(None, None, None, tsl=True))
