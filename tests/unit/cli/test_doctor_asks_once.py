"""`xts doctor` asks an endpoint for its queues once in a look, whoever needs the answer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from xts_messages.attaching.attach import OfferedQueues
from xts_socket.cli.checks import interfaces, offered, queues, wire


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str | None]]:
    questions: list[str | None] = []

    def stands_still(endpoint: str | None) -> list[OfferedQueues]:
        questions.append(endpoint)
        raise TimeoutError(110, "it stands still")

    monkeypatch.setattr(offered, "list_queues", stands_still)
    offered.forget()
    yield questions
    offered.forget()


def test_one_that_stands_still_is_asked_once(asked: list[str | None]) -> None:
    assert not list(queues.checks())
    assert not list(wire.checks())
    list(interfaces.checks())
    assert len(asked) == 1


def test_the_next_look_asks_again(asked: list[str | None]) -> None:
    for _ in range(2):
        offered.forget()
        assert not list(queues.checks())
    assert len(asked) == 2
