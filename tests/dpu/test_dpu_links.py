"""Two links between the emulated Arm machine and this one: a wire that loses frames, and a queue on each link."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from beds.dpu_machine import (
    SECOND,
    SECOND_CONFIGURATION,
    SECOND_CONTROL,
    SERVER_ADDRESS,
    SWITCHED_INTERFACE,
    SWITCHED_MAC,
    Dpu,
)
from beds.dpu_programs import PORT, ask, ends, running, says, transferred

pytestmark = [pytest.mark.long, pytest.mark.root, pytest.mark.afxdp, pytest.mark.timeout(4800)]
SECOND_STATUS = "--control", SECOND_CONTROL
LOSS_PERCENT = 2


@pytest.fixture
def lossy(dpu: Dpu) -> Iterator[Dpu]:
    """The second link, on which lost frames are sent again."""
    with dpu.second_proxy(reliable="on"):
        yield dpu


@pytest.fixture
def losing(lossy: Dpu) -> Iterator[str]:
    """The endpoint of an agent there. Both directions lose frames."""
    with lossy.agent("--reliable", "on", interface=SWITCHED_INTERFACE, peer_mac=SWITCHED_MAC) as endpoint:
        lossy.switch.lose(LOSS_PERCENT)
        try:
            yield endpoint
            lost = lossy.switch.lost()
        finally:
            lossy.switch.lose(0)
        assert all(lost.values()), f"a wire that has lost nothing: {lost}"


@pytest.mark.parametrize("count", [1_000_000, 8_000_000])
def test_bytes_over_a_wire_that_loses_frames(lossy: Dpu, losing: str, server: None, count: int) -> None:
    assert transferred(lossy, losing, count) == "the same"


def test_an_upgrade_over_such_a_wire_ends_no_connection(lossy: Dpu, losing: str, server: None) -> None:
    with running(lossy, losing, "ask.py", SERVER_ADDRESS, PORT) as process:
        assert (says(process), ask(process)) == ("there", "answered")
        lossy.run("xts-proxy", "--config", SECOND_CONFIGURATION, "upgrade", timeout_s=300)
        assert [ask(process) for _ in range(100)] == ["answered"] * 100, lossy.journal(SECOND)


def test_without_repeating_a_lost_frame_ends_what_it_belongs_to(dpu: Dpu, server: None) -> None:
    """So the wire is one that loses, and what the tests above see is the repeating."""
    with dpu.second_proxy(), dpu.agent(interface=SWITCHED_INTERFACE, peer_mac=SWITCHED_MAC) as endpoint:
        with running(dpu, endpoint, "ask.py", SERVER_ADDRESS, PORT) as process:
            assert (says(process), ask(process)) == ("there", "answered")
            dpu.switch.lose(50)
            try:
                answers = [ask(process) for _ in range(5)]
            finally:
                dpu.switch.lose(0)
            assert "ECONNRESET" in answers, answers
        assert transferred(dpu, endpoint, 100_000) == "the same"


def test_a_queue_on_each_link(dpu: Dpu, server: None) -> None:
    """Two functions with a queue each serve two programs, by two proxies. The third program hears that there is none,
    and has the queue of one that has ended."""
    second = "--interface", SWITCHED_INTERFACE, "--peer-mac", SWITCHED_MAC
    with dpu.second_proxy(), dpu.agent(*second) as endpoint, contextlib.ExitStack() as stack:
        made = [stack.enter_context(running(dpu, endpoint, "ask.py", SERVER_ADDRESS, PORT)) for _ in range(2)]
        assert [says(process) for process in made] == ["there"] * 2
        assert [ask(process) for process in made] == ["answered"] * 2
        for options in ((), SECOND_STATUS):
            assert sum(worker["connections"] for worker in dpu.status(*options)["workers"]) == 1
        refused = transferred(dpu, endpoint, 1)
        assert "all 2 queues of xts0, xts1 are in use" in refused, refused
        assert [ask(process) for process in made] == ["answered"] * 2
        ends(made[0])
        assert transferred(dpu, endpoint, 100_000) == "the same"
        assert ask(made[1]) == "answered"
