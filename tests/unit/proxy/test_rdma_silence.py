"""An agent over RDMA from which nothing comes any more has gone, whatever its connection manager says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from xts_proxy.queues import rdma_channels
from xts_proxy.queues.rdma_channels import SILENT_S, RdmaChannels, _Place


class Acceptor:
    def __init__(self) -> None:
        self.ended = 0

    def end(self) -> None:
        self.ended += 1


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
    place = _Place(0, acceptor, problem="", peer="10.0.0.1")  # type: ignore[arg-type]
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
