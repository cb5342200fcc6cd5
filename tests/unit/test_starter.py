"""The process that starts the agent's other processes: what ends is started again, and nothing when the agent stops."""

from __future__ import annotations

import os
import select
import socket
import time

import pytest
from beds import process_tree
from xts_agent import starter
from xts_agent.starter import Role, Starter

LIFE_S = 0.05


def waits(connection: socket.socket) -> int:
    """Until the agent hangs up."""
    return len(connection.recv(1))


def fails(_: socket.socket) -> int:
    return 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "AGAIN_S", LIFE_S)


def another(of: Starter, seconds: float = 10) -> tuple[int, socket.socket]:
    assert select.select([of], [], [], seconds)[0], "nothing was started"
    return next(iter(of.received()))


def test_what_ends_is_started_again_with_a_connection_of_its_own() -> None:
    with Starter([Role("xts-one", waits), Role("xts-two", waits)]) as served:
        connections = served.first()
        for _ in range(3):
            ended = process_tree.one(os.getpid(), "xts-two")
            other = process_tree.one(os.getpid(), "xts-one")
            process_tree.kill(ended)
            number, connection = another(served)
            assert number == 1
            assert process_tree.one(os.getpid(), "xts-two") != ended
            assert process_tree.one(os.getpid(), "xts-one") == other
            assert connections[1].recv(1) == b"", "the old connection has ended"
            connections[1].close()
            connections[1] = connection
        for connection in connections:
            connection.close()
    assert not list(process_tree.below(os.getpid()))


def test_what_cannot_begin_is_tried_less_and_less_often() -> None:
    starts = 0
    with Starter([Role("xts-fails", fails)]) as served:
        deadline = time.monotonic() + 1
        while (left := deadline - time.monotonic()) > 0:
            if select.select([served], [], [], left)[0]:
                _, connection = next(iter(served.received()))
                connection.close()
                starts += 1
    assert 2 <= starts <= 6, "after 50 ms, 100, 200, 400, and so on"


def test_the_end_of_the_starter_is_noticed() -> None:
    served = Starter([Role("xts-one", waits)])
    served.first()[0].close()
    process_tree.kill(process_tree.one(os.getpid(), "xts-starter"))
    with pytest.raises(ConnectionResetError):
        another(served)
    served.close()
