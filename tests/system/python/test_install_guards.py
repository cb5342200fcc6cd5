"""Guards and tracers that replace methods of the standard class hold for the sockets of install(), too."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import xts_socket

pytestmark = pytest.mark.usefixtures("xts_endpoint")

PATIENCE_S = 20.0
STANDARD = socket.socket
EVERYTHING = "use xts tcp_client *:*\nuse xts tcp_server *:*\nuse xts udp_sender *:*\nuse xts udp_receiver *:*\n"


class BlockedError(OSError):
    pass


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(PATIENCE_S)
        yield made


def replaced(name: str, guard: Callable[..., Any]) -> Any:
    """As pytest-socket does it: the standard class's, whatever that is called now."""
    return mock.patch.object(STANDARD, name, guard)


def allowing(name: str, *hosts: str) -> tuple[Callable[..., Any], list[Any]]:
    true, seen = getattr(STANDARD, name), []

    def guarded(sock: Any, *arguments: Any) -> Any:
        seen.append((sock, arguments))
        if arguments and isinstance(arguments[-1], tuple) and arguments[-1][0] not in hosts:
            raise BlockedError(arguments[-1])
        return true(sock, *arguments)

    return guarded, seen


@pytest.mark.parametrize("call", ["connect", "connect_ex"])
def test_a_guard(call: str, listener: socket.socket, rules: Callable[[str], Path]) -> None:
    guard, seen = allowing(call, "127.0.0.1")
    with replaced(call, guard), xts_socket.offload(rules(EVERYTHING)), socket.socket() as sock:
        sock.settimeout(PATIENCE_S)
        for _ in range(2):
            with pytest.raises(BlockedError):
                getattr(sock, call)(("192.0.2.1", 9))
        assert sock.reason is None and sock.gettimeout() == PATIENCE_S and sock.fileno() >= 0
        assert not getattr(sock, call)(listener.getsockname())
        assert sock.reason is xts_socket.Reason.NONE
        with STANDARD(fileno=listener._accept()[0]) as peer:
            sock.sendall(b"through")
            assert peer.recv(10) == b"through"
        assert [one is sock for one, _ in seen] == [True] * 3


def test_create_connection_and_others_of_the_module(listener: socket.socket, rules: Callable[[str], Path]) -> None:
    guard, seen = allowing("connect", "127.0.0.1")
    with replaced("connect", guard), xts_socket.offload(rules(EVERYTHING)):
        with pytest.raises(BlockedError):
            socket.create_connection(("192.0.2.1", 9), 1)
        socket.create_connection(listener.getsockname(), PATIENCE_S).close()
    assert len(seen) == 2


@pytest.mark.parametrize(("call", "arguments"), [("bind", (("127.0.0.1", 0),)), ("listen", (5,))])
def test_a_guard_of_servers(call: str, arguments: tuple[Any, ...], rules: Callable[[str], Path]) -> None:
    guard, seen = allowing(call, "127.0.0.1")
    with replaced(call, guard), xts_socket.offload(rules(EVERYTHING)), socket.socket() as sock:
        if call == "listen":
            sock.bind(("127.0.0.1", 0))
        getattr(sock, call)(*arguments)
        assert sock.reason is xts_socket.Reason.NONE and [one for _, one in seen] == [arguments]


def test_a_guard_of_datagrams(rules: Callable[[str], Path]) -> None:
    guard, _ = allowing("sendto", "127.0.0.1")
    with (
        replaced("sendto", guard),
        xts_socket.offload(rules(EVERYTHING)),
        socket.socket(type=socket.SOCK_DGRAM) as sock,
    ):
        with pytest.raises(BlockedError):
            sock.sendto(b"x", ("192.0.2.1", 9))
        assert sock.sendto(b"x", ("127.0.0.1", 9)) == 1


def test_a_replacement_that_does_not_connect(rules: Callable[[str], Path]) -> None:
    """What it raises or returns is the result; and after it, all is as before."""
    for outcome in (ConnectionRefusedError(111, "on purpose"), OSError("no network in tests")):
        with replaced("connect", mock.Mock(side_effect=outcome)), xts_socket.offload(rules(EVERYTHING)):
            with socket.socket() as sock, pytest.raises(type(outcome), match=str(outcome.args[-1])):
                sock.connect(("192.0.2.1", 9))
    with replaced("connect_ex", lambda *_: 5), xts_socket.offload(rules(EVERYTHING)), socket.socket() as sock:
        assert sock.connect_ex(("192.0.2.1", 9)) == 5
        assert sock.reason is None
