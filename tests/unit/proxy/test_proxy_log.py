"""What the proxy's workers say reaches the log, but not in floods."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator

import pytest
from xts_messages.services.log_format import fields_of
from xts_messages.terminal.printable import printable
from xts_proxy.supervisor.log import LINES_PER_S, LOG, Budget, WorkerLog
from xts_proxy.tenants.limit_refusals import RefusalLog
from xts_proxy.tls.key_lateness import KeyLog


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


def test_lines_of_workers_say_what_they_are_about() -> None:
    kept: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(record)

    class Teller(Chatterbox):
        def log_lines(self, lines_max: int) -> list[str]:
            return ["tenant web: queue 7: closed", "tenant web: 3 lines suppressed", "worker: scheduled as others"]

    async def run() -> None:
        worker = Teller()
        WorkerLog(asyncio.get_running_loop(), worker).close()
        os.close(worker.readable)

    before, LOG.handlers[:], level = list(LOG.handlers), [Keep()], LOG.level
    LOG.setLevel("INFO")
    asyncio.run(run())
    LOG.handlers[:] = before
    LOG.setLevel(level)
    assert [fields_of(record) for record in kept] == [
        {"worker": 3, "tenant": "web", "queue": 7},
        {"worker": 3, "tenant": "web"},
        {"worker": 3},
    ]


def test_refusals_are_summed_up_by_tenant_and_limit(lines: list[str]) -> None:
    def account(**refused: int) -> dict[str, dict[str, int]]:
        counts = {"connections": 0, "kept": 0, "handshakes": 0, "spill_bytes": 0} | refused
        pools = {"memory": counts.pop("memory", 0), "descriptors": 0}
        return {"refused": counts, "pool_refused": pools}

    accounts = {"web": account(), "mail": account(handshakes=2)}
    log = RefusalLog(lambda: accounts)
    log.look()
    assert lines == ["tenant mail: refused 2 times because of limits: 2 by limits.handshakes"]
    lines.clear()
    log.look()
    assert lines == [], "only what has been added"
    accounts = {"web": account(connections=1000, kept=5, memory=3), "mail": account(handshakes=2)}
    log.look()
    assert lines == [
        "tenant web: refused 1008 times because of limits: 1005 by limits.connections, "
        "3 by what others have left of the device's memory"
    ]
    lines.clear()
    accounts = {}
    log.look()
    assert lines == []


def test_a_key_process_that_is_slow_is_told_and_so_is_the_end_of_it(lines: list[str]) -> None:
    counts = {"keys_late": 0, "keys_late_now": 0, "other": 7}
    log = KeyLog(lambda: counts)
    log.look()
    assert lines == []
    counts |= {"keys_late": 3, "keys_late_now": 2}
    log.look()
    counts |= {"keys_late_now": 1}
    log.look()
    counts |= {"keys_late_now": 0}
    log.look()
    log.look()
    assert [line.partition(":")[2].partition(";")[0] for line in lines[:2]] == [
        " 3 requests not answered within a second, of all 2 that still wait",
        " 0 requests not answered within a second, of all 1 that still wait",
    ]
    assert lines[2:] == ["xts-keys answers in time again"]
    lines.clear()
    counts = {}
    log.look()
    assert lines == []
