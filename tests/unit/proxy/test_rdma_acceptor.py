"""The process that accepts agents over RDMA, where the kernel or its connection manager fails: nobody is let in who is
not known, the next one is served, and the supervisor hears of each end."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from beds.ready import readable
from xts_messages.queues.rdma_askers import Address
from xts_proxy.queues import rdma_acceptor
from xts_proxy.queues.rdma_acceptor import Answer, Asks, Connected, Ended, Refused, Said, _Accepting

AGENT = ipaddress.ip_address("10.0.0.1")
NOT_ALLOWED = OSError(errno.EPERM, "asking the kernel for connections of RDMA: Operation not permitted")


class Connection:
    """One whose connection manager fails as told."""

    def __init__(self, failure: OSError | None) -> None:
        self.life, self._ours = socket.socketpair()
        self._event = self.life.dup()
        self._ours.close()  # an event has come
        self._failure, self.closed = failure, False

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True
        self._event.close()

    def filenos(self) -> tuple[int]:
        return (self._event.fileno(),)

    def look(self, _: Any) -> str:
        if self._failure:
            raise self._failure
        return "the connection manager says DISCONNECTED"


class Request:
    def __init__(self, connection: Connection) -> None:
        self.connection, self.rejected = connection, False

    def reject(self) -> None:
        self.rejected = True

    def accept(self, number: int, step: Any, how: Any) -> Connection:
        assert number == 7
        return self.connection


class Accepting:
    """The process's object, and the supervisor's end of its socket."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        rdma = SimpleNamespace(port=8556, ack_timeout=None, admits=lambda one: one == AGENT)
        self.it = _Accepting(SimpleNamespace(rdma=rdma), 0, theirs)  # type: ignore[arg-type]

    def said(self) -> list[Said]:
        found: list[Said] = []
        while readable(self.ours):
            found.append(msgspec.msgpack.decode(self.ours.recv(2048), type=Said))
        return found

    def close(self) -> None:
        self.ours.close()
        self.it._parent.close()


@pytest.fixture
def accepting() -> Iterator[Accepting]:
    made = Accepting()
    yield made
    made.close()


def asked_by(monkeypatch: pytest.MonkeyPatch, *found: Address, failure: OSError | None = None) -> None:
    def askers(_: int) -> set[Address]:
        if failure:
            raise failure
        return set(found)

    monkeypatch.setattr(rdma_acceptor, "askers", askers)


def test_a_kernel_that_does_not_say_who_asks(accepting: Accepting, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is not known is refused, and told so; the listener goes on."""
    asked_by(monkeypatch, failure=NOT_ALLOWED)
    connection = Connection(None)
    request = Request(connection)
    accepting.it._meet(request)  # type: ignore[arg-type]
    assert request.rejected
    for one in (connection.life, connection._event):
        one.close()
    assert accepting.said() == [Refused("", f"its address is not known: {NOT_ALLOWED.strerror}")]


@pytest.mark.parametrize("failure", [None, OSError(errno.EIO, "an event of the RDMA connection manager")])
def test_the_end_of_each_connection_is_told(
    accepting: Accepting, monkeypatch: pytest.MonkeyPatch, failure: OSError | None
) -> None:
    """Or the supervisor would have it as connected for ever."""
    asked_by(monkeypatch, AGENT)
    connection = Connection(failure)
    accepting.ours.send(msgspec.msgpack.encode(Answer(number=7)))
    if failure:
        with pytest.raises(OSError, match="an event of"):
            accepting.it._meet(Request(connection))  # type: ignore[arg-type]
    else:
        accepting.it._meet(Request(connection))  # type: ignore[arg-type]
    why = failure.strerror if failure else "the connection manager says DISCONNECTED"
    assert accepting.said() == [Asks(str(AGENT)), Connected(str(AGENT)), Ended(str(why))]
    assert connection.closed
