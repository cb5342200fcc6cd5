"""A process ends while its channel is on its way to another proxy: this says nothing of that proxy, and the channel's
number is not free before the channel is back, and has ended here."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from xts_proxy.queues.shm_channels import ShmChannels
from xts_proxy.upgrade.giving import Giving

NUMBER = 3


class Channels:
    """Of one process."""

    def __init__(self, *, ended: bool) -> None:
        self.ended = ended
        self.did: list[str] = []

    def describe(self, queue_id: int, piece: Any) -> tuple[Any, list[int]]:
        return SimpleNamespace(queue_id=queue_id), []

    def has_ended(self, queue_id: int) -> bool:
        return self.ended

    def stays(self, queue_id: int) -> None:
        self.did.append("stays")

    def gone(self, queue_id: int) -> None:
        self.did.append("gone")

    def ends(self) -> dict[int, Any]:
        return {}


@pytest.mark.parametrize("ended", [False, True])
def test_a_channel_whose_process_has_ended_is_not_offered(ended: bool) -> None:
    channels, giving = Channels(ended=ended), Giving.__new__(Giving)
    made: Any = giving
    made._channels, made.reset, made.sockets, made.moved, made._broken = channels, 0, 0, 0, None

    async def offered(*_: Any) -> bool:
        channels.did.append("offered")
        return True

    made._offered = offered
    made._back = lambda *_: channels.did.append("back")
    piece: Any = SimpleNamespace(reset=0, sockets=0, last=True)
    assert asyncio.run(giving._give(NUMBER, SimpleNamespace(kept=[]), piece, []))  # type: ignore[arg-type]
    assert channels.did == (["back", "stays"] if ended else ["offered", "gone"])
    assert made._broken is None


def test_its_number_is_not_free_meanwhile() -> None:
    """Its process has ended, and workers do not have it. What has come back ends as any other."""
    worker: Any = SimpleNamespace(queue_ids=list, remove_channel=lambda number: None)
    client: Any = SimpleNamespace(queue_id=NUMBER, leaves=True, remove_at=1.0, close=lambda: None, worker=worker)
    channels = ShmChannels.__new__(ShmChannels)
    channels.clients = {NUMBER: client}
    channels._reap_of(worker, [client])
    assert channels.clients == {NUMBER: client}
    channels.stays(NUMBER)
    channels._reap_of(worker, [client])
    assert not channels.clients
