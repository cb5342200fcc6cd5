"""Who asks for a place at the relay while there is none: who waits, for what, and who is refused."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xts_agent.relay import TRY_S, Relay
from xts_messages.attaching.attachments import NotReady, Peer
from xts_messages.native import ffi, lib

SILENT, REFUSED = errno.ETIMEDOUT, errno.EOPNOTSUPP


@dataclass
class NoPool:
    """A pool whose queues are all in use but the relay's."""

    interface: str = "xts0"
    problem: str = ""
    reserved: int = 0
    released: list[Any] = field(default_factory=list)

    def exhausted(self) -> bool:
        return True

    def gone_unsaid(self) -> bool:
        return False

    def release(self, slot: Any) -> None:
        self.released.append(slot)


def peer(pid: int) -> Peer:
    return Peer(pid, 1000, 1000, "test", 0, 0)


class Tried:
    """A relay whose tries end as told."""

    def __init__(self, *, unasked: bool) -> None:
        self.pool = NoPool()
        self.relay = Relay(cast(Any, self.pool), None, 4, cast(Any, None), cast(Any, None), lambda _: None, unasked)

    def try_ends(self, error: int, *, up: bool = False, killed: bool = False) -> None:
        """The proxy has not answered, or has refused it. It may have been `up`, or end without a word."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self.relay.control, self.relay.slot = ours, cast(Any, SimpleNamespace(queue_id=7))
        reports = [(lib.XTS_RELAY_UP, 0)] * up + [(lib.XTS_RELAY_DOWN, error)] * (not killed)
        with theirs:
            for what, number in reports:
                report = ffi.new("struct xts_relay_report *", {"what": what, "error": number})
                theirs.send(bytes(ffi.buffer(report)))
        while self.relay.control:
            assert self.relay.collect()

    def ask(self, pid: int) -> str:
        """Returns "" if the process waits, else why it is refused."""
        try:
            self.relay.grant(peer(pid), 1, "", "")
        except NotReady as soon:
            assert soon.wait_s == TRY_S, "longer than a try takes, which the endpoint's patience is not"
            return ""
        except OSError as refused:
            assert refused.errno == errno.EUSERS
            return str(refused.strerror)
        raise AssertionError


@pytest.mark.parametrize(
    "error, why", [(SILENT, "the proxy does not answer"), (errno.ECONNREFUSED, "Connection refused")]
)
@pytest.mark.parametrize("unasked", [False, True])
def test_a_proxy_that_was_not_there_may_be_by_now(unasked: bool, error: int, why: str) -> None:
    """It was silent, or, over RDMA, took no connections. Each process waits for one try. The relay's queue stays the
    relay's."""
    tried = Tried(unasked=unasked)
    tried.try_ends(error)
    assert tried.ask(1) == ""
    assert tried.relay.timeout_s() is None  # there is no keeper here
    assert tried.pool.reserved == 1
    assert tried.ask(1) == "", "it is asked again when anything happens"
    tried.try_ends(error)
    assert tried.ask(2) == "", "it has come since"
    assert tried.ask(1) == f"there is no relay ({why})"
    tried.try_ends(error)
    assert tried.ask(2)
    assert tried.ask(1) == "", "this is another request"


def test_who_asked_during_the_first_try_is_refused_with_it() -> None:
    tried = Tried(unasked=False)
    assert tried.ask(1) == ""
    tried.try_ends(SILENT)
    assert tried.ask(1)


@pytest.mark.parametrize("unasked", [False, True])
def test_nobody_waits_for_a_proxy_that_serves_no_relays(unasked: bool) -> None:
    tried = Tried(unasked=unasked)
    tried.try_ends(REFUSED)
    assert "does not serve relays" in tried.ask(1)
    if unasked:
        assert tried.pool.reserved == 0


def test_a_proxy_that_is_silent_and_then_refuses() -> None:
    tried = Tried(unasked=False)
    tried.try_ends(SILENT)
    assert tried.ask(1) == ""
    tried.try_ends(REFUSED)
    assert "does not serve relays" in tried.ask(1)
    assert "does not serve relays" in tried.ask(2)


def test_why_there_is_none_is_told_when_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    """It is tried again every few seconds, for ever: the log has a line for each reason, and not for each try."""
    tried = Tried(unasked=False)

    def told() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return lines

    for turn in range(3):
        tried.try_ends(SILENT)
        assert len(told()) == (not turn)
    for turn in range(3):
        tried.try_ends(REFUSED)
        assert len(told()) == (not turn)
    for turn in range(3):
        tried.try_ends(0, killed=True)
        assert told() == ([] if turn else ["no relay on xts0: its process has ended; trying again every 1 s"])
    tried.try_ends(SILENT, up=True)
    assert "has ended (the proxy does not answer any more)" in told()[-1]
    tried.try_ends(0, killed=True)
    assert len(told()) == 1, "since it was up, this is new"
    tried.try_ends(0, up=True, killed=True)
    assert "has ended (it was killed)" in told()[-1]
