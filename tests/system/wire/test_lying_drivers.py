"""Zero copy that a driver has, refuses, or only says that it has: the lab's cards answer in a driver's place."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from beds.lab import raise_or_skip
from beds.lab_processes import attached, echo_server
from beds.metrics import scrape, value
from beds.running_agent import until
from xts_lab import card, topology
from xts_lab.card import ZERO_COPY_BITS, Behaviour
from xts_lab.lab import Lab
from xts_lab.wire import Wire
from xts_messages.attaching.attach import list_queues

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

QUEUES = 2
WAIT_S = 20.0
HAS_IT = Behaviour(xdp_bits=ZERO_COPY_BITS, buffers=17)
LIES = Behaviour(xdp_bits=ZERO_COPY_BITS, buffers=17, moves=False)
REFUSES = Behaviour(xdp_bits=ZERO_COPY_BITS, buffers=17, bind_errno=errno.EINVAL)
SAYS = "the driver veth says that it has zero copy, and "
MOVED_NOTHING = "moved no frame on queue 0 with it, or the other end answers no more"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    raised = raise_or_skip("afxdp", "zerocopy", queues=QUEUES, metrics=True, wire=Wire.SWITCH)
    try:
        yield raised
    finally:
        assert not raised.down()


def copying(lab: Lab) -> str:
    (offered,) = list_queues(str(lab.endpoint))
    return "" if offered.lacking else offered.copying


def again(lab: Lab, program: str, behaviour: Behaviour) -> None:
    """Starts the agent or the proxy again, over a card that behaves so."""
    end = topology.HOST_XTS if program == "agent" else topology.DPU_XTS
    lab.stop_program(program)
    card.behave(lab.card, end.interface, behaviour)
    (lab.start_agent if program == "agent" else lab.start_proxy)()


def metric(lab: Lab, program: str, name: str) -> float:
    return value(scrape(lab.metrics_path(program)), name)


def echoes(lab: Lab) -> None:
    with ExitStack() as stack:
        process = attached(lab, stack.enter_context(echo_server(lab)), stack)
        assert process.says().startswith("ok") and process.again().startswith("ok")


@pytest.mark.parametrize(
    ("behaviour", "says", "zero_copy", "fallbacks"),
    [
        (HAS_IT, "zero copy: the driver veth has it, and a frame has up to 17 buffers", QUEUES, 0),
        (LIES, f"copy mode: {SAYS}{MOVED_NOTHING}", 0, 1),
    ],
    ids=["has it", "lies"],
)
def test_the_host(lab: Lab, behaviour: Behaviour, says: str, zero_copy: int, fallbacks: int) -> None:
    again(lab, "agent", behaviour)
    until(lambda: copying(lab) == says, WAIT_S)
    until(lambda: metric(lab, "agent", "xts_agent_zero_copy_queues") == zero_copy, WAIT_S)
    assert metric(lab, "agent", "xts_agent_copy_fallbacks_total") == fallbacks
    echoes(lab)
    for verb in (["status"], ["doctor", "--json"]):
        shown = lab.run("host", ["xts", *verb], capture_output=True, text=True)
        assert says in shown.stdout, shown.stdout


def status(lab: Lab, *options: str) -> str:
    return str(lab.run("dpu", ["xts-proxy", "status", *options], capture_output=True, text=True).stdout)


@pytest.mark.parametrize(
    ("behaviour", "says", "zero_copy", "fallbacks"),
    [
        (LIES, f"copy mode: {SAYS}{MOVED_NOTHING}", 0, 1),
        (REFUSES, f"copy mode: {SAYS}refuses it (Invalid argument)", 0, 1),
    ],
    ids=["lies", "refuses"],
)
def test_the_device(lab: Lab, behaviour: Behaviour, says: str, zero_copy: int, fallbacks: int) -> None:
    """It proves its queues by the host's program, which is there."""
    again(lab, "proxy", behaviour)
    found = json.loads(status(lab, "--json"))["interface"]
    assert (found["copying"], found["zero_copy"], found["copy_fallbacks"]) == (says, zero_copy, fallbacks)
    assert says in status(lab)
    assert metric(lab, "proxy", "xts_interface_zero_copy_queues") == zero_copy
    until(lambda: copying(lab), WAIT_S)
    echoes(lab)
