"""The process that starts the agent's other processes: what ends is started again, and nothing when the agent stops."""

from __future__ import annotations

import os
import socket
import time

import pytest
from beds import process_tree
from beds.ready import readable
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


def tree(of: Starter) -> int:
    """The process whose children are those of `of`: other tests of this run may have agents too."""
    return of._process


def another(of: Starter, seconds: float = 10) -> tuple[int, socket.socket]:
    assert readable(of, seconds), "nothing was started"
    return next(iter(of.received()))


def test_what_ends_is_started_again_with_a_connection_of_its_own() -> None:
    with Starter([Role("xts-one", waits), Role("xts-two", waits)]) as served:
        connections, mine = served.first(), tree(served)
        for _ in range(3):
            ended = process_tree.one(mine, "xts-two")
            other = process_tree.one(mine, "xts-one")
            process_tree.kill(ended)
            number, connection = another(served)
            assert number == 1
            assert process_tree.one(mine, "xts-two") != ended
            assert process_tree.one(mine, "xts-one") == other
            assert connections[1].recv(1) == b"", "the old connection has ended"
            connections[1].close()
            connections[1] = connection
        for connection in connections:
            connection.close()
    assert ("xts-starter", mine) not in process_tree.below(os.getpid())


def test_what_cannot_begin_is_tried_less_and_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "AGAIN_S", 12 * LIFE_S)  # a busy machine needs some time even for a fork
    starts = 0
    with Starter([Role("xts-fails", fails)]) as served:
        deadline = time.monotonic() + 2
        while (left := deadline - time.monotonic()) > 0:
            if readable(served, left):
                _, connection = next(iter(served.received()))
                connection.close()
                starts += 1
    assert 2 <= starts <= 4, "after 0.6 s, 1.2, and so on"


def test_the_end_of_the_starter_is_noticed() -> None:
    served = Starter([Role("xts-one", waits)])
    served.first()[0].close()
    process_tree.kill(tree(served))
    with pytest.raises(ConnectionResetError):
        another(served)
    served.close()
