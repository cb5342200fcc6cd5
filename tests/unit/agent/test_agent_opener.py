"""The agent's opener, with a kernel made by hand: what it does with a queue that is not free yet."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from xts_agent import privileged_opener
from xts_agent.config import AgentConfig
from xts_agent.privileged_opener import Opener, _Queue


class Kernel:
    """A queue whose socket was just closed: it answers EBUSY so many times before it is free."""

    def __init__(self, busy: int, held: bool = False) -> None:
        self.busy = busy
        self.held = held
        self.opened = 0
        self.tried = 0

    def is_busy(self, _interface: str, _queue: int) -> bool:
        return self.held

    def open_socket(self, *_: object, **__: object) -> Any:
        self.tried += 1
        if self.held or self.tried <= self.busy:
            raise OSError(errno.EBUSY, "busy")
        self.opened += 1
        return SimpleNamespace()


@pytest.fixture
def opener_on(monkeypatch: pytest.MonkeyPatch) -> Callable[[Kernel], Opener]:
    def make(kernel: Kernel) -> Opener:
        monkeypatch.setattr(privileged_opener, "is_busy", kernel.is_busy)
        made = Opener.__new__(Opener)
        made.config = AgentConfig(interface="x0", peer_mac="02:00:00:00:00:02", endpoint="/nonexistent")
        made._kept = SimpleNamespace(name="x0")  # type: ignore[assignment]
        made._binder = SimpleNamespace(open=kernel.open_socket)  # type: ignore[assignment]
        made._steered = None
        return made

    return make


@pytest.fixture
def no_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileged_opener.time, "sleep", lambda _: None)


@pytest.mark.usefixtures("no_sleep")
def test_a_queue_found_free_is_waited_for(opener_on: Callable[[Kernel], Opener]) -> None:
    """The socket that finds it free has it for a moment itself: giving up then would find it busy each time."""
    kernel = Kernel(busy=3)
    assert opener_on(kernel)._open_socket(_Queue(0, busy=True)) is not None
    assert (kernel.tried, kernel.opened) == (4, 1)


def test_a_held_queue_is_told_at_once(opener_on: Callable[[Kernel], Opener]) -> None:
    kernel = Kernel(busy=0, held=True)
    for busy in (True, False):
        with pytest.raises(OSError, match=r"socket already|busy") as refused:
            opener_on(kernel)._open_socket(_Queue(0, busy=busy))
        assert refused.value.errno == errno.EBUSY
    assert kernel.tried == 1, "the costly way only when it was not found busy before"


@pytest.mark.usefixtures("no_sleep")
def test_waiting_has_an_end(opener_on: Callable[[Kernel], Opener], monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr(privileged_opener.time, "monotonic", lambda: next(now) / 4)
    kernel = Kernel(busy=1000)
    with pytest.raises(OSError, match="busy"):
        opener_on(kernel)._open_socket(_Queue(0, busy=True))
    assert 2 <= kernel.tried <= 6
