"""Other XDP programs on an interface of the agent's or the device's: ours goes next to them in libxdp's dispatcher, or
is refused with the name of what is there. Needs a kernel that has the dispatcher, such as that of `tests/vm/run
--suite trixie-backports`."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from beds.other_program import ALONE, BPFFS, OtherProgram, built, need_bpffs
from beds.running_agent import Running, start_agent, stop, take, until
from beds.veth_wire import Wire
from pyroute2 import NetNS
from xts_bpf.device import open_device_queues
from xts_bpf.interface_programs import find, part
from xts_bpf.interface_state import read_state
from xts_bpf.program import SteerProgram, detach_left_over, interface_index
from xts_messages.attaching.attach import list_queues

pytestmark = [pytest.mark.root, pytest.mark.afxdp]

BACK_S = 30.0  # the processor may be emulated


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_bpffs()
    return built(tmp_path_factory.mktemp("other"))


def other(wire: Wire, path: Path, interface: str = "", how: str = "through libxdp") -> OtherProgram:
    """On the host's interface, or another one."""
    name = interface or wire.host_if
    with wire.inside(wire.device if name == wire.device_if else wire.host):
        try:
            made = OtherProgram(path, interface_index(name), how)
        except OSError as error:
            pytest.skip(f"this kernel lets nobody attach through libxdp: {error.strerror}")
        if how != ALONE and not find(name, interface_index(name)).dispatched:
            detach(wire)
            pytest.skip("this kernel has no dispatcher: libxdp attaches programs alone")
        return made


def detach(wire: Wire, name: str = "") -> None:
    """Whatever the interface has, as `ip link set … xdp off` does."""
    name = name or wire.host_if
    with NetNS(wire.device if name == wire.device_if else wire.host) as there:
        there.link("set", index=there.link_lookup(ifname=name)[0], xdp_fd=-1)


def remove(wire: Wire, one: OtherProgram) -> None:
    """Only this one, of the host's."""
    with wire.inside(wire.host):
        assert part(wire.host_if, interface_index(wire.host_if), one.number)


def names(wire: Wire) -> tuple[str, ...]:
    with wire.inside(wire.host):
        return find(wire.host_if, interface_index(wire.host_if)).names


def number(wire: Wire) -> int:
    with wire.inside(wire.host):
        state = read_state(wire.host_if)
    assert state
    return state.program_id


def ordinary_frame(wire: Wire, name: str) -> None:
    """One that is nobody's, to the other end of the wire."""
    with (
        wire.inside(wire.device if name == wire.host_if else wire.host),
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw,
    ):
        raw.bind((wire.device_if if name == wire.host_if else wire.host_if, 0))
        raw.send((b"\xff" * 6 + b"\x02" + b"\0" * 5 + b"\x88\xb5").ljust(60, b"\0"))


def test_a_program_that_is_alone_is_named(wire: Wire, program: Path) -> None:
    with wire.inside(wire.host):
        OtherProgram(program, interface_index(wire.host_if), ALONE)
        with pytest.raises(
            OSError, match=r"xts0 has the XDP program 'pass_all': remove it .* or attach it through libxdp"
        ):
            SteerProgram(wire.host_if, wire.device_mac)
        with pytest.raises(OSError, match="pass_all"):
            detach_left_over(wire.host_if)


def test_frames_of_each_go_to_each(wire: Wire, program: Path) -> None:
    """Ours to our sockets, of every size, and the others to the other program, at both ends."""
    theirs = {name: other(wire, program, name) for name in (wire.host_if, wire.device_if)}
    with ExitStack() as stack:
        with wire.inside(wire.host):
            host = stack.enter_context(open_device_queues(wire.host_if, 2, wire.device_mac))
        with wire.inside(wire.device):
            device = stack.enter_context(open_device_queues(wire.device_if, 2, wire.host_mac))
        seen = {name: one.seen() for name, one in theirs.items()}
        for size in (60, 1500, 4096, 20_000, 61_440) * 3:
            there = (wire.device_mac + wire.host_mac + b"\x85\x5b" + bytes([7, 1])).ljust(size, b"t")
            host.queues[1].send(there)
            assert take(device.queues[1], 20_000) == there
            back = (wire.host_mac + wire.device_mac + b"\x85\x5b" + bytes([7, 1])).ljust(size, b"b")
            device.queues[1].send(back)
            assert take(host.queues[1], 20_000) == back
        # some frames are the kernel's own (neighbours of IPv6), and none of ours
        assert all(one.seen() - seen[name] < 15 for name, one in theirs.items())
        for name, one in theirs.items():
            before = one.seen()
            ordinary_frame(wire, name)
            until(lambda one=one, before=before: one.seen() > before, BACK_S)  # type: ignore[misc]
        assert host.program.counters().admitted == device.program.counters().admitted == 15
        assert names(wire) == ("xts_steer", "pass_all")
        with wire.inside(wire.host):
            host.close()
    assert names(wire) == ("pass_all",), "ours is taken away, and the other one stays"
    remove(wire, theirs[wire.host_if])
    assert not number(wire)


@pytest.fixture
def shared(wire: Wire, program: Path, folder: str) -> Iterator[tuple[Running, OtherProgram]]:
    """An agent next to another program."""
    theirs = other(wire, program)
    log = Path(folder) / "log"
    agent = start_agent(wire, f"{folder}/endpoint.sock", "--queues", "2", log=log)
    with wire.inside(wire.device):
        device = open_device_queues(wire.device_if, 8, wire.host_mac)
    with device:
        served = Running(wire, agent, f"{folder}/endpoint.sock", device, log)
        yield served, theirs
        print(served.logged())
        assert stop(served.agent) == 0


def told(running: Running) -> tuple[int, str]:
    """Of the interface, as programs and `xts doctor` are told."""
    (listing,) = list_queues(running.endpoint)
    return listing.program_id, listing.problem


def test_others_come_and_go(shared: tuple[Running, OtherProgram], program: Path) -> None:
    """A process keeps its queue, and nobody hears of a problem."""
    (running, first), wire = shared, shared[0].wire
    with running.echo() as (_, _, queue_id):
        running.exchange(queue_id, 20_000)
        second = other(wire, program)
        assert names(wire) == ("xts_steer", "pass_all", "pass_all")
        running.exchange(queue_id, 20_000)
        until(lambda: told(running) == (number(wire), ""), BACK_S)
        remove(wire, first)
        remove(wire, second)
        assert names(wire) == ("xts_steer",)
        running.exchange(queue_id, 60)
        until(lambda: told(running) == (number(wire), ""), BACK_S)
    assert "in place of ours" not in running.logged()
    assert "other XDP programs of xts0 have come or gone, and ours is among them" in running.logged()


def test_all_are_taken_off(shared: tuple[Running, OtherProgram], program: Path) -> None:
    """Ours is attached again, alone, and a process keeps its queue."""
    (running, _), wire = shared, shared[0].wire
    with running.echo() as (_, _, queue_id):
        running.exchange(queue_id, 20_000)
        detach(wire)
        until(lambda: number(wire) and told(running) == (number(wire), ""), BACK_S)
        assert names(wire) == ("xts_steer",)
        running.exchange(queue_id, 20_000)
        with wire.inside(wire.host), pytest.raises(OSError, match="busy"):
            OtherProgram(program, interface_index(wire.host_if))
        running.exchange(queue_id, 60)


def test_an_agent_that_was_killed(shared: tuple[Running, OtherProgram]) -> None:
    """Its program stays in the dispatcher, and the next agent's takes its place there: a process keeps its queue."""
    (running, theirs), wire = shared, shared[0].wire
    with running.echo() as (_, _, queue_id):
        running.exchange(queue_id, 60)
        running.kill_agent()
        running.exchange(queue_id, 60)
        assert names(wire) == ("xts_steer", "pass_all")
        assert running.log
        running.agent = start_agent(wire, running.endpoint, "--queues", "2", log=running.log)
        assert names(wire) == ("xts_steer", "pass_all")
        running.exchange(queue_id, 20_000)
    seen = theirs.seen()
    ordinary_frame(wire, wire.host_if)
    until(lambda: theirs.seen() > seen, BACK_S)


def descriptors() -> list[str]:
    """Of this process."""
    return sorted(entry.name for entry in Path("/proc/self/fd").iterdir())


def test_nothing_is_left_open(wire: Wire, program: Path) -> None:
    """Or programs that their owners have taken off would stay loaded."""
    theirs = other(wire, program)
    before = descriptors()
    with wire.inside(wire.host):
        for _ in range(3):
            with SteerProgram(wire.host_if, wire.device_mac) as ours:
                assert ours.is_shared and ours.find_again(interface_index(wire.host_if))
    assert descriptors() == before
    remove(wire, theirs)
    assert not number(wire)


def test_looking_at_one_that_is_alone_leaves_nothing_open(wire: Wire) -> None:
    with wire.inside(wire.host), SteerProgram(wire.host_if, wire.device_mac) as ours:
        before = descriptors()
        for _ in range(3):
            assert find(wire.host_if, interface_index(wire.host_if)).ours == (ours.program_id,)
        assert descriptors() == before


def test_a_dispatcher_whose_pins_are_elsewhere(wire: Wire, program: Path) -> None:
    """As in a container without bpffs. What is there is named, and what can be done."""
    other(wire, program)
    subprocess.run(["mount", "-t", "tmpfs", "none", BPFFS], check=True)
    try:
        with wire.inside(wire.host), pytest.raises(OSError, match=r"libxdp's dispatcher .* where bpffs is"):
            SteerProgram(wire.host_if, wire.device_mac)
    finally:
        subprocess.run(["umount", BPFFS], check=True)
    detach(wire)
