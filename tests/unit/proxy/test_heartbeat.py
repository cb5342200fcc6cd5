"""Workers that make no progress are reported, once for each doubling of the time, and when they go on."""

from __future__ import annotations

import errno
import logging
from typing import Any, cast

import pytest
from xts_proxy.supervisor.heartbeat import Heartbeat, answers
from xts_proxy.supervisor.log import LOG
from xts_proxy.workers.workers import Worker


class Standing:
    """A worker as the heartbeat sees it."""

    index = 3

    def __init__(self) -> None:
        self.at = (0.0, "asleep")

    def pulse(self) -> tuple[float, str]:
        return self.at


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture
def lines() -> Any:
    handler = Lines()
    LOG.addHandler(handler)
    yield handler.lines
    LOG.removeHandler(handler)


def test_a_worker_that_stands_still_is_reported(lines: list[str]) -> None:
    standing = Standing()
    worker = cast("Worker", standing)
    heartbeat = Heartbeat([worker])
    for stands_s in (0.0, 0.4, 0.9):
        standing.at = (stands_s, "messages of queue 7")
        heartbeat.look()
    assert not lines and answers(worker) and heartbeat.figures(worker) == (0.0, 0)
    for stands_s in (1.2, 1.7, 2.2, 2.7):
        standing.at = (stands_s, "messages of queue 7")
        heartbeat.look()
    assert lines == [
        "worker 3: no progress for 1.2 s (messages of queue 7)",
        "worker 3: no progress for 2.7 s (messages of queue 7)",
    ]
    assert not answers(worker) and heartbeat.figures(worker) == (2.7, 1)
    standing.at = (0.0, "asleep")
    heartbeat.look()
    heartbeat.look()
    assert lines[2:] == ["worker 3: goes on after 2.7 s"]
    assert answers(worker) and heartbeat.figures(worker) == (0.0, 1)


def test_a_worker_whose_process_has_ended_is_the_supervisors_business(lines: list[str]) -> None:
    """The supervisor learns that from the process. The heartbeat ended in a traceback."""

    class Ended(Standing):
        def pulse(self) -> tuple[float, str]:
            raise OSError(errno.EPIPE, "it has ended")

    ended = cast("Worker", Ended())
    heartbeat = Heartbeat([ended, cast("Worker", Standing())])
    heartbeat.look()
    assert not lines and not answers(ended) and heartbeat.figures(ended) == (0.0, 0)


def test_other_errors_are_not_hidden() -> None:
    class Wrong(Standing):
        def pulse(self) -> tuple[float, str]:
            raise OSError(errno.EBADF, "a mistake of ours")

    with pytest.raises(OSError, match="a mistake of ours"):
        Heartbeat([cast("Worker", Wrong())]).look()
