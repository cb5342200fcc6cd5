"""The agent's relay where the proxy does not serve it: the reason is told, and queues are given as ever."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator

import pytest
from beds.running_agent import NOBODY, Running, start_agent, stop
from beds.veth_wire import Wire
from xts_bpf.device import open_device_queues
from xts_messages.attaching.attach import attach
from xts_messages.wire import codec
from xts_messages.wire.wire_table import FEATURES

pytestmark = [pytest.mark.root, pytest.mark.afxdp]


@pytest.fixture
def running(wire: Wire, folder: str) -> Iterator[Running]:
    """An agent with one queue for processes, and one for its relay."""
    endpoint = f"{folder}/endpoint.sock"
    agent = start_agent(wire, endpoint, "--queues", "2", "--relayed-max", "4")
    with wire.inside(wire.device):
        device = open_device_queues(wire.device_if, 8, wire.host_mac)
    with device:
        served = Running(wire, agent, endpoint, device)
        yield served
        assert stop(served.agent) == 0


def refusal(running: Running, said: str) -> str:
    """What a process is told that gets neither queue nor place, once that says so."""
    deadline = time.monotonic() + 20
    while True:
        with pytest.raises(OSError, match=r"in use|became free") as refused:
            attach(running.endpoint)
        if said in str(refused.value):
            assert refused.value.errno == errno.EUSERS
            return str(refused.value)
        assert time.monotonic() < deadline, str(refused.value)


def test_no_proxy(running: Running) -> None:
    with running.echo(uid=NOBODY) as (_, _, queue_id):
        running.exchange(queue_id, 60)
        assert "all 1 queues of xts0 are in use; there is no relay (the proxy does not answer)" in refusal(
            running, "no relay"
        )


def test_a_proxy_that_knows_no_relays(running: Running) -> None:
    """It answers HELLO as one of an earlier version does that lacks a required feature."""
    with running.echo(uid=NOBODY) as (_, _, queue_id):
        relays = running.device.queues[1 - queue_id]
        hello = None
        while hello is None:
            frame = relays.wait(5000)
            found = codec.decode(bytes(frame))
            frame.recycle()
            hello = found if found.name == "XTS_LINK_HELLO" else None
        assert hello.fields["required"] == FEATURES["RELAY"][0]
        answer = codec.Frame(
            "XTS_LINK_HELLO_ACK",
            {"version": 1, "frame_window": 64, "largest_message": 61440, "epoch": hello.fields["epoch"]},
            error=errno.EOPNOTSUPP,
            destination=running.wire.host_mac,
            source=running.wire.device_mac,
        )
        relays.send(codec.encode(answer))
        refusal(running, "the proxy does not serve relays: it is older, or has relayed_max = 0")
        running.exchange(queue_id, 60)
