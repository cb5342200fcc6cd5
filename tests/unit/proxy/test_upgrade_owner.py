"""A channel has one owner while one proxy hands over to another, whatever the other one does or does not say: both
sides (giving.py, taking.py), each with a stand-in for what has queues. tests/model/direction.pml has the argument."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from xts_proxy.upgrade import giving, handover
from xts_proxy.upgrade.handover import (
    Begins,
    Channel,
    Done,
    GoesOn,
    Granted,
    Ready,
    Resumption,
    Takes,
    Wire,
    Yours,
    close_all,
)
from xts_proxy.upgrade.taking import GoesOnError, Taking, ask_to_take
from xts_proxy.workers.given_queue import PLAIN, Frames
from xts_proxy.workers.workers import Moved

WAIT_S = 10.0
QUEUE = 7
CHANNEL = Channel(QUEUE, "default", b"", b"", 1, 2, b"", (0, 0))
PIECE = Moved("default", b"", b"", 0, 0, True, 1, 2, b"", (0, 0), False)


@dataclass(eq=False)
class Queues:
    """What has queues, of either proxy. `events`: what became of the one."""

    events: list[str] = field(default_factory=list)
    here: bool = True
    problem: str = ""
    config: Any = field(default_factory=lambda: SimpleNamespace(proxy=SimpleNamespace(queue="shm")))
    tenants: Any = field(default_factory=lambda: SimpleNamespace(accounts={"default": None}))

    # the one that gives
    def parts(self) -> tuple[int, dict[str, int]]:
        return 0, {}

    def accept(self, accepts: bool) -> None:
        self.events.append(f"accepts {accepts}")

    def served(self) -> dict[int, Queues]:
        return {QUEUE: self} if self.here else {}

    def channels(self) -> list[dict[str, Any]]:
        return []

    def move_ask(self, *_: int) -> tuple[int, dict[str, int]]:
        return 0, {}

    def move_take(self, *_: int) -> tuple[Moved, list[int]]:
        return PIECE, []

    def describe(self, *_: Any) -> tuple[Channel, list[int]]:
        return CHANNEL, []

    def has_ended(self, _: int) -> bool:
        return False

    def stays(self, _: int) -> None: ...

    def life_fd(self, _: int) -> int:
        return -1

    def frames(self) -> Frames:
        return PLAIN

    def ends(self) -> dict[int, Any]:
        return {}

    def gone(self, _: int) -> None:
        self.events.append("gone")
        self.here = False

    def resume_channel(self, *_: Any, **__: Any) -> None:
        self.events.append("back")

    # the one that takes
    def reserve(self, _: tuple[int, ...]) -> None:
        pass

    def check_taken(self, *_: Any) -> None:
        if self.problem:
            raise OSError(self.problem)

    def take_over(self, *_: Any) -> None:
        self.events.append("serves")


def offered(monkeypatch: pytest.MonkeyPatch, answer: Any) -> tuple[list[str], list[object]]:
    """What becomes of the queue of a proxy that gives, and what it says after it has offered it. `answer`: what the
    new one does, with its wire."""
    monkeypatch.setattr(giving, "_ANSWER_S", 0.2)
    monkeypatch.setattr(giving, "QueueEnd", SimpleNamespace(unpack=lambda *_: None))
    queues, said = Queues(), []

    async def new(wire: Wire) -> None:
        await wire.hear()
        await wire.say(Ready(handover.VERSION))
        await wire.hear()
        resumption, memory = await wire.hear()
        assert resumption == Resumption(0)
        close_all(memory)
        assert (await wire.hear())[0] == CHANNEL
        try:
            await answer(wire)
            while True:
                said.append((await wire.hear())[0])
        except (EOFError, OSError):
            pass
        wire.close()

    async def both() -> None:
        one, other = socket.socketpair()
        ours = SimpleNamespace(child=SimpleNamespace(pidfd=sys.stderr.fileno()), give_resumption=lambda _: 0)
        gives = giving.Giving(one, queues, {}, 0.0, ours)  # type: ignore[arg-type]
        await asyncio.gather(gives.run(), new(Wire(other)))

    asyncio.run(asyncio.wait_for(both(), WAIT_S))
    return queues.events, said


def test_it_is_gone_when_the_new_one_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def takes(wire: Wire) -> None:
        await wire.say(Takes(QUEUE))

    assert offered(monkeypatch, takes) == (["accepts False", "gone"], [Yours(QUEUE), Done(0)])


def test_it_never_comes_back_from_one_that_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which may have served it before it ended."""

    async def takes_and_ends(wire: Wire) -> None:
        await wire.say(Takes(QUEUE))
        assert (await wire.hear())[0] == Yours(QUEUE)
        raise EOFError

    events, _ = offered(monkeypatch, takes_and_ends)
    assert "gone" in events and "back" not in events


def test_one_that_is_silent_for_too_long_is_told_that_it_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer comes when the queue has gone back."""

    async def answers_late(wire: Wire) -> None:
        assert isinstance((await wire.hear())[0], GoesOn)
        await wire.say(Takes(QUEUE))

    assert offered(monkeypatch, answers_late) == (["accepts False", "back", "accepts True"], [])


def test_one_that_refuses_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuses(wire: Wire) -> None:
        await wire.say(Takes(QUEUE, "no room"))

    events, said = offered(monkeypatch, refuses)
    assert events == ["accepts False", "back", "accepts True"]
    assert said == [GoesOn("queue 7: no room")]


# --- the one that takes -----------------------------------------------------------------------------------


@contextmanager
def running_proxy(directory: Path, *answers: handover.Said) -> Iterator[tuple[str, list[object]]]:
    """Where it can be asked, and what it has heard since it offered its queue. It says the answers, and ends."""
    heard: list[object] = []
    path = str(directory / "control")

    async def talk(sock: socket.socket) -> None:
        wire = Wire(sock)
        await wire.say(Granted(handover.VERSION, "shm", ()))
        await wire.hear()
        await wire.say(Begins((QUEUE,)))
        await wire.say(CHANNEL)
        heard.append((await wire.hear())[0])
        for answer in answers:
            await wire.say(answer)
        wire.close()

    def serve() -> None:
        sock, _ = listener.accept()
        assert json.loads(sock.recv(1000))["ask"] == "upgrade"
        sock.sendall(b'{"upgrade": "granted"}\n')
        asyncio.run(asyncio.wait_for(talk(sock), WAIT_S))

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        listener.settimeout(WAIT_S)
        serving = threading.Thread(target=serve)
        serving.start()
        yield path, heard
        serving.join()


def taken(path: str, queues: Queues) -> None:
    taking = Taking(ask_to_take(path))

    async def run() -> None:
        ours = SimpleNamespace(child=SimpleNamespace(pidfd=sys.stderr.fileno()), workers=[])
        await asyncio.wait_for(taking.run(queues, asyncio.Event(), ours), WAIT_S)  # type: ignore[arg-type]

    asyncio.run(run())


def test_nothing_is_served_before_it_is_its_own(tmp_path: Path) -> None:
    """The running one has ended, or does not say so."""
    queues = Queues()
    with running_proxy(tmp_path) as (path, heard):
        taken(path, queues)
    assert heard == [Takes(QUEUE)]
    assert queues.events == ["accepts True"]


def test_what_is_its_own_is_served(tmp_path: Path) -> None:
    queues = Queues()
    with running_proxy(tmp_path, Yours(QUEUE), Done(0)) as (path, _):
        taken(path, queues)
    assert queues.events == ["accepts True", "serves"]


def test_another_queue_is_not_what_was_offered(tmp_path: Path) -> None:
    queues = Queues()
    with running_proxy(tmp_path, Yours(QUEUE + 1)) as (path, _):
        taken(path, queues)
    assert queues.events == ["accepts True"]


def test_what_cannot_be_served_is_refused_before(tmp_path: Path) -> None:
    queues = Queues(problem="no room")
    with running_proxy(tmp_path, GoesOn("queue 7: no room")) as (path, heard), pytest.raises(GoesOnError) as found:
        taken(path, queues)
    assert heard == [Takes(QUEUE, "no room")] and queues.events == ["accepts True"]
    assert found.value.strerror == "the running proxy goes on: queue 7: no room"


def test_where_the_running_one_goes_on_it_ends(tmp_path: Path) -> None:
    """It has copies of what the other one serves."""
    queues = Queues()
    with running_proxy(tmp_path, GoesOn("the new proxy is silent")) as (path, _), pytest.raises(GoesOnError):
        taken(path, queues)
    assert queues.events == ["accepts True"]
