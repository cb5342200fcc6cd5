"""What the proxy's workers say reaches the log, but not in floods."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator

import pytest
from xts_messages.printable import printable
from xts_proxy.log import LINES_PER_S, LOG, Budget, WorkerLog


class Chatterbox:
    """A worker that never runs out of lines."""

    index = 3

    def __init__(self) -> None:
        self.readable, writable = os.pipe()
        os.write(writable, b"x")
        os.close(writable)

    def log_fd(self) -> int:
        return self.readable

    def log_lines(self, lines_max: int) -> list[str]:
        return ["again"] * lines_max


@pytest.fixture
def lines() -> Iterator[list[str]]:
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    before, LOG.handlers[:], level = list(LOG.handlers), [Keep()], LOG.level
    LOG.setLevel("INFO")
    yield found
    LOG.handlers[:] = before
    LOG.setLevel(level)


def test_a_flood_is_cut_each_second(lines: list[str]) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        worker = Chatterbox()
        relay = WorkerLog(loop, worker)
        begun = loop.time()
        while len(lines) <= LINES_PER_S:
            assert loop.time() < begun + 10
            await asyncio.sleep(0.01)
        assert loop.time() - begun >= 1
        count = len(lines)
        relay.close()
        assert len(lines) <= count + LINES_PER_S
        os.close(worker.readable)

    asyncio.run(run())
    assert set(lines) == {"worker 3: again"}


def test_names_cannot_act_on_a_terminal() -> None:
    assert printable("gürke 1\n\x1b[2J\u202e") == "gürke 1??[2J?"


def test_lines_about_one_tenant_are_cut_and_told(monkeypatch: pytest.MonkeyPatch, lines: list[str]) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    budget = Budget(lines_per_s=3)
    for i in range(10):
        budget.log(logging.INFO, "web", f"line {i}")
    assert lines == ["line 0", "line 1", "line 2"]
    now = 101.0
    budget.log(logging.INFO, "web", "later")
    assert lines[3:] == ["tenant web: 7 lines suppressed", "later"]
