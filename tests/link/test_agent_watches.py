"""What is under the agent changes while it runs: its interface leaves and returns, its XDP program is taken off, the
MTU is lowered. The agent mends it by itself; until then processes hear what is wrong."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from beds.running_agent import Running, start_agent, stop, take, until
from beds.veth_wire import Wire, join
from pyroute2 import NetNS, netns
from xts_bpf.device import DeviceQueues, open_device_queues
from xts_bpf.interface_state import InterfaceState, read_state
from xts_bpf.kept_interface import MTU_LEAST
from xts_bpf.program import SteerProgram
from xts_messages.attaching.attach import Attachment, attach, list_queues

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

BACK_S = 10.0  # generous: the machine may be busy


def state_of(wire: Wire, name: str = "") -> InterfaceState:
    with wire.inside(wire.host):
        found = read_state(name or wire.host_if)
    assert found
    return found


def set_link(wire: Wire, name: str = "", **what: object) -> None:
    with NetNS(wire.host) as host:
        host.link("set", index=state_of(wire, name).index, **what)


def remove(wire: Wire) -> None:
    with NetNS(wire.host) as host:
        host.link("del", index=state_of(wire).index)


def reason(endpoint: str) -> str:
    """Why there is no queue now."""
    with pytest.raises(OSError, match=r".") as refused:
        attach(endpoint).close()
    assert refused.value.errno == errno.ENETDOWN, refused.value
    return str(refused.value)


def refused_for(endpoint: str, words: str) -> None:
    """Sooner or later a process hears this, and no wrong reason before it."""

    def says() -> bool:
        try:
            attach(endpoint).close()
        except OSError as error:
            assert error.errno == errno.ENETDOWN, error
            return words in str(error)
        return False

    until(says, BACK_S)


def attached_at_last(endpoint: str) -> Attachment:
    deadline = time.monotonic() + BACK_S
    while True:
        try:
            return attach(endpoint)
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


@contextlib.contextmanager
def device_of(wire: Wire) -> Iterator[DeviceQueues]:
    with ExitStack() as stack:
        with wire.inside(wire.device):
            opened = open_device_queues(wire.device_if, 2, wire.host_mac)
        yield stack.enter_context(opened)


def exchange(wire: Wire, device: DeviceQueues, attachment: Attachment, size: int = 20_000) -> None:
    """A frame each way."""
    far = device.queues[attachment.queue_id]
    while (old := far.receive()) is not None:  # GOODBYE for processes before
        old.recycle()
    near = attachment.queue
    out = (wire.device_mac + wire.host_mac + b"\x85\x5b" + os.urandom(10)).ljust(size, b"o")
    near.send(out)
    assert take(far) == out
    back = (wire.host_mac + wire.device_mac + b"\x85\x5b" + os.urandom(10)).ljust(size, b"b")
    far.send(back)
    assert take(near) == back


def ended(attachment: Attachment) -> bool:
    """Was the process told that its queue has ended?"""
    poll = select.poll()
    poll.register(attachment, select.POLLIN)
    return bool(poll.poll(BACK_S * 1000))


def take_program_off(wire: Wire) -> None:
    set_link(wire, xdp_fd=-1)


def test_a_program_that_is_taken_off_is_attached_again(running: Running) -> None:
    """Those that have a queue keep it."""
    wire, program = running.wire, state_of(running.wire).program_id
    assert program
    with running.echo() as (_, _, queue_id):
        running.exchange(queue_id, 60)
        take_program_off(wire)
        until(lambda: state_of(wire).program_id == program, BACK_S)
        running.exchange(queue_id, 60)
    (told,) = list_queues(running.endpoint)
    assert (told.program_id, told.problem) == (program, "")
    assert running.logged().count("was taken off xts0 by another tool, and is attached again") == 1


def test_a_tool_that_takes_it_off_again_and_again(running: Running) -> None:
    """It is not fought for ever: we wait longer each time, and say so."""
    wire = running.wire
    until_s = time.monotonic() + 4
    while time.monotonic() < until_s:
        if state_of(wire).program_id:
            take_program_off(wire)
        time.sleep(0.01)
    assert "taken off xts0 again and again by another tool" in reason(running.endpoint)
    log = running.logged()
    assert 2 <= log.count("is attached again\n") <= 4, "at once, at once, and after 1 s and 2 s"
    assert log.count("again and again") <= 4
    attached_at_last(running.endpoint).close()


def test_another_program_in_its_place(running: Running) -> None:
    wire = running.wire
    with attach(running.endpoint) as attachment:
        with wire.inside(wire.host):
            other = SteerProgram(wire.host_if, wire.device_mac)
        try:
            assert ended(attachment), "it would receive nothing any more"
            refused_for(running.endpoint, f"xts0 has XDP program {other.program_id} in place of ours")
            (told,) = list_queues(running.endpoint)
            assert f"program {other.program_id} in place" in told.problem
            assert state_of(wire).program_id == other.program_id, "it is not replaced"
        finally:
            with wire.inside(wire.host):
                other.close()
    with attached_at_last(running.endpoint) as again:
        exchange(wire, running.device, again)
    log = running.logged()
    assert log.count("in place of ours, and its queues carry nothing") == 2, "when it was seen, and to whom it was told"
    assert log.count("xts0 serves again") == 1


@pytest.mark.parametrize("running", [["--queues", "2", "--relayed-max", "0"]], indirect=True)
def test_an_interface_that_is_made_again(running: Running) -> None:
    """With another number and another address."""
    wire, before = running.wire, state_of(running.wire)
    with attach(running.endpoint) as attachment, attach(running.endpoint):
        remove(wire)
        assert ended(attachment)
        for _ in range(5):
            assert "xts0 is not there: it was removed" in reason(running.endpoint)
    with NetNS(wire.host) as host:  # takes the old number
        host.link("add", ifname="other0", kind="veth", peer={"ifname": "other1"})
    again = replace(wire, host_mac=bytes.fromhex("020000000007"))
    join(again, 62_000)
    with device_of(again) as device:
        for _ in range(3):
            with attached_at_last(running.endpoint) as first, attached_at_last(running.endpoint) as second:
                exchange(again, device, first)
                exchange(again, device, second)
    assert state_of(wire).index != before.index
    log = running.logged()
    assert log.count("xts0 is not there") >= 1
    assert log.count("xts0 was made again") == 1
    assert log.count("xts0 has the address 02:00:00:00:00:07 now, and had 02:00:00:00:00:01") == 1


def test_an_interface_that_is_moved_away_and_back(running: Running) -> None:
    """It keeps its number and its program; the sockets are bound to nothing all the same."""
    wire, before = running.wire, state_of(running.wire)
    with attach(running.endpoint) as attachment:
        with NetNS(wire.host) as host, NetNS(wire.device) as device:
            host.link("set", index=before.index, net_ns_fd=wire.device)
            device.link("set", index=device.link_lookup(ifname="xts0")[0], net_ns_fd=wire.host)
        set_link(wire, state="up")
        assert ended(attachment)
    with attached_at_last(running.endpoint) as again:
        exchange(wire, running.device, again)


def test_an_interface_that_is_renamed(running: Running) -> None:
    """It goes on, and queues are opened again on it."""
    wire = running.wire
    with attach(running.endpoint) as attachment:
        set_link(wire, ifname="renamed0")
        exchange(wire, running.device, attachment)
    for _ in range(6):
        with attached_at_last(running.endpoint) as again:
            exchange(wire, running.device, again)
    set_link(wire, "renamed0", ifname="xts0")
    with attached_at_last(running.endpoint) as again:
        exchange(wire, running.device, again)


@pytest.mark.parametrize("running", [["--queues", "4", "--per-uid-max", "0"]], indirect=True)
def test_an_interface_that_returns_with_fewer_queues(running: Running) -> None:
    wire = running.wire
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(attach(running.endpoint))
        remove(wire)
        refused_for(running.endpoint, "xts0 is not there")
    join(wire, 62_000, queues=2)
    with ExitStack() as held:
        for _ in range(2):
            held.enter_context(attached_at_last(running.endpoint))
        with pytest.raises(OSError, match="all 2 queues of xts0 are in use"):
            attach(running.endpoint)
    (told,) = list_queues(running.endpoint)
    assert told.queues == 2
    assert "xts0 has 2 queues now, and had 4: there are fewer for processes" in running.logged()


def test_an_mtu_that_is_too_small(running: Running) -> None:
    """Nobody attaches, to end at the first large message: processes hear which MTU it takes."""
    wire = running.wire
    with attach(running.endpoint) as attachment:
        set_link(wire, mtu=1200)
        assert ended(attachment)
    refused_for(running.endpoint, f"the MTU of xts0 is 1200: {MTU_LEAST} or more is needed")
    assert running.logged().count("the MTU of xts0 is 1200") <= 1 + 1  # the agent's line, and one of the refusal
    set_link(wire, mtu=62_000)
    with attached_at_last(running.endpoint) as again:
        exchange(wire, running.device, again)


def test_an_mtu_that_is_smaller(running: Running) -> None:
    """Queues are opened again, for smaller messages."""
    wire = running.wire
    with attach(running.endpoint) as attachment:
        assert attachment.queue.largest_message == 61_440
        set_link(wire, mtu=9000)
        assert ended(attachment)
    with attached_at_last(running.endpoint) as again:
        assert again.queue.largest_message == 9014
        exchange(wire, running.device, again, 9014)


def test_one_of_several_interfaces_is_missing(wire: Wire, folder: str) -> None:
    """Processes get queues of the others, and hear of it when there are no more."""
    more = replace(wire, host_if="xts2", device_if="xts3", host_mac=bytes.fromhex("020000000003"),
                   device_mac=bytes.fromhex("020000000004"))  # fmt: skip
    join(more, 62_000)
    endpoint = f"{folder}/endpoint.sock"
    options = ["--interface", "xts2", "--peer-mac", more.device_mac.hex(":"), "--queues", "2", "--per-uid-max", "0"]
    agent = start_agent(wire, endpoint, *options)
    try:
        remove(wire)
        until(lambda: any(found.problem for found in list_queues(endpoint)), BACK_S)
        with ExitStack() as held:
            given = [held.enter_context(attached_at_last(endpoint)) for _ in range(2)]
            assert {one.queue.local_mac for one in given} == {more.host_mac}
            with pytest.raises(OSError, match="all 2 queues of xts2 are in use; xts0 is not there"):
                attach(endpoint)
            join(wire, 62_000)
            assert held.enter_context(attached_at_last(endpoint)).queue.local_mac == wire.host_mac
    finally:
        assert stop(agent) == 0


def test_an_agent_whose_interface_is_missing_uses_no_processor(running: Running) -> None:
    remove(running.wire)
    refused_for(running.endpoint, "xts0 is not there")

    def ticks() -> int:
        fields = Path(f"/proc/{running.agent.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    begun = ticks()
    time.sleep(1)
    assert ticks() - begun <= 1


def test_no_other_namespace_is_touched() -> None:
    """The tests above put everything back."""
    assert not [name for name in netns.listnetns() if name.startswith(f"xtslink{os.getpid()}-")]
