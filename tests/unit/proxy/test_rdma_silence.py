"""An agent over RDMA from which nothing comes any more has gone, whatever its connection manager says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from xts_proxy.queues import rdma_channels
from xts_proxy.queues.rdma_acceptor import Refused
from xts_proxy.queues.rdma_channels import LOOK_S, SILENT_S, RdmaChannels
from xts_proxy.queues.rdma_place import Place


class Acceptor:
    def __init__(self) -> None:
        self.ended = 0
        self.why = ""

    def end(self, why: str) -> None:
        self.ended += 1
        self.why = why


class Worker:
    """Its trunk has brought so many frames; None: it has no channel."""

    def __init__(self) -> None:
        self.frames: int | None = 0

    def channels(self) -> list[dict[str, Any]]:
        behind = {"queue_id": 0, "relayed": 3, "queue": {"rx_frames": 999}}
        trunk = {"queue_id": 0, "relayed": 0, "queue": {"rx_frames": self.frames}}
        return [behind] if self.frames is None else [behind, trunk]


@pytest.mark.parametrize("frames", [7, None])
def test_who_is_silent_ends_and_who_pings_stays(monkeypatch: pytest.MonkeyPatch, frames: int | None) -> None:
    monkeypatch.setattr(rdma_channels, "answers", lambda _: True)
    channels, acceptor, worker = object.__new__(RdmaChannels), Acceptor(), Worker()
    place = Place(0, acceptor, None, problem="", peer="10.0.0.1")  # type: ignore[arg-type]
    channels._places, channels._workers, channels._timers = [place], [worker], set()  # type: ignore[list-item]

    async def look(now_s: float) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
        channels._end_silent()
        for timer in channels._timers:
            timer.cancel()

    for second in range(100):  # it pings
        worker.frames = second + 1
        asyncio.run(look(float(second)))
    assert not acceptor.ended
    worker.frames = frames
    asyncio.run(look(100.0))
    asyncio.run(look(100.0 + SILENT_S - 1))
    assert not acceptor.ended
    asyncio.run(look(100.0 + SILENT_S))
    assert acceptor.ended == 1
    place.peer = ""  # it has ended
    asyncio.run(look(100.0 + 3 * SILENT_S))
    assert acceptor.ended == 1


def test_a_silent_host_that_asks_again_ends_its_old_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was booted. Another that asks changes nothing, and neither does one whose relay pings."""
    monkeypatch.setattr(rdma_channels, "answers", lambda _: True)
    channels, acceptor, worker = object.__new__(RdmaChannels), Acceptor(), Worker()
    place = Place(0, acceptor, None, problem="", peer="10.0.0.1")  # type: ignore[arg-type]
    channels._places, channels._workers, channels._timers = [place], [worker], set()  # type: ignore[list-item]

    async def look(now_s: float, asks: str = "") -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now_s)
        if asks:
            channels._refused(place, Refused(asks, "another agent has this queue"))
        channels._end_silent()
        for timer in channels._timers:
            timer.cancel()

    worker.frames = 1
    asyncio.run(look(100.0))
    asyncio.run(look(100.0 + 2 * LOOK_S, "10.0.0.2"))
    worker.frames = 2
    asyncio.run(look(100.0 + 3 * LOOK_S, "10.0.0.1"))
    asyncio.run(look(100.0 + 5 * LOOK_S))
    assert not acceptor.ended
    asyncio.run(look(100.0 + 6 * LOOK_S, "10.0.0.1"))
    assert acceptor.ended == 1
    assert acceptor.why == "nothing has come for 15 s from 10.0.0.1, which asks for another connection"
