"""Wires on which only queue 0 can be used, or none: without a key, and over a bridge that nobody has rules for."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import ExitStack, closing

import pytest
from beds.lab import raise_or_skip
from beds.lab_processes import attached, echo_server
from beds.running_agent import until
from xts_bpf.steering import UNANSWERED
from xts_lab.lab import Lab, LabError
from xts_lab.privilege import afxdp_unavailable
from xts_lab.wire import Wire
from xts_messages.attaching.attach import list_queues

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

QUEUES = 3
WAIT_S = 20.0
#: In a lab with a switch.
PROVED_EVERY_S = 1.0


def steering_of(lab: Lab) -> str:
    (offered,) = list_queues(str(lab.endpoint))
    assert offered.lacking == QUEUES - 1
    return offered.steering


def test_without_a_key_there_is_one_queue_and_the_relay() -> None:
    """Whoever has a queue could open the link of another's."""
    lab = raise_or_skip("afxdp", "keyless", queues=QUEUES, wire=Wire.SWITCH, tokens=False, relayed_max=None)
    with closing(_Down(lab)), ExitStack() as stack:
        assert steering_of(lab).startswith("only one queue of xts0 is used: without token_key")
        port = stack.enter_context(echo_server(lab))
        assert [attached(lab, port, stack).says() for _ in range(QUEUES)] == ["ok relay 0"] * QUEUES


def test_a_bridge_that_nobody_has_rules_for() -> None:
    """The receiving end chooses the queue of a frame, by a hash that is another one after each start of the machine. If
    it is not queue 0, the lab says what the agent has found out; if it is, one queue is there, and the relay."""
    try:
        lab = raise_or_skip("afxdp", "bridge", queues=QUEUES, wire=Wire.BRIDGE, relayed_max=None)
    except LabError as error:
        assert re.search(r"3 of 3 queues of xts0 are not used: frames for queue \d of", str(error))
        return
    with closing(_Down(lab)), ExitStack() as stack:
        assert re.search(r"2 of 3 queues of xts0 are not used: frames for queue \d of", steering_of(lab))
        port = stack.enter_context(echo_server(lab))
        assert [attached(lab, port, stack).says() for _ in range(QUEUES)] == ["ok relay 0"] * QUEUES


def test_a_bridge_between_interfaces_with_one_queue() -> None:
    """Nothing is there to choose. The relay serves all processes."""
    lab = raise_or_skip("afxdp", "bridge1", queues=1, wire=Wire.BRIDGE, relayed_max=8)
    with closing(_Down(lab)), ExitStack() as stack:
        (offered,) = list_queues(str(lab.endpoint))
        assert (offered.lacking, offered.steering) == (0, "the only queue needs no rule, and was proved by a frame")
        port = stack.enter_context(echo_server(lab))
        processes = [attached(lab, port, stack) for _ in range(QUEUES)]
        assert [one.says() for one in processes] == ["ok relay 0"] * QUEUES
        assert [one.again() for one in processes] == ["ok relay 0"] * QUEUES


class OlderDevice(Lab):
    """A lab whose proxy knows neither addresses nor heads."""

    def proxy_configuration(self) -> str:
        return super().proxy_configuration().replace('steering = "address"', 'steering = "none"')


def test_a_device_that_knows_no_addresses() -> None:
    """As a proxy from before there were addresses and heads: one queue works, also while the agent asks whether it has
    been replaced. When it has been, all do."""
    if reason := afxdp_unavailable():
        pytest.skip(reason)
    lab = OlderDevice(f"t{os.getpid()}older", queue="afxdp", queues=QUEUES, wire=Wire.SWITCH, relayed_max=8)
    lab.up()
    with closing(_Down(lab)), ExitStack() as stack:
        assert steering_of(lab) == UNANSWERED.format(interface="xts0")
        port = stack.enter_context(echo_server(lab))
        before = [attached(lab, port, stack) for _ in range(QUEUES)]
        assert [one.says() for one in before] == ["ok relay 0"] * QUEUES
        asked_again = time.monotonic() + 2.5 * PROVED_EVERY_S
        while time.monotonic() < asked_again:
            assert [one.again() for one in before] == ["ok relay 0"] * QUEUES
        (lab.directory / "proxy.toml").write_text(Lab.proxy_configuration(lab))
        lab.stop_program("proxy")
        lab.start_proxy()
        until(lambda: not any(one.lacking for one in list_queues(str(lab.endpoint))), WAIT_S)
        for one in before:
            until(lambda one=one: one.again().startswith("ok"), WAIT_S)  # type: ignore[misc]
        assert sorted(one.again().split()[1] for one in before) == ["afxdp"] * (QUEUES - 1) + ["relay"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_next_agent_leaves_queues_to_who_has_them(number: int) -> None:
    """Their frames have the secrets that an earlier agent has given: its processes and its relay go on."""
    lab = raise_or_skip("afxdp", "again", queues=QUEUES, wire=Wire.SWITCH, relayed_max=8)
    with closing(_Down(lab)), ExitStack() as stack:
        port = stack.enter_context(echo_server(lab))
        processes = [attached(lab, port, stack) for _ in range(QUEUES)]
        before = [one.says() for one in processes]
        assert sorted(one.split()[1] for one in before) == ["afxdp"] * (QUEUES - 1) + ["relay"]
        agent = lab.record("agent")
        assert agent
        os.kill(agent.pid, number)
        until(lambda: not agent.alive, WAIT_S)
        lab.start_agent()
        until(lambda: not any(one.lacking for one in list_queues(str(lab.endpoint))), WAIT_S)
        assert [one.again() for one in processes] == before


class _Down:
    """Takes a lab down."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def close(self) -> None:
        assert not self.lab.down()
