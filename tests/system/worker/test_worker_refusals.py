"""Why the worker refuses a request: its number in the reply, for a host that has asked for it; and what the host
library makes of numbers from a proxy of another version."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from beds.caller import Caller
from beds.one_process_proxy import OneProcessProxy
from beds.scripted_host import ScriptedHost, Worker
from beds.shm_proxy import library
from xts_messages.wire import codec
from xts_messages.wire import wire_table as table
from xts_messages.wire.codec import Frame

REFUSAL = table.FEATURES["REFUSAL"][0]
SHARE = table.FEATURES["SHARE"][0]
NONE = codec.Endpoint()
Ask = Callable[[ScriptedHost, int], Frame]


@pytest.fixture
def server() -> Iterator[int]:
    """The port of a listener of the kernel's."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


def connect(host: ScriptedHost, port: int) -> Frame:
    return host.connect("127.0.0.1", port)[1]


def bind(host: ScriptedHost, port: int) -> Frame:
    local = codec.Endpoint.of("127.0.0.1", 0)
    host.send("XTS_CMD_BIND", xts_socket=host.new_socket(), token=1, domain=4, local=local)
    return host.expect("XTS_REPLY_BIND_ACK")


def bind_to(host: ScriptedHost, port: int) -> Frame:
    local = codec.Endpoint.of("127.0.0.1", port)
    host.send("XTS_CMD_BIND", xts_socket=host.new_socket(), token=1, domain=4, local=local)
    return host.expect("XTS_REPLY_BIND_ACK")


def listen(host: ScriptedHost, port: int) -> Frame:
    fields = {"token": 1, "post_credits": 4, "domain": 4, "backlog": 4}
    host.send("XTS_CMD_LISTEN", xts_socket=host.new_socket(), **fields)
    return host.expect("XTS_REPLY_LISTEN_ACK")


def share(host: ScriptedHost, port: int) -> Frame:
    number = host.new_socket()
    fields = {"token": 1, "post_credits": 4, "domain": 4, "backlog": 4}
    host.send("XTS_CMD_LISTEN", xts_socket=number, **fields)
    listener = host.expect("XTS_REPLY_LISTEN_ACK").fields["proxy_id"]
    key = int.from_bytes(os.urandom(8), "big")
    assert isinstance(listener, int)
    host.send("XTS_CMD_SHARE", id=listener, xts_socket=number, token=2, key=key, keep_ms=0)
    return host.expect("XTS_REPLY_SHARE_ACK")


def mark(host: ScriptedHost, port: int) -> Frame:
    fields = {"token": 1, "domain": 4, "level": socket.SOL_SOCKET, "option": socket.SO_MARK}
    host.send("XTS_CMD_SETSOCKOPT", bytes(4), xts_socket=host.new_socket(), **fields)
    return host.expect("XTS_REPLY_SOCKOPT_ACK")


@pytest.mark.parametrize(
    ("refusal", "allow", "limits", "ask"),
    [
        ("CONNECT_POLICY", False, {}, connect),
        ("LISTEN_POLICY", False, {}, bind_to),
        ("LISTEN_POLICY", False, {}, listen),
        ("CONNECTIONS", True, {"connections": 0}, connect),
        ("CONNECTIONS", True, {"connections": 0}, bind),
        ("LISTENERS", True, {"listeners": 0}, listen),
        ("SOCKETS", True, {"socket_bytes": 0}, connect),
        ("WINDOWS", True, {"spill_bytes": 0}, connect),
        ("OPTION", True, {}, mark),
        ("SHARED_LISTENERS", True, {"names": 0}, share),
    ],
)
def test_the_reply_has_the_reason(refusal: str, allow: bool, limits: dict[str, int], ask: Ask, server: int) -> None:
    number, error, _ = table.REFUSALS[refusal]
    with Worker(policy_default_allow=allow, **limits) as worker:
        for features, expected in ((REFUSAL | SHARE, number), (SHARE, 0)):
            with worker.attach(epoch=0x1234 + features, features=features).open() as host:
                reply = ask(host, server)
                assert (reply.error, reply.refusal) == (error, expected)


def test_a_worker_that_is_to_stop_says_so(server: int) -> None:
    with Worker() as worker, worker.attach(features=REFUSAL).open() as host:
        worker.drain()
        for ask in (connect, listen, bind):
            assert ask(host, server).refusal == table.REFUSALS["STOPPING"][0]


def test_what_tcp_refuses_has_no_number(server: int) -> None:
    """A refusal is of the request that it answers, and not of one before."""
    with Worker() as worker, worker.attach(features=REFUSAL).open() as host:
        assert mark(host, server).refusal
        reply = bind_to(host, server)
        assert (reply.error, reply.refusal) == (errno.EADDRINUSE, 0)


SENTENCE = table.REFUSALS["CONNECT_POLICY"][2]


@pytest.mark.parametrize(
    ("features", "number", "error", "sentence"),
    [
        (REFUSAL, 1, errno.EACCES, SENTENCE),
        (REFUSAL, 0, errno.EACCES, os.strerror(errno.EACCES)),  # a firewall's, say
        (REFUSAL, 1, errno.ENOBUFS, os.strerror(errno.ENOBUFS)),  # goes with another errno
        (REFUSAL, 255, errno.EACCES, os.strerror(errno.EACCES)),  # of a later version
        (0, 0, errno.EACCES, "the device refuses it, by the policy of its proxy ("),  # an earlier one
        (0, 0, errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)),
    ],
)
def test_what_the_library_makes_of_it(features: int, number: int, error: int, sentence: str, tmp_path: Path) -> None:
    with OneProcessProxy(tmp_path, features=features) as proxy, Caller(proxy, library()) as caller:
        s = caller.call("socket")
        caller.start("connect", s)
        proxy.expect("XTS_CMD_CONNECT")
        fields = {"proxy_id": 0, "post_credits": 0, "local": NONE, "peer": NONE}
        proxy.send("XTS_REPLY_CONNECT_ACK", flags=number, error=error, id=s, **fields)
        assert caller.result() == errno.errorcode[error]
        assert caller.call("last_error").startswith(sentence)
