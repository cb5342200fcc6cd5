"""An RDMA device that is removed: who listens there hears it, whoever has read the event."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from xts_messages.queues import rdma_cm

NAMES = SimpleNamespace(RDMA_CM_EVENT_CONNECT_REQUEST=1, RDMA_PS_TCP=0, RAI_PASSIVE=1)


class Manager:
    """The connection manager: what it says can be read at a descriptor, as from its own."""

    def __init__(self) -> None:
        self.ends = os.pipe()
        self.events: list[str] = []

    def say(self, name: str) -> None:
        self.events.append(name)
        os.write(self.ends[1], b".")

    def event(self, _channel: object) -> Any:
        os.read(self.ends[0], 1)
        name = self.events.pop(0)
        return SimpleNamespace(
            event_str=lambda: f"RDMA_CM_EVENT_{name}",
            event_type=int(name == "CONNECT_REQUEST"),
            private_data=rdma_cm.HELLO,
            ack_cm_event=lambda: None,
        )

    def module(self) -> ModuleType:
        made: Any = ModuleType("pyverbs.cmid")
        quiet = dict.fromkeys(("close", "disconnect", "bind_addr", "listen", "reject"), lambda *_: None)
        made.CMEventChannel = made.CMID = made.AddrInfo = lambda *_, **__: SimpleNamespace(**quiet)
        made.CMEvent = self.event
        return made  # type: ignore[no-any-return]


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    made = Manager()
    error: Any = ModuleType("pyverbs.pyverbs_error")
    error.PyverbsError = RuntimeError
    monkeypatch.setitem(sys.modules, "pyverbs.pyverbs_error", error)
    monkeypatch.setattr(rdma_cm, "_verbs", lambda: (made.module(), NAMES, NAMES))
    opened = iter([set(), {made.ends[0]}])
    monkeypatch.setattr(rdma_cm, "_opened_channels", lambda: next(opened))
    yield made
    for end in made.ends:
        os.close(end)


def test_a_listener_hears_it(manager: Manager) -> None:
    with rdma_cm.Listener("10.0.0.1", 7600) as listener:
        listener.check()
        manager.say("DEVICE_REMOVAL")
        with pytest.raises(OSError, match="the RDMA device was removed") as told:
            listener.request(0.0)
        assert told.value.errno == errno.ENODEV


def test_a_listener_knows_it_from_the_connection_that_has_read_it(manager: Manager) -> None:
    """The connection manager tells both. The connection reads the listener's event, and what is for itself goes with
    it: nothing more comes."""
    with rdma_cm.Listener("10.0.0.1", 7600) as listener:
        manager.say("CONNECT_REQUEST")
        request = listener.request(0.0)
        connection = rdma_cm.Connection(request._channel, request._ident)
        with connection:
            assert connection.look() == ""
            manager.say("DEVICE_REMOVAL")
            assert connection.look() == "the connection manager says DEVICE_REMOVAL"
        with pytest.raises(OSError, match="the RDMA device was removed") as told:
            listener.check()
        assert told.value.errno == errno.ENODEV
