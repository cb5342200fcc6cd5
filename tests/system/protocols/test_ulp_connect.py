"""Pushes in the payload of CONNECT (PROTOCOL.md, "Pushed protocols"): as the host library sends them, against a proxy
made by hand, and as the worker takes them, from a host made by hand."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.caller import Caller
from beds.one_process_proxy import OneProcessProxy
from beds.scripted_host import WINDOW, ScriptedHost, Worker
from beds.shm_proxy import library
from beds.worker import FEATURES, LOOPBACK, Conn, host, prefixed, receive_exactly, server, worker
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.ulps import BY_NAME, REQUESTS

__all__ = ["host", "server", "worker"]  # fixtures

PREFIXED, LINES, TLS = (BY_NAME[name].number for name in ("LENGTH_PREFIXED", "LINES", "TLS"))
PROXY_ID = 0x55


def encoded_push(request: str, ulp: int, attributes: bytes = b"", message: bool = True) -> bytes:
    """One push in the payload of CONNECT."""
    push = struct.pack("!IHH", 0, int(message), ulp) + attributes
    return struct.pack("!II", REQUESTS[request][0], len(push)) + push


def width(value: int) -> bytes:
    return struct.pack("!HHB", 2, 1, value)


# --- what the host library says ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OneProcessProxy]:
    with OneProcessProxy(tmp_path_factory.mktemp("proxy"), features=FEATURES) as made:
        yield made


@pytest.fixture(scope="module")
def caller(proxy: OneProcessProxy) -> Iterator[Caller]:
    with Caller(proxy, library(), XTS_WINDOW_BYTES="100", XTS_WINDOW_BYTES_MAX="8192") as made:
        yield made


@pytest.fixture
def s(caller: Caller) -> int:
    return int(caller.call("sequenced"))


def acknowledge(proxy: OneProcessProxy, s: int, error: int = 0, proxy_id: int = PROXY_ID) -> None:
    peer = codec.Endpoint() if error else codec.Endpoint.of(LOOPBACK, 80)
    proxy.send("XTS_REPLY_CONNECT_ACK", id=s, error=error, proxy_id=proxy_id, post_credits=0 if error else WINDOW,
               local=peer, peer=peer)  # fmt: skip


def close(proxy: OneProcessProxy, caller: Caller, s: int) -> None:
    """Closes, and leaves nothing on its way; only adverts may have come before the CLOSE."""
    assert caller.call("close", s) == 0
    while "CLOSE" not in (frame := proxy.expect("XTS_CMD_SEND")).flag_names:
        assert not frame.flags and not frame.payload
    assert frame.flag_names == ("CLOSE",) and not proxy.backlog
    proxy.send("XTS_REPLY_RECV", flags=codec.flags("CLOSED"), id=s, post_credits=0, length=0)


def test_one_message_and_one_answer(proxy: OneProcessProxy, caller: Caller, s: int) -> None:
    caller.start("ulp_connect", s, [["PUSH_ULP", TLS, [[12, ""]]], ["PUSH_ULP_RX", PREFIXED, [[2, 2, 1]]]])
    connect = proxy.expect("XTS_CMD_CONNECT")
    assert connect.id == 0 and connect.fields["xts_socket"] == s
    assert connect.payload == encoded_push("PUSH_ULP", TLS, bytes.fromhex("000c0000")) + encoded_push(
        "PUSH_ULP_RX", PREFIXED, width(2)
    )
    assert connect.fields["post_credits"] == table.ULP_WINDOW_MIN, "what pushed protocols need"
    acknowledge(proxy, s)
    assert caller.result() == 0
    proxy.send("XTS_REPLY_RECV_PDU", b"a PDU", id=s, post_credits=0, length=5, record_bytes=5, control_type=0,
               control_bytes=0, control_high=0, control_low=0)  # fmt: skip
    assert caller.call("recvmsg", s, 100) == [5, b"a PDU".hex(), socket.MSG_EOR, []]
    close(proxy, caller, s)


def test_a_nonblocking_socket_waits_for_nothing(proxy: OneProcessProxy, caller: Caller, s: int) -> None:
    assert caller.call("nonblocking", s) == 0
    assert caller.call("ulp_connect", s, [["PUSH_ULP", PREFIXED]]) == "EINPROGRESS"
    assert proxy.expect("XTS_CMD_CONNECT").payload == encoded_push("PUSH_ULP", PREFIXED)
    assert caller.call("ulp_connect", s, [["PUSH_ULP", PREFIXED]]) == "EALREADY"
    acknowledge(proxy, s)
    assert caller.call("poll", s, 4, 5000) == 4
    assert caller.call("connect", s) == 0
    close(proxy, caller, s)


def test_without_pushes_it_is_connect(proxy: OneProcessProxy, caller: Caller, s: int) -> None:
    caller.start("ulp_connect", s, [])
    assert proxy.expect("XTS_CMD_CONNECT").payload == b""
    acknowledge(proxy, s, errno.ECONNREFUSED)
    assert caller.result() == "ECONNREFUSED"
    caller.start("connect", s)
    assert proxy.expect("XTS_CMD_CONNECT").id == PROXY_ID
    acknowledge(proxy, s)
    assert caller.result() == 0
    close(proxy, caller, s)


@pytest.mark.parametrize("proxy_id", [PROXY_ID, 0])
@pytest.mark.parametrize("error", [errno.EINVAL, errno.ECONNREFUSED, errno.ENOBUFS])
def test_after_a_failure_it_never_connects_without(
    proxy: OneProcessProxy, caller: Caller, s: int, error: int, proxy_id: int
) -> None:
    caller.start("ulp_connect", s, [["PUSH_ULP", TLS]])
    proxy.expect("XTS_CMD_CONNECT")
    acknowledge(proxy, s, error, proxy_id)
    assert caller.result() == errno.errorcode[error]
    assert caller.call("connect", s) == "EINVAL"
    assert caller.call("ulp_connect", s, [["PUSH_ULP", TLS]]) == "EINVAL"
    assert caller.call("listen", s, 1) == "EINVAL"
    assert caller.call("push", s, "PUSH_ULP", TLS) == "ENOTCONN"
    assert not proxy.backlog, "nothing of it reached the proxy"
    if not proxy_id:
        assert caller.call("close", s) == 0
    else:
        caller.start("error", s)
        asked = proxy.expect("XTS_CMD_IOCTL")
        text = struct.pack(">HH", error, 12) + b"why"
        proxy.send("XTS_REPLY_IOCTL_ACK", text, id=s, proxy_id=proxy_id, token=asked.fields["token"], length=len(text))
        assert caller.result() == [error, 12, "why"]
        close(proxy, caller, s)


@pytest.mark.parametrize(
    ("pushes", "error"),
    [
        ([["PUSH_ULP", 0]], "EINVAL"),
        ([["PUSH_ULP", TLS], ["PEEK_MODE", TLS]], "EINVAL"),
        ([["PUSH_ULP", TLS, [[2, "61" * 340]]]] * 3, "EMSGSIZE"),
    ],
    ids=["no protocol", "no push", "too long"],
)  # fmt: skip
def test_what_can_be_judged_here_is_refused_here(
    proxy: OneProcessProxy, caller: Caller, s: int, pushes: object, error: str
) -> None:
    assert caller.call("ulp_connect", s, pushes) == error
    assert not proxy.backlog
    caller.start("ulp_connect", s, [["PUSH_ULP", PREFIXED]])  # it is as it was
    assert proxy.expect("XTS_CMD_CONNECT").payload == encoded_push("PUSH_ULP", PREFIXED)
    acknowledge(proxy, s)
    assert caller.result() == 0
    close(proxy, caller, s)


def test_a_proxy_without_the_feature(tmp_path: Path) -> None:
    with OneProcessProxy(tmp_path) as old, Caller(old, library()) as caller:
        s = caller.call("socket")
        assert caller.call("ulp_connect", s, [["PUSH_ULP", TLS]]) == "ENOPROTOOPT"
        assert not old.backlog


# --- what the worker does with it -------------------------------------------------------------------------------------


def ask(host: ScriptedHost, port: int, payload: bytes, id: int = 0, number: int = 0) -> tuple[int, codec.Frame]:
    number = number or host.new_socket()
    peer = codec.Endpoint.of(LOOPBACK, port)
    host.send("XTS_CMD_CONNECT", payload, id=id, xts_socket=number, post_credits=WINDOW, domain=4, peer=peer)
    return number, host.expect("XTS_REPLY_CONNECT_ACK")


def test_protocols_from_the_first_byte_on(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    number, answer = ask(host, server.getsockname()[1], encoded_push("PUSH_ULP", PREFIXED, width(4)))
    assert answer.error == 0
    peer, _ = server.accept()
    with Conn(host, number, answer.fields["proxy_id"], answer.fields["post_credits"], peer) as c:
        peer.settimeout(5)
        c.send_pdu(b"question")
        assert receive_exactly(peer, 12) == prefixed(b"question")
        peer.sendall(prefixed(b"answer"))
        assert c.read_pdu() == b"answer"
        assert c.close().error == 0
    assert worker.stats().ulp_pushed[PREFIXED] == 1


def test_some_on_one_another(host: ScriptedHost, server: socket.socket) -> None:
    payload = encoded_push("PUSH_ULP_RX", BY_NAME["TLS_RECORDS"].number) + encoded_push("PUSH_ULP_RX", LINES)
    number, answer = ask(host, server.getsockname()[1], payload)
    assert answer.error == 0
    peer, _ = server.accept()
    with Conn(host, number, answer.fields["proxy_id"], answer.fields["post_credits"], peer) as c:
        peer.sendall(b"\x17\x03\x03\x00\x06a line\x17\x03\x03\x00\x01\n")
        assert c.read_pdu() == b"\x17\x03\x03\x00\x06a line\x17\x03\x03\x00\x01"


@pytest.mark.parametrize(
    ("payload", "error", "why"),
    [
        (encoded_push("PUSH_ULP", PREFIXED, width(5)), errno.EINVAL, "WIDTH"),
        (encoded_push("PUSH_ULP", PREFIXED, width(4)) + encoded_push("PUSH_ULP", PREFIXED), errno.EINVAL, ""),
        (encoded_push("PUSH_ULP", PREFIXED, message=False), errno.EPROTOTYPE, ""),
        (encoded_push("PUSH_ULP", 999), errno.ENOPROTOOPT, ""),
        (encoded_push("PEEK_MODE", PREFIXED), errno.EINVAL, None),
        (encoded_push("PUSH_ULP", PREFIXED)[:-1], errno.EINVAL, None),
        (encoded_push("PUSH_ULP", PREFIXED) + b"\0\0\x89\xea\0\0\0", errno.EINVAL, None),
        (b"\0\0\x89\xea\xff\xff\xff\xff" + bytes(8), errno.EINVAL, None),
        (b"\0\0\x89\xea\0\0\0\0", errno.EINVAL, None),
        (encoded_push("PUSH_ULP", PREFIXED, bytes(1200)), errno.EMSGSIZE, None),
    ],
    ids=["parameter", "second", "kind", "unknown", "request", "cut", "rest", "long", "empty", "too many bytes"],
)
def test_what_is_refused_never_connects(
    worker: Worker, server: socket.socket, payload: bytes, error: int, why: str | None
) -> None:
    host, port = worker.attach(features=FEATURES).open(), server.getsockname()[1]
    number, answer = ask(host, port, payload)
    id = answer.fields["proxy_id"]
    assert answer.error == error and id
    if why is not None:
        told = host.ulp_error(id, number)
        assert told.error == error and told.fault == "push" and why in told.text
    assert ask(host, port, b"", id, number)[1].error == errno.EISCONN
    assert ask(host, port, encoded_push("PUSH_ULP", PREFIXED), id, number)[1].error == errno.EISCONN
    assert host.push("LENGTH_PREFIXED", id, number).error == errno.ENOTCONN
    host.send("XTS_CMD_LISTEN", id=id, xts_socket=number, token=1, post_credits=1, domain=4, backlog=1)
    assert host.expect("XTS_REPLY_LISTEN_ACK").error == errno.EINVAL
    server.setblocking(False)
    with pytest.raises(BlockingIOError):
        server.accept()
    host.send("XTS_CMD_SEND", id=id, flags=codec.flags("CLOSE"))
    assert "CLOSED" in host.expect("XTS_REPLY_RECV").flag_names
    worker.wait(lambda stats: stats.connections == 0, "the socket did not end")


def test_a_refused_connection_is_the_end_too(worker: Worker, host: ScriptedHost, server: socket.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    number, answer = ask(host, port, encoded_push("PUSH_ULP", PREFIXED))
    id = answer.fields["proxy_id"]
    assert answer.error == errno.ECONNREFUSED and id
    assert host.ulp_error(id, number).error == 0
    assert ask(host, port, b"", id, number)[1].error == errno.EISCONN
    host.send("XTS_CMD_SEND", id=id, flags=codec.flags("CLOSE"))
    assert "CLOSED" in host.expect("XTS_REPLY_RECV").flag_names
    worker.wait(lambda stats: stats.connections == 0, "the socket did not end")


def test_policy_and_limits_come_first(server: socket.socket) -> None:
    with Worker(policy_default_allow=False) as worker, worker.attach(features=FEATURES) as host:
        host.open()
        _, answer = ask(host, server.getsockname()[1], encoded_push("PUSH_ULP", PREFIXED))
        assert answer.error == errno.EACCES
    with Worker(window_bytes=4095, window_bytes_max=4095) as worker, worker.attach(features=FEATURES) as host:
        host.open()
        number, answer = ask(host, server.getsockname()[1], encoded_push("PUSH_ULP", PREFIXED))
        assert answer.error == errno.ENOBUFS
        assert "window" in host.ulp_error(answer.fields["proxy_id"], number).text


def test_without_the_feature_it_is_a_violation(worker: Worker, server: socket.socket) -> None:
    with worker.attach() as host:
        host.open()
        peer = codec.Endpoint.of(LOOPBACK, server.getsockname()[1])
        payload = encoded_push("PUSH_ULP", PREFIXED)
        host.send("XTS_CMD_CONNECT", payload, id=0, xts_socket=1, post_credits=WINDOW, domain=4, peer=peer)
        assert host.wait_down() == errno.EPROTO
